"""Fill results.md from the folder of a reproduction or a survey: `python docs/results.py FOLDER`.

What stands between <!-- NAME --> and <!-- /NAME --> is replaced by the folder's table of that name,
if the folder has it. Figures, CSV files and the numbers of surveys are copied to docs/results/. All
other text is left as it is, so the tables may come from several folders.

A survey takes hours, so its rows may come from several runs and machines: those of docs/results/
that the folder lacks are kept, and verdict and picture are made of all of them.
"""

import json
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rho_eos.evals.runs.stats import Estimate
from rho_eos.evals.studies.findings import Finding
from rho_eos.evals.studies.survey import SURVEYS, write_survey

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
        return f"{match[1]}{body}{match[3]}"

    return MARK.sub(content, page)


def table(path: Path) -> str:
    """A table's file without its heading, which the page has already."""
    text = path.read_text(encoding="utf-8").partition("\n")[2].lstrip("\n")
    return re.sub(r"\]\(([a-z-]+\.png)\)", r"](results/\1)", text)


def facts(folder: Path) -> str:
    about = json.loads((folder / "study.json").read_text(encoding="utf-8"))
    samples = "all samples" if about["limit"] is None else f"{about['limit']} samples"
    return (
        f"Model `{about['model']}`, weights `{about['weights']}`, {samples} of each task, "
        f"rho-eos {about['rho-eos']}, {about['made'][:10]}.\n"
    )


def join_survey(name: str, folder: Path, earlier: Path) -> None:
    """The folder's survey with the rows that only an earlier one has; where both do, the folder's.

    What follows from several rows is made anew.
    """
    before, now = (
        json.loads(path.read_text(encoding="utf-8")) for path in (earlier, folder / f"{name}.json")
    )
    if before["asked"] != now["asked"]:
        sys.exit(f"{name} of this page was not asked the same: {now['words']}")
    found = {
        (each.section, each.policy, each.start): each
        for each in map(finding, [*before["findings"], *now["findings"]])
    }
    told = {"asked": now["asked"], "words": now["words"]}
    write_survey(folder, name, now["title"], list(found.values()), told)


def finding(numbers: Mapping[str, Any]) -> Finding:
    """A finding, read back."""
    read = {name: Estimate(**each) for name, each in numbers.items() if isinstance(each, dict)}
    return Finding(**{**numbers, **read})


def main(folder: Path, docs: Path = DOCS) -> None:
    kept = docs / "results"
    kept.mkdir(exist_ok=True)
    with TemporaryDirectory() as made:
        whole = Path(made)
        for file in sorted(path for path in folder.iterdir() if path.is_file()):
            shutil.copy(file, whole)
        surveys = [name for name in SURVEYS if (whole / f"{name}.json").exists()]
        for name in surveys:
            if (kept / f"{name}.json").exists():
                join_survey(name, whole, kept / f"{name}.json")
        page = docs / "results.md"
        page.write_text(fill(page.read_text(encoding="utf-8"), whole), encoding="utf-8")
        for pattern in ("*.png", "*.svg", "*.csv"):
            for file in sorted(whole.glob(pattern)):
                shutil.copy(file, kept)
        for name in surveys:
            keep_numbers(whole / f"{name}.json", kept / f"{name}.json")


def keep_numbers(source: Path, target: Path) -> None:
    """Of a survey what its table is made of, a row in each line."""
    content = json.loads(source.read_text(encoding="utf-8"))
    rows = [json.dumps(each, ensure_ascii=False) for each in content["findings"]]
    facts = [f'"{name}": {json.dumps(content[name])}' for name in ("title", "asked", "words")]
    text = "{" + ",\n".join([*facts, '"findings": [\n' + ",\n".join(rows) + "]"]) + "}\n"
    target.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python docs/results.py FOLDER")
    main(Path(sys.argv[1]))
