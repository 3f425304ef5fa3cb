"""The front door: load a model once, then generate, chat or stream."""

import itertools
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import Any

from rho_eos.config import EngineConfig
from rho_eos.decoding.params import DecodeParams, seeded
from rho_eos.engine.engine import Engine
from rho_eos.engine.request import Detail, LogitsProcessor, Request, StepEvent
from rho_eos.engine.runner import ModelRunner
from rho_eos.errors import UserError
from rho_eos.models.loading import choose_device, load_model, open_checkpoint
from rho_eos.models.placement import place
from rho_eos.outputs import Output
from rho_eos.plugins import load_plugins
from rho_eos.preparation import Preparer
from rho_eos.prompts import Message, Prompt
from rho_eos.rollouts import Rollouts, collect
from rho_eos.streaming import StreamerAdapter

logger = logging.getLogger(__name__)
Params = DecodeParams | Mapping[str, Any] | None


class LLM:
    """A masked diffusion language model with an engine around it.

    >>> llm = LLM("tiny")
    >>> llm.generate(["What is 3 + 4?"], DecodeParams(policy="rho-eos"))[0].text

    Streams, calls of `generate` and threads may share one: each hears of its own requests only, and
    what runs at the same time shares forwards.
    """

    def __init__(self, model: str = "tiny", **options: Any) -> None:
        self.config = EngineConfig.from_mapping({"model": model, **options})
        load_plugins(self.config.plugin)
        self.checkpoint = open_checkpoint(self.config)
        device = choose_device(self.config.device)
        self.placement = place(self.config, self.checkpoint, device)
        logger.info("%s: %s", self.config.model, self.placement.sentence)
        self.model = load_model(self.checkpoint, self.placement)
        self.tokenizer = self.checkpoint.tokenizer
        self.special = self.checkpoint.special
        self.context_length = self.checkpoint.context_length
        self.preparer = Preparer(self.checkpoint, self.config)
        self.runner = ModelRunner(
            self.model,
            self.special,
            self.config.logits_megabytes,
            self.config.max_cache_megabytes,
        )
        self.engine = Engine(
            self.runner,
            self.special,
            self.preparer.detokenize,
            self.config.max_rows,
            self.config.max_positions,
        )
        self._ids = itertools.count()

    def warm_up(self) -> None:
        """One small request, so that the first one that counts does not pay for first times."""
        params = DecodeParams(policy="fixed", initial_length=8, max_new_tokens=8, steps=1)
        ids = {"prompt_token_ids": [self.special.eos]}
        self.generate([ids if self.tokenizer is None else "?"], params)

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: Params | Sequence[Params] = None,
        *,
        n: int = 1,
        raw: bool = False,
        streamer: Any = None,
        canvas: Sequence[int] | None = None,
        processors: Sequence[LogitsProcessor] = (),
    ) -> list[Output]:
        """Decode prompts together; outputs come in the order of the prompts, `n` of each.

        The i-th of the n samples of a prompt has seed + i (and differs above temperature 0 only).
        A text goes through the chat template as a user's message, unless `raw` or the model has
        none. `streamer` is one of transformers' (for a single prompt). `canvas` is what the answers
        start from, token ids with the MASK id where one is wanted; `processors` change logits.
        """
        requests = self._prepare(prompts, params, n, raw, canvas=canvas, processors=processors)
        if streamer is None:
            return self._finish(requests)
        if len(requests) != 1:
            raise UserError(f"a streamer takes one prompt, but got {len(requests)}")
        return [self._generate_into(streamer, requests[0])]

    def rollout(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: Params | Sequence[Params] = None,
        *,
        n: int = 8,
        trajectory: bool = False,
        raw: bool = False,
    ) -> Rollouts:
        """n samples of each prompt in one batch, as arrays for training (docs/rollouts.md).

        Their tokens with the step and probability of each commit; with `trajectory` also the canvas
        before every forward.
        """
        each = _params_for_each(params, len(_as_list(prompts)))
        if trajectory:
            each = [own.replaced(trace=True) for own in each]
        requests = self._prepare(prompts, each, n, raw)
        return collect(requests, self._finish(requests), n, self.special.mask, trajectory)

    def _prepare(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: Params | Sequence[Params],
        n: int,
        raw: bool,
        **parts: Any,
    ) -> list[Request]:
        """n requests for each prompt. All are checked before any of them runs."""
        batch = _as_list(prompts)
        each = _params_for_each(params, len(batch))
        return [
            self.preparer.prepare(prompt, sample, id=str(next(self._ids)), raw=raw, **parts)
            for prompt, own in zip(batch, each, strict=True)
            for sample in seeded(own, n)
        ]

    def _finish(self, requests: Sequence[Request]) -> list[Output]:
        return self.engine.finish([self.engine.submit(request) for request in requests])

    def _generate_into(self, streamer: Any, request: Request) -> Output:
        adapter = StreamerAdapter(streamer, request.prompt)
        handle = self.engine.submit(request, Detail.STEPS)
        with closing(self.engine.follow(handle)) as events:  # also where the streamer raises
            for event in events:
                adapter.push(event.token_ids, event.draft_ids, event.output is not None)
        return handle.result()

    def chat(self, messages: Sequence[Message], params: Params = None) -> Output:
        """The assistant's next turn in a conversation."""
        return self.generate([{"messages": messages}], params)[0]

    def stream(
        self, prompt: Prompt, params: Params = None, *, raw: bool = False
    ) -> Iterator[StepEvent]:
        """One event per denoising step; leaving the loop early cancels the request."""
        request = self.preparer.prepare(prompt, _checked(params), id=str(next(self._ids)), raw=raw)
        yield from self.engine.follow(self.engine.submit(request, Detail.STEPS))


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
