"""Curves say what the traces say."""

import numpy as np

from rho_eos.reproduce.figures import over_progress, over_steps


def line(*rho: float | None) -> dict[str, object]:
    return {"trace": [{"rho": value} for value in rho]}


def test_a_curve_ends_where_fewer_than_half_still_run() -> None:
    lines = [line(0.0, 0.5), line(0.2, 0.7, 0.9), line(0.4), line(0.6, 0.3, 0.1, 1.0, 1.0)]
    curve = over_steps(lines, "rho")
    assert curve.x.tolist() == [0, 1, 2]
    np.testing.assert_allclose(curve.mean, [0.3, 0.5, 0.5])


def test_progress_stretches_every_sample_to_its_end() -> None:
    curve = over_progress([line(0.0, 1.0), line(0.0, 0.5, 1.0, None)], "rho")
    assert curve.x[0] == 0 and curve.x[-1] == 100
    np.testing.assert_allclose(curve.mean, curve.x / 100)
    np.testing.assert_allclose(curve.low, curve.high)
