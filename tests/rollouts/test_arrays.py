"""Rollouts: arrays that say what the steps did, on the embedded model."""

import json
import re
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rho_eos import LLM, DecodeParams, Output, Rollouts, UserError
from rho_eos.models.loading import open_checkpoint
from rho_problems import held_out
from tests.evals.command import Command
from tests.lines import by_id, write_lines
from tests.reference.bridge import logits_of

PROMPTS = [held_out(task, 3)[-1].prompt for task in ("tiny-gsm", "tiny-math", "tiny-mbpp")]
#: A low τ: above it an unlikely draw would wait until a likely one comes.
LIMITS: dict[str, Any] = {
    "initial_length": 24,
    "max_new_tokens": 96,
    "temperature": 2.0,
    "threshold": 0.2,
}
#: Tail edits, edits in the middle with tokens that no model chose, and cuts of what was committed.
POLICIES = {
    "rho-eos": DecodeParams(**LIMITS, seed=5),
    "scout": DecodeParams(policy="scout", **LIMITS, seed=5),
    "daedal": DecodeParams(policy="daedal", **LIMITS | {"temperature": 3.0}, seed=5),
    "released": DecodeParams(policy="released", **LIMITS, seed=5),
}
N = 3


@pytest.fixture(scope="module")
def llm(tiny: LLM) -> LLM:
    return tiny


@pytest.fixture(scope="module")
def rolled(llm: LLM) -> dict[str, Rollouts]:
    return {
        name: llm.rollout(PROMPTS, params, n=N, trajectory=True)
        for name, params in POLICIES.items()
    }


@pytest.fixture(scope="module")
def traced(llm: LLM) -> dict[str, list[Output]]:
    return {
        name: llm.generate(PROMPTS, params.replaced(trace=True), n=N)
        for name, params in POLICIES.items()
    }


def final_places(output: Output) -> dict[tuple[int, int], int]:
    """(step, position of a commit in it) -> its place on the final canvas, by the records alone."""
    places: list[tuple[int, int] | None] = [None] * output.trace[0].length
    for record in output.trace:
        for position, _, _ in record.committed:
            places[position] = (record.step, position)
        if record.moved is not None:
            before, places = places, []
            for first, count in record.moved:
                places += [None] * count if first is None else before[first : first + count]
        for position, _ in record.written:
            places[position] = None
    return {who: at for at, who in enumerate(places) if who is not None}


@pytest.mark.parametrize("name", POLICIES)
def test_arrays_agree_with_the_step_trace(
    llm: LLM, traced: dict[str, list[Output]], rolled: dict[str, Rollouts], name: str
) -> None:
    rollouts, outputs = rolled[name], traced[name]
    assert rollouts.trajectory is not None
    assert len(rollouts) == len(outputs) == N * len(PROMPTS)
    for s, output in enumerate(outputs):
        places = final_places(output)
        chosen = {
            (record.step, position): (token, probability)
            for record in output.trace
            for position, token, probability in record.committed
        }
        length = rollouts.length[s]
        assert length == output.usage.n_token and rollouts.nfe[s] == len(output.trace)
        assert set(np.flatnonzero(rollouts.committed[s])) == set(places.values())
        for who, at in places.items():
            assert (rollouts.step[s, at], rollouts.position[s, at]) == who
            assert (rollouts.tokens[s, at], rollouts.probability[s, at]) == chosen[who]
        assert np.isnan(rollouts.probability[s][~rollouts.committed[s]]).all()
        assert (rollouts.tokens[s, length:] == -1).all()
        canvases = rollouts.trajectory[s]
        last = canvases[-1][canvases[-1] >= 0].tolist()
        assert len(canvases) == rollouts.nfe[s] + 1 and len(last) == length
        text = last[: rollouts.text_length[s]]
        assert llm.preparer.encoder.decode(text) == rollouts.texts[s] == output.text
        assert not {*text} & {llm.special.mask, *llm.special.ends}
        assert rollouts.tokens[s, :length].tolist() == output.canvas_token_ids


@pytest.mark.parametrize("name", ["rho-eos", "daedal"])
def test_a_commits_probability_is_that_of_an_independent_forward(
    llm: LLM, rolled: dict[str, Rollouts], name: str
) -> None:
    """transformers' own padded path over the canvas of that step, softmax over the vocabulary."""
    from transformers import AutoModelForMaskedLM

    import rho_eos.models.auto  # noqa: F401  registers the families

    folder = open_checkpoint(llm.config).folder
    naive = logits_of(AutoModelForMaskedLM.from_pretrained(folder, dtype=torch.float32).eval())
    rollouts = rolled[name]
    assert rollouts.trajectory is not None
    compared = 0
    for s in range(0, len(rollouts), N + 1):
        prompt = rollouts.prompt_ids[s, : rollouts.prompt_length[s]]
        for step in np.unique(rollouts.step[s][rollouts.committed[s]]):
            canvas = rollouts.trajectory[s][step]
            row = torch.from_numpy(np.concatenate((prompt, canvas[canvas >= 0])))[None]
            with torch.inference_mode():
                logits = naive(row, torch.ones_like(row), torch.arange(row.shape[1])[None])
            at = np.flatnonzero(rollouts.step[s] == step)
            where = len(prompt) + rollouts.position[s, at]
            expected = logits[0].double().softmax(-1)[where, rollouts.tokens[s, at]]
            np.testing.assert_allclose(rollouts.probability[s, at], expected, atol=1e-4)
            compared += len(at)
    assert compared > 60


@pytest.mark.parametrize(
    "limits", [{"temperature": 2.0}, {"temperature": 1.5, "top_k": 5}, {"temperature": 0.0}]
)
def test_how_probable_a_draw_was(llm: LLM, limits: dict[str, Any]) -> None:
    """Of softmax(logits / T) without MASK, over the k likeliest; the best one is sure at 0."""
    rollouts = llm.rollout(PROMPTS[:1], {**LIMITS, **limits, "seed": 2}, n=2, trajectory=True)
    assert rollouts.trajectory is not None
    [batch] = rollouts.batches(2)
    for s in range(2):
        prompt = rollouts.prompt_ids[s, : rollouts.prompt_length[s]]
        for step in range(rollouts.nfe[s]):
            at = np.flatnonzero(rollouts.step[s] == step)
            canvas = rollouts.trajectory[s][step]
            row = torch.from_numpy(np.concatenate((prompt, canvas[canvas >= 0])))[None]
            with torch.no_grad():
                logits = (
                    llm.model(row)
                    .logits[0, len(prompt) + rollouts.position[s, at]]
                    .double()
                    .clone()
                )
            logits[:, llm.special.mask] = -torch.inf
            if k := limits.get("top_k"):
                logits[logits < logits.topk(k).values[:, -1:]] = -torch.inf
            share = (logits / max(limits["temperature"], 1e-6)).softmax(-1)
            expected = share[np.arange(len(at)), rollouts.tokens[s, at]]
            np.testing.assert_allclose(rollouts.drawn[s, at], expected, atol=1e-3)
            np.testing.assert_allclose(
                batch.old_drawn_logprobs[s, at], np.log(expected), atol=5e-3, rtol=1e-3
            )


def test_seeds_decide_the_samples_and_batches_do_not(llm: LLM, rolled: dict[str, Rollouts]) -> None:
    rollouts = rolled["rho-eos"]
    assert rollouts.seed.tolist() == [5, 6, 7] * len(PROMPTS)
    assert len({*rollouts.texts}) > len(PROMPTS)  # they do differ
    alone = LLM("tiny", max_rows=1)
    for s in (0, 4, 8):
        own = POLICIES["rho-eos"].replaced(seed=int(rollouts.seed[s]))
        again = alone.rollout(PROMPTS[s // N], own, n=1)
        for name in ("tokens", "step", "position", "probability"):
            got = getattr(rollouts, name)[s, : rollouts.length[s]]
            np.testing.assert_allclose(getattr(again, name)[0], got, atol=1e-4)


def test_advantages_are_relative_to_the_group(rolled: dict[str, Rollouts]) -> None:
    rollouts = rolled["rho-eos"]
    advantages = rollouts.advantages([1, 0, 0, 1, 1, 1, 0, 1, 2])
    high, low = 2 / 2**0.5, -1 / 2**0.5
    expected = [high, low, low, 0, 0, 0, -(1.5**0.5), 0, 1.5**0.5]
    np.testing.assert_allclose(advantages, expected, atol=1e-12)
    # Rounding is no spread.
    assert not rollouts.advantages([0.1] * 3 + [0.7] * 3 + [1 / 3] * 3).any()
    for bad in (["a"] * 9, [float("nan")] + [0] * 8, [1e300, -1e300, 0] + [0] * 6, [1, 0]):
        with pytest.raises(UserError, match="rewards"):
            rollouts.advantages(bad)  # type: ignore[arg-type]


def test_the_model_that_rolls_out_can_be_trained_where_it_is() -> None:
    """The code of docs/rollouts.md: the next rollout is made with the new weights."""
    page = (Path(__file__).parents[2] / "docs" / "rollouts.md").read_text()
    make, train = re.findall(r"```python\n(.*?)```", page, re.DOTALL)[:2]
    names: dict[str, Any] = {}
    exec(make, names)
    names["advantages"] = np.tile([1.0, -1.0], 4)  # whatever was right
    exec(train, names)
    before = names["rollouts"]
    again = names["llm"].rollout(names["prompts"], names["params"], n=8)
    first = (before.step == 0)[:, :8] & (again.step == 0)[:, :8]
    assert first.any()
    changed = again.probability[:, :8][first] != before.probability[:, :8][first]
    assert changed.any()


def test_what_is_no_prompt_and_no_number_of_samples(llm: LLM) -> None:
    for n in (0, True, 2.0, 10**9):
        with pytest.raises(UserError, match=r"n is .*, but takes an integer from 1"):
            llm.rollout(PROMPTS, n=n)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="prompts takes one prompt or a list of them, not"):
        llm.rollout(5, n=1)  # type: ignore[arg-type]


WORDS = ("--initial-length", "16", "--max-new-tokens", "32", "--temperature", "1.5")


def test_samples_on_the_command_line(command: Command, llm: LLM) -> None:
    expected = llm.generate(
        "2 + 2", {"initial_length": 16, "max_new_tokens": 32, "temperature": 1.5, "seed": 3}, n=2
    )
    plain = command("generate", "2 + 2", "-n", "2", "--seed", "3", *WORDS)
    assert plain.out == "".join(f"--- seed {3 + i}\n{o.text}\n" for i, o in enumerate(expected))
    result = command("generate", "2 + 2", "-n", "2", "--seed", "3", "--json", "--commits", *WORDS)
    lines = [json.loads(line) for line in result.out.splitlines()]
    assert [line["text"] for line in lines] == [output.text for output in expected]
    for line, output in zip(lines, expected, strict=True):
        assert line["commit_steps"] == output.commit_steps[: len(line["token_ids"])]
        assert all(0 < p <= 1 for p in line["commit_probabilities"])
    assert command("generate", "2 + 2", "--commits").code == 2


def test_samples_of_a_file_go_on_where_they_stopped(command: Command, tmp_path: Path) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    write_lines(source, [{"id": "a", "prompt": "2 + 2"}, {"id": "b", "prompt": "3 + 3", "n": 1}])
    words = ("generate", "-i", source, "-o", target, "-n", "3", "--commits", *WORDS)
    assert command(*words).code == 0
    whole = by_id(target)
    assert set(whole) == {"a#0", "a#1", "a#2", "b"}
    assert all("commit_probabilities" in line for line in whole.values())
    write_lines(target, [whole["a#1"], whole["b"]])  # as if it had been killed
    assert "2 generated, 2 were there already" in command(*words).err
    again = by_id(target)
    assert all(again[id]["text"] == whole[id]["text"] for id in whole)


def test_the_example_rates_groups(
    capsys: pytest.CaptureFixture[str], use_cores: Callable[[int], None]
) -> None:
    use_cores(2)
    path = Path(__file__).parents[2] / "examples" / "rollouts.py"
    rollouts = runpy.run_path(str(path))["main"](["--prompts", "3", "--n", "4"])
    printed = capsys.readouterr().out
    assert len(rollouts) == 12 and printed.count(" of 4") == 3
    assert "12 samples" in printed and "tokens a second" in printed
