"""A commit rule and a cache from outside, each in one file, go with everything that is there."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import pytest

from rho_eos import LLM, DecodeParams, UserError
from rho_eos.base.outputs import Output
from rho_eos.base.plugins import load_plugin
from rho_eos.decoding.registry import CACHES, COMMITS, POLICIES, policies
from rho_eos.decoding.schema import choices_of
from rho_eos.engine.replay import Replay
from tests.evals.command import Command
from tests.packages import Packages
from tests.reference.bridge import IDS, rule_of
from tests.reference.cached import NaiveTransformer, dual_cache_decode
from tests.reference.cases import MODELS, engine_decode, some_prompts
from tests.reference.decoder import returned_tokens
from tests.reference.random_llada import random_llada
from tests.scripted import says
from tests.server.scripted_server import ControlledRunner, serving

EXAMPLES = Path(__file__).parents[1] / "examples"
RULE, CACHE = EXAMPLES / "commit_rule.py", EXAMPLES / "dual_cache.py"
BOTH = [str(RULE), str(CACHE)]
SHORT = {"commit": "leftmost", "sure": 0.02, "max_new_tokens": 40, "block_length": 12}
MIA = "Mia has 8 plums. 1) buys 6. 2) eats 5. 3) doubles them. How many are there now?"

pytestmark = pytest.mark.usefixtures("own_parts")


def combinations() -> list[tuple[str, str]]:
    """Every length policy that takes a commit rule, with every cache of such models."""
    able = [name for name, policy in policies().items() if policy.rule is None]
    caches = [name for name, cache in CACHES.all().items() if not cache.for_blocks]
    return list(product(able, ["none", *caches]))


@pytest.mark.parametrize(
    ("example", "most"), [("policy.py", 45), ("commit_rule.py", 35), ("dual_cache.py", 60)]
)
def test_the_guide_shows_the_examples_as_they_are_and_they_are_short(
    example: str, most: int
) -> None:
    source = (EXAMPLES / example).read_text()
    assert f"```python\n{source}```" in (EXAMPLES.parent / "docs" / "policies.md").read_text()
    assert len(source.splitlines()) <= most


def test_python_combines_them_with_every_length_policy(byte_checkpoint: Path) -> None:
    llm = LLM(str(byte_checkpoint), plugin=BOTH)
    assert {cache for _, cache in combinations()} == {"none", "window", "dual"}
    for policy, cache in combinations():
        how = DecodeParams(**SHORT, policy=policy, cache=cache, trace=True)
        output = llm.infill("x", "y", how) if policy == "cal" else llm.generate(["x"], how)[0]
        check_written_from_the_left(output)


def check_written_from_the_left(output: Output) -> None:
    replay, written = Replay(output.trace[0].length), 0
    for record in output.trace:
        masks = [at for at, cell in enumerate(replay.cells) if cell.token is None]
        committed = [at for at, _, _ in record.committed]
        assert committed == masks[: len(committed)], output.params
        written += len(committed) > 1
        replay.apply(record)
    assert written, "some steps wrote several tokens"


def test_the_command_line_combines_them_with_every_length_policy(
    command: Command, byte_checkpoint: Path, tmp_path: Path
) -> None:
    for plugin in BOTH:
        load_plugin(plugin)
    lines: list[dict[str, Any]] = [
        {"id": f"{policy} {cache}", "prompt": "x", "policy": policy, "cache": cache}
        for policy, cache in combinations()
    ]
    for line in lines:
        line |= {"suffix": "y"} if line["policy"] == "cal" else {}
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    options = [f"--{name.replace('_', '-')}={value}" for name, value in SHORT.items()]
    plugins = [f"--plugin={plugin}" for plugin in BOTH]
    words = ("--model", byte_checkpoint, *plugins, *options)
    result = command("generate", "-i", source, "-o", target, *words)
    assert result.code == 0, result.err
    outputs = [json.loads(line) for line in target.open()]
    assert {line["id"] for line in outputs} == {line["id"] for line in lines}


def test_one_generation_with_both(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    page = command("generate", "--plugin", RULE, "--plugin", CACHE, "--help").out
    for word in ("leftmost", "dual", "--sure", "write on while the next token is more probable"):
        assert word in page
    words = ("--plugin", RULE, "--plugin", CACHE, "--commit", "leftmost", "--cache", "dual")
    result = command("generate", *words, "--sure", 0.8, "--json", MIA)
    assert result.code == 0, result.err
    assert json.loads(result.out)["text"].endswith("#### 18")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--commit=leftmost", "--sure=2"], "sure is 2.0, but takes a number in (0, 1]"),
        (["--sure=0.5"], "has no parameter 'sure'; it is one of commit leftmost"),
        (["--commit=leftmost", "--tie=0.1"], "has no parameter 'tie'; it is one of"),
        (["--commit=rightmost"], "commit is 'rightmost', but takes one of "),
        (["--cache=triple"], "cache is 'triple', but takes one of none, "),
        (["--policy=released", "--commit=leftmost"], "has a commit rule of its own"),
    ],
)
def test_their_parameters_are_checked_like_ours(
    command: Command, words: list[str], message: str
) -> None:
    result = command("generate", "--plugin", RULE, "--plugin", CACHE, *words, "x")
    assert result.code == 2 and message in result.err
    assert result.err.count("\n") == 1


def test_http_describes_and_takes_them() -> None:
    for plugin in BOTH:
        load_plugin(plugin)
    with serving(ControlledRunner(says("done"))) as server, httpx.Client(trust_env=False) as http:
        axes = http.get(f"{server.url}/v1/rho_eos/schema").json()["axes"]
        described = axes["commit"]["leftmost"]
        assert described["summary"].startswith("Commits the first candidate")
        sure = described["parameters"]["sure"]
        assert (sure["default"], sure["bounds"]) == (0.9, {"gt": 0, "le": 1})
        assert axes["cache"]["dual"]["parameters"] == {}
        titles = http.get(f"{server.url}/v1/rho_eos/playground").json()["titles"]
        assert titles["commit"]["leftmost"] == "leftmost" and titles["cache"]["dual"] == "dual"
        body = {"messages": [{"role": "user", "content": "x"}], "commit": "leftmost"}
        url = f"{server.url}/v1/chat/completions"
        answer = http.post(url, json=body | {"cache": "dual", "sure": 0.4}).json()
        assert answer["choices"][0]["message"]["content"] == "done"
        refused = http.post(url, json=body | {"sure": 2})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "sure")


def test_a_sweep_and_a_survey_know_them(command: Command, tmp_path: Path) -> None:
    sweep = tmp_path / "sweep.yaml"
    sweep.write_text("policies:\n  ours: {}\n  mine: {commit: leftmost, sure: 0.7, cache: dual}\n")
    plugins = ["--plugin", RULE, "--plugin", CACHE]
    tasks = ["--tasks", "tiny-gsm", "--limit", 2]
    result = command("eval", *plugins, *tasks, "--sweep", sweep, "--out", tmp_path / "runs")
    assert result.code == 0, result.err
    settings = json.loads((tmp_path / "runs" / "mine" / "run.json").read_text())["settings"]
    chosen = {name: settings["params"][name] for name in ("commit", "sure", "cache")}
    assert chosen == {"commit": "leftmost", "sure": 0.7, "cache": "dual"}
    compared = command("compare", tmp_path / "runs")
    assert compared.code == 0 and "mine" in compared.out
    ways = ["--with", "commit=threshold,leftmost", "--dry-run", "--out", tmp_path / "survey"]
    survey = command("survey", "lengths", *plugins, "--limit", 2, *ways)
    assert survey.code == 0 and "leftmost" in survey.out + survey.err


#: By axis: the registry, the base class and its one method.
KINDS = {
    "policy": (POLICIES, "Policy", "step(self, canvas, prediction, commit): return Step()"),
    "commit": (COMMITS, "CommitRule", "__call__(self, canvas, candidates): return []"),
    "cache": (CACHES, "Cache", "positions(self, canvas): return None"),
}
SOURCE = """
from rho_eos import {base}, Step, register_{axis}

{decorator}
class First({base}):
    name = "outside"
    def {method}
"""


@pytest.mark.parametrize("axis", KINDS)
@pytest.mark.parametrize("registered", [True, False])
def test_an_installed_package_announces_its_own(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    axis: str,
    registered: bool,
) -> None:
    """By a module that registers it, or by its class; a broken package is a warning."""
    monkeypatch.syspath_prepend(tmp_path)
    registry, base, method = KINDS[axis]
    monkeypatch.setattr(registry, "_others_loaded", False)
    decorator = f"@register_{axis}" if registered else ""
    source = SOURCE.format(axis=axis, base=base, method=method, decorator=decorator)
    packages = Packages(tmp_path, registry.group)
    packages.install("outside_broken", "1 / 0")
    packages.install("outside_first", source, None if registered else "outside_first:First")
    assert "outside" in choices_of(axis)
    assert getattr(DecodeParams(**{axis: "outside"}), axis) == "outside"
    [warning] = caplog.messages
    assert "outside_broken" in warning and "ZeroDivisionError" in warning
    registry.remove("outside")
    with pytest.raises(UserError, match=f"{axis} is 'outside', but takes one of"):
        DecodeParams(**{axis: "outside"})


def model_of(name: str) -> Any:
    """A random model; `endless` never predicts an end of text."""
    model = random_llada(**MODELS.get(name, MODELS["balanced"]))
    if name == "endless":
        model.lm_head.weight.data[list(IDS.ends), 0] = -1e3
    return model


@pytest.mark.parametrize("early_stop", [False, True])
@pytest.mark.parametrize("block", [8, 12])
@pytest.mark.parametrize("name", [*MODELS, "endless"])
def test_the_dual_cache_is_the_published_one(name: str, block: int, early_stop: bool) -> None:
    """Token for token what Fast-dLLM's rule gives, with as many forwards and positions."""
    load_plugin(str(CACHE))
    model, prompts = model_of(name), some_prompts(6, seed=21)
    net = NaiveTransformer(model)
    rules = [{"threshold": 0.6}, {"steps_per_block": 5, "threshold": 0.95}]
    rules.append({"commit": "factor", "factor": 0.8})
    shared = {"policy": "fixed", "cache": "dual", "initial_length": 40, "block_length": block}
    params = [DecodeParams(**shared, **rule, early_stop=early_stop) for rule in rules * 2]
    outputs = engine_decode(model, prompts, params, rows=4)
    for prompt, how, ours in zip(prompts, params, outputs, strict=True):
        theirs = dual_cache_decode(
            net, prompt, rule_of(how), IDS, lambda count: [net.nothing() for _ in range(count)]
        )
        assert ours.token_ids == returned_tokens(theirs.canvas, IDS)
        assert early_stop or ours.canvas_token_ids == theirs.canvas
        assert ours.usage.nfe == theirs.nfe
        assert ours.usage.positions_evaluated == theirs.positions_evaluated
        assert ours.usage.refreshes == theirs.refreshes <= -(-40 // block)
