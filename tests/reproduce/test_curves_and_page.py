"""Curves say what the traces say; the results page takes tables and keeps its own text."""

import json
import runpy
from pathlib import Path

import numpy as np

from rho_eos.reproduce.curves import over_progress, over_steps

RESULTS = Path(__file__).parents[2] / "docs" / "results.py"


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


def test_the_results_page_is_filled_and_its_own_text_kept(tmp_path: Path) -> None:
    docs, folder = tmp_path / "docs", tmp_path / "reproduction"
    docs.mkdir()
    folder.mkdir()
    about = {"model": "tiny", "weights": "0f", "profile": "tiny", "limit": 5}
    about |= {"rho-eos": "1", "made": "2026-01-02T03:04:05"}
    (folder / "reproduction.json").write_text(json.dumps(about))
    (folder / "main.md").write_text("# Main results\n\n| a |\n| --- |\n| 7 % |\n")
    (folder / "e-ratio.png").write_bytes(b"picture")
    page = docs / "results.md"
    page.write_text(
        "Before.\n<!-- facts -->\n<!-- /facts -->\n\n<!-- main -->\nold\n<!-- /main -->\nOurs.\n"
    )
    main = runpy.run_path(str(RESULTS))["main"]
    for _ in range(2):  # the second time over the first
        main(folder, docs)
        text = page.read_text()
        assert text.startswith("Before.\n<!-- facts -->\nModel `tiny`") and text.endswith("Ours.\n")
        assert "<!-- main -->\n| a |\n| --- |\n| 7 % |\n<!-- /main -->" in text
    page.write_text(page.read_text() + "<!-- lengths -->\nkept\n<!-- /lengths -->\n")
    main(folder, docs)  # which has no such table
    assert "<!-- lengths -->\nkept\n<!-- /lengths -->" in page.read_text()
    assert "old" not in text and "# Main results" not in text
    assert (docs / "results" / "e-ratio.png").read_bytes() == b"picture"


def test_every_table_has_a_place_on_the_results_page() -> None:
    from rho_eos.reproduce.index import FIGURE_TITLES, TABLE_TITLES

    text = RESULTS.with_suffix(".md").read_text(encoding="utf-8")
    assert all(f"<!-- {name} -->\n" in text for name in TABLE_TITLES)
    with_a_table = set(TABLE_TITLES)  # a figure that has a table's name comes with the table
    assert all(f"results/{name}.png" in text for name in set(FIGURE_TITLES) - with_a_table)
