"""`make audit` with a pip-audit that finds nothing, finds something, or cannot look."""

import sys
from pathlib import Path

import pytest

from tests import audit

PROGRAMS = {
    "clean": ("print('No known vulnerabilities found', file=sys.stderr)", 0, "No known vuln"),
    "found": (
        "print('Name Version ID\\nx 1.0 CVE-1')\n"
        "print('Found 1 known vulnerability', file=sys.stderr)\nsys.exit(1)",
        1,
        "CVE-1",
    ),
    "unreachable": ("raise ConnectionError('pypi.org: no route')", 1, "pypi.org: no route"),
    "skipped": (
        "print('ERROR:x: could not be audited', file=sys.stderr)\nsys.exit('--strict' in sys.argv)",
        1,
        "could not be audited",
    ),
}


@pytest.mark.parametrize("name", list(PROGRAMS))
def test_what_was_not_looked_up_is_no_success(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program, code, said = PROGRAMS[name]
    script = tmp_path / "pip-audit"
    script.write_text(f"import sys\nassert {str(audit.CONSTRAINTS)!r} in sys.argv\n{program}\n")
    assert audit.main([sys.executable, str(script)]) == code
    shown = capsys.readouterr()
    assert said in shown.out + shown.err and "Traceback" not in shown.out + shown.err

    assert audit.main(["/nowhere/pip-audit"]) == 1
    assert "cannot be run" in capsys.readouterr().err
