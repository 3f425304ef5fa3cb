"""A block diffusion model is served as any other: same answers, streams, company, clean-up."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from rho_eos import LLM
from tests.evals.command import Run
from tests.server.clients import Web, deltas, text_of
from tests.server.conftest import MODEL, Process, start_server
from tests.support import wait_until

BLOCK = 16
HELLO = [{"role": "user", "content": "hello"}]


def metric(server: Process, name: str) -> float:
    lines = server.web.get("/metrics").text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"{name} "))


def wait_until_nothing_runs(server: Process) -> None:
    for name in ("rho_eos_requests_running", "rho_eos_requests_waiting"):
        wait_until(lambda name=name: metric(server, name) == 0, 60, name)
    # What rows held is free again; what is left are blocks for later requests.
    left, shared = (metric(server, f"rho_eos_{name}") for name in ("cache_bytes", SHARED))
    assert left == shared


SHARED = "cache_shared_bytes"


def test_openais_client_gets_what_the_library_gives(block_server: Process, block_llm: LLM) -> None:
    client = block_server.client()
    asked: dict[str, Any] = {"model": MODEL, "messages": HELLO, "max_tokens": 40}
    [want] = block_llm.generate(["hello"], max_new_tokens=40)
    answer = client.chat.completions.create(**asked)
    assert answer.choices[0].message.content == want.text
    assert answer.choices[0].finish_reason == want.finish_reason
    # The last block is written whole, but what lies beyond the limit is no part of the answer.
    assert answer.usage is not None
    assert answer.usage.completion_tokens == len(want.token_ids) == want.usage.e_token == 40
    chunks = list(client.chat.completions.create(**asked, stream=True))
    told = [chunk.choices[0].delta.content or "" for chunk in chunks]
    assert "".join(told) == want.text
    assert sum(map(bool, told)) > 2, "the text came in one piece"
    raw: dict[str, Any] = {"model": MODEL, "prompt": "one two", "max_tokens": 40}
    [want] = block_llm.generate(["one two"], max_new_tokens=40, raw=True)
    assert client.completions.create(**raw).choices[0].text == want.text
    assert "".join(deltas(block_server.web.complete(**raw, stream=True))) == want.text


def test_clients_at_once_get_what_they_get_alone(block_server: Process, block_llm: LLM) -> None:
    """Prompts of all lengths, half of which begin alike, so that blocks are shared meanwhile."""
    prompts = ["the same beginning of it " * (n % 2) + "x" * (5 * n) for n in range(32)]
    wants = [block_llm.generate(["?" + each], max_new_tokens=48)[0].text for each in prompts]

    def ask(prompt: str) -> str:
        with Web(block_server.url) as web:
            return text_of(web.chat("?" + prompt, max_tokens=48))

    with ThreadPoolExecutor(32) as pool:
        assert list(pool.map(ask, prompts)) == wants
    wait_until_nothing_runs(block_server)
    assert metric(block_server, f"rho_eos_{SHARED}") > 0


@pytest.mark.parametrize("stream", [True, False])
def test_who_leaves_leaves_nothing_behind(block_server: Process, stream: bool) -> None:
    """Nearly 400 steps of four rows, of which a client waits for very few."""
    cancelled = 'rho_eos_requests_total{outcome="cancelled"}'
    before = metric(block_server, cancelled)
    body = {"messages": HELLO, "max_tokens": 400, "threshold": 1.0, "n": 4, "stream": stream}
    with (
        suppress(httpx.ReadTimeout),
        Web(block_server.url, timeout=120 if stream else 0.2) as web,
        web.stream("POST", "/v1/chat/completions", json=body) as answer,
    ):
        next(answer.iter_lines())
    wait_until(lambda: metric(block_server, cancelled) == before + 1, 60, "it is cancelled")
    wait_until_nothing_runs(block_server)


def test_the_next_turn_of_a_chat_begins_with_what_was_kept(
    block_server: Process, block_llm: LLM
) -> None:
    web = block_server.web
    turns = [{"role": "user", "content": "a first question that nobody else has asked"}]
    first = web.chat(messages=turns, max_tokens=24)
    known = first.json()["usage"]["prompt_tokens"]
    turns += [{"role": "assistant", "content": text_of(first)}, {"role": "user", "content": "and?"}]
    second = web.chat(messages=turns, max_tokens=24)
    want = block_llm.chat(turns, max_new_tokens=24, cache="none")
    assert text_of(second) == want.text
    usage = second.json()["usage"]["rho_eos"]
    assert usage["positions_reused"] % BLOCK == 0
    assert known // BLOCK * BLOCK <= usage["positions_reused"] < want.usage.prompt_tokens
    assert usage["positions_evaluated"] < want.usage.positions_evaluated


def test_another_block_length_is_taken_and_remarked_on(
    block_checkpoint: Path, block_llm: LLM, tmp_path: Path
) -> None:
    process = start_server(block_checkpoint, tmp_path / "log", "--block-length", "8")
    [want] = block_llm.generate(["hello"], max_new_tokens=40, block_length=8)
    assert text_of(process.web.chat("hello", max_tokens=40)) == want.text
    start, *_ = process.web.steps(max_tokens=40)
    assert start["params"]["block_length"] == 8
    process.end()
    said = [line for line in process.log.read_text().splitlines() if "training" in line]
    assert len(said) == 1 and "8" in said[0] and str(BLOCK) in said[0]


def test_info_says_the_blocks(run: Run, block_checkpoint: Path, byte_checkpoint: Path) -> None:
    for folder, says in ((block_checkpoint, f"blocks of {BLOCK}"), (byte_checkpoint, "full")):
        lines = run("info", folder).out.splitlines()
        [attention] = [line for line in lines if line.startswith("attention")]
        assert says in attention
