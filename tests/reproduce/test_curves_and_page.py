"""Curves say what the traces say; the results page takes tables and keeps its own text."""

import csv
import json
import runpy
from pathlib import Path

import numpy as np
import pytest

from rho_eos.reproduce.curves import over_progress, over_steps
from rho_eos.reproduce.survey_table import COLUMNS

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


def survey_csv(path: Path, rows: dict[tuple[str, int], tuple[float, int]]) -> None:
    """Rows of `lengths` at τ 0.9 without cache: policy and L_init to accuracy and positions."""
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        for (policy, start), (accuracy, positions) in rows.items():
            row = ["τ 0.9, exact", policy, start, 800, f"{accuracy} ± 0.5", "?", "50.0 ± 0.5", 99.0]
            writer.writerow([*row, 8.0, f"{positions} ± 9", "?", 1.5, 0.1])


def test_a_survey_run_in_parts_is_joined(tmp_path: Path) -> None:
    """Rows of an earlier run stay, newer ones replace them, and what follows is made of all."""
    docs, folder = tmp_path / "docs", tmp_path / "part"
    (docs / "results").mkdir(parents=True)
    folder.mkdir()
    starts = (16, 64, 256, 512)
    survey_csv(
        docs / "results" / "lengths.csv",
        {("fixed", 512): (97.1, 4000)}
        | {("ρ-EOS Asym", start): (97.2, 2000 + start) for start in starts}
        | {("Scout", start): (80.0, 9999) for start in starts},
    )
    survey_csv(
        folder / "lengths.csv",
        {("Blocks until EOS", start): (90.0, 1000) for start in starts}
        | {("Scout", start): (97.0, 1500) for start in starts},
    )
    asked = "tiny (weights 01234567), the first 200 samples of a task: tiny-gsm."
    (folder / "lengths.md").write_text(f"# Every way\n\n{asked}\n", encoding="utf-8")
    about = {"model": "tiny", "profile": "tiny", "weights": "0123456789"}
    (folder / "reproduction.json").write_text(json.dumps(about))
    (docs / "results.md").write_text(f"<!-- lengths -->\nold\n{asked}\n<!-- /lengths -->\n")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    runpy.run_path(str(RESULTS))["main"](folder, docs)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    with (docs / "results" / "lengths.csv").open(encoding="utf-8", newline="") as file:
        rows = {(row["policy"], row["L_init"]): row for row in csv.DictReader(file)}
    assert len(rows) == 13
    assert rows["Scout", "64"]["Acc %"].startswith("97.0")
    assert rows["ρ-EOS Asym", "64"]["Δ fixed"] == "+0.1"
    assert rows["Scout", "64"]["of Asym %"] == f"{100 * 1500 / 2064:.0f}"
    page = (docs / "results.md").read_text(encoding="utf-8")
    assert asked in page and "old" not in page
    assert "Deceived (at least 5 points behind it, p < 0.05): Blocks until EOS from 16" in page
    assert page.count("**Use Scout.**") == 1
    assert (docs / "results" / "lengths.png").read_bytes().startswith(b"\x89PNG")
    # Rows of another model, of other weights, or of fewer samples, do not belong in one table.
    for old, new, says in (
        ("tiny (", "terse (", {"model": "terse"}),
        ("01234567", "76543210", {"weights": "7654321000"}),
    ):
        other = asked.replace(old, new)
        (folder / "lengths.md").write_text(f"# Every way\n\n{other}\n", encoding="utf-8")
        (folder / "reproduction.json").write_text(json.dumps(about | says))
        with pytest.raises(SystemExit) as refused:
            runpy.run_path(str(RESULTS))["main"](folder, docs)
        assert f"{folder}: lengths of this page was not asked the same: {other}" in str(refused)
        assert (docs / "results.md").read_text(encoding="utf-8") == page


def test_every_table_has_a_place_on_the_results_page() -> None:
    from rho_eos.reproduce.index import FIGURE_TITLES, TABLE_TITLES

    text = RESULTS.with_suffix(".md").read_text(encoding="utf-8")
    assert all(f"<!-- {name} -->\n" in text for name in TABLE_TITLES)
    with_a_table = set(TABLE_TITLES)  # a figure that has a table's name comes with the table
    assert all(f"results/{name}.png" in text for name in set(FIGURE_TITLES) - with_a_table)
