"""Engines in the actors of a real Ray cluster sample with the weights that a trainer sends."""

import numpy as np
import pytest
import ray
from safetensors.torch import load_file

from rho_eos import LLM
from rho_eos.models.known import EMBEDDED

PROMPTS = ["Ann has 9 coins. 1) loses 4.", "2 + 2", "Bo has 3 eggs. 1) eats 1."]
LIMITS = {"initial_length": 24, "max_new_tokens": 48, "threshold": 0.5, "temperature": 1.0}


def test_actors_sample_with_the_weights_they_are_sent(cluster: str) -> None:
    from rho_eos.cluster.rollouts import RolloutPool

    pool = RolloutPool(2, actor={"num_cpus": 1}, model="tiny")
    terse = load_file(EMBEDDED["terse"] / "model.safetensors")
    with pytest.raises(ray.exceptions.RayTaskError, match="is no weight of this model"):
        pool.update_weights(terse | {"no.such.weight": terse["model.transformer.wte.weight"]})
    for version, name in ((0, "tiny"), (1, "terse")):
        if version:
            assert pool.update_weights(terse) == 1
        expected = LLM(name).rollout(PROMPTS, LIMITS, n=2)
        parts = pool.rollout(PROMPTS, params=LIMITS, n=2)
        assert [len(part) for part in parts] == [4, 2]
        assert [text for part in parts for text in part.texts] == [*expected.texts]
        assert {int(each) for part in parts for each in part.weights_version} == {version}
        [*_, batch] = parts[1].batches(2)
        own = batch.step.numpy()
        np.testing.assert_array_equal(own, expected.step[4:, : own.shape[1]])
    for actor in pool.actors:
        ray.kill(actor)
