"""The documentation site is whole, and the notebook gives what it shows."""

import re
from pathlib import Path

import nbclient
import nbformat
import pytest
import yaml

ROOT = Path(__file__).parents[2]


def _pages(nav: list) -> dict[str, str]:
    found: dict[str, str] = {}
    for entry in nav:
        for title, target in entry.items():
            found |= _pages(target) if isinstance(target, list) else {title: target}
    return found


def test_every_page_is_in_the_navigation() -> None:
    """Links are checked where the site is built: `make docs`, strictly."""
    pages = _pages(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"])
    there = {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    assert set(pages.values()) == there


def test_the_reference_has_all_that_can_be_imported() -> None:
    import rho_eos

    page = (ROOT / "docs" / "reference.md").read_text()
    public = {name for name in rho_eos.__all__ if name != "__version__"}
    assert public == set(re.findall(r"^::: rho_eos\.(\w+)$", page, re.MULTILINE))


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
