"""OpenAI's batch files: the same answers as over HTTP, an error for a line that deserves one."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from openai.types.chat import ChatCompletion
from openai.types.completion import Completion

from rho_eos import LLM
from tests import forks
from tests.evals.command import Command, Result
from tests.support import has_content, largest_file, wait_until

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
SHORT = {"initial_length": 16, "max_tokens": 24}


def request(custom_id: str, url: str = CHAT, text: str = "hello", **fields: Any) -> dict[str, Any]:
    asked = {"messages": [{"role": "user", "content": text}]} if url == CHAT else {"prompt": text}
    body = {**asked, **SHORT, **fields}
    return {"custom_id": custom_id, "method": "POST", "url": url, "body": body}


class Batch:
    def __init__(self, command: Command, folder: Path, model: Path) -> None:
        self.command, self.model = command, model
        self.source, self.target = folder / "in.jsonl", folder / "out.jsonl"

    def ask(self, *lines: dict[str, Any] | str) -> None:
        texts = (line if isinstance(line, str) else json.dumps(line) for line in lines)
        self.source.write_text("".join(text + "\n" for text in texts))

    def __call__(self, *words: object) -> Result:
        files = ("-i", self.source, "-o", self.target, "--served-model-name", "random")
        return self.command("batch", "-m", self.model, *files, *words)

    @property
    def responses(self) -> dict[str, Any]:
        lines = [json.loads(line) for line in self.target.read_text().splitlines()]
        assert all(set(line) == {"id", "custom_id", "response", "error"} for line in lines)
        assert len({line["custom_id"] for line in lines}) == len(lines)
        return {line["custom_id"]: line for line in lines}


@pytest.fixture
def batch(command: Command, tmp_path: Path, byte_checkpoint: Path) -> Batch:
    return Batch(command, tmp_path, byte_checkpoint)


def test_responses_are_openais_objects(batch: Batch, llm: LLM) -> None:
    batch.ask(
        request("a", model="random"),
        request("b", url=TEXT, n=2, temperature=1.0),
        request("c", logprobs=True),
    )
    result = batch("--in-order")
    assert result.code == 0 and "3 answered" in result.err
    assert list(batch.responses) == ["a", "b", "c"]
    responses = {id: line["response"] for id, line in batch.responses.items()}
    assert all(response["status_code"] == 200 for response in responses.values())
    chat = ChatCompletion.model_validate(responses["a"]["body"], strict=True)
    params = {"initial_length": 16, "max_new_tokens": 24}
    assert chat.choices[0].message.content == llm.generate("hello", params)[0].text
    texts = Completion.model_validate(responses["b"]["body"], strict=True).choices
    seeds = [llm.generate("hello", params, raw=True, seed=n, temperature=1.0)[0] for n in (0, 1)]
    assert [choice.text for choice in texts] == [each.text for each in seeds]
    told = ChatCompletion.model_validate(responses["c"]["body"]).choices[0].logprobs
    assert told is not None and told.content


def test_each_bad_line_has_its_own_error(batch: Batch) -> None:
    bad = {
        "field": request("field", colour="red"),
        "value": request("value", rho_low=7),
        "model": request("model", model="gpt-4"),
        "url": request("url") | {"url": "/v1/embeddings"},
        "stream": request("stream", stream=True),
        "long": request("long", text="x" * 600),
    }
    no_requests = [
        "{broken",
        "[1]",
        json.dumps(request("x") | {"method": "GET"}),
        json.dumps(request("x") | {"custom_id": 5}),
        json.dumps({"custom_id": "x"}),
        r'{"custom_id": "\ud800", "method": "POST", "url": "/v1/completions", "body": {"a": 1}}',
    ]
    batch.ask(*bad.values(), *no_requests, request("good"), request("good"))
    result = batch()
    assert result.code == 2 and "1 answered, 6 failed, 7 bad" in result.err
    for number in range(len(bad) + 1, len(bad) + len(no_requests) + 1):
        assert f"in.jsonl:{number}: " in result.err
    assert "custom_id 'good' was used by an earlier line" in result.err
    statuses = {id: line["response"]["status_code"] for id, line in batch.responses.items()}
    assert statuses == {**dict.fromkeys(bad, 400), "model": 404, "good": 200}
    for id, word in {"field": "colour", "value": "rho_low is 7", "url": "embeddings"}.items():
        assert word in batch.responses[id]["response"]["body"]["error"]["message"]


def test_a_second_run_continues_and_tries_again_what_failed(batch: Batch) -> None:
    batch.ask(request("a"), request("b", model="other"))
    assert batch().code == 2
    first = batch.responses["a"]
    batch.target.write_bytes(batch.target.read_bytes() + b'{"id": "batch_req_0')
    batch.ask(request("a"), request("b"), request("c"))
    refused = batch()
    assert refused.code == 2 and "'b'" in refused.err and "another request" in refused.err
    batch.ask(request("a"), request("b", model="other"), request("c"))
    result = batch()
    assert result.code == 2 and "1 answered, 1 were there already, 1 failed" in result.err
    assert batch.responses["a"] == first and set(batch.responses) == {"a", "b", "c"}
    batch.ask(request("a", seed=1, temperature=1.0))
    assert batch().code == 2
    assert batch("--overwrite").code == 0
    assert set(batch.responses) == {"a"}


def test_a_full_disk_is_a_sentence_and_what_was_finished_stays(batch: Batch) -> None:
    batch.ask(request("a"))
    assert batch().code == 0
    before = batch.target.read_bytes()
    batch.ask(request("a"), request("b", n=8))
    with largest_file(len(before) + 100):
        full = batch()
    assert full.code == 1 and "cannot write" in full.err and "Traceback" not in full.err
    assert batch.target.read_bytes() == before
    assert "1 answered, 1 were there already" in batch().err


def test_no_file_is_destroyed(batch: Batch) -> None:
    batch.ask(request("a"))
    before = batch.source.read_bytes()
    target, batch.target = batch.target, batch.source
    assert "the same file" in batch("--overwrite").err
    batch.target = target
    target.write_text('{"id": "mine"}')
    assert batch("--overwrite").code == 2
    assert target.read_text() == '{"id": "mine"}' and batch.source.read_bytes() == before


def test_interrupted_for_real_the_same_command_continues(batch: Batch, tmp_path: Path) -> None:
    slow = {
        "initial_length": 64,
        "max_tokens": 64,
        "policy": "fixed",
        "commit": "quota",
        "steps": 64,
    }
    batch.ask(*(request(f"r{number}", **slow) for number in range(16)))
    words = ["-m", "rho_eos", "batch", "-m", batch.model, "--max-rows", "2"]
    words += ["-i", batch.source, "-o", batch.target, "--served-model-name", "random"]
    with (tmp_path / "err").open("w+b") as said:
        process = forks.Fork(*words, stderr=said.fileno(), start_new_session=True)
        wait_until(lambda: has_content(batch.target), 300)
        process.send_signal(signal.SIGINT)
        process.wait(120)
        err = forks.read(said)
    assert process.returncode == 130 and "Traceback" not in err
    assert "run the same command again to continue" in err
    before = len(batch.responses)
    assert 0 < before < 16
    again = batch("--max-rows", "2")
    assert again.code == 0 and f"{16 - before} answered, {before} were there already" in again.err
    assert len(batch.responses) == 16
