"""The last line of a run of the tests says what was not tried, and why."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("must", [False, True])
def test_a_missing_program_is_named_in_the_last_line_or_is_a_failure(
    must: bool, tmp_path: Path
) -> None:
    """A PATH without bwrap: the other sandbox is tried all the same."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-n", "2", "-p", "no:cacheprovider"),
            *("tests/sandbox/test_honest_code.py", "-k", "test_the_order_of_sets"),
        ],
        cwd=ROOT,
        env=os.environ | {"PATH": str(tmp_path), "RHO_EOS_REQUIRE_ALL": str(int(must))},
        capture_output=True,
        text=True,
    )
    outcome = "1 passed, 1 error" if must else "1 passed, 1 skipped"
    assert outcome in done.stdout, done.stdout
    assert done.returncode == int(must)
    last = done.stdout.strip().splitlines()[-1]
    assert ("bwrap is not installed" in last) == (not must), last
