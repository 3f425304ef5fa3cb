"""A policy from outside, in one file, reaches every corner of the product with no line changed."""

import json
from pathlib import Path
from typing import Any

import pytest

from rho_eos import LLM, DecodeParams, Policy, Step, UserError, register_policy
from rho_eos.base.plugins import load_plugin
from rho_eos.decoding.registry import POLICIES, find_policy
from rho_eos.decoding.schema import schema
from tests.evals.command import Command

EXAMPLE = Path(__file__).parents[1] / "examples" / "policy.py"
MIA = "Mia has 8 plums. 1) buys 6. 2) eats 5. 3) doubles them. How many are there now?"
MINE = """
from rho_eos import Policy, Step, register_policy

{decorator}
class Mine(Policy):
    name = "mine"
    def step(self, canvas, prediction, commit):
        return Step(commit=canvas.masked)
"""

pytestmark = pytest.mark.usefixtures("own_parts")


@pytest.fixture
def command(command: Command, monkeypatch: pytest.MonkeyPatch) -> Command:
    monkeypatch.setenv("COLUMNS", "160")
    return command


def test_help_generate_and_watch_know_it(command: Command) -> None:
    page = command("generate", "--plugin", EXAMPLE, "--help").out
    assert "until-eos" in page and "--chunk" in page
    assert "MASKs that are appended at a time" in page
    words = ("--plugin", EXAMPLE, "--policy", "until-eos", "--initial-length", 16, "--chunk", 8)
    result = command("generate", *words, "--json", MIA)
    line = json.loads(result.out)
    assert line["text"].endswith("#### 18") and line["expansions"] > 3
    watched = command("watch", *words, MIA)
    assert watched.code == 0 and "expand +8" in watched.out and "#### 18" in watched.out


def test_its_parameters_are_checked_like_ours(command: Command) -> None:
    result = command("generate", "--plugin", EXAMPLE, "--policy", "until-eos", "--chunk", 0, "x")
    assert (result.code, result.err) == (
        2,
        "rho-eos: chunk is 0, but takes an integer from 1 to 1024\n",
    )
    result = command("generate", "--plugin", EXAMPLE, "--policy", "until-eos", "--preset=sym", "x")
    assert result.code == 2
    assert "policy until-eos has no parameter 'preset'; it is one of policy rho-eos" in result.err
    result = command("generate", "--plugin", EXAMPLE, "--chunk", 8, "x")
    assert "policy rho-eos has no parameter 'chunk'; it is one of policy until-eos" in result.err


def test_eval_beside_asym_compare_and_inspect(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = tmp_path / "sweep.yaml"
    sweep.write_text("policies:\n  asym: {}\n  mine: {policy: until-eos, chunk: 16}\n")
    ours = ["--plugin", EXAMPLE, "--tasks", "tiny-gsm", "--limit", 4, "--trace"]
    result = command("eval", *ours, "--sweep", sweep, "--out", tmp_path / "runs")
    assert result.code == 0, result.err
    settings = json.loads((tmp_path / "runs" / "mine" / "run.json").read_text())["settings"]
    assert settings["params"]["policy"] == "until-eos" and settings["params"]["chunk"] == 16
    # Whoever reads the runs need not have the policy.
    POLICIES.remove("until-eos")
    compared = command("compare", tmp_path / "runs")
    assert compared.code == 0 and "mine" in compared.out and "tiny-gsm" in compared.out
    page = tmp_path / "page.html"
    inspected = command("inspect", tmp_path / "runs" / "mine", "--out", page)
    assert inspected.code == 0, inspected.err
    assert "until-eos" in page.read_text()
    again = command("eval", *ours[2:], "--policy", "until-eos", "--out", tmp_path / "again")
    assert "policy is 'until-eos', but takes one of rho-eos" in again.err


def test_it_is_a_row_of_the_reproduction(command: Command, tmp_path: Path) -> None:
    result = command(
        "reproduce", "main", "--plugin", EXAMPLE, "--dry-run", "--limit", 2, "--out", tmp_path
    )
    assert result.code == 0 and "until-eos" in result.out


def test_a_file_of_requests_names_it_line_by_line(command: Command, tmp_path: Path) -> None:
    lines = [
        {"id": "ours", "prompt": MIA, "policy": "until-eos", "chunk": 8, "initial_length": 16},
        {"id": "asym", "prompt": MIA},
        {"id": "bad", "prompt": MIA, "policy": "fixed", "chunk": 8},
    ]
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    result = command("generate", "-i", source, "-o", target, "--plugin", EXAMPLE, "--preset", "sym")
    assert result.code == 2  # for the bad line
    assert "in.jsonl:3: policy fixed has no parameter 'chunk'" in result.err
    outputs = {line["id"]: line for line in map(json.loads, target.open())}
    assert set(outputs) == {"ours", "asym"}
    assert all(line["text"].endswith("#### 18") for line in outputs.values())


def test_lm_eval_takes_its_parameters() -> None:
    arguments = pytest.importorskip("rho_eos.lm_eval.arguments")
    given = {"pretrained": "tiny", "plugin": str(EXAMPLE), "policy": "until-eos", "chunk": 8}
    read = arguments.read_model_args(given)
    assert read.decode == {"policy": "until-eos", "chunk": 8}
    with pytest.raises(UserError, match="policy fixed has no parameter 'chunk'"):
        arguments.read_model_args({**given, "policy": "fixed"})


def test_the_schema_describes_it() -> None:
    load_plugin(str(EXAMPLE))
    described = schema()["axes"]["policy"]["until-eos"]
    assert "no open position" in described["summary"]
    chunk = described["parameters"]["chunk"]
    assert (chunk["type"], chunk["default"], chunk["bounds"]) == (
        "integer",
        32,
        {"ge": 1, "le": 1024},
    )


def test_python_takes_a_plugin_too(byte_checkpoint: Path) -> None:
    llm = LLM(str(byte_checkpoint), plugin=str(EXAMPLE))
    params = DecodeParams(policy="until-eos", initial_length=8, max_new_tokens=24, chunk=8)
    assert llm.generate(["x"], params)[0].usage.expansions == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nowhere.py", "plugin is 'nowhere.py', but there is no such file"),
        ("no.such.module", "plugin 'no.such.module' cannot be imported: ModuleNotFoundError"),
        ("broken.py", "cannot be imported: ZeroDivisionError: division by zero"),
        ("taken.py", "a policy named 'fixed' is registered already"),
        ("nameless.py", "None is no name for a policy"),
        ("params.py", "the Params of policy Odd must be a subclass of DecodeParams"),
    ],
)
def test_a_plugin_that_cannot_be_used_is_one_sentence(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    base = "from rho_eos import Policy, register_policy\n@register_policy\n"
    Path("broken.py").write_text("1 / 0")
    Path("taken.py").write_text(f"{base}class Fixed(Policy):\n    name = 'fixed'\n")
    Path("nameless.py").write_text(f"{base}class Nameless(Policy):\n    pass\n")
    Path("params.py").write_text(f"{base}class Odd(Policy):\n    name = 'odd'\n    Params = dict\n")
    result = command("generate", "--plugin", name, "hello")
    assert result.code == 2 and message in result.err
    assert result.err.count("\n") == 1


def test_a_file_is_imported_once_however_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.py").write_text(MINE.format(decorator="@register_policy"))
    monkeypatch.chdir(tmp_path)
    load_plugin("mine.py")
    first = find_policy("mine")
    load_plugin("./mine.py")
    load_plugin(str(tmp_path / "mine.py"))
    assert find_policy("mine") is first


def test_two_policies_may_share_parameters_and_keep_their_names() -> None:
    @register_policy
    class First(Policy):
        name = "first"

        def step(self, canvas: Any, prediction: Any, commit: Any) -> Step:
            return Step(commit=canvas.masked)

    @register_policy
    class Second(First):
        name = "second"

    assert DecodeParams(policy="first").policy == "first"
    assert DecodeParams(policy="second").policy == "second"
    with pytest.raises(UserError, match="unknown parameter 'x'; policy second takes"):
        DecodeParams(policy="second", x=1)


def test_a_policy_that_never_ends_is_stopped_with_a_sentence(byte_checkpoint: Path) -> None:
    @register_policy
    class Idle(Policy):
        name = "idle"

        def step(self, canvas: Any, prediction: Any, commit: Any) -> Step:
            return Step(commit=canvas.masked[:0])

    llm = LLM(str(byte_checkpoint))
    with pytest.raises(RuntimeError, match="policy idle does not come to an end"):
        llm.generate(["x"], DecodeParams(policy="idle", initial_length=4, max_new_tokens=4))
    assert not llm.engine.has_work
