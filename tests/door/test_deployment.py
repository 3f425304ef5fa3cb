"""What is deployed with is checked by its own linters, and against the server it deploys."""

import importlib.util
import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import crossplane
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
from tests.server.scripted_server import ControlledRunner, Scripted, chat_body, serving
from tests.support import require, wait_until

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
DOCKERFILE = ROOT / "docker" / "Dockerfile"
PROXY = "llm.example.org"  # the name that clients call the proxy by


@pytest.fixture(scope="module")
def server() -> Iterator[Scripted]:
    with serving(ControlledRunner(says("ok"))) as server:
        yield server


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


def test_the_image_keeps_to_current_practice() -> None:
    assert _instructions("FROM")[-1] == "${BASE}"
    assert _instructions("VOLUME") == ["/models"]
    (user,) = _instructions("USER")
    assert user.isdigit() and user != "0"
    environment = " ".join(_instructions("ENV"))
    assert "HF_HOME=/models" in environment
    pinned = re.search(r"^TORCH \?= torch==(\S+)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert pinned is not None and f"TORCH={pinned[1]}" in _instructions("ARG")


def test_what_the_image_copies_is_what_a_wheel_is_built_from() -> None:
    """Everything else is kept out of the build by .dockerignore, and must not be needed."""
    copied = {word for each in _instructions("COPY") for word in each.split()[:-1]}
    allowed = (ROOT / ".dockerignore").read_text().splitlines()
    assert {f"!{name}" for name in copied} == {line for line in allowed if line[:1] == "!"}
    assert all((ROOT / name).exists() for name in copied)
    project = (ROOT / "pyproject.toml").read_text()
    assert 'readme = "README.md"' in project and 'license-files = ["LICENSE"]' in project


def test_the_health_check_knows_a_server_that_is_ready(server: Scripted) -> None:
    (line,) = _instructions("HEALTHCHECK")
    command = json.loads(line.partition("CMD ")[2])
    assert command[0] == "python"
    port = re.search(r"127\.0\.0\.1:(\d+)/", command[-1])
    entry = json.loads(_instructions("ENTRYPOINT")[0])
    assert port is not None and _options(entry)["port"] == port[1]
    assert _instructions("EXPOSE") == [port[1]]
    real = command[-1].replace(f"127.0.0.1:{port[1]}", server.url.removeprefix("http://"))
    assert subprocess.run([sys.executable, "-c", real]).returncode == 0
    closed = command[-1].replace(f":{port[1]}/", ":9/")
    dead = subprocess.run([sys.executable, "-c", closed], capture_output=True)
    assert dead.returncode != 0


def test_the_image_starts_the_server_with_options_it_has() -> None:
    entry = json.loads(_instructions("ENTRYPOINT")[0]) + json.loads(_instructions("CMD")[0])
    assert entry[:2] == ["rho-eos", "serve"] and entry[-2:] == ["--model", "tiny"]
    assert _options(entry) == {"host": "0.0.0.0", "port": "8000"}


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
    assert _options(unit["Environment"])["allowed_host"].strip('"') == PROXY


# ── Kubernetes ───────────────────────────────────────────────────────────────────────────────────


def _manifests() -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()))


def test_the_manifests_keep_to_their_schemas() -> None:
    kinds = []
    for manifest in _manifests():
        kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)
        kinds.append(manifest["kind"])
    assert kinds == ["PersistentVolumeClaim", "Deployment", "Service"]
    broken = _manifests()[1]
    broken["spec"]["template"]["spec"]["containers"][0]["livenessprobe"] = {}
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(broken, kubernetes_validate.latest_version(), strict=True)


def test_the_deployment_fits_the_server_and_the_image(server: Scripted) -> None:
    pod = _manifests()[1]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    options = _options(container["args"])
    drain = float(options["drain_seconds"])
    waited = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod["terminationGracePeriodSeconds"] > drain + waited
    assert str(pod["securityContext"]["runAsUser"]) == _instructions("USER")[0]
    (port,) = container["ports"]
    assert str(port["containerPort"]) == _instructions("EXPOSE")[0]
    assert options["allowed_host"] == _manifests()[2]["metadata"]["name"]
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert set(_instructions("VOLUME")) <= mounts
    assert str(Path(options["api_key_file"]).parent) in mounts
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        asked = container[probe]["httpGet"]
        assert asked["port"] == port["name"]
        assert server.http.get(asked["path"]).status_code == 200


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
    temporary = "".join(
        f"{kind}_temp_path {folder / kind};\n"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    whole = folder / "nginx.conf"
    whole.write_text(
        f"pid {folder / 'pid'};\nerror_log {folder / 'error'};\n"
        "daemon off;\nmaster_process off;\nevents {}\n"
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


def test_the_proxy_holds_what_the_server_leaves_to_it(tmp_path: Path) -> None:
    """docs/security.md: small chunks, heads that are sent slowly, two lengths of one body."""
    body = json.dumps(chat_body("x" * 3000)).encode()
    crumbs = b"".join(b"1\r\n%c\r\n" % byte for byte in body) + b"0\r\n\r\n"
    head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: llm.example.org\r\nConnection: close\r\n"
    head += b"Content-Type: application/json\r\n"
    chunked = b"Transfer-Encoding: chunked\r\n"

    def answer(address: tuple[str, int], sent: bytes) -> bytes:
        with socket.create_connection(address, timeout=30) as link:
            link.sendall(sent)
            return b"".join(iter(lambda: link.recv(65536), b""))

    with (
        serving(ControlledRunner(says("ok")), allowed_host=(PROXY,)) as server,
        _nginx(tmp_path, server.url) as address,
    ):
        assert answer(address, head + chunked + b"\r\n" + crumbs).startswith(b"HTTP/1.1 200")
        both = head + chunked + b"Content-Length: 4\r\n\r\n" + crumbs
        assert answer(address, both).startswith(b"HTTP/1.1 400")
        assert answer(address, head) == b""  # cut off: the head never ends


def _dashboard() -> dict[str, Any]:
    return json.loads((DEPLOY / "grafana-dashboard.json").read_text())


def _expressions() -> list[str]:
    """What panels and variables ask Prometheus, with Grafana's own variables filled in."""
    dashboard = _dashboard()
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    return [text.replace("$__rate_interval", "1m").replace("$job", ".*") for text in asked]


def _lost(ours: Any, theirs: Any, path: str = "") -> list[str]:
    """What of `ours` is not in `theirs`."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        return [
            lost
            for key, value in ours.items()
            for lost in (
                _lost(value, theirs[key], f"{path}.{key}") if key in theirs else [f"{path}.{key}"]
            )
        ]
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        pairs = enumerate(zip(ours, theirs, strict=True))
        return [lost for n, (a, b) in pairs for lost in _lost(a, b, f"{path}[{n}]")]
    return [] if ours == theirs else [path]


def test_the_dashboard_keeps_to_grafanas_schema() -> None:
    """Read and written by Grafana's own classes, nothing of it is unknown to them and dropped."""
    require(importlib.util.find_spec("grafana_foundation_sdk") is not None, "no Grafana SDK")
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins
    from grafana_foundation_sdk.models.dashboard import Dashboard

    register_default_plugins()
    ours = _dashboard()

    def written(dashboard: dict[str, Any]) -> Any:
        return json.loads(json.dumps(Dashboard.from_json(dashboard), cls=JSONEncoder))

    assert _lost(ours, written(ours)) == []
    ours["panels"][0]["fieldConfig"]["defaults"]["units"] = "short"  # a slip is seen
    assert _lost(ours, written(ours)) == [".panels[0].fieldConfig.defaults.units"]
    boxes = [panel["gridPos"] for panel in ours["panels"]]
    assert all(box["x"] + box["w"] <= 24 for box in boxes)
    assert len({(box["x"], box["y"]) for box in boxes}) == len(boxes)


@pytest.fixture(scope="module")
def exported() -> set[str]:
    """The names of all series of a server that has answered a request."""
    app = create_app(Service(LLM("tiny"), ServerConfig()))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        body = {"model": "tiny", "prompt": "?", "max_tokens": 8}
        assert client.post("/v1/completions", json=body).status_code == 200
        names = re.findall(r"^(rho_eos_\w+)", client.get("/metrics").text, re.MULTILINE)
    return {name for name in names if not name.endswith("_created")}


def _names_in(expression: str) -> set[str]:
    """The metrics that a parsed query selects; a query that is no PromQL raises."""
    promql_parser.parse(expression)
    return set(re.findall(r"rho_eos_\w+", expression))


def test_the_dashboard_asks_for_all_our_metrics_and_no_others(exported: set[str]) -> None:
    asked = {name for expression in _expressions() for name in _names_in(expression)}
    assert asked <= exported, asked - exported

    def families(names: set[str]) -> set[str]:
        return {re.sub(r"_(bucket|sum|count)$", "", name) for name in names}

    assert families(exported) == families(asked), "a metric is on no panel"
    documented = (ROOT / "docs" / "serving.md").read_text()
    for name in families(exported):
        assert f"`{name.removeprefix('rho_eos_')}" in documented, name
    with pytest.raises(ValueError):
        promql_parser.parse("sum(rate(rho_eos_requests_total[1m])")
