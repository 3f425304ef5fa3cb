"""The front door: load a model once, then generate, chat or stream."""

import itertools
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Unpack

from rho_eos.base.errors import UserError
from rho_eos.base.outputs import Output
from rho_eos.base.plugins import load_plugins
from rho_eos.config import EngineConfig, EngineOptions
from rho_eos.decoding.params import DecodeParams, merged
from rho_eos.engine.engine import Engine
from rho_eos.engine.likelihood import Score, score_pairs
from rho_eos.engine.params import ScoreParams
from rho_eos.engine.request import Detail, StepEvent
from rho_eos.engine.runner import ModelRunner
from rho_eos.engine.scoring import Limits, Turn
from rho_eos.models.loading import Checkpoint, load_model, open_checkpoint
from rho_eos.models.placement import choose_device, place, settled
from rho_eos.models.update import Exchange, Updates, Weights, exchange
from rho_eos.rollouts.arrays import Rollouts, collect
from rho_eos.text.ask import Ask, LogitsProcessor, Request
from rho_eos.text.ask import Params as GivenParams
from rho_eos.text.pairs import Pair, Scored, as_pairs, refuse_blocks
from rho_eos.text.preparation import Preparer
from rho_eos.text.prompts import Given, Message, Prompt, as_list, as_messages, listed

logger = logging.getLogger(__name__)
Params = GivenParams | None


class LLM:
    """A masked diffusion language model with an engine around it.

    Streams, calls of `generate` and threads may share one: each hears of its own requests only, and
    what runs at the same time shares forwards.

    Examples:
        >>> llm = LLM("tiny")
        >>> prompt = "Mia has 8 plums. 1) buys 6. 2) eats 5. How many are there now?"
        >>> llm.generate([prompt], DecodeParams(policy="rho-eos"))[0].text

    Args:
        model: The name of an embedded model (`tiny`, `terse`, `tiny-blocks`), a folder or a Hub id.
        checkpoint: The same model, if it was opened before. Otherwise it is opened here.
        options: Settings of the engine, the fields of `EngineConfig`: `device="cuda"`, or
            `defaults={"cache": "window"}` for decoding parameters of requests that do not say.
    """

    def __init__(
        self,
        model: str = "tiny",
        *,
        checkpoint: Checkpoint | None = None,
        **options: Unpack[EngineOptions],
    ) -> None:
        self.config = EngineConfig.from_mapping({"model": model, **options})
        load_plugins(self.config.plugin)
        self.checkpoint = checkpoint or open_checkpoint(self.config)
        device = choose_device(self.config.device)
        self.placement = place(self.config, self.checkpoint, device)
        logger.info("%s: %s", self.config.model, self.placement.sentence)
        self.preparer = Preparer(self.checkpoint, self.config)
        self.model = load_model(self.checkpoint, self.placement)
        self.placement = settled(self.config, self.checkpoint, self.placement)
        self.tokenizer = self.checkpoint.tokenizer
        self.special = self.checkpoint.special
        self.context_length = self.checkpoint.context_length
        self.runner = ModelRunner(
            self.model,
            self.special,
            self.config.logits_megabytes,
            self.placement.cache_megabytes,
        )
        self.engine = Engine(
            self.runner,
            self.special,
            self.preparer.encoder.decode,
            self.config.max_rows,
            self.placement.positions,
        )
        self.updates = Updates(self.model, self.checkpoint, self.placement)
        self._ids = itertools.count()

    def __repr__(self) -> str:
        return f"<LLM {self.config.model}: {self.placement.sentence}>"

    def warm_up(self) -> None:
        """Decode one small request, so that the first real one does not wait for one-time work."""
        length = {"initial_length": 8, "max_new_tokens": 8}
        params = DecodeParams(policy="fixed", commit="quota", steps=1, **length)
        ids = {"prompt_token_ids": [self.special.eos]}
        self.generate([ids if self.tokenizer is None else "?"], params)

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt | None],
        params: Params | Sequence[Params] = None,
        *,
        n: int = 1,
        raw: bool = False,
        suffix: Given | None = None,
        template: Given | None = None,
        constraint: Mapping[str, Any] | None = None,
        processors: Sequence[LogitsProcessor] = (),
        **keywords: Any,
    ) -> list[Output]:
        """Decode prompts together.

        Args:
            prompts: One prompt or a list of them. Each is a text, a list of messages, token ids, or
                a mapping that holds one of these under `prompt`, `messages` or `prompt_token_ids`.
                A text goes through the chat template as a user's message, if the model has one.
            params: Decoding parameters for all prompts, or a list with those of each prompt.
            n: How many samples of each prompt are made. The i-th has the seed plus i, so samples
                differ above temperature 0 only.
            raw: Take texts as they are, without the chat template.
            suffix: What stands behind the answers. The prompts are then the texts before them.
            template: A text with gaps, see `fill`. With one a prompt may be None.
            constraint: The form of the answers: `{"regex": …}`, `{"choices": […]}` or
                `{"schema": …}`, a JSON schema. Every answer is of this form.
            processors: Functions that change the logits before anything is read from them.
            keywords: Further decoding parameters, which beat `params`: `max_new_tokens=32`.

        Returns:
            The outputs in the order of the prompts, `n` of each.
        """
        asked = {
            "suffix": suffix,
            "template": template,
            "constraint": constraint,
            "n": n,
            "raw": raw,
        }
        asks = self._asks(prompts, params, keywords, processors=processors, **asked)
        return self.run(self._prepared(asks))

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
        """Samples of prompts as arrays for training (docs/rollouts.md).

        Args:
            prompts: One prompt or a list of them, as in `generate`.
            params: Decoding parameters for all prompts, or a list with those of each prompt.
            n: How many samples of each prompt are made.
            trajectory: Keep the canvas before every forward, too.
            raw: Take texts as they are, without the chat template.
            keywords: Further decoding parameters, which beat `params`.

        Returns:
            Their tokens, with the step and the probability of each commit.
        """
        traced = {"trace": True} if trajectory else {}
        asks = self._asks(prompts, params, {**keywords, **traced}, n=n, raw=raw)
        requests = self._prepared(asks)
        outputs, shift = self.run(requests), self.model.prediction_shift
        return collect(requests, outputs, n, self.special, shift, trajectory)

    def score(
        self,
        items: Scored | Sequence[Scored],
        params: ScoreParams | None = None,
        *,
        raw: bool = False,
        **keywords: Any,
    ) -> list[Score]:
        """How likely the model finds answers (docs/scores.md).

        Args:
            items: Pairs of a prompt and an answer, each a tuple, or a mapping with `answer` beside
                the prompt; or texts, which are scored for themselves. One or a list of them.
            params: How: the method, the number of draws and their seed.
            raw: Take prompts as they are, without the chat template.
            keywords: The same as keywords: `method="chain"`.

        Returns:
            A score for each, in their order.
        """
        how = (params or ScoreParams()).replaced(**keywords)
        refuse_blocks(self.checkpoint.blocks, how.method)
        pairs = as_pairs(self.preparer, items, raw)
        return list(self.score_pairs(pairs, how, self.engine.between_steps))

    def score_pairs(
        self, pairs: Sequence[Pair], how: ScoreParams, turn: Turn, top: int = 0
    ) -> Iterator[Score]:
        """Score token ids, each batch when `turn` lets it."""
        limits = Limits(self.config.max_rows, self.placement.positions, turn)
        return score_pairs(self.runner, pairs, how, limits, top, self.checkpoint.blocks)

    def infill(
        self,
        prefix: str | Sequence[int],
        suffix: Given | None,
        params: Params = None,
        *,
        prompt: str | Sequence[Message] | None = None,
        **keywords: Any,
    ) -> Output:
        """What belongs between two texts.

        Args:
            prefix: The text before the gap, or token ids.
            suffix: The text behind the gap, or token ids.
            params: Decoding parameters. Where they name no policy, the length of the gap is found:
                by the model itself if it was trained to (DreamOn), else by a search.
            prompt: A question or a conversation. The two texts are then the beginning and the end
                of the answer to it.
            keywords: Further decoding parameters, which beat `params`.

        Returns:
            The output; its `token_ids` are what stands between the two.
        """
        if prompt is None:
            return self._one(prefix, params, keywords, suffix=listed(suffix) or "")
        if not isinstance(prefix, str):
            raise UserError("with a prompt the prefix is a text: the beginning of the answer")
        asked = as_messages(prompt)
        return self._one(asked, params, keywords, suffix=suffix, answer_prefix=prefix)

    def fill(
        self,
        template: Given,
        params: Params = None,
        *,
        prompt: str | Sequence[Message] | None = None,
        **keywords: Any,
    ) -> Output:
        """A text with gaps, `{"name": "___", "age": ___}`, filled.

        Args:
            template: `___` is a gap of `initial_length` MASKs, `___{12}` one of 12, and MASKs of
                the model written out are as many. Token ids have a gap where the MASK id stands.
            params: Decoding parameters; without a policy the lengths of the gaps are found.
            prompt: A question or a conversation that the template is the answer to.
            keywords: Further decoding parameters, which beat `params`.

        Returns:
            The output; its `text` is the filled template, and `gaps` what fills each gap.
        """
        return self._one(as_messages(prompt), params, keywords, template=template)

    def chat(
        self,
        messages: Sequence[Message],
        params: Params = None,
        *,
        constraint: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> Output:
        """The assistant's next turn in a conversation.

        Args:
            messages: The conversation so far, each message with a `role` and a `content`.
            params: Decoding parameters.
            constraint: The form of the answer, see `generate`.
            keywords: Further decoding parameters, which beat `params`.
        """
        return self._one({"messages": messages}, params, keywords, constraint=constraint)

    def stream(
        self,
        prompt: Prompt | None,
        params: Params = None,
        *,
        raw: bool = False,
        suffix: Given | None = None,
        template: Given | None = None,
        constraint: Mapping[str, Any] | None = None,
        **keywords: Any,
    ) -> Iterator[StepEvent]:
        """Decode one prompt step by step. Leaving the loop early cancels the request.

        Args:
            prompt: What is asked, as in `generate`; None is possible where there is a template.
            params: Decoding parameters.
            raw: Take a text as it is, without the chat template.
            suffix: What stands behind the answer.
            template: A text with gaps, see `fill`.
            constraint: The form of the answer, see `generate`.
            keywords: Further decoding parameters, which beat `params`.

        Yields:
            One event for each denoising step. The last one holds the output.
        """
        asked = {"suffix": suffix, "template": template, "constraint": constraint, "raw": raw}
        [request] = self._prepared([self._ask(prompt, params, keywords, **asked)])
        yield from self.engine.follow(self.engine.submit(request, Detail.STEPS))

    def update_weights(self, weights: Weights) -> int:
        """Replace weights of the model, all that are given or none; docs/rollouts.md has examples.

        Requests that run meanwhile are finished on the old weights, those that wait begin on the
        new ones, and `Output.weights_version` says which an output came from.

        Args:
            weights: Named tensors (a state dict, or pairs of a name and a tensor) under our names
                or those of the model's published code; a safetensors file; or a folder with a
                checkpoint or an adapter. What is not named stays; with an adapter all weights
                become those of the checkpoint with this adapter merged in.

        Returns:
            The version of the new weights: how often they have been replaced by now.
        """
        pairs = self.updates.staged(weights)
        return self.engine.changed(self.engine.change(partial(self.replace_weights, pairs)))

    def replace_weights(self, pairs: list[Exchange]) -> None:
        """What `update_weights` has the engine do when nothing runs."""
        exchange(pairs)
        self.runner.forget_weights()

    def _asks(
        self,
        prompts: Prompt | Sequence[Prompt | None],
        params: Params | Sequence[Params],
        keywords: Mapping[str, Any],
        **asked: Any,
    ) -> list[Ask]:
        each = as_list(prompts)
        if params is None or isinstance(params, DecodeParams | Mapping):
            params = [params] * len(each)
        if len(params) != len(each):
            raise UserError(
                f"got {len(params)} params for {len(each)} prompts; give one, or one for each"
            )
        pairs = zip(each, params, strict=True)
        return [self._ask(prompt, own, keywords, **asked) for prompt, own in pairs]

    def _ask(
        self, prompt: Prompt | None, params: Params, keywords: Mapping[str, Any], **asked: Any
    ) -> Ask:
        """The ask of one prompt. Keywords beat parameters that were given in one piece."""
        own = {} if params is None else params
        if keywords:
            if isinstance(own, DecodeParams):
                own = own.model_dump(exclude_unset=True)
            own = merged(own, keywords)
        return Ask(prompt, own, id=str(next(self._ids)), **asked)

    def _one(self, *given: Any, **asked: Any) -> Output:
        return self.run(self._prepared([self._ask(*given, **asked)]))[0]

    def _prepared(self, asks: Iterable[Ask]) -> list[Request]:
        """The requests of all asks, which are checked before any of them runs."""
        return [request for ask in asks for request in self.preparer.prepare(ask)]

    def run(self, requests: Sequence[Request]) -> list[Output]:
        """Decode requests that were prepared before, all together.

        Args:
            requests: What `Preparer.prepare` made of asks.

        Returns:
            Their outputs, in the same order.
        """
        return self.engine.run(requests)
