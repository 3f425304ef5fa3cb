"""Who may ask, what is told to whom, and what the log keeps."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from rho_eos import UserError
from rho_eos.server.config import API_KEY_VARIABLE, ServerConfig
from tests.scripted import says
from tests.server.clients import Web, error_of
from tests.server.scripted_server import ControlledRunner, chat_body, serving


@contextmanager
def ok(**config: Any) -> Iterator[Web]:
    with serving(ControlledRunner(says("ok")), **config) as server:
        yield server.http


WRONG = ["Bearer wrong", "Bearer", "Bearer firstt", "Basic first", b"Bearer \xff\xfe"]


def test_without_a_key_only_the_page_and_the_probes_are_served() -> None:
    with ok(api_key=("first", "second")) as web:
        for path in ("/health", "/ready", "/version", "/static/missing.js"):
            assert web.get(path).status_code in (200, 404)
        for path in ("/v1/models", "/metrics", "/openapi.json", "/v1/rho_eos/playground"):
            assert web.get(path).status_code == 401, path
        chat = "/v1/chat/completions"
        for wrong in ("", *WRONG):
            answer = web.post(chat, json=chat_body(), headers={"Authorization": wrong})
            assert error_of(answer, 401)["code"] == "invalid_api_key"
            assert answer.headers["www-authenticate"] == "Bearer"
        for key in ("first", "second"):
            headers = {"Authorization": f"Bearer {key}"}
            assert web.post(chat, json=chat_body(), headers=headers).status_code == 200


def test_keys_come_from_options_a_file_and_the_environment(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("from-file\n\nanother\n")
    config = ServerConfig(api_key=("given",), api_key_file=str(file))
    keys = config.keys({API_KEY_VARIABLE: "env-1, env-2"})
    assert set(keys) == {"given", "from-file", "another", "env-1", "env-2"}
    assert ServerConfig().keys({}) == () and ServerConfig().host == "127.0.0.1"
    with pytest.raises(UserError, match="cannot read api_key_file"):
        ServerConfig(api_key_file=str(tmp_path / "missing")).keys({})
    with pytest.raises(UserError, match=r"/dev/zero.*larger than"):
        ServerConfig(api_key_file="/dev/zero").keys({})
    file.write_text("\n")
    with pytest.raises(UserError, match="holds no key"):  # an empty file must not open the door
        ServerConfig(api_key_file=str(file)).keys({})


def test_other_origins_are_let_in_only_by_name() -> None:
    page, allowed = "https://page.example", "access-control-allow-origin"

    def asked(web: Web, origin: str) -> httpx.Headers:
        headers = {"Origin": origin, "Access-Control-Request-Method": "POST"}
        return web.options("/v1/chat/completions", headers=headers).headers

    with ok() as web:
        assert allowed not in asked(web, page)
        assert allowed not in web.get("/v1/models", headers={"Origin": page}).headers
    with ok(cors_origin=(page,), api_key=("k",)) as web:
        assert asked(web, page)[allowed] == page
        assert allowed not in asked(web, "https://other.example")


def test_every_answer_has_an_id_and_safe_headers() -> None:
    with ok() as web:
        for answer in (web.chat(), web.get("/nothing"), web.get("/")):
            assert answer.headers["x-request-id"]
            policy = answer.headers["content-security-policy"]
            assert policy.startswith("default-src 'self'") and "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
        for name, kept in (("mine-1", True), ("a b\tc", False)):
            answer = web.get("/health", headers={"X-Request-ID": name})
            assert (answer.headers["x-request-id"] == name) is kept


def test_the_log_names_requests_and_keeps_no_text(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with serving(ControlledRunner(says("a private answer"))) as server:
        server.chat("a private question")
        server.chat("a private question", stream=True)
        server.chat("a private question", private_field=1)
        server.chat("a private question", policy="private")
        server.http.get("/a%0Aforged%20line")
    with ok(log_prompts=True) as web:
        web.chat("a question on record")
    ours = [record for record in caplog.records if record.name.startswith("rho_eos")]
    assert any("chatcmpl-" in record.getMessage() for record in ours)
    assert any("/v1/chat/completions 400" in record.getMessage() for record in ours)
    assert any("a question on record" in record.getMessage() for record in ours)
    for record in caplog.records:
        if not record.name.startswith("httpx"):
            assert "private" not in record.getMessage().replace("httpx", "")
            assert "\n" not in record.getMessage()


ADDRESSES = ["127.0.0.1", "127.0.0.1:8000", "[::1]:80", "192.168.1.5:8000", "[2001:db8::1]"]
NAMES = ["localhost", "LOCALHOST:9", "proxy.example:443", "Proxy.example", "a.team.example"]
STRANGERS = ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "localhost.evil", "["]


def test_another_name_gets_no_answer_from_any_path() -> None:
    with ok(allowed_host=("proxy.example", "*.team.example")) as web:
        for path in ("/", "/v1/models", "/health", "/metrics", "/openapi.json", "/static/app.js"):
            assert web.get(path, headers={"Host": "evil.example"}).status_code == 400, path
        for host in (*STRANGERS, "a.proxy.example", "team.example.evil"):
            assert web.get("/version", headers={"Host": host}).status_code == 400, host
        for host in (*NAMES, *ADDRESSES):
            assert web.get("/version", headers={"Host": host}).status_code == 200, host
    with ok(allowed_host=("*",)) as web:
        assert web.get("/version", headers={"Host": "any.example"}).status_code == 200


@pytest.mark.parametrize(
    ("field", "text"),
    [("allowed_host", "a.*.example"), ("allowed_host", "*example"), ("api_key", " ")],
)
def test_what_is_no_name_or_key_is_refused(field: str, text: str) -> None:
    with pytest.raises(UserError) as refused:
        ServerConfig(**{field: ("good", text)})
    assert refused.value.field == field
