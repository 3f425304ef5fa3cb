"""From an `Ask` to requests for an engine: the one place that checks, chooses and lays out.

It needs a checkpoint's tokenizer and configuration, not its weights. So a bad ask is refused before
weights are loaded, and requests for engines on other machines are prepared here.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from math import ceil
from typing import Any

from rho_eos.base.errors import UserError
from rho_eos.base.settings import is_optional
from rho_eos.base.tokens import SpecialTokens
from rho_eos.config import EngineConfig
from rho_eos.decoding.canvas import Canvas
from rho_eos.decoding.params import (
    LONGEST,
    NO_CACHE,
    DecodeParams,
    check_samples,
    composed,
    merged,
    parts_of,
)
from rho_eos.decoding.registry import find_policy
from rho_eos.models.loading import Checkpoint
from rho_eos.text.ask import Ask, Request
from rho_eos.text.chat_template import prepare as prepare_template
from rho_eos.text.infilling import (
    Given,
    Layout,
    encode_prefix,
    encode_suffix,
    gap_policy,
    lay_out,
    refuse_unless_it_infills,
)
from rho_eos.text.json_form import STRING, Form, Spelling
from rho_eos.text.json_schema import read_schema
from rho_eos.text.prompts import Prompt, encode_prompt, kind_of

logger = logging.getLogger(__name__)
MOST_SEED = 2**64 - 1


class Preparer:
    """Prepares asks for one checkpoint.

    Args:
        checkpoint: Its tokenizer and configuration are used, not its weights.
        config: Its `defaults` are the decoding parameters of asks that do not say.
    """

    def __init__(self, checkpoint: Checkpoint, config: EngineConfig) -> None:
        self.checkpoint = checkpoint
        self.defaults = config.defaults
        self.tokenizer = checkpoint.tokenizer
        self.special = checkpoint.special
        self.vocabulary: int = checkpoint.config.vocab_size
        if self.tokenizer is not None:
            # Set once, here: from then on nothing changes it, and threads can share it unlocked.
            backend = self.tokenizer.backend_tokenizer
            backend.no_truncation()
            backend.no_padding()
            backend.encode_special_tokens = False
            prepare_template(self.tokenizer)

    def prepare(self, ask: Ask) -> list[Request]:
        """The requests of an ask, one for each of its samples.

        Args:
            ask: What is wanted.

        Raises:
            UserError: In one sentence, why it cannot be had.
        """
        params = decide(ask, self.special, self.defaults)
        find_policy(params.policy).refuse(self.special)
        _check_parts(ask, params)
        form = None
        if ask.schema is not None:
            form = self._form(ask.schema, params)
            params = _with_room_for(form, params)
        layout = self._lay_out(ask, params, form)
        self._check(layout, params)
        if ask.keep_end:
            layout = _with_end_of_prompt(layout, self.checkpoint.context_length - params.least_room)
        params = _fitted(params, layout, self.checkpoint.context_length)
        request = _request(ask, params, layout, form, self.special)
        samples = seeded(params, ask.n)
        ids = sample_ids(ask.id, ask.n)
        return [replace(request, id=id, params=own) for id, own in zip(ids, samples, strict=True)]

    def detokenize(self, ids: list[int]) -> str:
        """The text of token ids, without special tokens; nothing where there is no tokenizer."""
        if self.tokenizer is None:
            return ""
        return str(self.tokenizer.decode(ids, skip_special_tokens=True))

    def _lay_out(self, ask: Ask, params: DecodeParams, form: Form | None) -> Layout:
        """The token ids of an ask: what stands before, in and behind its canvas."""
        template = ask.template if form is None else form.template
        if template is not None:
            layout = self._gaps(template, params)
            sized = layout.sized if form is None else frozenset(form.sized)
            return replace(layout, before=self._before(ask, layout), sized=sized)
        if not ask.suffix:
            raw = ask.raw or ask.suffix is not None  # an empty one: a text is still no message
            return Layout(self._encoded(ask.prompt, raw, ask.answer_prefix))
        behind = encode_suffix(ask.suffix, self.tokenizer, self.special, self.vocabulary)
        kind, content = kind_of(ask.prompt)
        if kind == "prompt" and isinstance(content, str):  # a text to go on with, no message
            before = encode_prefix(content + ask.answer_prefix, self.tokenizer)
        else:
            before = self._encoded(ask.prompt, ask.raw, ask.answer_prefix)
        return Layout(before, suffix=behind)

    def _gaps(self, template: Given, params: DecodeParams) -> Layout:
        """A template taken apart. Gaps that say no length start with `initial_length` MASKs, and
        with more where all gaps together have to hold `min_new_tokens`."""
        rest = (self.tokenizer, self.special, self.vocabulary)
        length, context = params.initial_length, self.checkpoint.context_length
        layout = lay_out(template, *rest, length, context)
        missing = params.min_new_tokens - layout.masks
        if missing > 0:
            open_ = max(layout.gaps) + 1 - len(layout.sized)
            if not open_ or not isinstance(template, str):
                raise UserError(
                    f"min_new_tokens is {params.min_new_tokens}, but the gaps have {layout.masks} "
                    "MASKs",
                    "min_new_tokens",
                )
            layout = lay_out(template, *rest, length + ceil(missing / open_), context)
        return layout

    def _form(self, schema: Mapping[str, Any], params: DecodeParams) -> Form:
        """An answer in JSON is a template whose keys are given and whose values are gaps."""
        start = params.initial_length if "initial_length" in params.model_fields_set else STRING
        return Form(read_schema(schema), self._spelling, start)

    @cached_property
    def _spelling(self) -> Spelling:
        return Spelling(self.tokenizer, self.special, self.vocabulary)

    def _before(self, ask: Ask, layout: Layout) -> list[int]:
        """What stands before the first gap of a template: the prompt, then its own beginning."""
        if ask.prompt is not None:
            return [*self._encoded(ask.prompt, ask.raw, ask.answer_prefix), *layout.before]
        start = None if self.tokenizer is None else self.tokenizer.bos_token_id
        if start is None or layout.before[:1] == [start]:
            return layout.before
        return [int(start), *layout.before]

    def _encoded(self, prompt: Prompt | None, raw: bool, answer_prefix: str) -> list[int]:
        return encode_prompt(prompt, self.tokenizer, self.vocabulary, raw, answer_prefix)

    def _check(self, layout: Layout, params: DecodeParams) -> None:
        """Refuse what the model or the policy cannot take."""
        highest = max((*layout.before, *layout.suffix), default=0)
        if highest >= self.vocabulary:
            raise UserError(
                f"the tokenizer makes id {highest} of this prompt, but the model's vocabulary has "
                f"{self.vocabulary} ids"
            )
        if self.special.mask in layout.before:
            raise UserError(
                f"the prompt holds the MASK id {self.special.mask}, but a prompt is not decoded: "
                "MASKs belong into a template"
            )
        if not layout.before:
            raise UserError("nothing stands before the first gap; this model needs something there")
        if layout.suffix or -1 in layout.gaps or layout.sized:
            refuse_unless_it_infills(params.policy, self.special)
        family = self.checkpoint.family
        if params.cache != NO_CACHE and not family.caches:
            takes = f"{NO_CACHE}: models of the family {family.name} keep no keys and values"
            raise UserError.of("cache", params.cache, takes)
        if params.stop and self.tokenizer is None:
            raise UserError("stop takes strings, but this model has no tokenizer", "stop")


def decide(
    ask: Ask, special: SpecialTokens, usual: Mapping[str, Any] | None = None
) -> DecodeParams:
    """The parameters of an ask, checked: its own ones over the defaults of its door over `usual`.

    Who names no policy gets the default one. Where text is given behind the answer, that is the one
    that finds the length of a gap: defaults that only another policy has do not concern it, and nor
    does a default initial length, which was meant for answers.
    """
    own: Mapping[str, Any] | DecodeParams = ask.params
    defaults = merged(usual, ask.defaults) if usual else dict(ask.defaults)
    if isinstance(own, DecodeParams):
        named = not ask.is_gap or "policy" in own.model_fields_set
        if named and defaults.keys() <= own.model_fields_set:
            return own  # it was checked when it was made
        own = own.model_dump(exclude_unset=True)
    if ask.is_gap and own.get("policy") is None and defaults.get("policy") is None:
        own = {**own, "policy": gap_policy(special)}
        defaults.pop("initial_length", None)
    said = {name: value for name, value in own.items() if value is not None}
    fields = composed(parts_of(merged(defaults, said))).model_fields
    # None means "not given", except where it is a value of the parameter.
    own = {
        name: value
        for name, value in own.items()
        if value is not None or (name in fields and is_optional(fields[name]))
    }
    return DecodeParams.from_mapping(merged(defaults, own))


def seeded(params: DecodeParams, n: Any) -> list[DecodeParams]:
    """The parameters of n samples of one prompt, not checked again: the i-th has seed + i."""
    check_samples(n)
    if params.seed + n - 1 > MOST_SEED:
        params.replaced(seed=params.seed + n - 1)  # it raises
    seeds = range(params.seed, params.seed + n)
    return [params if n == 1 else params.model_copy(update={"seed": seed}) for seed in seeds]


def sample_ids(id: str, n: int) -> list[str]:
    """The ids of n samples of one prompt; a single one has the prompt's own."""
    return [id] if n == 1 else [f"{id}#{sample}" for sample in range(n)]


def _request(
    ask: Ask, params: DecodeParams, layout: Layout, form: Form | None, special: SpecialTokens
) -> Request:
    cells, gaps = layout.canvas or params.first_length, layout.gaps or None
    return Request(
        ask.id,
        Canvas.of(special, layout.before, cells, layout.suffix, gaps, layout.sized),
        params,
        texts=layout.texts,
        write=form.write if form else None,
        processors=(*ask.processors, *(form.processors if form else ())),
    )


def _with_room_for(form: Form, params: DecodeParams) -> DecodeParams:
    """Who does not limit the length gets room for values of the usual length."""
    if "max_new_tokens" not in params.model_fields_set:
        return params.model_copy(update={"max_new_tokens": min(form.longest, LONGEST)})
    if form.length > params.max_new_tokens:
        raise UserError(
            f"max_new_tokens is {params.max_new_tokens}, but the values of this schema start with "
            f"{form.length} tokens",
            "max_new_tokens",
        )
    return params


def _with_end_of_prompt(layout: Layout, most: int) -> Layout:
    """Of a prompt that is too long the end, unless nothing would be left."""
    if not len(layout.before) > most > 0:
        return layout
    logger.warning("a prompt of %d tokens is cut to its last %d", len(layout.before), most)
    return replace(layout, before=layout.before[-most:])


def _fitted(params: DecodeParams, layout: Layout, context: int) -> DecodeParams:
    """The same parameters with the lengths that the gaps and the context leave."""
    change: dict[str, int] = {}
    least, most = params.least_room, params.max_new_tokens
    if layout.gaps:
        least = layout.masks
        if least > most and "max_new_tokens" in params.model_fields_set:
            mixed = 0 < len(layout.sized) <= max(layout.gaps)
            each = f", {params.initial_length} of them where none are stated" if mixed else ""
            raise UserError(
                f"max_new_tokens is {most}, but the gaps have {least} MASKs{each}", "max_new_tokens"
            )
        most = max(least, most)
        change = {"initial_length": least, "max_new_tokens": most}
    room = context - layout.given
    if room < least:
        what = "prompt has" if layout.given == len(layout.before) else "text that is given has"
        raise UserError(
            f"the {what} {layout.given} tokens; with initial_length {least} that is more than the "
            f"model's context of {context}"
        )
    if most > room:
        change["max_new_tokens"] = room
    if change.get("initial_length", params.initial_length) < params.initial_length:
        return params.replaced(**change)  # a policy may have refused so short a start
    return params.model_copy(update=change) if change else params


def _check_parts(ask: Ask, params: DecodeParams) -> None:
    """Refuse what cannot be asked for together."""
    if ask.schema is not None:
        beside = {
            "suffix": ask.suffix is not None,
            "template": ask.template is not None,
            "stop": params.stop,
            "logprobs": params.logprobs is not None,
            "min_new_tokens": params.min_new_tokens,
        }
        for name, given in beside.items():
            if given:
                raise UserError(f"{name} does not go with an answer in JSON", name)
    if ask.suffix is not None and ask.template is not None:
        raise UserError("suffix and template do not go together; a template holds all its text")
    if ask.template is not None and params.stop:
        raise UserError("stop does not go with a template, which says itself what follows", "stop")
