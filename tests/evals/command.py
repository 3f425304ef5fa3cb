"""Commands run in this process, with what they printed."""

import sys
from typing import NamedTuple

import pytest

from rho_eos.cli import main


class Result(NamedTuple):
    code: int
    out: str
    err: str


class Command:
    """`command("eval", "--tasks", …)` is `rho-eos eval --tasks …`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch = monkeypatch
        self.capsys = capsys

    def __call__(self, *words: object) -> Result:
        self.monkeypatch.setattr(sys, "argv", ["rho-eos", *map(str, words)])
        with pytest.raises(SystemExit) as exited:
            main()
        captured = self.capsys.readouterr()
        return Result(int(exited.value.code or 0), captured.out, captured.err)
