"""By which names a server may be called: a page whose own name points here is turned away."""

import pytest

from rho_eos import UserError
from rho_eos.server.config import ServerConfig
from tests.scripted import says
from tests.server.scripted_server import ControlledRunner, chat_body, serving

ADDRESSES = ["127.0.0.1", "127.0.0.1:8000", "[::1]:80", "192.168.1.5:8000", "[2001:db8::1]"]
STRANGERS = ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil", "["]


def test_another_name_gets_no_answer_from_any_path() -> None:
    names = ("proxy.example", "*.team.example")
    with serving(ControlledRunner(says("ok")), allowed_host=names) as server:
        for path in ("/", "/v1/models", "/health", "/metrics", "/openapi.json", "/static/app.js"):
            assert server.http.get(path, headers={"Host": "evil.example"}).status_code == 400, path
        for host in (*STRANGERS, "a.proxy.example", "team.example.evil"):
            assert server.http.get("/version", headers={"Host": host}).status_code == 400, host
        ours = ("localhost", "LOCALHOST:9", "proxy.example:443", "Proxy.example", "a.team.example")
        for host in (*ours, *ADDRESSES):
            assert server.http.get("/version", headers={"Host": host}).status_code == 200, host
        chat = "/v1/chat/completions"
        for host, status in (("evil.example", 400), ("proxy.example", 200)):
            answer = server.http.post(chat, json=chat_body(), headers={"Host": host})
            assert answer.status_code == status


def test_a_star_is_any_name() -> None:
    with serving(ControlledRunner(says("ok")), allowed_host=("*",)) as server:
        assert server.http.get("/version", headers={"Host": "any.example"}).status_code == 200


@pytest.mark.parametrize("name", [" ", "a.*.example", "*example"])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(UserError) as refused:
        ServerConfig(allowed_host=(name,))
    assert refused.value.field == "allowed_host"
