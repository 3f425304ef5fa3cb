"""`python -m tests.attack`: everything that attacks rho-eos, at length, with a table at the end.

The attacks are tests like others, and run in their quick forms with them. Here each area runs by
itself, longer (`times`), and within a time. All of it stays on this machine: servers listen on
127.0.0.1, files are in temporary folders.
"""

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from xml.etree import ElementTree

TESTS = Path(__file__).parent
LONG = os.environ.get("RHO_EOS_ATTACK") == "long"
#: What is attacked, and by which tests. A pattern that fits no file is a mistake.
AREAS: dict[str, tuple[str, ...]] = {
    "sandbox": ("sandbox/test_*.py", "evals/test_graders.py"),
    "server": (
        "server/test_bad_input.py",
        "server/test_connections.py",
        "server/test_faults.py",
        "server/test_fuzz.py",
        "server/test_load.py",
        "server/test_security.py",
        "server/test_shutdown.py",
    ),
    "engine": (
        "engine/test_any_parameters.py",
        "test_forms.py",
        "engine/test_handles.py",
        "engine/test_not_finite.py",
        "engine/test_out_of_memory.py",
        "test_bounds.py",
        "test_streaming.py",
    ),
    "files": (
        "test_jsonl.py",
        "test_files_of_requests.py",
        "server/test_batch.py",
        "evals/test_run.py",
    ),
    "checkpoints": (
        "models/test_malformed*.py",
        "models/test_remote_code.py",
        "test_chat_template.py",
        "test_user_text.py",
    ),
}
SECONDS = 1800.0  # for each area


def times(quick: int, long: int) -> int:
    """How often: few times among all tests, many in an attack."""
    return long if LONG else quick


def attack(area: str, seconds: float = SECONDS) -> tuple[bool, str]:
    """Whether everything held, and the line of the table that says so.

    All tests of an area run in a process group of their own, which ends with them or in time.
    """
    files = [found for pattern in AREAS[area] for found in _fitting(pattern)]
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short"]
        process = subprocess.Popen(
            [*command, f"--junitxml={report}", *files],
            cwd=TESTS.parent,
            env=os.environ | {"RHO_EOS_ATTACK": "long"},
            start_new_session=True,
        )
        note = ""
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            note = f"ended after {seconds:g} s"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        tests, bad, skipped = _counts(report)
    tried, took = tests - skipped, time.monotonic() - started
    line = f"{area:12}{tried:>9}{tried - bad:>9}{skipped:>9}{took:>9.0f}  {note}"
    return tried > 0 and not bad and not note, line


def main(areas: Sequence[str]) -> int:
    unknown = [area for area in areas if area not in AREAS]
    if unknown:
        print(f"no such area: {unknown[0]}; there are {', '.join(AREAS)}", file=sys.stderr)
        return 2
    outcomes = [attack(area) for area in areas or AREAS]
    print(f"\n{'area':12}{'tried':>9}{'held':>9}{'skipped':>9}{'seconds':>9}")
    print("\n".join(line.rstrip() for _, line in outcomes))
    return 0 if all(held for held, _ in outcomes) else 1


def _fitting(pattern: str) -> list[str]:
    found = sorted(map(str, TESTS.glob(pattern)))
    assert found, f"no test fits {pattern}"
    return found


def _counts(report: Path) -> tuple[int, int, int]:
    """(tests, failures and errors, skipped); none of them where there is no report."""
    if not report.exists():
        return 0, 0, 0
    suite = ElementTree.parse(report).getroot().find("testsuite")
    assert suite is not None
    names = ("tests", "failures", "errors", "skipped")
    tests, failures, errors, skipped = (int(suite.get(name, 0)) for name in names)
    return tests, failures + errors, skipped


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
