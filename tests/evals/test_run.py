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
from rho_eos.base.outputs import FinishReason, Output, Usage
from rho_eos.config import EngineConfig
from rho_eos.decoding.params import DecodeParams
from rho_eos.evals import Grade, find_task
from rho_eos.evals.runs.evaluation import Evaluation, Progress, evaluate, make_questions
from rho_eos.evals.runs.run_folder import read_samples
from rho_eos.evals.runs.sources import AnswerSource, GoldAnswers, Outputs, Question
from rho_eos.evals.tasks.embedded import TinyNumbers
from tests import forks
from tests.checkpoints import write_checkpoint
from tests.evals.command import Command
from tests.support import has_content, require_sandbox, wait_until

FIXTURES = Path(__file__).parent.parent / "data" / "evals"
SHORT = ("--initial-length", "8", "--max-new-tokens", "24")
USAGE = Usage(e_token=3, n_token=8, nfe=4, positions_evaluated=50)
METRICS = {
    *("n_token", "e_token", "e_ratio", "nfe", "positions_evaluated", "tokens_per_forward"),
    *("adjustments", "expansions", "contractions", "prompt_tokens", "seconds_running"),
}


def gold(tasks: Sequence[str] = ("tiny-gsm",), **more: Any) -> Evaluation:
    return Evaluation(tasks=tuple(tasks), engine=None, params=None, **more)


class Script:
    """Answers right except for `wrong` samples; interrupted after `stop_after` answers."""

    def __init__(self, stop_after: int | None = None, wrong: Sequence[str] = ()) -> None:
        self.stop_after = stop_after
        self.wrong = wrong
        self.asked: list[str] = []

    def answers(self, jobs: Sequence[Question]) -> Outputs:
        for number, job in enumerate(jobs):
            if number == self.stop_after:
                raise KeyboardInterrupt
            self.asked.append(job.id)
            text = "####" if job.sample.id in self.wrong else job.task.gold(job.sample)
            yield Output(job.id, text, FinishReason.STOP, usage=USAGE)


def run(folder: Path, evaluation: Evaluation, source: AnswerSource) -> list[dict[str, Any]]:
    return evaluate(evaluation, folder, lambda: source)


def ids(folder: Path) -> list[str]:
    return [json.loads(line)["id"] for line in (folder / "samples.jsonl").open()]


def test_interrupted_again_and_again_every_sample_is_there_once(tmp_path: Path) -> None:
    evaluation = gold(("tiny-gsm", "tiny-math"), limit=5)
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


def test_a_line_cut_off_by_a_kill_is_made_again(tmp_path: Path) -> None:
    evaluation = gold(limit=4)
    run(tmp_path, evaluation, Script())
    path = tmp_path / "samples.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    source = Script()
    run(tmp_path, evaluation, source)
    assert len(source.asked) == 1 and sorted(ids(tmp_path)) == sorted(set(ids(tmp_path)))
    assert len(ids(tmp_path)) == 4


def test_a_finished_run_is_read_and_no_model_loaded(tmp_path: Path) -> None:
    first = run(tmp_path, gold(limit=3), GoldAnswers())

    def open_source() -> AnswerSource:
        raise AssertionError("nothing is left to ask")

    assert evaluate(gold(limit=3), tmp_path, open_source) == first


@pytest.mark.parametrize(
    ("other", "says"),
    [
        ({"limit": 4}, "limit 3, not 4"),
        ({"limit": 3, "repeats": 2}, "repeats 1, not 2"),
        ({"limit": 3, "shuffle_seed": 1}, "shuffle_seed None, not 1"),
        ({"tasks": ("tiny-math",), "limit": 3}, "tasks ['tiny-gsm'], not ['tiny-math']"),
    ],
)
def test_other_settings_are_refused_and_nothing_is_touched(
    tmp_path: Path, other: dict[str, Any], says: str
) -> None:
    run(tmp_path, gold(limit=3), GoldAnswers())
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(UserError) as refused:
        run(tmp_path, gold(**other), GoldAnswers())
    assert says in str(refused.value) and "give another --out" in str(refused.value)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_other_weights_under_the_same_name_are_refused(tmp_path: Path) -> None:
    checkpoint = write_checkpoint(tmp_path / "model", seed=1)
    evaluation = Evaluation(
        tasks=("tiny-gsm",),
        engine=EngineConfig(model=str(checkpoint), device="cpu"),
        params=DecodeParams(),
        limit=2,
    )
    run(tmp_path / "run", evaluation, Script())
    about = json.loads((tmp_path / "run" / "run.json").read_text())
    assert about["settings"]["model"]["model"] == str(checkpoint)
    [session] = about["sessions"]
    assert session["device"] == "cpu" and "torch" in session["versions"]
    write_checkpoint(tmp_path / "model", seed=2)
    with pytest.raises(UserError, match="started with weights"):
        run(tmp_path / "run", evaluation, Script())


def test_settings_under_which_nothing_was_finished_bind_nobody(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, gold(limit=3), Script(stop_after=0))
    assert len(run(tmp_path, gold(limit=2), Script())) == 2


def test_one_process_at_a_time(tmp_path: Path) -> None:
    class Nested(Script):
        def answers(self, jobs: Sequence[Question]) -> Outputs:
            with pytest.raises(UserError, match="another process is writing"):
                run(tmp_path, gold(limit=2), GoldAnswers())
            yield from super().answers(jobs)

    assert len(run(tmp_path, gold(limit=2), Nested())) == 2


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


def test_repeats_have_ids_and_noise_of_their_own() -> None:
    evaluation = dataclasses.replace(gold(limit=2, repeats=3), params=DecodeParams(seed=5))
    jobs = make_questions(find_task("tiny-gsm"), evaluation)
    assert len({job.id for job in jobs}) == 6
    assert {(job.id, job.ask["params"].seed) for job in jobs} >= {
        ("tiny-gsm/test/0#0", 5),
        ("tiny-gsm/test/0#2", 7),
    }


def test_a_shuffle_seed_is_a_choice_of_samples_the_same_every_time() -> None:
    def chosen(seed: int | None) -> list[str]:
        jobs = make_questions(
            find_task("tiny-math"), gold(("tiny-math",), limit=8, shuffle_seed=seed)
        )
        return [job.id for job in jobs]

    assert chosen(1) == chosen(1) != chosen(2)
    assert chosen(None) == [f"tiny-math/test/{n}" for n in range(8)]


def test_progress_tells_done_right_and_speed(tmp_path: Path) -> None:
    seen: list[Progress] = []

    def note(progress: Progress) -> None:
        seen.append(dataclasses.replace(progress))

    source = Script(wrong=["tiny-gsm/test/1"])
    evaluate(gold(limit=4), tmp_path, lambda: source, on_progress=note)
    assert [each.done for each in seen] == [0, 1, 2, 3, 4]
    assert (seen[-1].total, seen[-1].correct, seen[-1].tokens) == (4, 3, 12)
    assert seen[-1].seconds > 0


@pytest.mark.parametrize("task", ["gsm8k", "math500", "mbpp", "humaneval"])
def test_gold_scores_everything_without_a_model(
    task: str, command: Command, tmp_path: Path
) -> None:
    require_sandbox()
    words = ("eval", "--policy", "gold", "--tasks", f"{task},tiny-mbpp", "--limit", "2")
    data = FIXTURES / f"{task}.jsonl"
    result = command(*words, "--data", data, "--model", "/none", "--out", tmp_path / "gold")
    assert result.code == 0, result.err
    lines = read_samples(tmp_path / "gold")
    assert len(lines) == 4 and all(line["correct"] for line in lines)
    assert "100.0 ± 0.0" in result.out


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
        assert set(line) >= METRICS
        assert set(line) >= {"id", "task", "text", "extracted", "correct", "finish_reason"}
        assert len(line["trace"]) == line["nfe"]
        assert (
            sum(step["length"] for step in line["trace"]) + line["nfe"] * line["prompt_tokens"]
            == (line["positions_evaluated"])
        )
    [session] = json.loads((tmp_path / "run.json").read_text())["sessions"]
    assert session["sandbox"] in ("bubblewrap", "namespaces") and session["batch_size"] == 2
    assert "tiny-math" in result.out and "E_ratio" in result.out
    assert (tmp_path / "summary.json").exists() and (tmp_path / "summary.tex").exists()


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
    assert "| gold | tiny-math | 2 | 100.0 ± 0.0 |" in table
    assert all(line["n_token"] == 16 for line in read_samples(tmp_path / "out" / "fixed-16"))
    lengths = json.loads((tmp_path / "out" / "sym" / "run.json").read_text())["settings"]["params"]
    assert lengths["initial_length"] == 8  # what the file does not say comes from the command line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--tasks", "gsm9k"], "task is 'gsm9k', but takes one of gsm8k"),
        ([], "tasks is (), but takes at least one task, unless there is a task file"),
        (["--tasks", ","], "tasks is (), but takes at least one task"),
        (["--tasks", "tiny-gsm,tiny-gsm"], "but takes each task once"),
        (["--tasks", "tiny-gsm", "--limit", "0"], "limit is 0, but takes an integer"),
        (["--tasks", "tiny-gsm", "--data", "x.jsonl"], "takes TASK=PATH unless exactly one"),
        (["--tasks", "gsm8k", "--data", "/no/x.jsonl"], "cannot read /no/x.jsonl"),
        (["--tasks", "tiny-gsm", "--sweep", "/no/x.yaml"], "cannot read /no/x.yaml"),
        (["--tasks", "tiny-gsm", "--rho-low", "0.5"], "policy gold asks no model"),
    ],
)
def test_bad_input_is_one_line_and_leaves_no_folder(
    words: list[str], message: str, command: Command, tmp_path: Path
) -> None:
    result = command("eval", *words, "--policy", "gold", "--out", tmp_path / "run")
    assert result.code == 2 and message in result.err and result.err.count("\n") == 1
    assert not (tmp_path / "run").exists()


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
