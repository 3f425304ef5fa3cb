"""How much of the package a request passes on its way to the engine, counted by tracing calls."""

import asyncio
import json
import re
import sys
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import FrameType
from typing import Any

import httpx
import pytest

import rho_eos
from rho_eos import LLM, DecodeParams, UserError
from rho_eos.base.settings import Settings
from rho_eos.engine.request import Handle
from rho_eos.server.app import create_app
from rho_eos.server.config import ServerConfig
from rho_eos.server.service import Service
from rho_eos.text.ask import Ask
from tests.evals.command import Run
from tests.lines import by_id, write_lines
from tests.server.clients import deltas

PACKAGE = Path(rho_eos.__file__).parent
MOST_FILES = 40
MOST_WRAPPERS = 5
PROMPT = "Mia has 8 plums. 1) buys 6. 2) eats 5. How many are there now?"
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
}


@pytest.fixture(scope="module")
def llm() -> LLM:
    llm = LLM("tiny")
    llm.warm_up()  # threads are started and policies loaded, once for a process
    return llm


@pytest.fixture
def validations(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Every time that decoding parameters are checked, in whatever thread."""
    seen: list[Any] = []
    check = Settings.__init__

    def counted(self: Settings, **given: Any) -> None:
        if isinstance(self, DecodeParams):
            seen.append(given)
        check(self, **given)

    monkeypatch.setattr(Settings, "__init__", counted)
    return seen


def files_passed(work: Callable[[], Any]) -> set[str]:
    """The files of the package in which a function is called while `work` runs in this thread."""
    found: set[str] = set()

    def note(frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and (path := Path(frame.f_code.co_filename)).is_relative_to(PACKAGE):
            found.add(str(path.relative_to(PACKAGE)))

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return found


def test_a_plain_generate_passes_few_files_and_checks_its_parameters_once(
    llm: LLM, monkeypatch: pytest.MonkeyPatch, validations: list[Any]
) -> None:
    """Counted from the call of `generate` to its return, forwards included."""

    def at_once(_: Any, work: Callable[..., Any], *given: Any) -> "Future[Any]":
        done: Future[Any] = Future()
        done.set_result(work(*given))
        return done

    monkeypatch.setattr(ThreadPoolExecutor, "submit", at_once)  # forwards run in this thread
    passed = files_passed(lambda: llm.generate(PROMPT, max_new_tokens=64))
    assert {"llm.py", "text/preparation.py", "engine/engine.py", "models/backbone.py"} <= passed
    assert len(passed) <= MOST_FILES, sorted(passed)
    assert len(validations) == 1


@pytest.mark.parametrize(
    "asked",
    [
        {},
        {"template": "a ___ b ___"},
        {"constraint": {"schema": SCHEMA}},
        {"defaults": {"temperature": 1.0, "preset": "sym"}},
    ],
    ids=str,
)
def test_parameters_are_checked_once_however_many_samples(
    llm: LLM, validations: list[Any], asked: dict[str, Any]
) -> None:
    ask = Ask(PROMPT, {"seed": 3, "max_new_tokens": 2000}, n=8, **asked)
    requests = llm.preparer.prepare(ask)
    assert len(validations) == 1
    assert [request.params.seed for request in requests] == list(range(3, 11))
    for request in requests:  # what was fitted to the context is still good
        room = llm.context_length - request.canvas.given_length
        assert request.params.max_new_tokens <= room
        again = DecodeParams.from_mapping(request.params.model_dump())
        assert again == request.params


def functions_up_to(name: str, frame: FrameType | None) -> list[str]:
    """The functions of the package on the stack of `frame`, from it up to the one called `name`;
    none if there is no such function."""
    found: list[str] = []
    while frame is not None:
        if Path(frame.f_code.co_filename).is_relative_to(PACKAGE):
            if frame.f_code.co_name == name:
                return found
            found.append(frame.f_code.co_qualname)
        frame = frame.f_back
    return []


def test_few_wrappers_between_a_streamed_chat_and_its_handle(
    llm: LLM, monkeypatch: pytest.MonkeyPatch, validations: list[Any]
) -> None:
    """A wrapper is a function of the package that is on the stack

    on the way in: between the function of the route, which has the parsed body, and the making of
    the handle that the engine decodes; on the way out: between the response, which sends bytes, and
    the queue into which the engine's thread puts what it filed with that handle.
    """
    way_in: list[list[str]] = []
    way_out: list[list[str]] = []
    make, wait = Handle.__init__, asyncio.Queue.get

    def made(self: Handle, *given: Any, **more: Any) -> None:
        way_in.append(functions_up_to("chat_completions", sys._getframe(1)))
        make(self, *given, **more)

    async def waited(self: Any) -> Any:
        way_out.append(functions_up_to("_send_all", sys._getframe(1)))
        return await wait(self)

    monkeypatch.setattr(Handle, "__init__", made)
    monkeypatch.setattr(asyncio.Queue, "get", waited)
    text = asyncio.run(asyncio.wait_for(streamed(llm), 120))
    assert len(validations) == 1
    for wrappers in (way_in[0], max(way_out, key=len)):
        assert 0 < len(wrappers) <= MOST_WRAPPERS, wrappers
    assert text == llm.generate(PROMPT, max_new_tokens=64)[0].text


async def streamed(llm: LLM) -> str:
    """The answer of a server to a chat."""
    messages = [{"role": "user", "content": PROMPT}]
    body = {"messages": messages, "stream": True, "max_tokens": 64}
    service = Service(llm, ServerConfig())
    transport = httpx.ASGITransport(create_app(service))
    url = "http://127.0.0.1:8000/v1/chat/completions"
    async with service.running(), httpx.AsyncClient(transport=transport) as client:
        return "".join(deltas(await client.post(url, json=body, timeout=60)))


def checked(text: str) -> None:
    value = json.loads(text)
    assert list(value) == ["name", "age"]
    assert isinstance(value["name"], str) and isinstance(value["age"], int)


def test_answers_in_json_from_python(llm: LLM) -> None:
    messages = [{"role": "user", "content": PROMPT}]
    [event] = [event for event in llm.stream(PROMPT, constraint={"schema": SCHEMA}) if event.output]
    assert event.output is not None
    for output in (
        *llm.generate(PROMPT, constraint={"schema": SCHEMA}, n=2, temperature=1.0),
        llm.chat(messages, constraint={"schema": SCHEMA}),
        event.output,
    ):
        checked(output.text)
    for more in ({"stop": "x"}, {"template": "___"}):
        with pytest.raises(UserError, match=f"{next(iter(more))} does not go with"):
            llm.generate(PROMPT, constraint={"schema": SCHEMA}, **more)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="'minimum' is not supported"):
        llm.generate(PROMPT, constraint={"schema": {**SCHEMA, "minimum": 3}})


def test_answers_in_json_from_the_command_line_and_from_files(run: Run, tmp_path: Path) -> None:
    schema, source, results = (tmp_path / name for name in ("schema.json", "in.jsonl", "out.jsonl"))
    schema.write_text(json.dumps(SCHEMA))
    checked(run("generate", "Who?", "--json-schema", schema).out)
    assert run("generate", "Who?", "--choice", "yes", "--choice", "no").out in ("yes\n", "no\n")
    assert re.fullmatch("a+\n", run("generate", "Who?", "--regex", "a+").out)
    assert run("generate", "Who?", "--regex", "a+", "--choice", "yes").code == 2
    lines = [
        {"id": "a", "prompt": "Who?", "constraint": {"schema": SCHEMA}},
        {"id": "b", "prompt": "Who?"},
    ]
    write_lines(source, lines)
    again = ("generate", "-i", source, "-o", results, "--max-new-tokens", "64")
    assert run(*again).code == 0
    found = by_id(results)
    checked(found["a"]["text"])
    assert found["b"]["text"] != found["a"]["text"]
    write_lines(source, [{**lines[0], "constraint": {"schema": {**SCHEMA, "title": "other"}}}])
    refused = run(*again)
    assert refused.code == 2 and "another prompt" in refused.err
    schema.write_text("{")
    refused = run("generate", "Who?", "--json-schema", schema)
    assert refused.code == 2 and "is not JSON" in refused.err
