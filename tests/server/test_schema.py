"""Requests made up from the server's own OpenAPI schema: never a status in the 500s."""

from typing import Any

from hypothesis import HealthCheck, given, settings

from tests.server.conftest import MODEL, Process

EXAMPLES = 30  # per endpoint and kind


COMMON = ("model", "max_tokens", "initial_length", "temperature", "seed", "n", "user")


def check(operation: Any, mode: Any) -> set[int]:
    """Send what the schema allows, or what it does not; the statuses that came back."""
    from schemathesis import GenerationMode

    seen = set()

    @given(case=operation.as_strategy(generation_mode=mode))
    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    def send(case: Any) -> None:
        if isinstance(case.body, dict) and mode is GenerationMode.POSITIVE:
            # Else nearly all would stop at the first check, or decode for minutes.
            case.body |= {"model": MODEL, "max_tokens": 8, "initial_length": 4}
            for name in ("max_completion_tokens", "template", "suffix"):
                case.body.pop(name, None)
            if len(case.body) % 2:  # parameters of all policies at once are always refused
                said = repr(case.body)[:60]
                case.body = {name: case.body[name] for name in COMMON if name in case.body}
                if operation.path == "/v1/completions":
                    case.body |= {"prompt": said}
                else:
                    case.body |= {"messages": [{"role": "user", "content": said}]}
        response = case.call(timeout=120)
        assert response.status_code < 500, response.text
        seen.add(response.status_code)

    send()
    return seen


def test_no_request_makes_the_server_fail(server: Process) -> None:
    import schemathesis  # here: it takes seconds, and every worker imports all files
    from schemathesis import GenerationMode

    schema = schemathesis.openapi.from_url(f"{server.url}/openapi.json", timeout=120)
    statuses: dict[str, set[int]] = {}
    for result in schema.get_all_operations():
        operation = result.ok()
        statuses[operation.path] = check(operation, GenerationMode.POSITIVE)
        if operation.body:
            statuses[operation.path] |= check(operation, GenerationMode.NEGATIVE)
    for path in ("/v1/chat/completions", "/v1/completions"):
        assert statuses[path] >= {200, 400}, "the made-up requests did not get far"
    assert len(statuses) >= 8
