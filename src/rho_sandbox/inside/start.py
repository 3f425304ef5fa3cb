"""The script a sandbox starts with; its only argument is the number of its control socket."""

# ruff: noqa: PTH120
# pathlib would take longer to import than this file to run, and it is imported for every run.

import os
import sys

if __name__ == "__main__":
    sys.path[0] = os.path.dirname(sys.path[0])
    from inside.supervisor import main  # type: ignore[import-not-found,unused-ignore]

    del sys.path[0]
    main()
