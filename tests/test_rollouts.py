"""Rollouts: arrays that say what the steps did, on the embedded model."""

import json
import runpy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rho_eos import LLM, DecodeParams, Output, Rollouts, UserError
from rho_eos.embedded.tasks import held_out
from rho_eos.models.loading import open_checkpoint
from tests.evals.command import Command
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
def llm() -> LLM:
    return LLM("tiny")


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
    traced: dict[str, list[Output]], rolled: dict[str, Rollouts], name: str
) -> None:
    rollouts, outputs = rolled[name], traced[name]
    assert len(rollouts) == len(outputs) == N * len(PROMPTS) and rollouts.prompts == len(PROMPTS)
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
        assert rollouts.tokens[s, :length].tolist() == output.canvas_token_ids


def test_the_policies_of_these_tests_make_all_kinds_of_edits(
    traced: dict[str, list[Output]],
) -> None:
    actions = {
        name: {record.action for output in outputs for record in output.trace}
        for name, outputs in traced.items()
    }
    assert {"expand", "contract"} <= actions["rho-eos"] and "contract" in actions["scout"]
    assert {"expand", "close", "insert"} <= actions["daedal"]


@pytest.mark.parametrize("name", POLICIES)
def test_replaying_the_trajectory_gives_the_answer(
    llm: LLM, rolled: dict[str, Rollouts], name: str
) -> None:
    rollouts = rolled[name]
    assert rollouts.trajectory is not None
    mask, ends = llm.special.mask, llm.special.ends
    for s, canvases in enumerate(rollouts.trajectory):
        assert len(canvases) == rollouts.nfe[s] + 1
        first = canvases[0][canvases[0] >= 0]
        # Scout looks at a long canvas first, here as long as it may become.
        assert first.tolist() == [mask] * (LIMITS["max_new_tokens"] if name == "scout" else 24)
        last = canvases[-1][canvases[-1] >= 0].tolist()
        until = next((at for at, token in enumerate(last) if token in (mask, *ends)), len(last))
        assert llm.preparer.detokenize(last[:until]) == rollouts.texts[s]
        assert until == rollouts.text_length[s] and len(last) == rollouts.length[s]
        for at in np.flatnonzero(rollouts.committed[s]):
            step, position = rollouts.step[s, at], rollouts.position[s, at]
            assert canvases[step, position] == mask  # it was open when the model chose it


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


def test_seeds_decide_the_samples_and_batches_do_not(llm: LLM, rolled: dict[str, Rollouts]) -> None:
    rollouts = rolled["rho-eos"]
    assert rollouts.seed.tolist() == [5, 6, 7] * len(PROMPTS)
    assert len({*rollouts.texts}) > len(PROMPTS)  # they do differ
    alone = LLM("tiny", max_rows=1)
    for s in (0, 4, 8):
        own = POLICIES["rho-eos"].replaced(seed=int(rollouts.seed[s]))
        again = alone.rollout(PROMPTS[s // N], own, n=1)
        length = rollouts.length[s]
        assert again.trajectory is None
        for name in ("tokens", "step", "position"):
            got = getattr(rollouts, name)[s, :length]
            assert getattr(again, name)[0].tolist() == got.tolist()
        np.testing.assert_allclose(
            again.probability[0], rollouts.probability[s, :length], atol=1e-4
        )


def test_advantages_are_relative_to_the_group(rolled: dict[str, Rollouts]) -> None:
    rollouts = rolled["rho-eos"]
    advantages = rollouts.advantages([1, 0, 0, 1, 1, 1, 0, 1, 2])
    high, low = 2 / 2**0.5, -1 / 2**0.5
    expected = [high, low, low, 0, 0, 0, -(1.5**0.5), 0, 1.5**0.5]
    np.testing.assert_allclose(advantages, expected, atol=1e-12)
    with pytest.raises(UserError, match=r"rewards have the shape \(2,\), but takes \(9,\)"):
        rollouts.advantages([1, 0])


def test_equal_rewards_teach_nothing_and_bad_ones_are_refused(rolled: dict[str, Rollouts]) -> None:
    rollouts = rolled["rho-eos"]
    assert not rollouts.advantages(
        [0.1] * 3 + [0.7] * 3 + [1 / 3] * 3
    ).any()  # rounding is no spread
    for bad in (["a"] * 9, [float("nan")] + [0] * 8, [1e300, -1e300, 0] + [0] * 6, [None] * 9):
        with pytest.raises(UserError, match="rewards takes"):
            rollouts.advantages(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("prompts", [None, 5, 3.2])
def test_what_is_no_prompt_gets_a_sentence(prompts: Any) -> None:
    llm = LLM("tiny")
    for door in (llm.rollout, llm.generate):
        with pytest.raises(UserError, match="prompts takes one prompt or a list of them, not"):
            door(prompts)


def test_with_stop_the_text_has_as_many_tokens_as_it_says() -> None:
    llm = LLM("tiny")
    question = "Mia has 8 plums. 1) buys 6. 2) eats 5. How many are there now?"
    params = DecodeParams(policy="scout", stop=["so"], temperature=1.0)
    rollouts = llm.rollout(question, params, n=2)
    for sample, text in enumerate(rollouts.texts):
        own = rollouts.tokens[sample, : rollouts.text_length[sample]].tolist()
        assert "so" not in text and llm.tokenizer.decode(own).startswith(text)
        assert not llm.tokenizer.decode(own[:-1]).startswith(text)  # and no token more
    assert rollouts.finish_reasons == ("stop", "stop")
    output = llm.generate(question, params.replaced(logprobs=0))[0]
    assert output.logprobs is not None
    assert [told.token for told in output.logprobs] == output.token_ids


def test_the_model_that_rolls_out_can_be_trained_where_it_is() -> None:
    """A step of docs/rollouts.md: what is rewarded becomes likelier, and is rolled out."""
    llm = LLM("tiny")
    params = DecodeParams(policy="fixed", initial_length=24, temperature=1.0, threshold=0.3)
    prompts = [problem.prompt for problem in held_out("tiny-gsm", 2)]
    rollouts = llm.rollout(prompts, params, n=2, trajectory=True)
    model = llm.model.requires_grad_(True)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def log_probabilities(sample: int) -> torch.Tensor:
        found = []
        prompt = rollouts.prompt_ids[sample, : rollouts.prompt_length[sample]]
        for forward in range(rollouts.nfe[sample]):
            at = np.flatnonzero(rollouts.step[sample] == forward)
            canvas = rollouts.trajectory[sample][forward]
            ids = torch.tensor(np.concatenate((prompt, canvas[canvas >= 0])))[None]
            logits = model(ids).logits[0, len(prompt) + rollouts.position[sample, at]]
            tokens = torch.tensor(rollouts.tokens[sample, at])[:, None]
            found.append(logits.log_softmax(-1).gather(-1, tokens)[:, 0])
        return torch.cat(found)

    before = [log_probabilities(sample) for sample in range(len(rollouts))]
    for sample, own in enumerate(before):
        told = rollouts.probability[sample][rollouts.step[sample] >= 0]
        assert np.allclose(np.sort(own.detach().exp()), np.sort(told), atol=1e-4)
    (-torch.cat(before).sum()).backward()
    optimizer.step()
    with torch.no_grad():
        after = [log_probabilities(sample) for sample in range(len(rollouts))]
    assert torch.cat(after).sum() > torch.cat(before).sum()
    again = llm.rollout(prompts, params, n=2)
    first = (rollouts.step == 0) & (again.step == 0) & (rollouts.tokens == again.tokens)
    assert first.any()
    assert (again.probability[first] != rollouts.probability[first]).any()


@pytest.mark.parametrize("n", [0, -1, True, 2.0, 10**9])
def test_a_number_of_samples_that_is_none_is_refused(llm: LLM, n: Any) -> None:
    with pytest.raises(UserError, match=r"n is .*, but takes an integer from 1 to 65536"):
        llm.rollout(PROMPTS, n=n)
    with pytest.raises(UserError, match="n is"):
        llm.generate(PROMPTS, n=n)


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
        assert len(line["commit_steps"]) == len(line["token_ids"])
        assert line["commit_steps"] == output.commit_steps[: len(output.token_ids)]
        assert all(0 < p <= 1 for p in line["commit_probabilities"])
    refused = command("generate", "2 + 2", "-n", "0")
    assert refused.code == 2 and "n is 0, but takes an integer from 1" in refused.err
    assert command("generate", "2 + 2", "--commits").code == 2


def test_samples_of_a_file_go_on_where_they_stopped(command: Command, tmp_path: Path) -> None:
    source, whole, again = (tmp_path / name for name in ("in.jsonl", "whole.jsonl", "again.jsonl"))
    requests = [
        {"id": "a", "prompt": "2 + 2"},
        {"id": "b", "prompt": "3 + 3", "n": 1},
        {"id": "c", "prompt": "4 + 4", "n": "x"},
    ]
    source.write_text("".join(json.dumps(request) + "\n" for request in requests))

    def run(target: Path) -> Any:
        return command("generate", "-i", source, "-o", target, "-n", "3", "--commits", *WORDS)

    first = run(whole)
    assert first.code == 2 and "in.jsonl:3: n is 'x', but takes" in first.err
    lines = {line["id"]: line for line in map(json.loads, whole.read_text().splitlines())}
    assert set(lines) == {"a#0", "a#1", "a#2", "b"}
    assert all("commit_probabilities" in line for line in lines.values())
    again.write_text(
        "".join(json.dumps(lines[id]) + "\n" for id in ("a#1", "b"))  # as if it had been killed
    )
    run(again)
    resumed = {line["id"]: line for line in map(json.loads, again.read_text().splitlines())}
    assert {id: line["text"] for id, line in resumed.items()} == {
        id: line["text"] for id, line in lines.items()
    }
    assert len(again.read_text().splitlines()) == len(lines)


def test_two_lines_whose_samples_have_one_id(command: Command, tmp_path: Path) -> None:
    source, target = tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    requests = [{"id": "a", "prompt": "2 + 2", "n": 2}, {"id": "a#1", "prompt": "3"}]
    source.write_text("".join(json.dumps(request) + "\n" for request in requests))
    result = command("generate", "-i", source, "-o", target, *WORDS)
    assert result.code == 2 and "in.jsonl:2: the id 'a#1' was used by an earlier line" in result.err
    assert len(target.read_text().splitlines()) == 2


def test_the_example_rates_groups(
    capsys: pytest.CaptureFixture[str], use_cores: Callable[[int], None]
) -> None:
    use_cores(2)
    path = Path(__file__).parents[1] / "examples" / "rollouts.py"
    rollouts = runpy.run_path(str(path))["main"](["--prompts", "3", "--n", "4"])
    printed = capsys.readouterr().out
    assert len(rollouts) == 12 and printed.count(" of 4") == 3
    assert "12 samples" in printed and "tokens a second" in printed
