"""What tests of every room share."""

import os

import pytest


def require(condition: bool, reason: str) -> None:
    """Skip, with the reason, where what a test needs is absent; fail where it must be there."""
    if condition:
        return
    if os.environ.get("RHO_EOS_REQUIRE_ALL") == "1":
        pytest.fail(f"RHO_EOS_REQUIRE_ALL is set, but {reason}")
    pytest.skip(reason)
