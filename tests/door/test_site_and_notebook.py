"""The documentation site is whole, and the notebook gives what it shows."""

import inspect
import json
import re
from pathlib import Path

import nbclient
import nbformat
import pytest
import yaml

ROOT = Path(__file__).parents[2]
GUIDES = (
    "First answer",
    "Serve a team",
    "Reproduce the paper",
    "Write a policy, rule or cache",
    "Write a task",
    "Choose hardware",
)


def _pages(nav: list) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in nav:
        for title, target in entry.items():
            found |= _pages(target) if isinstance(target, list) else {title: target}
    return found


def test_every_page_is_in_the_navigation_and_every_guide_is_there() -> None:
    """Links are checked where the site is built: `make docs`, strictly."""
    pages = _pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    assert set(GUIDES) <= set(pages)
    there = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert set(pages.values()) == there
    assert all(len((ROOT / "docs" / pages[guide]).read_text().split()) > 120 for guide in GUIDES)


def test_the_reference_has_all_that_can_be_imported() -> None:
    import rho_eos

    page = (ROOT / "docs" / "reference.md").read_text()
    public = {name for name in rho_eos.__all__ if name != "__version__"}
    assert public == set(re.findall(r"^::: rho_eos\.(\w+)$", page, re.MULTILINE))


def test_examples_of_the_reference_are_code() -> None:
    """A line that begins with > is a quotation to Markdown, unless it stands under Examples."""
    import rho_eos

    objects = [getattr(rho_eos, name) for name in rho_eos.__all__]
    documented = {each: inspect.getdoc(each) or "" for each in objects if callable(each)}
    assert any(">>>" in text for text in documented.values())
    quoted = [each for each, text in documented.items() if re.search("^>", text, re.MULTILINE)]
    assert quoted == []


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "SECURITY.md"])
def test_links_of_pages_outside_the_site_lead_somewhere(page: str) -> None:
    targets = re.findall(r"\]\(([^)#]+)", (ROOT / page).read_text())
    local = [target for target in targets if not target.startswith("http")]
    assert local
    assert [target for target in local if not (ROOT / target).exists()] == []


def test_the_notebook_gives_what_it_shows(tmp_path: Path) -> None:
    notebook = nbformat.read(ROOT / "examples" / "tour.ipynb", as_version=4)
    shown = [_printed(cell) for cell in notebook.cells if cell.cell_type == "code"]
    assert all(shown), "a cell shows nothing"
    client = nbclient.NotebookClient(
        notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    assert [_printed(cell) for cell in notebook.cells if cell.cell_type == "code"] == shown


def _printed(cell: nbformat.NotebookNode) -> str:
    return "".join(out.text for out in cell.outputs if out.get("name") == "stdout")


@pytest.mark.parametrize("name", ["tour.ipynb"])
def test_notebooks_hold_no_noise(name: str) -> None:
    cells = json.loads((ROOT / "examples" / name).read_text())["cells"]
    kinds = {out.get("name") for cell in cells for out in cell.get("outputs", [])}
    assert kinds == {"stdout"}
