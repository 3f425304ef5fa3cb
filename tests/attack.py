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
from dataclasses import dataclass
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


@dataclass(frozen=True)
class Outcome:
    area: str
    tried: int
    held: int
    skipped: int
    seconds: float
    note: str = ""

    @property
    def good(self) -> bool:
        return self.tried > 0 and self.held == self.tried and not self.note


def attack(area: str, seconds: float = SECONDS) -> Outcome:
    """All tests of an area, in a process group of their own that ends with them or in time."""
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
            _end(process)
        counts = _counts(report)
    took = time.monotonic() - started
    if counts is None:
        return Outcome(area, 0, 0, 0, took, note or "no report")
    tried, bad, skipped = counts
    return Outcome(area, tried - skipped, tried - skipped - bad, skipped, took, note)


def main(areas: Sequence[str]) -> int:
    unknown = [area for area in areas if area not in AREAS]
    if unknown:
        print(f"no such area: {unknown[0]}; there are {', '.join(AREAS)}", file=sys.stderr)
        return 2
    outcomes = [attack(area) for area in areas or AREAS]
    print(table(outcomes))
    return 0 if all(outcome.good for outcome in outcomes) else 1


def table(outcomes: Sequence[Outcome]) -> str:
    head = ("area", "tried", "held", "skipped", "seconds")
    rows = [
        (each.area, each.tried, each.held, each.skipped, f"{each.seconds:.0f}", each.note)
        for each in outcomes
    ]
    lines = [f"{head[0]:12}" + "".join(f"{word:>9}" for word in head[1:])]
    lines += [f"{row[0]:12}" + "".join(f"{word:>9}" for word in row[1:5]) for row in rows]
    notes = [f"{row[0]}: {row[5]}" for row in rows if row[5]]
    return "\n".join(["", *lines, *notes])


def _fitting(pattern: str) -> list[str]:
    found = sorted(map(str, TESTS.glob(pattern)))
    assert found, f"no test fits {pattern}"
    return found


def _end(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _counts(report: Path) -> tuple[int, int, int] | None:
    """(tests, failures and errors, skipped)."""
    if not report.exists():
        return None
    suite = ElementTree.parse(report).getroot().find("testsuite")
    assert suite is not None
    number = {name: int(suite.get(name, 0)) for name in ("tests", "failures", "errors", "skipped")}
    return number["tests"], number["failures"] + number["errors"], number["skipped"]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
