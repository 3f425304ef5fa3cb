"""The front door: load a model once, then generate, chat or stream."""

import itertools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import partial
from typing import Any

from rho_eos.base.errors import UserError
from rho_eos.base.outputs import Output
from rho_eos.base.plugins import load_plugins
from rho_eos.config import EngineConfig
from rho_eos.decoding.params import DecodeParams, merged, seeded
from rho_eos.engine.engine import Engine
from rho_eos.engine.preparation import Preparer
from rho_eos.engine.request import Detail, LogitsProcessor, Request, StepEvent
from rho_eos.engine.runner import ModelRunner
from rho_eos.models.loading import load_model, open_checkpoint
from rho_eos.models.placement import choose_device, place
from rho_eos.rollouts import Rollouts, collect
from rho_eos.text.infilling import Given, default_policy, listed, stands_before_text
from rho_eos.text.prompts import Message, Prompt
from rho_eos.text.streaming import StreamerAdapter

logger = logging.getLogger(__name__)
Params = DecodeParams | Mapping[str, Any] | None
Complete = Callable[[Mapping[str, Any]], dict[str, Any]]  # what was given → with what follows


class LLM:
    """A masked diffusion language model with an engine around it.

    Streams, calls of `generate` and threads may share one: each hears of its own requests only, and
    what runs at the same time shares forwards.

    Examples:
        >>> llm = LLM("tiny")
        >>> prompt = "Mia has 8 plums. 1) buys 6. 2) eats 5. How many are there now?"
        >>> llm.generate([prompt], DecodeParams(policy="rho-eos"))[0].text
    """

    def __init__(self, model: str = "tiny", **options: Any) -> None:
        self.config = EngineConfig.from_mapping({"model": model, **options})
        load_plugins(self.config.plugin)
        self.checkpoint = open_checkpoint(self.config)
        device = choose_device(self.config.device)
        self.placement = place(self.config, self.checkpoint, device)
        logger.info("%s: %s", self.config.model, self.placement.sentence)
        self.preparer = Preparer(self.checkpoint, self.config)
        self.model = load_model(self.checkpoint, self.placement)
        self.tokenizer = self.checkpoint.tokenizer
        self.special = self.checkpoint.special
        self.context_length = self.checkpoint.context_length
        self.runner = ModelRunner(
            self.model,
            self.special,
            self.config.logits_megabytes,
            self.config.max_cache_megabytes,
            self.config.compile,
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
        prompts: Prompt | Sequence[Prompt | None],
        params: Params | Sequence[Params] = None,
        *,
        n: int = 1,
        raw: bool = False,
        streamer: Any = None,
        canvas: Sequence[int] | None = None,
        suffix: Given | None = None,
        template: Given | None = None,
        processors: Sequence[LogitsProcessor] = (),
        **keywords: Any,
    ) -> list[Output]:
        """Decode prompts together; outputs come in the order of the prompts, `n` of each.

        The i-th of the n samples of a prompt has seed + i (and differs above temperature 0 only).
        Decoding parameters may also be given as keywords, which then hold for all prompts:
        `llm.generate("hi", max_new_tokens=32)`.

        A text goes through the chat template as a user's message, unless `raw` or the model has
        none. `streamer` is one of transformers' (for a single prompt). `canvas` is what the answers
        start from, token ids with the MASK id where one is wanted. `suffix` is what follows them
        all; the prompts are then texts to go on with. `template` is a text with gaps, see `fill`;
        with one a prompt may be None. `processors` change logits.
        """
        complete = self._completing(suffix, template)
        each = _params_for_each(params, len(_as_list(prompts)), keywords, complete)
        given = {"canvas": canvas, "suffix": suffix, "template": template}
        requests = self._prepare(prompts, each, n, raw, **given, processors=processors)
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
        **keywords: Any,
    ) -> Rollouts:
        """n samples of each prompt in one batch, as arrays for training (docs/rollouts.md).

        Their tokens with the step and probability of each commit; with `trajectory` also the canvas
        before every forward.
        """
        each = _params_for_each(params, len(_as_list(prompts)), keywords)
        if trajectory:
            each = [own.replaced(trace=True) for own in each]
        requests = self._prepare(prompts, each, n, raw)
        return collect(requests, self._finish(requests), n, self.special.mask, trajectory)

    def _prepare(
        self,
        prompts: Prompt | Sequence[Prompt | None],
        params: Sequence[DecodeParams],
        n: int,
        raw: bool,
        **parts: Any,
    ) -> list[Request]:
        """n requests for each prompt. All are checked before any of them runs."""
        return [
            self.preparer.prepare(prompt, sample, id=str(next(self._ids)), raw=raw, **parts)
            for prompt, own in zip(_as_list(prompts), params, strict=True)
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

    def infill(
        self,
        prefix: str | Sequence[int],
        suffix: Given | None,
        params: Params = None,
        *,
        prompt: str | Sequence[Message] | None = None,
        **keywords: Any,
    ) -> Output:
        """What belongs between two texts (or token ids); `token_ids` of the output is just that.

        With a `prompt`, a question or a conversation, the two are the beginning and the end of the
        answer to it. Without a policy in `params` the length is found: by the model itself if it
        was trained to (DreamOn), else by a search.
        """
        prefix, suffix = listed(prefix), listed(suffix)
        own = _checked(params, keywords, self._completing(suffix, None))
        id = str(next(self._ids))
        if prompt is None:
            request = self.preparer.prepare(prefix, own, id=id, suffix=suffix or "")
        elif isinstance(prefix, str):
            request = self.preparer.prepare(
                {"messages": _as_messages(prompt)}, own, id=id, suffix=suffix, answer_prefix=prefix
            )
        else:
            raise UserError("with a prompt the prefix is a text: the beginning of the answer")
        return self.engine.finish([self.engine.submit(request)])[0]

    def fill(
        self,
        template: Given,
        params: Params = None,
        *,
        prompt: str | Sequence[Message] | None = None,
        **keywords: Any,
    ) -> Output:
        """A text with gaps, `{"name": "___", "age": ___}`, filled; `gaps` holds what came where.

        `___` is a gap of `initial_length` MASKs, `___{12}` one of 12, and MASKs of the model
        written out are as many. Token ids have a gap where the MASK id stands. With a `prompt` the
        template is the answer to it.
        """
        template = listed(template)
        own = _checked(params, keywords, self._completing(None, template))
        asked = None if prompt is None else {"messages": _as_messages(prompt)}
        request = self.preparer.prepare(asked, own, id=str(next(self._ids)), template=template)
        return self.engine.finish([self.engine.submit(request)])[0]

    def _completing(self, suffix: Given | None, template: Given | None) -> Complete:
        """Who names no policy gets one that can stand before text, where there is some."""
        if not stands_before_text(suffix, template):
            return dict
        return partial(default_policy, special=self.special)

    def chat(self, messages: Sequence[Message], params: Params = None, **keywords: Any) -> Output:
        """The assistant's next turn in a conversation."""
        return self.generate([{"messages": messages}], params, **keywords)[0]

    def stream(
        self,
        prompt: Prompt | None,
        params: Params = None,
        *,
        raw: bool = False,
        suffix: Given | None = None,
        template: Given | None = None,
        **keywords: Any,
    ) -> Iterator[StepEvent]:
        """One event per denoising step; leaving the loop early cancels the request."""
        request = self.preparer.prepare(
            prompt,
            _checked(params, keywords, self._completing(suffix, template)),
            id=str(next(self._ids)),
            raw=raw,
            suffix=suffix,
            template=template,
        )
        yield from self.engine.follow(self.engine.submit(request, Detail.STEPS))


def _as_list(prompts: Prompt | Sequence[Prompt | None]) -> list[Prompt | None]:
    if not hasattr(prompts, "__len__"):
        raise UserError(f"prompts takes one prompt or a list of them, not {prompts!r:.40}")
    single = isinstance(prompts, str | Mapping) or (
        len(prompts) > 0 and isinstance(prompts[0], int)
    )
    return [prompts] if single else list(prompts)  # type: ignore[list-item, arg-type]


def _as_messages(prompt: str | Sequence[Message]) -> Sequence[Message]:
    return [{"role": "user", "content": prompt}] if isinstance(prompt, str) else prompt


def _checked(
    params: Params, keywords: Mapping[str, Any], complete: Complete = dict
) -> DecodeParams:
    """What was given in one way or the other; keywords beat the rest."""
    if isinstance(params, DecodeParams):
        if not keywords and (complete is dict or "policy" in params.model_fields_set):
            return params
        params = params.model_dump(exclude_unset=True)
    return DecodeParams.from_mapping(complete(merged(params or {}, keywords)))


def _params_for_each(
    params: Params | Sequence[Params],
    count: int,
    keywords: Mapping[str, Any],
    complete: Complete = dict,
) -> list[DecodeParams]:
    if params is None or isinstance(params, DecodeParams | Mapping):
        return [_checked(params, keywords, complete)] * count
    if len(params) != count:
        raise UserError(f"got {len(params)} params for {count} prompts; give one, or one for each")
    return [_checked(each, keywords, complete) for each in params]
