"""The small endpoints: probes, metrics, the version, and what the playground asks."""

import socket

import pytest

from rho_eos import LLM, DecodeParams
from rho_eos.embedded.scope import EXAMPLE, NOTE
from rho_eos.models.known import EMBEDDED
from rho_eos.server.config import ServerConfig
from rho_eos.server.playground import playground_facts
from rho_eos.server.run import listen, open_to_all
from rho_eos.server.service import Service
from rho_eos.text.ask import Ask
from rho_problems import TASKS, held_out
from tests.scripted import says
from tests.server.clients import Web
from tests.server.scripted_server import ControlledRunner, serving


def test_an_answer_is_sent_as_soon_as_it_is_written() -> None:
    """With Nagle's algorithm a body waits until the client has acknowledged its head: 40 ms."""
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.parametrize("fields", [{}, {"policy": "fixed", "cache": "window"}], ids=str)
def test_metrics_count_what_a_request_cost(llm: LLM, web: Web, fields: dict[str, str]) -> None:
    def read() -> dict[str, float]:
        lines = web.get("/metrics").text.splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if line[0] != "#")
        return {name: float(value) for name, value in pairs}

    before = read()
    web.chat("count me", initial_length=48, max_tokens=96, **fields).raise_for_status()
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


def test_refused_requests_are_counted_and_foreign_prompts_remarked_on() -> None:
    with serving(ControlledRunner(says("ok"))) as server:
        server.chat(policy="none such")  # found by the parameters' own check
        server.chat(no_such_field=1)  # found by the schema
        assert server.metric('rho_eos_requests_total{outcome="invalid"}') == 2
        server.service.llm.config.model = "tiny"  # what the server goes by
        assert server.chat("Count to three.").json()["note"] == NOTE
        assert "note" not in server.chat(EXAMPLE).json()


def test_on_the_first_example_the_canvas_grows_and_shrinks(tiny: LLM) -> None:
    first, *_ = playground_facts(Service(tiny, ServerConfig()))["examples"]
    [output] = tiny.generate(first["prompt"])
    assert output.usage.expansions and output.usage.contractions


def test_a_chat_model_that_is_given_a_bare_prompt_says_how_to_ask(llm: LLM) -> None:
    asks = {"bare": Ask("Once"), "gap": Ask("a", suffix="b"), "ids": Ask([70, 71])}
    service = Service(llm, ServerConfig())
    notes = {name for name, ask in asks.items() if service._note([ask])}
    has_template = bool(llm.tokenizer.chat_template)
    assert notes == ({"bare"} if has_template else set())


@pytest.mark.parametrize(
    ("host", "keys", "warned"),
    [("0.0.0.0", (), True), ("127.0.0.1", (), False), ("0.0.0.0", ("k",), False)],
)
def test_a_server_that_everybody_reaches_warns_without_a_key(
    host: str, keys: tuple[str, ...], warned: bool
) -> None:
    assert open_to_all(ServerConfig(host=host, api_key=keys)) is warned


@pytest.mark.parametrize("model", EMBEDDED)
def test_an_embedded_model_comes_with_problems_of_all_its_tasks(model: str) -> None:
    facts = playground_facts(Service(LLM(model, defaults={"seed": 7}), ServerConfig()))
    assert facts["defaults"]["seed"] == 7  # what requests get that do not say
    shown = {(example["task"], example["prompt"]) for example in facts["examples"]}
    assert {task for task, _ in shown} == set(TASKS)
    assert {(task, held_out(task, 1)[0].prompt) for task in TASKS} <= shown
