"""Requests made ready for an engine: token ids and parameters, checked against the model's context.

It needs a checkpoint's tokenizer and configuration, not its weights: requests for engines that run
elsewhere are checked here all the same.
"""

from collections.abc import Callable, Collection, Sequence
from math import ceil

from rho_eos.base.errors import UserError
from rho_eos.config import EngineConfig
from rho_eos.decoding.canvas import Canvas
from rho_eos.decoding.params import DecodeParams
from rho_eos.decoding.registry import find_policy
from rho_eos.engine.request import LogitsProcessor, Request
from rho_eos.models.loading import Checkpoint
from rho_eos.text.chat_template import prepare as prepare_template
from rho_eos.text.infilling import (
    Given,
    Layout,
    encode_prefix,
    encode_suffix,
    lay_out,
    refuse_unless_it_infills,
)
from rho_eos.text.prompts import Prompt, check_ids, encode_prompt, kind_of


class Preparer:
    def __init__(self, checkpoint: Checkpoint, config: EngineConfig) -> None:
        self.checkpoint = checkpoint
        self.defaults = config.request_defaults()
        self.tokenizer = checkpoint.tokenizer
        if self.tokenizer is not None:
            # Set once, here: from then on nothing changes it, and threads can share it unlocked.
            backend = self.tokenizer.backend_tokenizer
            backend.no_truncation()
            backend.no_padding()
            backend.encode_special_tokens = False
            prepare_template(self.tokenizer)

    def prepare(
        self,
        prompt: Prompt | None,
        params: DecodeParams,
        *,
        id: str = "",
        raw: bool = False,
        answer_prefix: str = "",
        canvas: Sequence[int] | None = None,
        suffix: Given | None = None,
        template: Given | None = None,
        processors: Sequence[LogitsProcessor] = (),
        sized: Collection[int] = (),
        write: Callable[[list[str]], str] | None = None,
    ) -> Request:
        """The request for the engine, or a sentence that says why there cannot be one.

        `canvas`: token ids to start from, the model's MASK id where a token is wanted. `suffix`:
        what follows; a text prompt is then a text to go on with, not a message. `template`: text
        with gaps, the answer to the prompt if there is one; `sized`: those of its gaps whose length
        is not searched for; `write`: makes the text of what fills them.
        """
        vocabulary, special = self.checkpoint.config.vocab_size, self.checkpoint.special
        find_policy(params.policy).refuse(special)
        unsaid = {k: v for k, v in self.defaults.items() if k not in params.model_fields_set}
        if unsaid:
            params = params.replaced(**unsaid)
        _check_that_one_is_given(params, canvas, suffix, template)
        context = self.checkpoint.context_length
        behind: list[int] = []
        layout = None
        if template is not None:
            layout = self._lay_out(template, params)
            sized = {*sized, *layout.sized}
            ids = self._before(prompt, layout, raw)
            behind, canvas = layout.suffix, layout.canvas
        elif suffix:
            behind = encode_suffix(suffix, self.tokenizer, special, vocabulary)
            ids = self._prefix(prompt, raw, answer_prefix)
        else:
            raw = raw or suffix is not None  # an empty one: a text is still no message
            ids = self._continued(_not_none(prompt), raw, answer_prefix)
        highest = max((*ids, *behind), default=0)
        if highest >= vocabulary:
            raise UserError(
                f"the tokenizer makes id {highest} of this prompt, but the model's vocabulary has "
                f"{vocabulary} ids"
            )
        if special.mask in ids:
            raise UserError(
                f"the prompt holds the MASK id {special.mask}; MASKs belong into "
                "the canvas: a prompt is not decoded"
            )
        if not ids:
            raise UserError("nothing stands before the first gap; this model needs something there")
        if behind or (layout is not None and (-1 in layout.gaps or layout.sized)):
            refuse_unless_it_infills(params.policy, special)
        if params.stop and self.tokenizer is None:
            raise UserError("stop takes strings, but this model has no tokenizer")
        if canvas is not None:
            params = self._starting_from(canvas, params, layout)
        given = len(ids) + len(behind) + (layout.gaps.count(-1) if layout else 0)
        room = context - given
        if room < params.least_room:
            what = "prompt has" if given == len(ids) else "text that is given has"
            raise UserError(
                f"the {what} {given} tokens; with initial_length {params.least_room} that "
                f"is more than the model's context of {context}"
            )
        if params.max_new_tokens > room:
            params = params.replaced(max_new_tokens=room)
        cells = params.first_length if canvas is None else list(canvas)
        gaps = layout.gaps if layout else None
        return Request(
            id,
            Canvas.of(special, ids, cells, behind, gaps, sized),
            params,
            texts=layout.texts if layout else (),
            processors=tuple(processors),
            write=write,
        )

    def _lay_out(self, template: Given, params: DecodeParams) -> Layout:
        """Gaps that say no length start with `initial_length`, more if all together are to be
        longer."""
        checkpoint = self.checkpoint
        rest = (self.tokenizer, checkpoint.special, checkpoint.config.vocab_size)
        length, context = params.initial_length, checkpoint.context_length
        layout = lay_out(template, *rest, length, context)
        masks = len(layout.canvas) - layout.gaps.count(-1)
        missing = params.min_new_tokens - masks
        if missing > 0:
            open_ = max(layout.gaps) + 1 - len(layout.sized)
            if not open_ or not isinstance(template, str):
                raise UserError(
                    f"min_new_tokens is {params.min_new_tokens}, but the gaps have {masks} MASKs"
                )
            layout = lay_out(template, *rest, length + ceil(missing / open_), context)
        return layout

    def _prefix(self, prompt: Prompt | None, raw: bool, answer_prefix: str) -> list[int]:
        """What stands before a suffix: a text as it is, anything else as everywhere."""
        kind, content = kind_of(_not_none(prompt))
        if kind == "prompt" and isinstance(content, str):
            return encode_prefix(content + answer_prefix, self.tokenizer)
        return self._continued(_not_none(prompt), raw, answer_prefix)

    def _before(self, prompt: Prompt | None, layout: Layout, raw: bool) -> list[int]:
        """What stands before the first gap of a template: the prompt, then its own beginning."""
        if prompt is None:
            start = None if self.tokenizer is None else self.tokenizer.bos_token_id
            known = start is None or layout.before[:1] == [start]
            return layout.before if known else [int(start), *layout.before]  # type: ignore[arg-type]
        return [*self._continued(prompt, raw), *layout.before]

    def _continued(self, prompt: Prompt, raw: bool, answer_prefix: str = "") -> list[int]:
        vocabulary = self.checkpoint.config.vocab_size
        return encode_prompt(prompt, self.tokenizer, vocabulary, raw, answer_prefix)

    def _starting_from(
        self, canvas: Sequence[int], params: DecodeParams, layout: Layout | None
    ) -> DecodeParams:
        """The same parameters for a canvas of this length; of a template only its gaps count."""
        if layout is not None:
            length = len(canvas) - layout.gaps.count(-1)
            limit = max(params.max_new_tokens, length)
            if limit > params.max_new_tokens and "max_new_tokens" in params.model_fields_set:
                mixed = 0 < len(layout.sized) <= max(layout.gaps)
                each = f", {params.initial_length} of them where none are stated" if mixed else ""
                raise UserError(
                    f"max_new_tokens is {params.max_new_tokens}, but the gaps have {length} MASKs"
                    + each
                )
            return params.replaced(initial_length=length, max_new_tokens=limit)
        check_ids("canvas", canvas, self.checkpoint.config.vocab_size)
        if self.checkpoint.special.mask not in canvas:
            raise UserError("canvas takes token ids with at least one MASK among them")
        if params.min_new_tokens > len(canvas):
            raise UserError(
                f"min_new_tokens is {params.min_new_tokens}, but the canvas has {len(canvas)}"
            )
        limit = max(params.max_new_tokens, len(canvas))
        return params.replaced(initial_length=len(canvas), max_new_tokens=limit)

    def detokenize(self, ids: list[int]) -> str:
        if self.tokenizer is None:
            return ""
        return str(self.tokenizer.decode(ids, skip_special_tokens=True))


def _not_none(prompt: Prompt | None) -> Prompt:
    if prompt is None:
        raise UserError("the prompt is empty")
    return prompt


def _check_that_one_is_given(
    params: DecodeParams,
    canvas: Sequence[int] | None,
    suffix: Given | None,
    template: Given | None,
) -> None:
    given = {"canvas": canvas, "suffix": suffix, "template": template}
    names = [name for name, value in given.items() if value is not None]
    if len(names) > 1:
        raise UserError(f"{' and '.join(names)} do not go together; a template holds all its text")
    if template is not None and params.stop:
        raise UserError("stop does not go with a template, which says itself what follows")
