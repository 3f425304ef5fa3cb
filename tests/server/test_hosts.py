"""By which names a server may be called: a page whose own name points here is turned away."""

import pytest

from rho_eos import UserError
from rho_eos.server.config import ServerConfig
from rho_eos.server.hosts import AllowedHosts
from tests.scripted import says
from tests.server.scripted_server import ControlledRunner, chat_body, serving


@pytest.mark.parametrize(
    ("bound", "names", "good", "bad"),
    [
        (
            "127.0.0.1",
            (),
            ["127.0.0.1", "127.0.0.1:8000", "localhost", "LOCALHOST:9", "[::1]:80", "localhost."],
            ["evil.example", "evil.example:8000", "127.0.0.1.evil.example", "localhost.evil", ""],
        ),
        ("127.0.0.1", (), [], ["192.168.1.5", "10.0.0.1:8000", "[2001:db8::1]", "a:b:c", "["]),
        (
            "0.0.0.0",
            ("api.example",),
            ["192.168.1.5:8000", "[2001:db8::1]:80", "localhost", "api.example", "API.example:443"],
            ["evil.example", "x.api.example", "api.example.evil"],
        ),
        ("::", (), ["[::1]", "10.1.2.3", "localhost"], ["evil.example"]),
        ("10.0.0.7", (), ["10.0.0.7:8000"], ["localhost", "127.0.0.1", "10.0.0.8"]),
        ("box.example", (), ["box.example:8000"], ["localhost", "evil.example"]),
        ("127.0.0.1", ("*",), ["anything.example", "10.0.0.1"], []),
    ],
)
def test_names_and_addresses(
    bound: str, names: tuple[str, ...], good: list[str], bad: list[str]
) -> None:
    hosts = AllowedHosts(bound, names)
    assert [host for host in good if not hosts.accepts(host)] == []
    assert [host for host in bad if hosts.accepts(host)] == []


def test_another_name_gets_no_answer_from_any_path() -> None:
    with serving(ControlledRunner(says("ok")), allowed_host=("proxy.example",)) as server:
        for path in ("/", "/v1/models", "/health", "/metrics", "/openapi.json", "/static/app.js"):
            answer = server.http.get(path, headers={"Host": "evil.example"})
            assert answer.status_code == 421, path
            assert answer.json()["error"]["code"] == "unknown_host"
            assert "--allowed-host" in answer.json()["error"]["message"]
            assert answer.headers["connection"] == "close"
        body = chat_body()
        url = "/v1/chat/completions"
        for host in ("evil.example", "127.0.0.1.evil.example:80"):
            assert server.http.post(url, json=body, headers={"Host": host}).status_code == 421
        for host in ("proxy.example", "localhost:1234"):
            assert server.http.post(url, json=body, headers={"Host": host}).status_code == 200


def test_an_empty_name_is_refused() -> None:
    with pytest.raises(UserError, match="allowed_host"):
        ServerConfig(allowed_host=(" ",))
