"""`make attack` itself: it counts what held, says what did not, and ends."""

from pathlib import Path

import pytest

from tests import attack

TESTS = "import pytest\ndef test_one(): pass\ndef test_two(): assert {held}\n"
TESTS += "@pytest.mark.skip('not here')\ndef test_three(): pass\n"


@pytest.fixture
def area(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # they take longer than the tests
    monkeypatch.setattr(attack, "TESTS", tmp_path / "tests")
    monkeypatch.setattr(attack, "AREAS", {"mine": ("test_it.py",)})
    (tmp_path / "tests").mkdir()
    return tmp_path / "tests" / "test_it.py"


def test_what_holds_is_counted_and_what_does_not_fails(
    area: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    area.write_text(TESTS.format(held=True))
    assert attack.main([]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[:4] == ["mine", "2", "2", "1"]
    area.write_text(TESTS.format(held=False))
    held, line = attack.attack("mine")
    assert not held and line.split()[:4] == ["mine", "2", "1", "1"]
    area.write_text("this is no Python")
    assert not attack.attack("mine")[0]


def test_it_ends_in_time(area: Path) -> None:
    area.write_text("import time\n\n\ndef test_one():\n    time.sleep(600)\n")
    held, line = attack.attack("mine", seconds=2)
    assert not held and "ended after 2 s" in line


def test_every_pattern_fits_a_file_and_areas_are_named() -> None:
    assert all(attack._fitting(each) for patterns in attack.AREAS.values() for each in patterns)
    assert attack.main(["nothing"]) == 2
