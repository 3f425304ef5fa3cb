"""`make attack` itself: it counts what held, says what did not, and ends."""

import sys
import time
from pathlib import Path

import pytest

from tests import attack

HELD = "def test_one():\n    pass\n\n\ndef test_two():\n    pass\n"
BROKEN = "import pytest\n\n\ndef test_one():\n    pass\n\n\ndef test_two():\n    assert False\n"
SKIPPED = '\n\n@pytest.mark.skip("not here")\ndef test_three():\n    pass\n'


@pytest.fixture
def area(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take longer than the tests
    monkeypatch.setattr(attack, "TESTS", tmp_path / "tests")
    monkeypatch.setattr(attack, "AREAS", {"mine": ("test_it.py",)})
    (tmp_path / "tests").mkdir()
    return tmp_path / "tests" / "test_it.py"


def test_what_holds_is_counted(area: Path, capsys: pytest.CaptureFixture[str]) -> None:
    area.write_text(HELD)
    assert attack.main([]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[:4] == ["mine", "2", "2", "0"]


def test_what_does_not_hold_is_counted_and_fails(area: Path) -> None:
    area.write_text(BROKEN + SKIPPED)
    outcome = attack.attack("mine")
    assert (outcome.tried, outcome.held, outcome.skipped) == (2, 1, 1)
    assert not outcome.good
    area.write_text("this is no Python")
    assert not attack.attack("mine").good


def test_it_ends_in_time(area: Path) -> None:
    area.write_text("import time\n\n\ndef test_one():\n    time.sleep(600)\n")
    started = time.monotonic()
    outcome = attack.attack("mine", seconds=2)
    assert time.monotonic() - started < 60
    assert not outcome.good and "ended after" in outcome.note


def test_every_pattern_fits_a_file_and_areas_are_named() -> None:
    for patterns in attack.AREAS.values():
        for pattern in patterns:
            assert attack._fitting(pattern)
    assert attack.main(["nothing"]) == 2
    assert "tests.attack" in (Path(__file__).parents[1] / "Makefile").read_text()
    assert sys.modules["tests.attack"] is attack
