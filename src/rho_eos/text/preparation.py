"""From an `Ask` to requests for an engine: the one place that checks, chooses and lays out.

It needs a checkpoint's tokenizer and configuration, not its weights. So a bad ask is refused before
weights are loaded, and requests for engines on other machines are prepared here.
"""

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rho_eos.base.errors import UserError
from rho_eos.base.tokens import SpecialTokens
from rho_eos.config import EngineConfig
from rho_eos.decoding.automaton import Automaton
from rho_eos.decoding.canvas import Canvas
from rho_eos.decoding.form import Form
from rho_eos.decoding.params import LONGEST, NO_CACHE, DecodeParams, check_samples, merged
from rho_eos.decoding.registry import CACHES, find_policy
from rho_eos.models.loading import Checkpoint
from rho_eos.text.ask import Ask, Request
from rho_eos.text.blockwise import block_defaults, blockwise, grows, in_blocks, refuse_text_behind
from rho_eos.text.forms import Forms
from rho_eos.text.infilling import Template, gap_policy, refuse_unless_it_infills
from rho_eos.text.prompts import Encoder, kind_of

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
        self.defaults: Mapping[str, Any] = config.defaults
        if checkpoint.blocks is not None:
            self.defaults = merged(block_defaults(checkpoint), config.defaults)
        self._remarked: set[int] = set()
        self.special = checkpoint.special
        self.encoder = Encoder(checkpoint.tokenizer, checkpoint.config.vocab_size)
        self.forms = Forms(self.encoder)

    def prepare(self, ask: Ask) -> list[Request]:
        """The requests of an ask, one for each of its samples.

        Args:
            ask: What is wanted.

        Raises:
            UserError: In one sentence, why it cannot be had.
        """
        params, blocks = self.decide(ask), self.checkpoint.blocks
        _check_parts(ask, params)
        template = None
        if ask.template is not None:
            template = Template.read(ask.template, self.encoder, self.special)
        canvas = self._canvas(ask, template, params)
        self._check(canvas, params)
        least = self._least_room(params)
        params = _fitted(params, canvas, self.checkpoint.context_length, least)
        special = replace(self.special, stops=params.stop_token_ids)
        automaton = None
        if ask.constraint is not None:
            automaton = self.forms.automaton(ask.constraint, special)
        if template is None:  # the context may leave less room than was asked for
            before, behind = canvas.prompt.tolist(), canvas.suffix.tolist()
            length = params.first_length
            if automaton is not None:
                length = _held(automaton, params, length, len(behind) > 0, blocks is not None)
            canvas = Canvas.of(special, before, length, behind)
        if blocks is not None:
            canvas = in_blocks(canvas, params, blocks)
            self._remark_on(canvas, blocks.length)
        canvas = replace(canvas, special=special)
        return [
            Request(
                id,
                canvas,
                own,
                texts=template.texts if template else (),
                automaton=automaton,
                processors=tuple(ask.processors),
            )
            for id, own in samples(ask.id, params, ask.n)
        ]

    def decide(self, ask: Ask) -> DecodeParams:
        """The checked parameters of an ask on this model."""
        blocks = self.checkpoint.blocks
        if blocks is not None:
            refuse_text_behind(ask)
        params = decide(ask, self.special, self.defaults)
        if blocks is not None:
            params = blockwise(params, blocks)
        find_policy(params.policy).refuse(self.special)
        return params

    def _least_room(self, params: DecodeParams) -> int:
        """Positions that must be free behind a prompt. A canvas that grows block by block needs
        one."""
        if self.checkpoint.blocks is not None and grows(params):
            return max(1, params.min_new_tokens)
        return params.least_room

    def _remark_on(self, canvas: Canvas, trained: int) -> None:
        """Say once that a model is decoded with other blocks than it was trained with."""
        assert canvas.blocks is not None
        length = canvas.blocks.length
        if length != trained and length not in self._remarked:
            self._remarked.add(length)
            what = "block_length %d is outside of the model's training, which had blocks of %d"
            logger.warning(what, length, trained)

    def _canvas(self, ask: Ask, template: Template | None, params: DecodeParams) -> Canvas:
        """The canvas of what is given, with the MASKs of a template; without one it has no cells
        yet."""
        if template is None:
            return Canvas.of(self.special, self._prompt(ask, params), 0, self._suffix(ask))
        if ask.prompt is not None:
            before = self._prompt(ask, params)
        else:
            start = self.encoder.beginning
            before = [] if template.pieces[0][:1] == start else start
        return template.canvas(before, self.special, params, self.checkpoint.context_length)

    def _prompt(self, ask: Ask, params: DecodeParams) -> list[int]:
        kind, content = kind_of(ask.prompt)
        if ask.suffix and kind == "prompt" and isinstance(content, str):
            # The text before a gap is the beginning of a document, and may be empty.
            text = self.encoder.text("the prompt", content + ask.answer_prefix)
            return [*self.encoder.beginning, *text]
        raw = ask.raw or ask.suffix is not None  # with an empty suffix a text is still no message
        ids = self.encoder.prompt(ask.prompt, raw, ask.answer_prefix)
        most = self.checkpoint.context_length - self._least_room(params)
        if ask.keep_end and 0 < most < len(ids):
            logger.warning("a prompt of %d tokens is cut to its last %d", len(ids), most)
            ids = ids[-most:]
        return ids

    def _suffix(self, ask: Ask) -> list[int]:
        """The ids of a suffix. A text is the rest of a document and ends in EOS; ids stay as they
        are."""
        if not ask.suffix:
            return []
        if isinstance(ask.suffix, str):
            return [*self.encoder.text("the suffix", ask.suffix), self.special.eos]
        ids = self.encoder.ids("the suffix", ask.suffix, "text or a ")
        if self.special.mask in ids:
            raise UserError(
                f"the suffix holds the MASK id {self.special.mask}; several gaps make a template"
            )
        return ids

    def _check(self, canvas: Canvas, params: DecodeParams) -> None:
        """Refuse what the model or the policy cannot take."""
        if not len(canvas.prompt):
            raise UserError("nothing stands before the first gap; this model needs something there")
        highest = max(int(part.max(initial=0)) for part in (canvas.prompt, canvas.suffix))
        if highest >= self.encoder.vocabulary:
            raise UserError(
                f"the tokenizer makes id {highest} of this prompt, but the model's vocabulary has "
                f"{self.encoder.vocabulary} ids"
            )
        if self.special.mask in canvas.prompt:
            raise UserError(
                f"the prompt holds the MASK id {self.special.mask}, but a prompt is not decoded: "
                "MASKs belong into a template"
            )
        if len(canvas.suffix) or canvas.given.any() or canvas.sized:
            refuse_unless_it_infills(params.policy, self.special)
        _check_cache(self.checkpoint, params)
        vocabulary = self.encoder.vocabulary
        if max(params.stop_token_ids, default=0) >= vocabulary:
            takes = f"ids below {vocabulary}, the size of the model's vocabulary"
            raise UserError.of("stop_token_ids", list(params.stop_token_ids), takes)
        if params.stop and self.encoder.tokenizer is None:
            raise UserError("stop takes strings, but this model has no tokenizer", "stop")


def decide(
    ask: Ask, special: SpecialTokens, usual: Mapping[str, Any] | None = None
) -> DecodeParams:
    """The checked parameters of an ask. Its own ones beat its defaults, and those beat `usual`.

    An ask that names no policy gets the default one; where text is given behind the answer, the one
    that finds the length of a gap. Defaults that only other policies have are left out then, and so
    is a default initial length, which was meant for answers.
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
    return DecodeParams.from_mapping(merged(defaults, own))


def samples(id: str, params: DecodeParams, n: Any) -> list[tuple[str, DecodeParams]]:
    """The ids and parameters of n samples of one prompt, not checked again.

    The i-th is called `id#i` and has the seed plus i; a single one keeps the prompt's own id.
    """
    check_samples(n)
    if n == 1:
        return [(id, params)]
    last = params.seed + n - 1
    if last > MOST_SEED:
        params.replaced(seed=last)  # it raises
    return [(f"{id}#{i}", params.model_copy(update={"seed": params.seed + i})) for i in range(n)]


def _fitted(params: DecodeParams, canvas: Canvas, context: int, least: int) -> DecodeParams:
    """The parameters with the lengths that the gaps ask for and the context leaves."""
    change: dict[str, int] = {}
    most, given = params.max_new_tokens, canvas.given_length
    if canvas.gaps is not None:
        least = canvas.own_length
        if least > most and "max_new_tokens" in params.model_fields_set:
            mixed = 0 < len(canvas.sized) < canvas.gap_count
            each = f", {params.initial_length} of them where none are stated" if mixed else ""
            raise UserError(
                f"max_new_tokens is {most}, but the gaps have {least} MASKs{each}", "max_new_tokens"
            )
        most = max(least, most)
        change = {"initial_length": least, "max_new_tokens": most}
    room = context - given
    if room < least:
        what = "prompt has" if given == len(canvas.prompt) else "text that is given has"
        raise UserError(
            f"the {what} {given} tokens; with the {least} that an answer begins with "
            f"that is more than the model's context of {context}"
        )
    if most > room:
        change["max_new_tokens"] = room
    if change.get("initial_length", params.initial_length) < params.initial_length:
        return params.replaced(**change)  # a policy may have refused so short a start
    return params.model_copy(update=change) if change else params


def _held(
    automaton: Automaton, params: DecodeParams, length: int, suffix: bool, blocks: bool
) -> int:
    """How many MASKs an answer of a form begins with, which some of its texts must fit."""
    longest = params.longest if blocks else params.max_new_tokens
    assert params.parts is not None
    found = Form.of(automaton, params, params.parts.policy).first_length(length, longest, suffix)
    if found is not None:
        return found
    shortest = automaton.shortest_text(params.min_new_tokens, LONGEST)
    if shortest is None:
        sentence = f"no answer of this form has {params.min_new_tokens} tokens or more"
        raise UserError(sentence, "min_new_tokens")
    raise UserError(
        f"the shortest answer of this form has {shortest} tokens, but max_new_tokens and the "
        f"context leave {longest}",
        "max_new_tokens",
    )


def able_caches(checkpoint: Checkpoint) -> list[str]:
    """The caches that are made for the model's attention, and none."""
    for_blocks, able = checkpoint.blocks is not None, [NO_CACHE]
    if checkpoint.family.caches:
        able += [name for name, kind in CACHES.all().items() if kind.for_blocks == for_blocks]
    return able


def _check_cache(checkpoint: Checkpoint, params: DecodeParams) -> None:
    """Refuse a cache that is not made for the model's attention."""
    able, family = able_caches(checkpoint), checkpoint.family
    if params.cache in able:
        return
    if not family.caches:
        takes = f"{NO_CACHE}: models of the family {family.name} keep no keys and values"
        raise UserError.of("cache", params.cache, takes)
    of_blocks = checkpoint.blocks is not None
    kind = "a block diffusion model" if of_blocks else "a model whose positions all see all"
    raise UserError.of("cache", params.cache, f"one of {', '.join(able)} with {kind}")


def _check_parts(ask: Ask, params: DecodeParams) -> None:
    """Refuse what cannot be asked for together."""
    if ask.constraint is not None:
        assert params.parts is not None
        reads_ends = getattr(params.parts.policy, "reads_ends", False)
        beside = {
            "template": (ask.template is not None, "it says itself what the answer is"),
            "stop": (params.stop, "an answer that is cut has no form"),
            "top_k": (params.top_k, "it could leave out every answer of the form"),
            "top_p": (params.top_p < 1, "it could leave out every answer of the form"),
            "policy": (reads_ends, f"{params.policy} lets the model say by tokens what fits"),
        }
        for name, (given, why) in beside.items():
            if given:
                raise UserError(f"{name} does not go with a form of the answer: {why}", name)
    if ask.suffix is not None and ask.template is not None:
        raise UserError("suffix and template do not go together; a template holds all its text")
    if ask.template is not None and params.stop:
        raise UserError("stop does not go with a template, which says itself what follows", "stop")
