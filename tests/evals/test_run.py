"""Evaluations: nothing lost, nothing doubled, nothing mixed, whatever happens in between."""

import dataclasses
import json
import os
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rho_eos.base.errors import UserError
from rho_eos.config import EngineConfig
from rho_eos.decoding.params import DecodeParams
from rho_eos.evals import Grade, find_task
from rho_eos.evals.runs.evaluation import Evaluation, Progress, evaluate, make_questions
from rho_eos.evals.runs.run_folder import read_samples
from rho_eos.evals.runs.sources import AnswerSource, GoldAnswers, Outputs, Question
from rho_eos.evals.task import Selection
from rho_eos.evals.tasks.embedded import TinyNumbers
from tests import forks
from tests.checkpoints import write_checkpoint
from tests.evals.command import Command
from tests.evals.fixtures import FOLDER, TASKS
from tests.evals.scripted import Script
from tests.support import has_content, require_sandbox, wait_until

SHORT = ("--initial-length", "8", "--max-new-tokens", "24")


def gold(*tasks: str, **which: int) -> Evaluation:
    names = tasks or ("tiny-gsm",)
    return Evaluation(tasks=names, engine=None, params=None, selection=Selection(**which))


def run(folder: Path, evaluation: Evaluation, source: AnswerSource) -> list[dict[str, Any]]:
    return evaluate(evaluation, folder, lambda: source)


def ids(folder: Path) -> list[str]:
    return [json.loads(line)["id"] for line in (folder / "samples.jsonl").open()]


def test_interrupted_again_and_again_every_sample_is_there_once(tmp_path: Path) -> None:
    evaluation = gold("tiny-gsm", "tiny-math", limit=5)
    sources = [Script(stop_after=3, wrong=["tiny-math/test/2"]) for _ in range(10)]
    for source in sources:
        try:
            lines = run(tmp_path, evaluation, source)
            break
        except KeyboardInterrupt:
            pass
    expected = {f"{task}/test/{n}" for task in ("tiny-gsm", "tiny-math") for n in range(5)}
    assert len(ids(tmp_path)) == 10 and set(ids(tmp_path)) == expected
    assert {line["id"] for line in lines if not line["correct"]} == {"tiny-math/test/2"}
    assert sum(bool(source.asked) for source in sources) > 1

    path = tmp_path / "samples.jsonl"
    path.write_bytes(path.read_bytes()[:-30])  # as a kill leaves it
    last = Script()
    again = run(tmp_path, evaluation, last)
    assert len(last.asked) == 1 and len(again) == 10 and set(ids(tmp_path)) == expected

    def open_source() -> AnswerSource:
        raise AssertionError("nothing is left to ask")

    assert evaluate(evaluation, tmp_path, open_source) == again


@pytest.mark.parametrize(
    ("other", "says"),
    [
        (gold(limit=4), "limit 3, not 4"),
        (gold(limit=3, repeats=2), "repeats 1, not 2"),
        (gold(limit=3, shuffle_seed=1), "shuffle_seed None, not 1"),
        (gold("tiny-math", limit=3), "tasks ['tiny-gsm'], not ['tiny-math']"),
    ],
)
def test_other_settings_are_refused_and_nothing_is_touched(
    tmp_path: Path, other: Evaluation, says: str
) -> None:
    run(tmp_path, gold(limit=3), GoldAnswers())
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(UserError) as refused:
        run(tmp_path, other, GoldAnswers())
    assert says in str(refused.value) and "give another --out" in str(refused.value)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_other_weights_under_the_same_name_are_refused(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "model", seed=1)
    engine = EngineConfig(model=str(checkpoint), device="cpu")
    evaluation = dataclasses.replace(gold(limit=2), engine=engine, params=DecodeParams())
    run(tmp_path / "run", evaluation, Script())
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    assert about["settings"]["model"]["model"] == str(checkpoint)
    [session] = about["sessions"]
    assert session["device"] == "cpu" and "torch" in session["versions"]
    write_checkpoint(tmp_path / "model", seed=2)
    with pytest.raises(UserError, match="started with weights"):
        run(tmp_path / "run", evaluation, Script())


def test_the_model_does_not_wait_for_the_graders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    all_answered = threading.Event()

    def patient_grade(*_: object) -> Grade:
        return Grade(correct=all_answered.wait(60), extracted=None, detail="")

    class Eager(Script):
        def answers(self, jobs: Sequence[Question]) -> Outputs:
            yield from super().answers(jobs)
            all_answered.set()

    monkeypatch.setattr(TinyNumbers, "grade", patient_grade)
    lines = run(tmp_path, gold(limit=12), Eager())
    assert all(line["correct"] for line in lines)


def test_a_grader_that_fails_ends_the_run_and_keeps_what_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_grader(_task: object, sample: Any, _text: str) -> Grade:
        if sample.id.endswith("/2"):
            raise UserError("no grader here")
        return Grade(correct=True, extracted="", detail="")

    with monkeypatch.context() as patch:
        patch.setattr(TinyNumbers, "grade", no_grader)
        with pytest.raises(UserError, match="no grader here"):
            run(tmp_path, gold(limit=4), GoldAnswers())
    assert "tiny-gsm/test/2" not in ids(tmp_path)
    assert len(run(tmp_path, gold(limit=4), GoldAnswers())) == 4


def test_which_samples_are_asked_and_how_often() -> None:
    def asked(**which: int) -> list[Question]:
        evaluation = dataclasses.replace(gold(**which), params=DecodeParams(seed=5))
        return make_questions(find_task("tiny-gsm"), evaluation)

    def chosen(**which: int) -> list[str]:
        return [question.id for question in asked(limit=8, **which)]

    assert chosen() == [f"tiny-gsm/test/{n}" for n in range(8)]
    assert chosen(skip=8) == [f"tiny-gsm/test/{n}" for n in range(8, 16)]
    assert chosen(shuffle_seed=1) == chosen(shuffle_seed=1) != chosen(shuffle_seed=2)
    repeated = {each.id: each.ask["params"].seed for each in asked(limit=2, repeats=3)}
    assert len(repeated) == 6  # each has an id of its own, and noise of its own
    assert repeated["tiny-gsm/test/0#0"] == 5 and repeated["tiny-gsm/test/0#2"] == 7


def test_progress_tells_done_right_and_speed(tmp_path: Path) -> None:
    seen: list[Progress] = []

    def note(progress: Progress) -> None:
        seen.append(dataclasses.replace(progress))

    evaluate(gold(limit=4), tmp_path, Script(wrong=["tiny-gsm/test/1"]).open, on_progress=note)
    assert [each.done for each in seen] == [0, 1, 2, 3, 4]
    assert (seen[-1].total, seen[-1].correct, seen[-1].tokens) == (4, 3, 4 * 4)
    assert seen[-1].seconds > 0


@pytest.mark.parametrize("task", TASKS)
def test_gold_scores_everything_without_a_model(
    task: str, command: Command, tmp_path: Path
) -> None:
    require_sandbox()
    words = ("eval", "--policy", "gold", "--tasks", f"{task},tiny-mbpp", "--limit", "2")
    data = FOLDER / f"{task}.jsonl"
    result = command(*words, "--data", data, "--model", "/none", "--out", tmp_path / "gold")
    assert result.code == 0, result.err
    lines = read_samples(tmp_path / "gold")
    assert len(lines) == 4 and all(line["correct"] for line in lines)
    assert "100.0 [" in result.out


def test_a_model_is_measured_and_the_sandbox_recorded(
    command: Command, byte_checkpoint: Path, tmp_path: Path
) -> None:
    require_sandbox()
    words = ("eval", "-m", byte_checkpoint, "--tasks", "tiny-math,tiny-mbpp", "--limit", "2")
    result = command(*words, "--max-rows", "2", "--trace", *SHORT, "--out", tmp_path)
    assert result.code == 0, result.err
    lines = read_samples(tmp_path, traces=True)
    assert len(lines) == 4
    for line in lines:
        assert set(line) >= {"text", "extracted", "finish_reason", "e_ratio", "seconds_running"}
        assert len(line["trace"]) == line["nfe"]
        canvases = sum(step["length"] for step in line["trace"])
        assert canvases + line["nfe"] * line["prompt_tokens"] == line["positions_evaluated"]
    [session] = json.loads((tmp_path / "run.json").read_text())["sessions"]
    assert session["sandbox"] in ("bubblewrap", "namespaces") and session["batch_size"] == 2
    assert "tiny-math" in result.out and "E_ratio" in result.out
    suffixes = {path.suffix for path in tmp_path.glob("summary.*")}
    assert suffixes == {".json", ".md", ".csv", ".tex"}


def test_a_sweep_gives_a_folder_per_policy_and_one_table(
    command: Command, byte_checkpoint: Path, tmp_path: Path
) -> None:
    sweep = tmp_path / "policies.yaml"
    sweep.write_text(
        "policies:\n"
        "  fixed-16: {policy: fixed, initial_length: 16}\n"
        "  sym: {preset: sym}\n"
        "  gold: {policy: gold, initial_length: null}\n"
    )
    words = ("eval", "-m", byte_checkpoint, "--tasks", "tiny-math", "--limit", "2")
    bad = command(*words, "--sweep", sweep, "--out", tmp_path / "out")
    assert bad.code == 2 and "gold: policy gold asks no model" in bad.err
    sweep.write_text(sweep.read_text().replace(", initial_length: null", ""))
    result = command(*words, *SHORT, "--sweep", sweep, "--out", tmp_path / "out")
    assert result.code == 0, result.err
    table = (tmp_path / "out" / "table.md").read_text()
    assert "| fixed-16 | tiny-math | 2 |" in table and "| sym | tiny-math | 2 |" in table
    assert "| gold | tiny-math | 2 | 100.0 [34.2, 100.0] |" in table
    assert all(line["n_token"] == 16 for line in read_samples(tmp_path / "out" / "fixed-16"))
    lengths = json.loads((tmp_path / "out" / "sym" / "run.json").read_text())["settings"]["params"]
    assert lengths["initial_length"] == 8  # what the file does not say comes from the command line


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_for_real_the_same_command_continues(
    how: signal.Signals, byte_checkpoint: Path, tmp_path: Path
) -> None:
    samples = tmp_path / "run" / "samples.jsonl"
    words = ["-m", "rho_eos", "eval", "-m", byte_checkpoint]
    words += ["--tasks", "tiny-math,tiny-gsm", "--limit", "20", "--max-rows", "1"]
    words += [*SHORT, "--threshold", "1", "--out", tmp_path / "run"]
    with (tmp_path / "err").open("w+b") as said:
        process = forks.Fork(*words, stderr=said.fileno(), start_new_session=True)
        wait_until(lambda: has_content(samples), 300)
        process.send_signal(how)
        process.wait(120)
        err = forks.read(said)
    assert "Traceback" not in err
    if how is signal.SIGINT:
        assert process.returncode == 130 and "run the same command again to continue" in err
    assert 0 < len(samples.read_bytes().splitlines()) < 40
    again = forks.run(*words)
    assert again.returncode == 0, again.stderr
    assert len(ids(tmp_path / "run")) == len(set(ids(tmp_path / "run"))) == 40


def test_ctrl_c_reaches_every_process_and_turns_no_answer_wrong(tmp_path: Path) -> None:
    """A terminal interrupts the whole group: a grader that dies of it must not say "wrong"."""
    data, samples = tmp_path / "gsm8k.jsonl", tmp_path / "run" / "samples.jsonl"
    rows = [{"question": f"What is {n} + 1?", "answer": f"#### {n + 1}"} for n in range(600)]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["-m", "rho_eos", "eval", "--policy", "gold", "--tasks", "gsm8k"]
    words += ["--data", data, "--out", tmp_path / "run"]
    with (tmp_path / "err").open("w+b") as said:
        process = forks.Fork(*words, stderr=said.fileno(), start_new_session=True)
        wait_until(lambda: has_content(samples), 300)
        os.killpg(process.pid, signal.SIGINT)
        process.wait(120)
        err = forks.read(said)
    assert process.returncode == 130 and "Traceback" not in err
    lines = read_samples(tmp_path / "run")
    assert 0 < len(lines) < 600 and all(line["correct"] for line in lines)


def test_a_block_diffusion_models_own_defaults_are_part_of_its_run() -> None:
    """Nobody names a policy, and the settings say what really decodes."""
    engine = EngineConfig(model="tiny-blocks")
    evaluation = Evaluation(tasks=("tiny-gsm",), engine=engine, params=DecodeParams())
    params = evaluation.settings()["params"]
    assert (params["policy"], params["cache"], params["block_length"]) == ("blocks", "blocks", 16)
