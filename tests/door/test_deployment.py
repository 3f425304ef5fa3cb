"""What is deployed with is checked by its own linters, and against the server it deploys."""

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import crossplane
import httpx
import kubernetes_validate
import promql_parser
import pytest
import yaml
from dockerfile_parse import DockerfileParser
from starlette.testclient import TestClient

from rho_eos import LLM
from rho_eos.server.app import create_app
from rho_eos.server.config import ServerConfig
from rho_eos.server.service import Service
from tests.scripted import says
from tests.server.clients import deltas
from tests.server.conftest import MODEL, start_server
from tests.server.scripted_server import ControlledRunner, serving
from tests.support import require, wait_until

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DOCKERFILE = ROOT / "docker" / "Dockerfile"
PROXY = "llm.example.org"  # the name that clients call the proxy by


def _options(words: list[str]) -> dict[str, str]:
    """`--name value` and `--name=value` as settings of the server; unknown ones are refused."""
    pairs = re.findall(r"--([a-z-]+)[= ](\S+)", " ".join(words))
    given = {name.replace("-", "_"): value for name, value in pairs if name != "model"}
    assert set(given) <= set(ServerConfig.model_fields), given
    return given


# ── the image ────────────────────────────────────────────────────────────────────────────────────


def _instructions(kind: str) -> list[str]:
    parser = DockerfileParser(fileobj=DOCKERFILE.open("rb"))
    return [each["value"] for each in parser.structure if each["instruction"] == kind]


def test_the_dockerfile_passes_hadolint() -> None:
    hadolint = Path(sys.executable).with_name("hadolint")
    require(hadolint.exists(), "hadolint is not installed")
    done = subprocess.run([hadolint, str(DOCKERFILE)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_the_image_is_built_from_what_there_is_and_started_with_options_it_has() -> None:
    copied = {word for each in _instructions("COPY") for word in each.split()[:-1]}
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    # What is not copied is kept out of the build.
    assert {f"!{name}" for name in copied} == {line for line in ignored if line[:1] == "!"}
    assert all((ROOT / name).exists() for name in copied)
    pinned = re.search(r"^TORCH \?= torch==(\S+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert pinned is not None and f"TORCH={pinned[1]}" in _instructions("ARG")
    (user,) = _instructions("USER")
    assert user.isdigit() and user != "0"
    assert "HF_HOME=/models" in " ".join(_instructions("ENV"))
    entry = json.loads(_instructions("ENTRYPOINT")[0]) + json.loads(_instructions("CMD")[0])
    assert entry[:2] == ["rho-eos", "serve"] and entry[-2:] == ["--model", "tiny"]
    assert _options(entry) == {"host": "0.0.0.0", "port": "8000"}


def test_the_health_check_knows_a_server_that_is_ready() -> None:
    (line,) = _instructions("HEALTHCHECK")
    command = json.loads(line.partition("CMD ")[2])
    assert command[0] == "python" and _instructions("EXPOSE") == ["8000"]
    with serving(ControlledRunner(says("ok"))) as server:
        for url, is_ready in ((server.url, True), ("http://127.0.0.1:9", False)):
            asked = command[-1].replace("http://127.0.0.1:8000", url)
            done = subprocess.run([sys.executable, "-c", asked], capture_output=True)
            assert asked != command[-1] and (done.returncode == 0) == is_ready


# ── systemd ──────────────────────────────────────────────────────────────────────────────────────


def _unit() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in (DEPLOY / "rho-eos.service").read_text().splitlines():
        if "=" in line and not line.startswith("#"):
            name, _, value = line.partition("=")
            found.setdefault(name, []).append(value)
    return found


def test_systemd_finds_no_fault_with_the_unit(tmp_path: Path) -> None:
    analyze = shutil.which("systemd-analyze")
    require(analyze is not None, "systemd-analyze is not installed")
    # The one thing that is not so here: where the program is installed.
    text = (DEPLOY / "rho-eos.service").read_text()
    assert text.count("ExecStart=/opt/rho-eos/bin/rho-eos ") == 1
    unit = tmp_path / "rho-eos.service"
    unit.write_text(text.replace("ExecStart=/opt/rho-eos/bin/rho-eos", "ExecStart=/bin/true"))
    done = subprocess.run([str(analyze), "verify", unit], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    exposed = [str(analyze), "security", "--offline=true", "--threshold=20", str(unit)]
    assert subprocess.run(exposed, capture_output=True).returncode == 0


def test_the_unit_gives_a_drain_its_time() -> None:
    unit = _unit()
    options = _options(shlex.split(unit["ExecStart"][0]))
    assert float(unit["TimeoutStopSec"][0]) > float(options["drain_seconds"])
    assert options["host"] == "127.0.0.1" and options["api_key_file"] == "%d/keys"


# ── Kubernetes ───────────────────────────────────────────────────────────────────────────────────


def _manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))


def test_the_manifests_keep_to_their_schemas() -> None:
    for manifest in _manifests():
        kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)


def test_the_deployment_is_answered_under_every_name_of_its_service(
    byte_checkpoint: Path, tmp_path: Path
) -> None:
    _, deployment, service = _manifests()
    pod = deployment["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    options = _options(container["args"])
    waited = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] > float(options["drain_seconds"]) + waited
    assert str(pod["securityContext"]["runAsUser"]) == _instructions("USER")[0]
    assert str(container["ports"][0]["containerPort"]) == _instructions("EXPOSE")[0]
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert {*_instructions("VOLUME"), str(Path(options["api_key_file"]).parent)} <= mounts

    (tmp_path / "keys").write_text("key\n")
    words = [
        word.replace("$(NAMESPACE)", "team").replace(options["api_key_file"], f"{tmp_path}/keys")
        for word in container["args"]
    ]
    name = service["metadata"]["name"]
    names = [name, *(f"{name}.team{end}" for end in ("", ".svc", ".svc.cluster.local"))]
    with _running(byte_checkpoint, tmp_path, words) as url:
        for host in (*names, "10.1.2.3:8000"):
            headers = {"Host": host, "Authorization": "Bearer key"}
            answer = httpx.get(f"{url}/v1/models", headers=headers, trust_env=False)
            assert answer.status_code == 200, (host, answer.text)
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            path = container[probe]["httpGet"]["path"]
            assert httpx.get(url + path, trust_env=False).status_code == 200


@contextmanager
def _running(model: Path, folder: Path, options: list[str]) -> Iterator[str]:
    """The address of a real server with a recipe's options, but a small model and a free port."""
    process = start_server(model, folder / "log", *options)
    try:
        yield process.url
    finally:
        process.end()


# ── proxy, Prometheus and Grafana ────────────────────────────────────────────────────────────────


def test_nginx_knows_every_directive(tmp_path: Path) -> None:
    whole = tmp_path / "nginx.conf"
    whole.write_text(f"events {{}}\nhttp {{ include {DEPLOY / 'nginx.conf'}; }}\n")
    parsed = crossplane.parse(str(whole), strict=True)
    assert parsed["status"] == "ok", parsed["errors"]
    text = (DEPLOY / "nginx.conf").read_text()
    config = ServerConfig()
    given = dict(re.findall(r"^ *(\w+) +(\d+)[sm];", text, re.MULTILINE))
    assert int(given["client_max_body_size"]) << 20 == config.max_body_bytes
    assert int(given["client_body_timeout"]) == config.body_seconds
    assert int(given["proxy_read_timeout"]) > config.deadline_seconds


@contextmanager
def _nginx(folder: Path, upstream: str) -> Iterator[tuple[str, int]]:
    """nginx with our file, as it is but for ports, certificates and shorter times."""
    nginx = shutil.which("nginx", path=f"{os.environ['PATH']}:/usr/sbin")
    require(nginx is not None, "nginx is not installed")
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = free.getsockname()
    text = (DEPLOY / "nginx.conf").read_text().partition("server {\n    listen 80;")[0]
    text = re.sub(r"^ *(ssl_.*|listen \[.*)\n", "", text, flags=re.MULTILINE)
    text = text.replace("listen 443 ssl", f"listen {address[0]}:{address[1]}")
    text = text.replace("127.0.0.1:8000", upstream.removeprefix("http://")).replace("30s", "1s")
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "".join(f"{kind}_temp_path {folder / kind};\n" for kind in kinds)
    whole = folder / "nginx.conf"
    whole.write_text(
        f"pid {folder / 'pid'};\ndaemon off;\nmaster_process off;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{temporary}{text}}}\n"
    )
    process = subprocess.Popen([str(nginx), "-e", str(folder / "error"), "-c", str(whole)])
    try:
        wait_until(lambda: process.poll() is not None or _listens(address), 30, "nginx listens")
        yield address
    finally:
        process.terminate()
        process.wait(30)


def _listens(address: tuple[str, int]) -> bool:
    with socket.socket() as link:
        return link.connect_ex(address) == 0


@pytest.fixture(scope="module")
def proxied(
    byte_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[str, int]]:
    """nginx in front of the server that the unit starts once the guide has been followed."""
    folder = tmp_path_factory.mktemp("proxied")
    (folder / "keys").write_text("ada\nben\n")
    guide = (ROOT / "docs" / "guides" / "serve-a-team.md").read_text()
    [written] = re.findall(r"> /etc/rho-eos/environment <<'END'\n(.*?)END\n", guide, re.DOTALL)
    unit = _unit()
    given = [line.strip('"') for line in unit["Environment"]] + written.splitlines()
    variables = dict(line.split("=", 1) for line in given)
    command = unit["ExecStart"][0].replace("%d", str(folder)).replace("--port 8000", "--port 0")
    words = shlex.split(re.sub(r"\$\{?(\w+)\}?", lambda name: variables[name[1]], command))
    assert words[1] == "serve"
    with (
        _running(byte_checkpoint, folder, words[2:]) as url,
        _nginx(folder, url) as address,
    ):
        yield address


HELLO = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 24}


def test_a_team_that_follows_the_guide_is_answered(proxied: tuple[str, int]) -> None:
    headers = {"Host": PROXY, "Authorization": "Bearer ben"}
    base = f"http://{proxied[0]}:{proxied[1]}"
    with httpx.Client(base_url=base, headers=headers, timeout=60, trust_env=False) as http:
        assert http.get("/v1/models").json()["data"][0]["id"] == MODEL
        whole = http.post("/v1/chat/completions", json=HELLO).json()
        stream = http.post("/v1/chat/completions", json=HELLO | {"stream": True})
        assert "".join(deltas(stream)) == whole["choices"][0]["message"]["content"]
        assert http.get("/").status_code == 200
        assert http.get("/v1/models", headers={"Authorization": "no"}).status_code == 401
        assert http.get("/v1/models", headers={"Host": "other.example"}).status_code == 400
        assert http.get("/metrics").status_code == 403


def test_the_proxy_holds_what_the_server_leaves_to_it(proxied: tuple[str, int]) -> None:
    """docs/security.md: small chunks, heads that are sent slowly, two lengths of one body."""
    body = json.dumps(HELLO | {"user": "x" * 3000}).encode()
    crumbs = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: llm.example.org\r\nConnection: close\r\n"
    head += b"Authorization: Bearer ada\r\nContent-Type: application/json\r\n"
    chunked = b"Transfer-Encoding: chunked\r\n"

    def answer(sent: bytes) -> bytes:
        with socket.create_connection(proxied, timeout=30) as link:
            link.sendall(sent)
            return b"".join(iter(lambda: link.recv(65536), b""))

    assert answer(head + chunked + b"\r\n" + crumbs).startswith(b"HTTP/1.1 200")
    both = head + chunked + b"Content-Length: 4\r\n\r\n" + crumbs
    assert answer(both).startswith(b"HTTP/1.1 400")
    assert answer(head) == b""  # cut off: the head never ends


def _families(names: Iterable[str]) -> set[str]:
    return {re.sub(r"_(bucket|sum|count)$", "", name) for name in names}


def test_the_dashboard_asks_for_all_our_metrics_and_no_others(tiny: LLM) -> None:
    with TestClient(create_app(Service(tiny, ServerConfig())), "http://127.0.0.1") as client:
        body = {"model": "tiny", "prompt": "?", "max_tokens": 8}
        assert client.post("/v1/completions", json=body).status_code == 200
        exported = set(re.findall(r"^(rho_eos_\w+)", client.get("/metrics").text, re.MULTILINE))
    exported = {name for name in exported if not name.endswith("_created")}
    asked: set[str] = set()
    dashboard = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    for target in (target for panel in dashboard["panels"] for target in panel["targets"]):
        query = target["expr"].replace("$__rate_interval", "1m").replace("$job", ".*")
        promql_parser.parse(query)
        asked |= set(re.findall(r"rho_eos_\w+", query))
    assert asked <= exported, asked - exported
    assert _families(exported) == _families(asked), "a metric is on no panel"
    documented = (ROOT / "docs" / "serving.md").read_text()
    for name in _families(exported):
        assert f"`{name.removeprefix('rho_eos_')}" in documented, name
