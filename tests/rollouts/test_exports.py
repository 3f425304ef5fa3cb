"""Other people's formats: what they say agrees with the trace of the same samples."""

from typing import Any

import numpy as np
import pytest

from rho_eos import LLM, Rollouts, UserError
from rho_eos.rollouts import exports

LIMITS: dict[str, Any] = {
    "policy": "daedal",  # which writes an end of its own, and cuts what was committed
    "initial_length": 24,
    "max_new_tokens": 64,
    "temperature": 2.0,
    "threshold": 0.2,
    "seed": 4,
}


@pytest.fixture(scope="module")
def rolled(tiny: LLM) -> Rollouts:
    return tiny.rollout(["2 + 2", "Ann has 3 eggs. 1) eats 1."], LIMITS, n=2, trajectory=True)


def test_step_maps_are_those_of_the_trace(tiny: LLM, rolled: Rollouts) -> None:
    outputs = tiny.generate(["2 + 2", "Ann has 3 eggs. 1) eats 1."], LIMITS, n=2)
    answers = exports.sglang(rolled)
    for output, steps, answer in zip(outputs, exports.step_map(rolled), answers, strict=True):
        count = len(output.token_ids)
        assert steps[:count] == [step + 1 for step in output.commit_steps[:count]]
        ended = output.finish_reason == "stop"
        assert len(steps) == count + ended
        meta = answer["meta_info"]
        assert (answer["text"], answer["output_ids"][:count]) == (output.text, output.token_ids)
        assert meta["step_maps"] == steps and meta["completion_tokens"] == len(steps)
        assert meta["finish_reason"] == {"type": output.finish_reason.value}
        found = [np.exp(value) for value, _, _ in meta["output_token_logprobs"][:count]]
        np.testing.assert_allclose(found, output.commit_probabilities[:count], rtol=1e-6)


def test_backwards_leads_from_the_sample_to_masks(tiny: LLM) -> None:
    """On a canvas of one length, masking what each step wrote gives the canvas before it."""
    limits = {**LIMITS, "policy": "fixed", "max_new_tokens": 24}
    rolled = tiny.rollout(["2 + 2"], limits, n=2, trajectory=True)
    assert rolled.trajectory is not None
    for canvases, steps in zip(rolled.trajectory, exports.unmasked_backwards(rolled), strict=True):
        now = canvases[-1].copy()
        for before, written in zip(canvases[-2::-1], steps, strict=True):
            now[written] = rolled.special.mask
            np.testing.assert_array_equal(now, before)
        assert (now == rolled.special.mask).all() and len(steps) > 1


def test_a_fixed_length_ends_in_eos(rolled: Rollouts) -> None:
    ids, real = exports.fixed_length(rolled, 80)
    assert ids.shape == real.shape == (4, 80)
    for s, scored in enumerate(rolled.scored):
        assert int(real[s].sum()) == scored.sum() >= rolled.text_length[s]
        assert ids[s][real[s]].tolist() == rolled.tokens[s][scored].tolist()
        assert (ids[s][~real[s]] == rolled.special.eos).all()
    with pytest.raises(UserError, match="length is 2, but takes an integer from"):
        exports.fixed_length(rolled, 2)


def test_batches_hold_the_samples_in_order(rolled: Rollouts) -> None:
    first, second = rolled.batches(3)
    assert (len(first), len(second)) == (3, 1)
    for batch in (first, second):
        for i, s in enumerate(batch.index.tolist()):
            prompt, length = int(rolled.prompt_length[s]), int(rolled.length[s])
            row = batch.ids[i][batch.attention_mask[i]].tolist()
            assert row[:prompt] == rolled.prompt_ids[s, :prompt].tolist()
            assert row[prompt:] == rolled.tokens[s, :length].tolist()
            assert batch.ids[i][batch.positions[i, :length]].tolist() == row[prompt:]
            own = batch.committed[i, :length].numpy()
            np.testing.assert_array_equal(own, rolled.committed[s, :length])
            np.testing.assert_allclose(
                batch.old_logprobs[i, :length].exp()[own], rolled.probability[s, :length][own], 1e-5
            )
