"""OpenAI's batch files: the same answers as over HTTP, an error for a line that deserves one."""

import json
from pathlib import Path
from typing import Any

import pytest
from openai.types.chat import ChatCompletion
from openai.types.completion import Completion

from rho_eos import LLM
from tests.evals.command import Command, Result
from tests.lines import read_lines, write_lines
from tests.support import largest_file

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
        write_lines(self.source, lines)

    def __call__(self, *words: object) -> Result:
        files = ("-i", self.source, "-o", self.target, "--served-model-name", "random")
        return self.command("batch", "-m", self.model, *files, *words)

    @property
    def responses(self) -> dict[str, Any]:
        lines = read_lines(self.target)
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
        "field": (request("field", colour="red"), 400, "colour"),
        "value": (request("value", rho_low=7), 400, "rho_low is 7"),
        "model": (request("model", model="gpt-4"), 404, "gpt-4"),
        "stream": (request("stream", stream=True), 400, "stream"),
        "long": (request("long", text="x" * 600), 400, "512"),
    }
    no_requests = [
        "{broken",
        "[1]",
        json.dumps(request("x") | {"method": "GET"}),
        json.dumps({"custom_id": "x"}),
        r'{"custom_id": "\ud800", "method": "POST", "url": "/v1/completions", "body": {"a": 1}}',
    ]
    asked = [line for line, _, _ in bad.values()]
    batch.ask(*asked, *no_requests, request("good"), request("good"))
    result = batch()
    assert result.code == 2 and "1 answered, 5 failed, 6 bad" in result.err
    for number in range(len(bad) + 1, len(bad) + len(no_requests) + 1):
        assert f"in.jsonl:{number}: " in result.err
    assert "custom_id 'good' was used by an earlier line" in result.err
    responses = {id: line["response"] for id, line in batch.responses.items()}
    assert responses.pop("good")["status_code"] == 200 and responses.keys() == bad.keys()
    for id, (_, status, word) in bad.items():
        assert responses[id]["status_code"] == status
        assert word in responses[id]["body"]["error"]["message"]


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
