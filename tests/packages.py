"""Packages made up for a test: a module, and an entry point that announces it."""

from pathlib import Path


class Packages:
    def __init__(self, folder: Path, group: str) -> None:
        self.folder = folder
        self.group = group

    def install(self, module: str, source: str, value: str | None = None) -> None:
        (self.folder / f"{module}.py").write_text(source)
        about = self.folder / f"{module}-1.0.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (about / "entry_points.txt").write_text(f"[{self.group}]\nx = {value or module}\n")
