"""Fill results.md from a finished reproduction: `python docs/results.py FOLDER`.

What stands between <!-- NAME --> and <!-- /NAME --> is replaced by the folder's table of that name,
if the folder has it; figures and CSV files are copied to docs/results/. All other text is left as
it is: the tables of `all`, `lengths` and `stress` may come from folders of their own.
"""

import json
import re
import shutil
import sys
from pathlib import Path

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


def main(folder: Path, docs: Path = DOCS) -> None:
    page = docs / "results.md"
    page.write_text(fill(page.read_text(encoding="utf-8"), folder), encoding="utf-8")
    (docs / "results").mkdir(exist_ok=True)
    for pattern in ("*.png", "*.svg", "*.csv"):
        for file in sorted(folder.glob(pattern)):
            shutil.copy(file, docs / "results")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python docs/results.py FOLDER")
    main(Path(sys.argv[1]))
