"""The process of `rho-eos` and `python -m rho_eos`."""

import atexit
import os
import sys

from rho_eos.cli import main


def run() -> None:
    """Run a command, and end the process when all is said and all exit handlers have run.

    The kernel frees the memory at once. Python would first take every module apart, which takes a
    second with torch, and libraries that count their objects (nanobind) would report those that
    outlive this.
    """
    code: int | None = None

    def end() -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        if code is not None:  # else an error that nobody expected, which Python reports
            os._exit(code)

    atexit.register(end)  # registered first, it runs after all others
    try:
        main()
    except SystemExit as ended:
        code = int(ended.code or 0)
        raise


if __name__ == "__main__":
    run()
