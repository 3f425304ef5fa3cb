"""A survey compares ways to choose a length, each from several initial lengths.

A contender is a policy with some of its parameters. It is run from every initial length and with
every combination of the values that the survey varies (τ and the cache, unless others are asked
for). Nothing else differs between two rows. `lengths` asks what a policy costs and whether it keeps
the answers right; `stress` asks the same of a model that answers more briefly on a short canvas,
where the question is which policies are deceived by that.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType
from typing import Any

from rho_eos.base.errors import UserError
from rho_eos.decoding.params import DecodeParams, merged
from rho_eos.decoding.policy import Windowed
from rho_eos.decoding.registry import find_policy
from rho_eos.decoding.schema import from_words, parameters
from rho_eos.evals.runs.sources import AnswerSource
from rho_eos.evals.studies.contenders import FIXED, Contender, contenders
from rho_eos.evals.studies.findings import SurveyRow, findings, in_order, result_of, start_name
from rho_eos.evals.studies.result import Result
from rho_eos.evals.studies.study import Plan, Study, Watch, drawing

STARTS = (16, 64, 256, 512)
VARIED = {"threshold": (0.999, 0.9), "cache": ("none", "window")}
#: The same for every row, and what a policy does not have of it does not concern it. The longest
#: canvas is that, or what the context leaves: one of 512 must not be at its limit.
SHARED = {"max_new_tokens": 2048, "block_length": 32}


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey(Plan):
    """`rows` are those that were asked for now; the table shows all of `every` that are there."""

    every: tuple[SurveyRow, ...]


@dataclass(frozen=True, slots=True)
class Kind:
    """What one of the surveys is made of, unless it is told otherwise."""

    title: str
    fixed_starts: tuple[int, ...] = STARTS
    left_out: tuple[str, ...] = ()  # contenders


SURVEYS = {
    # It leaves out other settings of a policy that takes part.
    "lengths": Kind("Every way to choose a length", left_out=("narrow", "confidence")),
    "stress": Kind(
        "Every way to choose a length, on a model that may compress its answers",
        fixed_starts=(16, 32, 64, 128, 256, 512),
    ),
}


def plan_survey(
    name: str,
    tasks: Sequence[str],
    policies: Sequence[str] = (),
    lengths: Sequence[str] = (),
    values: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Survey:
    """The rows of these contenders, initial lengths and values of decoding parameters, all given
    as words; where nothing is said, those of the survey."""
    if name not in SURVEYS:
        raise UserError(f"survey got {name!r}, but takes one of {', '.join(SURVEYS)}")
    known = {each.name: each for each in contenders()}
    for word in policies:
        if word not in known:
            raise UserError(f"policies is {word!r}, but takes some of {', '.join(known)}")
    usual = [each for each in known.values() if each.name not in SURVEYS[name].left_out]
    chosen = [each for each in known.values() if each.name in policies] or usual
    starts = _read("initial_length", lengths)
    varied = VARIED | {parameter: _read(parameter, words) for parameter, words in values.items()}
    rows = tuple(_rows(SURVEYS[name], chosen, starts, varied))
    for parameter in values:
        if not any(parameter in row.params.recorded() for row in rows):
            raise UserError(f"none of these policies has the parameter {parameter!r}")
    every = {
        (row.section, row.policy, row.start): row
        for row in (*_rows(SURVEYS[name], usual, (), VARIED), *rows)
    }
    return Survey(name, SURVEYS[name].title, tuple(tasks), rows, every=in_order(every.values()))


def _read(name: str, words: Sequence[str]) -> tuple[Any, ...]:
    """Words as the parameter takes them; their range is checked with the rest of a row."""
    if name not in parameters():
        raise UserError(f"{name!r} is no decoding parameter; they are {', '.join(parameters())}")
    return tuple(from_words({name: word})[name] for word in words)


def _rows(
    kind: Kind,
    chosen: Sequence[Contender],
    starts: Sequence[int],
    varied: Mapping[str, Sequence[Any]],
) -> Iterator[SurveyRow]:
    """`starts`: if there are none, those of the survey."""
    for values in product(*varied.values()):
        point = dict(zip(varied, values, strict=True))
        section = ", ".join(_said(name, value) for name, value in point.items())
        for each in chosen:
            if _repeats_exact(each.own["policy"], point["cache"]):
                continue
            usual = kind.fixed_starts if each.name == FIXED else STARTS
            for start in starts or usual:
                own = merged(SHARED | point, {"initial_length": start, **each.own})
                params = DecodeParams.from_mapping(own)
                at: int | None = start
                if params.starts_anywhere:  # one run serves them all
                    at, params = None, params.replaced(initial_length=min(start, *starts, *STARTS))
                label = f"{each.label} from {start_name(at)}, {section}"
                yield SurveyRow(label, params, section=section, policy=each.label, start=at)


def _repeats_exact(policy: str, cache: str) -> bool:
    """Whether a policy takes no cache, so that this row would only repeat the exact one."""
    return cache != "none" and not issubclass(find_policy(policy), Windowed)


def _said(name: str, value: Any) -> str:
    if name == "threshold":
        return f"τ {value:g}"
    if name == "cache":
        return "exact" if value == "none" else f"{value} cache"
    return f"{name} {value}"


def run_survey(
    study: Study,
    survey: Survey,
    open_source: Callable[[], AnswerSource],
    watch: Watch,
    unsafe_code: bool = False,
) -> Result:
    """The survey's table and picture, of all its rows whose cells are finished by then."""
    figure = drawing("rho_eos.evals.studies.survey_figure")
    study.begin(study.cells([survey]), unsafe_code)
    study.run(survey, open_source, watch, unsafe_code)
    found = findings(study, survey.every, survey.tasks)
    asked = {**study.asked(), "tasks": list(survey.tasks)}
    model = f"{study.config.model} (weights {asked['weights'][:8]})"
    words = f"{model}, {study.samples_note()}: {', '.join(survey.tasks)}."
    result = result_of(survey.name, survey.title, found, {"asked": asked, "words": words})
    figure.write_figure(found, study.folder / survey.name)
    result.write(study.folder)
    return result
