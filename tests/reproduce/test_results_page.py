"""The results page takes the tables of a folder and keeps its own text."""

import runpy
from pathlib import Path
from typing import Any

import pytest

from rho_eos.evals.runs.stats import Estimate
from rho_eos.evals.studies.findings import Finding, result_of
from rho_eos.evals.studies.survey import SURVEYS
from rho_eos.reproduce.tables import FIGURE_TITLES, TITLES
from tests.evals.scripted import rows_of

RESULTS = Path(__file__).parents[2] / "docs" / "results.py"
ASKED = {"model": "tiny", "weights": "0123456789", "limit": 200, "tasks": ["tiny-gsm"]}


def fill(folder: Path, docs: Path) -> str:
    runpy.run_path(str(RESULTS))["main"](folder, docs)
    return (docs / "results.md").read_text(encoding="utf-8")


def write_survey(
    folder: Path, rows: dict[tuple[str, int], tuple[float, int]], **asked: Any
) -> None:
    """`lengths` at τ 0.9 without cache: policy and L_init to accuracy and positions."""
    found = [
        Finding(
            section="τ 0.9, exact", policy=policy, start=start, samples=800, repeats=1,
            accuracy=Estimate(accuracy / 100, 0.005), e_ratio=Estimate(0.5, 0.005),
            positions=Estimate(positions, 9), n_token=Estimate(99, None),
            nfe=Estimate(8, None), edits=Estimate(1.5, None), early=Estimate(0.001, None),
        )
        for (policy, start), (accuracy, positions) in rows.items()
    ]  # fmt: skip
    told = {"asked": ASKED | asked, "words": f"asked: {ASKED | asked}"}
    result_of("lengths", "Every way", found, told).write(folder)


def test_a_survey_run_in_parts_is_joined(tmp_path: Path) -> None:
    """Rows of an earlier run stay, newer ones replace them, and what follows is made of all."""
    docs, folder = tmp_path / "docs", tmp_path / "part"
    (docs / "results").mkdir(parents=True)
    folder.mkdir()
    starts = (16, 64, 256, 512)
    write_survey(
        docs / "results",
        {("fixed", 512): (97.1, 4000)}
        | {("ρ-EOS Asym", start): (97.2, 2000 + start) for start in starts}
        | {("Scout", start): (80.0, 9999) for start in starts},
    )
    newer = {("Blocks until EOS", start): (90.0, 1000) for start in starts}
    newer |= {("Scout", start): (97.0, 1500) for start in starts}
    write_survey(folder, newer)
    (docs / "results.md").write_text("<!-- lengths -->\nold\n<!-- /lengths -->\n")
    before = {path: path.read_bytes() for path in folder.iterdir()}
    page = fill(folder, docs)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    cells = rows_of(docs / "results" / "lengths.csv")
    rows = {(row["policy"], row["L_init"]): row for row in cells}
    assert len(rows) == len(cells) == 13
    assert rows["Scout", "64"]["Acc %"].startswith("97.0")
    assert rows["ρ-EOS Asym", "64"]["Δ fixed"] == "+0.1"
    assert rows["Scout", "64"]["of Asym %"] == f"{100 * 1500 / 2064:.0f}"
    assert "Blocks until EOS from 16, 64, 256, 512" in page  # deceived
    assert page.count("**Use Scout.**") == 1
    assert "old" not in page and "](results/lengths.png)" in page
    assert fill(folder, docs) == page  # read back from what was kept
    assert (docs / "results" / "lengths.png").read_bytes().startswith(b"\x89PNG")
    # Rows of another model, of other weights, or of fewer samples, do not belong in one table.
    for other in ({"model": "terse"}, {"weights": "76543210"}, {"limit": 20}):
        write_survey(folder, newer, **other)
        with pytest.raises(SystemExit, match="not asked the same"):
            fill(folder, docs)
        assert (docs / "results.md").read_text(encoding="utf-8") == page


def test_every_table_has_a_place_on_the_page() -> None:
    text = RESULTS.with_suffix(".md").read_text(encoding="utf-8")
    assert all(f"<!-- {name} -->\n" in text for name in (*TITLES, *SURVEYS))
    assert all(f"results/{name}.png" in text for name in (*FIGURE_TITLES, *SURVEYS))
