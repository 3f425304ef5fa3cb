"""Tools: a call is an answer of a form, and goes back to the client as one.

    {"name": "weather", "arguments": {"city": "Oslo"}}

The model reads of its tools in a system message. Its answer is held to the form of one call, or,
where the client leaves the choice to it, to that or to any text that does not begin as one.
"""

import json
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from rho_eos.server.errors import bad_request
from rho_eos.server.fields import Items, Strict
from rho_eos.text.json_schema import escaped, json_regex

_HEAD, _BETWEEN = '{"name": ', ', "arguments": '
_MUST = "Answer with a call of one of these functions, and nothing else."
_MAY = "Where a function helps, answer with a call of one of these functions, and nothing else."
_HOW = 'A call is one line of JSON: {"name": …, "arguments": {…}}.'
#: Any text that does not begin as a call does.
_OTHER_TEXT = r"(?:[^\x00\{][^\x00]*)?"


class Function(Strict):
    unused = frozenset({"strict"})
    name: str = Field(min_length=1, max_length=200)
    description: str | None = None
    parameters: dict[str, Any] | None = Field(None, description="a JSON schema of the arguments")


class Tool(Strict):
    type: Literal["function"]
    function: Function


class NamedFunction(Strict):
    name: str


class NamedTool(Strict):
    type: Literal["function"]
    function: NamedFunction


class Called(Strict):
    name: str
    arguments: str


class Call(Strict):
    """A call in an earlier answer, as the client sends it back."""

    unused = frozenset({"index"})
    id: str | None = None
    type: Literal["function"] = "function"
    function: Called

    @property
    def text(self) -> str:
        name = json.dumps(self.function.name, ensure_ascii=False)
        return f"{_HEAD}{name}{_BETWEEN}{self.function.arguments}}}"


Choice = Literal["none", "auto", "required"] | NamedTool


class Toolbox:
    """The tools of one request that its answer may call."""

    def __init__(self, tools: Items[Tool], choice: Choice | None) -> None:
        self.functions = [tool.function for tool in tools]
        self.must = choice == "required" or isinstance(choice, NamedTool)
        if isinstance(choice, NamedTool):
            name = choice.function.name
            self.functions = [each for each in self.functions if each.name == name]
            if not self.functions:
                raise bad_request(
                    f"tool_choice names {name[:100]!r}, which is no tool", "tool_choice"
                )

    @property
    def regex(self) -> str:
        """The form of the answer."""
        calls = "|".join(
            escaped(_HEAD + json.dumps(each.name, ensure_ascii=False) + _BETWEEN)
            + _arguments(each.parameters)
            + r"\}"
            for each in self.functions
        )
        return calls if self.must else f"{_OTHER_TEXT}|{calls}"

    def told(self, messages: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
        """The conversation, with what the model is to know of its tools at its beginning."""
        described = (each.model_dump(exclude_none=True) for each in self.functions)
        lines = [_MUST if self.must else _MAY, _HOW]
        lines += [json.dumps(each, ensure_ascii=False) for each in described]
        first, *others = map(dict, messages)
        if first["role"] == "system":
            lines = [first["content"], *lines]
        else:
            others = [first, *others]
        return [{"role": "system", "content": "\n".join(lines)}, *others]


def _arguments(schema: dict[str, Any] | None) -> str:
    if not schema or (schema.get("type") == "object" and not schema.get("properties")):
        return r"\{\}"
    return json_regex(schema)


def answered(answer: dict[str, Any]) -> dict[str, Any]:
    """A whole answer, with calls as calls."""
    for choice in answer["choices"]:
        message = choice["message"]
        reader = Reader()
        deltas = reader.read(message["content"])
        if reader.calls:
            (call,) = (each for each in deltas if "name" in each["tool_calls"][0]["function"])
            function = call["tool_calls"][0]
            parts = [each["tool_calls"][0]["function"]["arguments"] for each in deltas]
            function["function"]["arguments"] = "".join(parts)
            del function["index"]
            message |= {"content": None, "tool_calls": [function]}
            choice["finish_reason"] = "tool_calls"
    return answer


async def streamed(events: AsyncIterator[dict[str, Any]]) -> AsyncIterator[dict[str, Any]]:
    """The chunks of an answer, with calls as calls."""
    readers: dict[int, Reader] = {}
    async for event in events:
        if not event["choices"]:
            yield event
            continue
        (choice,) = event["choices"]
        reader = readers.setdefault(choice["index"], Reader())
        text = choice["delta"].get("content")
        if reader.calls and choice["finish_reason"] == "stop":
            choice["finish_reason"] = "tool_calls"
        if not text:
            yield event
            continue
        for delta in reader.read(text):
            yield {**event, "choices": [{**choice, "delta": delta}]}


class Reader:
    """Tells a call from other text as it comes, and its name from its arguments."""

    def __init__(self) -> None:
        self.text = ""
        self.sent = 0  # characters of the arguments
        self.begins: int | None = None  # where the arguments do

    @property
    def calls(self) -> bool:
        return self.text.startswith("{")

    def read(self, text: str) -> list[dict[str, Any]]:
        """The deltas of a message that this part of its text makes."""
        self.text += text
        if not self.calls:
            return [{"content": text}]
        found: list[dict[str, Any]] = []
        at = self.text.find(_BETWEEN)
        if self.begins is None and at >= 0 and self.text.startswith(_HEAD):
            self.begins = at + len(_BETWEEN)
            name = json.loads(self.text[len(_HEAD) : at])
            call = {"id": f"call_{uuid.uuid4().hex[:24]}", "type": "function"}
            function = {"name": name, "arguments": ""}
            found.append({"tool_calls": [{"index": 0, **call, "function": function}]})
        if self.begins is not None:
            # The last bracket closes the call, and is none of the arguments'.
            more = self.text[self.begins + self.sent : len(self.text) - 1]
            self.sent += len(more)
            if more:
                found.append({"tool_calls": [{"index": 0, "function": {"arguments": more}}]})
        return found
