"""Who may ask, what is told to whom, and what the log keeps."""

import logging
from pathlib import Path

import httpx
import pytest

from rho_eos import UserError
from rho_eos.server.config import API_KEY_VARIABLE, ServerConfig
from tests.scripted import says
from tests.server.scripted_server import ControlledRunner, Scripted, chat_body, serving


def test_without_a_key_only_the_page_and_the_probes_are_served() -> None:
    with serving(ControlledRunner(says("ok")), api_key=("first", "second")) as server:
        for path in ("/health", "/ready", "/version", "/static/missing.js"):
            assert server.http.get(path).status_code in (200, 404)
        for path in ("/v1/models", "/metrics", "/openapi.json", "/v1/rho_eos/playground"):
            assert server.http.get(path).status_code == 401, path
        for header in (
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": "Bearer"},
            {"Authorization": "Bearer firs"},
            {"Authorization": "Bearer firstt"},
            {"Authorization": "Basic first"},
            {"Authorization": b"Bearer \xff\xfe"},
        ):
            answer = server.http.post("/v1/chat/completions", json=chat_body(), headers=header)
            assert answer.status_code == 401
            assert answer.json()["error"]["code"] == "invalid_api_key"
            assert answer.headers["www-authenticate"] == "Bearer"
        for key in ("first", "second"):
            header = {"Authorization": f"Bearer {key}"}
            good = server.http.post("/v1/chat/completions", json=chat_body(), headers=header)
            assert good.status_code == 200


def test_a_large_body_without_a_key_is_not_even_read() -> None:
    with serving(ControlledRunner(says("ok")), api_key=("first",)) as server:
        answer = server.http.post("/v1/chat/completions", content=b"x" * 2_000_000)
        assert answer.status_code == 401


def test_keys_come_from_options_a_file_and_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("from-file\n\nanother\n")
    config = ServerConfig(api_key=("given",), api_key_file=str(file))
    assert set(config.keys({API_KEY_VARIABLE: "env-1, env-2"})) == {
        "given",
        "from-file",
        "another",
        "env-1",
        "env-2",
    }
    assert ServerConfig().keys({}) == ()
    with pytest.raises(UserError, match="cannot read api_key_file"):
        ServerConfig(api_key_file=str(tmp_path / "missing")).keys({})
    file.write_text("\n")
    with pytest.raises(UserError, match="holds no key"):  # an empty file must not open the door
        ServerConfig(api_key_file=str(file)).keys({})


def test_it_listens_on_this_machine_alone_unless_told() -> None:
    assert ServerConfig().host == "127.0.0.1"


def _preflight(server: Scripted, origin: str) -> httpx.Response:
    headers = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    return server.http.options("/v1/chat/completions", headers=headers)


def test_other_origins_are_let_in_only_by_name() -> None:
    page = "https://page.example"
    with serving(ControlledRunner(says("ok"))) as server:
        assert "access-control-allow-origin" not in _preflight(server, page).headers
        answer = server.http.get("/v1/models", headers={"Origin": page})
        assert "access-control-allow-origin" not in answer.headers
    with serving(ControlledRunner(says("ok")), cors_origin=(page,), api_key=("k",)) as server:
        assert _preflight(server, page).headers["access-control-allow-origin"] == page
        other = _preflight(server, "https://other.example")
        assert "access-control-allow-origin" not in other.headers


def test_every_answer_has_an_id_and_safe_headers() -> None:
    with serving(ControlledRunner(says("ok"))) as server:
        for answer in (server.chat(), server.http.get("/nothing"), server.http.get("/")):
            assert answer.headers["x-request-id"]
            policy = answer.headers["content-security-policy"]
            assert policy.startswith("default-src 'self'") and "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
        named = server.http.get("/health", headers={"X-Request-ID": "mine-1"})
        assert named.headers["x-request-id"] == "mine-1"
        forged = server.http.get("/health", headers={"X-Request-ID": "a b\tc"})
        assert forged.headers["x-request-id"] != "a b\tc"


def test_the_log_names_requests_and_keeps_no_text(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with serving(ControlledRunner(says("a private answer"))) as server:
        server.chat("a private question")
        server.chat("a private question", stream=True)
        server.chat("a private question", private_field=1)
        server.chat("a private question", policy="private")
        server.http.get("/a%0Aforged%20line")
    ours = [record for record in caplog.records if record.name.startswith("rho_eos")]
    assert any("chatcmpl-" in record.getMessage() for record in ours)
    assert any("/v1/chat/completions 400" in record.getMessage() for record in ours)
    for record in caplog.records:
        if not record.name.startswith("httpx"):
            assert "private" not in record.getMessage().replace("httpx", "")
            assert "\n" not in record.getMessage()


def test_prompts_are_logged_if_asked(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with serving(ControlledRunner(says("ok")), log_prompts=True) as server:
        server.chat("a question on record")
    assert any("a question on record" in record.getMessage() for record in caplog.records)


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
