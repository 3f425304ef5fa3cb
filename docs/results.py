"""Fill results.md from a finished reproduction: `python docs/results.py FOLDER`.

What stands between <!-- NAME --> and <!-- /NAME --> is replaced by the folder's table of that name,
if the folder has it; figures and CSV files are copied to docs/results/. All other text is left as
it is: the tables of `all`, `lengths` and `stress` may come from folders of their own.

A survey takes hours, so its rows may come from several runs and machines: those of docs/results/
that the folder lacks are kept, and verdict and picture are made of all of them.
"""

import csv
import json
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from rho_eos.evals.runs.report import NONE, TaskSummary
from rho_eos.evals.runs.stats import Estimate
from rho_eos.reproduce.profiles import PROFILES
from rho_eos.reproduce.survey import SURVEYS, Part, Survey, SurveyRow, plan_survey
from rho_eos.reproduce.survey_figure import write_figure
from rho_eos.reproduce.survey_table import ALL, Finding, comparable, result_of

DOCS = Path(__file__).parent
MARK = re.compile(r"(<!-- ([a-z-]+) -->\n).*?(<!-- /\2 -->)", re.DOTALL)


def fill(page: str, folder: Path) -> str:
    """The page with every marked part made anew that the folder has."""
    made = {path.stem for path in folder.glob("*.md")} & {name for _, name, _ in MARK.findall(page)}
    if not made:
        sys.exit(f"{folder} has none of the tables of this page")

    def content(match: re.Match[str]) -> str:
        name = match[2]
        if name not in made and not (name == "facts" and "main" in made):
            return match[0]
        body = facts(folder) if name == "facts" else table(folder / f"{name}.md")
        if (folder / f"{name}.png").exists():  # the table's own figure
            body += f"\n![{name}](results/{name}.png)\n"
        return f"{match[1]}{body}{match[3]}"

    return MARK.sub(content, page)


def table(path: Path) -> str:
    """A table's file without its heading, which the page has already."""
    return path.read_text(encoding="utf-8").partition("\n")[2].lstrip("\n")


def facts(folder: Path) -> str:
    about = json.loads((folder / "reproduction.json").read_text(encoding="utf-8"))
    samples = "all samples" if about["limit"] is None else f"{about['limit']} samples"
    return (
        f"Model `{about['model']}`, weights `{about['weights']}`, profile {about['profile']}, "
        f"{samples} of each task, rho-eos {about['rho-eos']}, {about['made'][:10]}.\n"
    )


def join_survey(name: str, folder: Path, page: str, earlier: Path, asked_of: Path) -> None:
    """The folder's survey with the rows that only an earlier CSV has; where both do, the folder's.

    Numbers are those that a table shows. What follows from several rows is made anew. `asked_of`:
    the folder as the user calls it.
    """
    before, now = read_rows(earlier), read_rows(folder / f"{name}.csv")
    if before.keys() <= now.keys():
        return
    about = json.loads((folder / "reproduction.json").read_text(encoding="utf-8"))
    text = (folder / f"{name}.md").read_text(encoding="utf-8")
    model = f"{about['model']} (weights {about['weights'][:8]}), "
    asked = next((line for line in text.splitlines() if line.startswith(model)), None)
    if asked is None:
        sys.exit(f"{asked_of}: {name}.md does not say what was asked; run reproduce again, on it")
    if asked not in page.splitlines() or len({row["n"] for row in (before | now).values()}) > 1:
        sys.exit(f"{asked_of}: {name} of this page was not asked the same: {asked}")
    [survey] = plan_survey(name, PROFILES[about["profile"]], [], Part())
    assert isinstance(survey, Survey)
    keys = {(row.section, row.contender.label, f"{row.start}"): row for row in survey.every}
    if unknown := (before | now).keys() - keys.keys():
        sys.exit(f"{asked_of}: {name} has rows that are not in its plan: {sorted(unknown)}")
    rows = before | now
    found = comparable([finding(row, rows[key]) for key, row in keys.items() if key in rows])
    result_of(survey, found, asked).write(folder)
    write_figure(found, folder / name)


def read_rows(path: Path) -> dict[tuple[str, str, str], dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return {(row["section"], row["policy"], row["L_init"]): row for row in csv.DictReader(file)}


def finding(row: SurveyRow, cells: Mapping[str, str]) -> Finding:
    """A row of the CSV, read back."""
    n, _, repeats = cells["n"].partition("×")
    answers = int(n) * int(repeats or 1)
    accuracy = estimate(cells["Acc %"], 100)
    summary = TaskSummary(
        ALL,
        int(n),
        int(repeats or 1),
        Estimate(round(accuracy.mean * answers) / answers, accuracy.error),  # as it was counted
        {
            "positions_evaluated": estimate(cells["positions"]),
            "n_token": estimate(cells["N_token"]),
            "nfe": estimate(cells["NFE"]),
            "adjustments": estimate(cells["edits"]),
        },
        None if cells["E_ratio %"] == NONE else estimate(cells["E_ratio %"], 100),
        seconds=0.0,
    )
    return Finding(row, summary, early=float(cells["ended early %"]) / 100)


def estimate(cell: str, scale: int = 1) -> Estimate:
    mean, _, error = cell.partition(" ± ")
    return Estimate(float(mean) / scale, float(error) / scale if error else None)


def main(folder: Path, docs: Path = DOCS) -> None:
    kept = docs / "results"
    kept.mkdir(exist_ok=True)
    with TemporaryDirectory() as made:
        whole = Path(made)
        for pattern in ("*.json", "*.md", "*.png", "*.svg", "*.csv"):
            for file in sorted(folder.glob(pattern)):
                shutil.copy(file, whole)
        page = docs / "results.md"
        text = page.read_text(encoding="utf-8")
        for name in SURVEYS:
            if (whole / f"{name}.csv").exists() and (kept / f"{name}.csv").exists():
                join_survey(name, whole, text, kept / f"{name}.csv", folder)
        page.write_text(fill(text, whole), encoding="utf-8")
        for pattern in ("*.png", "*.svg", "*.csv"):
            for file in sorted(whole.glob(pattern)):
                shutil.copy(file, kept)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python docs/results.py FOLDER")
    main(Path(sys.argv[1]))
