"""Commands run in this process, with what they printed."""

import io
import sys
from collections.abc import Callable
from typing import NamedTuple

import pytest

from rho_eos.cli import main


class Result(NamedTuple):
    code: int
    out: str
    err: str


Run = Callable[..., Result]


class Command:
    """`command("eval", "--tasks", …)` is `rho-eos eval --tasks …`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
        self.monkeypatch = monkeypatch
        self.capsys = capsys

    def __call__(self, *words: object, stdin: str | None = None) -> Result:
        self.monkeypatch.setattr(sys, "argv", ["rho-eos", *map(str, words)])
        if stdin is not None:
            self.monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        with pytest.raises(SystemExit) as exited:
            main()
        captured = self.capsys.readouterr()
        return Result(int(exited.value.code or 0), captured.out, captured.err)
