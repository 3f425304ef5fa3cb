"""A survey compares ways to choose a length, each from several initial lengths.

A contender is a policy with some of its parameters. It is run from every initial length and with
every combination of the values that the survey varies (τ and the cache, unless others are asked
for). Nothing else differs between two rows. `lengths` asks what a policy costs and whether it keeps
the answers right; `stress` asks the same of a model that answers more briefly on a short canvas,
where the question is which policies are deceived by that.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from types import MappingProxyType
from typing import Any

from rho_eos.base.errors import UserError
from rho_eos.decoding.params import DecodeParams, merged
from rho_eos.decoding.policy import Windowed
from rho_eos.decoding.registry import find_policy
from rho_eos.decoding.schema import from_words, parameters
from rho_eos.evals.studies.contenders import FIXED, Contender, contenders
from rho_eos.evals.studies.findings import Finding, findings, result_of, start_name
from rho_eos.evals.studies.study import Plan, Result, Study, StudyRow, drawing

FIGURE = "rho_eos.evals.studies.survey_figure"
STARTS = (16, 64, 256, 512)
VARIED = {"threshold": (0.999, 0.9), "cache": ("none", "window")}
#: The same for every row, and what a policy does not have of it does not concern it. The longest
#: canvas is that, or what the context leaves: one of 512 must not be at its limit.
SHARED = {"max_new_tokens": 2048, "block_length": 32}


SURVEYS = {
    "lengths": "Every way to choose a length",
    "stress": "Every way to choose a length, on a model that may compress its answers",
}
#: What only `stress` runs: further fixed lengths, and other settings of policies that take part.
STRESS_STARTS = (16, 32, 64, 128, 256, 512)
STRESS_ONLY = ("narrow", "confidence")


def plan_survey(
    name: str,
    tasks: Sequence[str],
    policies: Sequence[str] = (),
    lengths: Sequence[str] = (),
    values: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Plan:
    """The rows of these contenders, initial lengths and values of decoding parameters, all given
    as words; where nothing is said, those of the survey."""
    if name not in SURVEYS:
        raise UserError(f"survey got {name!r}, but takes one of {', '.join(SURVEYS)}")
    known = {each.name: each for each in contenders()}
    for word in policies:
        if word not in known:
            raise UserError(f"policies is {word!r}, but takes some of {', '.join(known)}")
    chosen = [each for each in known.values() if each.name in policies]
    starts = _read("initial_length", lengths)
    varied = VARIED | {parameter: _read(parameter, words) for parameter, words in values.items()}
    rows = list(_rows(name, chosen, starts, varied))
    for parameter in values:
        if not any(parameter in row.params.recorded() for row in rows):
            raise UserError(f"none of these policies has the parameter {parameter!r}")
    return Plan(name, SURVEYS[name], tasks, rows)


def _read(name: str, words: Sequence[str]) -> tuple[Any, ...]:
    """The values that words stand for; their range is checked with the rest of a row."""
    if name not in parameters():
        raise UserError(f"{name!r} is no decoding parameter; they are {', '.join(parameters())}")
    return tuple(from_words({name: word})[name] for word in words)


def _rows(
    survey: str,
    chosen: Sequence[Contender] = (),
    starts: Sequence[int] = (),
    varied: Mapping[str, Sequence[Any]] = VARIED,
) -> Iterator[StudyRow]:
    """Where no contenders or initial lengths are given, they are those of the survey."""
    stress = survey == "stress"
    usual = [each for each in contenders() if stress or each.name not in STRESS_ONLY]
    for values in product(*varied.values()):
        point = dict(zip(varied, values, strict=True))
        section = ", ".join(_said(name, value) for name, value in point.items())
        for each in chosen or usual:
            if point["cache"] != "none" and not issubclass(
                find_policy(each.own["policy"]), Windowed
            ):
                continue  # a policy that takes no cache would only repeat its exact row
            usual_starts = STRESS_STARTS if stress and each.name == FIXED else STARTS
            for start in starts or usual_starts:
                own = merged(SHARED | point, {"initial_length": start, **each.own})
                params = DecodeParams.from_mapping(own)
                at: int | None = start
                if params.starts_anywhere:  # one run serves them all
                    at, params = None, params.replaced(initial_length=min(start, *starts, *STARTS))
                label = f"{each.label} from {start_name(at)}, {section}"
                yield StudyRow(label, params, series=each.label, section=section, start=at)


def _said(name: str, value: Any) -> str:
    if name == "threshold":
        return f"τ {value:g}"
    if name == "cache":
        return "exact" if value == "none" else f"{value} cache"
    return f"{name} {value}"


def run_survey(study: Study, finished: Iterable[Plan]) -> list[Result]:
    """The survey's table and picture. They show all of its rows whose cells are finished by now."""
    drawing(FIGURE)
    [plan] = finished
    rows = [*_rows(plan.name), *plan.rows]
    found = findings(
        study, {(row.section, row.series, row.start): row for row in rows}.values(), plan.tasks
    )
    asked = {**study.asked(), "tasks": list(plan.tasks)}
    model = f"{study.config.model} (weights {asked['weights'][:8]})"
    words = f"{model}, {study.samples_note()}: {', '.join(plan.tasks)}."
    facts = {"asked": asked, "words": words}
    return [write_survey(study.folder, plan.name, plan.title, found, facts, study.panels)]


def write_survey(
    folder: Path,
    name: str,
    title: str,
    found: Sequence[Finding],
    facts: Mapping[str, Any],
    panels: bool = False,
) -> Result:
    """`facts["words"]` tells readers who was asked what."""
    result = result_of(name, title, found, facts)
    result.write(folder)
    drawing(FIGURE).write_figure(found, folder / name, panels)
    return result
