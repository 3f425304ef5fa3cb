"""Requests made up from the server's own OpenAPI schema: never a status in the 500s."""

from collections.abc import Iterator

import pytest
import schemathesis
from hypothesis import HealthCheck, settings

from tests.server.conftest import Process

schema = schemathesis.pytest.from_fixture("api")


@pytest.fixture(scope="session")
def api(server: Process) -> Iterator[schemathesis.BaseSchema]:
    yield schemathesis.openapi.from_url(f"{server.url}/openapi.json", timeout=120)


@schema.parametrize()
@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    suppress_health_check=list(HealthCheck),
)
def test_no_request_makes_the_server_fail(case: schemathesis.Case) -> None:
    if isinstance(case.body, dict):
        # Else all but a lucky few would stop at the first check; the rest stays as made up.
        case.body["model"] = "random"
        case.body["max_tokens"] = 8
        case.body.pop("max_completion_tokens", None)
    response = case.call(timeout=120)
    assert response.status_code < 500, response.text
