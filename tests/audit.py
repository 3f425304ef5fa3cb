"""`python -m tests.audit PIP_AUDIT`: known vulnerabilities of the versions in constraints.txt.

pip-audit calls an audit good in which nothing could be looked up, and ends in a traceback without
the network. Here both are failures, in a sentence.
"""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

CONSTRAINTS = Path(__file__).parents[1] / "constraints.txt"
OPTIONS = ("--no-deps", "--disable-pip", "--strict", "--progress-spinner", "off")


def main(words: Sequence[str]) -> int:
    command = [*words, "--requirement", str(CONSTRAINTS), *OPTIONS]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        print(f"audit: {words[0]} cannot be run: {error.strerror}", file=sys.stderr)
        return 1
    said = done.stderr.strip().splitlines() or ["it did not say why"]
    if done.returncode == 0 or done.stdout.strip():  # a table of what was found
        print("\n".join([done.stdout.strip(), said[-1]]).strip())
    else:
        reason = said[-1][:300]
        print(f"audit: not all versions could be looked up: {reason}", file=sys.stderr)
    return min(done.returncode, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
