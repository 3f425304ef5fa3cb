"""The front door: load a model once, then generate, chat or stream."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rho_eos.config import DecodeParams, EngineConfig
from rho_eos.engine.engine import Engine, StepEvent
from rho_eos.engine.runner import ModelRunner
from rho_eos.errors import UserError
from rho_eos.models.loading import choose_device, choose_dtype, load_model, open_checkpoint
from rho_eos.outputs import Output
from rho_eos.preparation import Preparer
from rho_eos.prompts import Message, Prompt
from rho_eos.streaming import StreamerAdapter, StreamEvent, TextDelta

Params = DecodeParams | Mapping[str, Any] | None


class LLM:
    """A masked diffusion language model with an engine around it.

    >>> llm = LLM("tiny")
    >>> llm.generate(["What is 3 + 4?"], DecodeParams(policy="rho-eos"))[0].text
    """

    def __init__(self, model: str = "tiny", **options: Any) -> None:
        self.config = EngineConfig.from_mapping({"model": model, **options})
        self.checkpoint = open_checkpoint(self.config)
        device = choose_device(self.config.device)
        dtype = choose_dtype(self.config.dtype, device, self.checkpoint.config)
        self.model = load_model(self.checkpoint, device, dtype)
        self.tokenizer = self.checkpoint.tokenizer
        self.special = self.checkpoint.special
        self.context_length = self.checkpoint.context_length
        self._preparer = Preparer(self.checkpoint)
        self.runner = ModelRunner(self.model, self.special, self.config.logits_megabytes)
        self.engine = Engine(
            self.runner,
            self.special,
            self.detokenize,
            self.config.max_rows,
            self.config.max_positions,
        )
        self._ids = itertools.count()

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: Params | Sequence[Params] = None,
        *,
        raw: bool = False,
        streamer: Any = None,
    ) -> list[Output]:
        """Decode prompts together; outputs come in the order of the prompts.

        A text goes through the chat template as a user's message, unless `raw` or the model has
        none. `streamer` is one of transformers' (for a single prompt).
        """
        batch = _as_list(prompts)
        each = _params_for_each(params, len(batch))
        if streamer is not None:
            if len(batch) != 1:
                raise UserError(f"a streamer takes one prompt, but got {len(batch)}")
            return [self._generate_into(streamer, batch[0], each[0], raw)]
        # All prompts are checked before any of them runs.
        requests = [self.prepare(prompt, p, raw) for prompt, p in zip(batch, each, strict=True)]
        ids = [self.submit(prompt, p) for prompt, p in requests]
        outputs: dict[str, Output] = {}
        try:
            while len(outputs) < len(ids):
                for event in self.engine.step():
                    if event.output is not None:
                        outputs[event.output.id] = event.output
        finally:
            self._withdraw(ids)
        return [outputs[id] for id in ids]

    def chat(self, messages: Sequence[Message], params: Params = None) -> Output:
        """The assistant's next turn in a conversation."""
        return self.generate([{"messages": messages}], params)[0]

    def stream(
        self, prompt: Prompt, params: Params = None, *, raw: bool = False
    ) -> Iterator[StreamEvent]:
        """One event per denoising step; leaving the loop early cancels the request."""
        ids, checked = self.prepare(prompt, _checked(params), raw)
        delta = TextDelta(checked.stop)
        for event in self._steps(ids, checked):
            final = event.output is not None
            text = event.output.text if event.output else self.engine.text_so_far(event.sequence)
            prefix = len(event.sequence.committed_prefix())
            draft = "" if final else self.detokenize(event.draft[prefix:].tolist())
            yield StreamEvent(delta.push(text, final), draft, event.record, event.output)

    def prepare(
        self, prompt: Prompt, params: DecodeParams, raw: bool = False, answer_prefix: str = ""
    ) -> tuple[list[int], DecodeParams]:
        """Token ids and parameters, checked against the model's context."""
        return self._preparer.prepare(prompt, params, raw, answer_prefix)

    def submit(self, prompt: list[int], params: DecodeParams) -> str:
        """Queue a prepared request with the engine and return its id."""
        id = str(next(self._ids))
        self.engine.add(id, prompt, params)
        return id

    def detokenize(self, ids: list[int]) -> str:
        return self._preparer.detokenize(ids)

    def _steps(self, prompt: list[int], params: DecodeParams) -> Iterator[StepEvent]:
        id = self.submit(prompt, params)
        try:
            while id in self.engine.sequences:
                yield from (event for event in self.engine.step() if event.sequence.id == id)
        finally:
            self._withdraw([id])

    def _generate_into(
        self, streamer: Any, prompt: Prompt, params: DecodeParams, raw: bool
    ) -> Output:
        ids, checked = self.prepare(prompt, params, raw)
        adapter = StreamerAdapter(streamer, ids)
        for event in self._steps(ids, checked):
            prefix = event.sequence.committed_prefix().tolist()
            adapter.push(prefix, event.draft[len(prefix) :].tolist(), event.output is not None)
            if event.output is not None:
                return event.output
        raise AssertionError("a request ends with an output")

    def _withdraw(self, ids: Sequence[str]) -> None:
        """After an error or an interrupt nothing may stay behind in the engine."""
        for id in ids:
            self.engine.cancel(id)


def _as_list(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    single = isinstance(prompts, str | Mapping) or (
        len(prompts) > 0 and isinstance(prompts[0], int)
    )
    return [prompts] if single else list(prompts)  # type: ignore[list-item, arg-type]


def _checked(params: Params) -> DecodeParams:
    return params if isinstance(params, DecodeParams) else DecodeParams.from_mapping(params or {})


def _params_for_each(params: Params | Sequence[Params], count: int) -> list[DecodeParams]:
    if params is None or isinstance(params, DecodeParams | Mapping):
        return [_checked(params)] * count
    if len(params) != count:
        raise UserError(f"got {len(params)} params for {count} prompts; give one, or one for each")
    return [_checked(each) for each in params]
