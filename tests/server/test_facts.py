"""The small endpoints: probes, metrics, the version, and what the playground asks."""

import json
import socket
from types import SimpleNamespace

import httpx
import pytest

from rho_eos import LLM, DecodeParams, __version__
from rho_eos.config import EngineConfig
from rho_eos.decoding.registry import policies
from rho_eos.decoding.schema import parameters, schema
from rho_eos.embedded.tasks import TASKS, held_out
from rho_eos.models.known import EMBEDDED
from rho_eos.server.config import ServerConfig
from rho_eos.server.playground import playground_facts
from rho_eos.server.run import listen
from tests.scripted import SPECIAL, says
from tests.server.conftest import MODEL, Process
from tests.server.scripted_server import ControlledRunner, serving


def get(server: Process, path: str) -> httpx.Response:
    return httpx.get(f"{server.url}{path}", timeout=60, trust_env=False)


def test_probes_and_version(server: Process) -> None:
    assert get(server, "/health").json() == {"status": "alive"}
    assert get(server, "/ready").json() == {"status": "ready"}
    assert get(server, "/version").json() == {"version": __version__}


def test_an_answer_is_sent_as_soon_as_it_is_written() -> None:
    """With Nagle's algorithm a body waits until the client has acknowledged its head: 40 ms."""
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize("fields", [{}, {"policy": "fixed", "cache": "window"}], ids=str)
def test_metrics_count_what_a_request_cost(
    llm: LLM, server: Process, fields: dict[str, str]
) -> None:
    def read() -> dict[str, float]:
        lines = get(server, "/metrics").text.splitlines()
        return {
            line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1])
            for line in lines
            if line[0] != "#"
        }

    before = read()
    body = {"model": MODEL, "messages": [{"role": "user", "content": "count me"}]}
    httpx.post(
        f"{server.url}/v1/chat/completions",
        json=body | {"initial_length": 48, "max_tokens": 96, **fields},
        timeout=60,
        trust_env=False,
    ).raise_for_status()
    after = read()
    params = DecodeParams(initial_length=48, max_new_tokens=96, **fields)
    want = llm.generate(["count me"], params)[0]
    usage = want.usage
    assert (usage.refreshes < usage.nfe) if fields else (usage.expansions > 0)
    for name, amount in {
        "prompt_tokens_total": usage.prompt_tokens,
        "generated_tokens_total": usage.e_token,
        "denoising_steps_total": usage.nfe,
        "positions_evaluated_total": usage.positions_evaluated,
        "positions_exact_total": usage.positions_exact,
        "refreshes_total": usage.refreshes,
        "committed_tokens_total": usage.committed,
        'length_adjustments_total{direction="expand"}': usage.expansions,
        'length_adjustments_total{direction="contract"}': usage.contractions,
        f'requests_total{{outcome="{want.finish_reason}"}}': 1,
        "e_ratio_count": 1,
        "e_ratio_sum": usage.e_ratio,
        "time_to_first_token_seconds_count": 1,
        "request_seconds_count": 1,
        "queue_seconds_count": 1,
        "requests_running": 0,
        "requests_waiting": 0,
    }.items():
        key = f"rho_eos_{name}"
        assert after[key] - before.get(key, 0) == pytest.approx(amount), name


def test_refused_requests_are_counted_too() -> None:
    with serving(ControlledRunner(says("ok"))) as server:
        server.chat(policy="none such")  # found by the parameters' own check
        server.chat(no_such_field=1)  # found by the schema
        server.chat(model="other")
        assert server.metric('rho_eos_requests_total{outcome="invalid"}') == 3


def test_the_playground_learns_what_it_needs(server: Process) -> None:
    facts = get(server, "/v1/rho_eos/playground").json()
    assert facts["model"] == MODEL
    assert facts["max_prompt_tokens"] < 512 and facts["max_new_tokens"] < 512
    assert facts["names"] == {"max_new_tokens": "max_tokens", "trace": None, "logprobs": None}
    assert facts["defaults"] == {}
    assert facts["panels"]["a"] == {"policy": "rho-eos"}
    assert facts["panels"]["b"] == {"policy": "fixed", "initial_length": 256}
    assert facts["infilling"]["policies"] == ["cal", "fixed"]  # this model has no EXPAND
    assert facts["infilling"]["start"]["policy"] == "cal"
    assert facts["implied"]["rho-eos"]["preset"] == {"sym": {"rho_low": 0.2}}
    assert facts["implied"]["daedal"]["signal"] == {"density": {"rho_low": 0.4, "rho_high": 0.8}}
    assert all(set(example) == {"task", "prompt"} for example in facts["examples"])
    assert facts["examples"]


def test_the_schema_of_all_policies_is_published(server: Process) -> None:
    published = get(server, "/v1/rho_eos/schema").json()
    assert published == json.loads(json.dumps(schema()))
    assert published["axes"]["commit"]["quota"]["parameters"]["steps"]["optional"]
    bodies = get(server, "/openapi.json").json()["components"]["schemas"]
    for body in ("ChatRequest", "CompletionRequest"):
        fields = bodies[body]["properties"]
        assert set(parameters()) - set(fields) == {"max_new_tokens", "trace"}
        assert fields["policy"]["anyOf"][0]["enum"] == list(policies())
        assert "default" not in fields["threshold"]  # the rules have different ones
        assert fields["temperature"]["default"] == 0
        assert fields["threshold"]["description"] == parameters()["threshold"].help


@pytest.mark.parametrize("model", EMBEDDED)
def test_an_embedded_model_comes_with_problems_of_all_its_tasks(model: str) -> None:
    facts = playground_facts(
        SimpleNamespace(  # type: ignore[arg-type]
            llm=SimpleNamespace(
                context_length=1024,
                config=EngineConfig(model=model, defaults={"cache": "window"}),
                special=SPECIAL,
            ),
            model=model,
            config=ServerConfig(),
        )
    )
    assert facts["defaults"] == {"cache": "window"}  # what requests get that do not say
    shown = {(example["task"], example["prompt"]) for example in facts["examples"]}
    assert {task for task, _ in shown} == set(TASKS)
    for task in TASKS:
        assert (task, held_out(task, 1)[0].prompt) in shown
