"""Requests made ready for an engine: token ids and parameters, checked against the model's context.

It needs a checkpoint's tokenizer and configuration, not its weights: requests for engines that run
elsewhere are checked here all the same.
"""

from collections.abc import Sequence

from rho_eos.chat_template import prepare as prepare_template
from rho_eos.config import EngineConfig
from rho_eos.decoding.params import DecodeParams
from rho_eos.engine.request import LogitsProcessor, Request
from rho_eos.errors import UserError
from rho_eos.models.loading import Checkpoint
from rho_eos.prompts import Prompt, check_ids, encode_prompt


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
        prompt: Prompt,
        params: DecodeParams,
        *,
        id: str = "",
        raw: bool = False,
        answer_prefix: str = "",
        canvas: Sequence[int] | None = None,
        processors: Sequence[LogitsProcessor] = (),
    ) -> Request:
        """The request for the engine, or a sentence that says why there cannot be one.

        `canvas`: token ids to start from, the model's MASK id where a token is wanted.
        """
        vocabulary = self.checkpoint.config.vocab_size
        unsaid = {k: v for k, v in self.defaults.items() if k not in params.model_fields_set}
        if unsaid:
            params = params.replaced(**unsaid)
        ids = encode_prompt(prompt, self.tokenizer, vocabulary, raw, answer_prefix)
        if max(ids, default=0) >= vocabulary:
            raise UserError(
                f"the tokenizer makes id {max(ids)} of this prompt, but the model's vocabulary has "
                f"{vocabulary} ids"
            )
        if self.checkpoint.special.mask in ids:
            raise UserError(
                f"the prompt holds the MASK id {self.checkpoint.special.mask}; MASKs belong into "
                "the canvas: a prompt is not decoded"
            )
        if params.stop and self.tokenizer is None:
            raise UserError("stop takes strings, but this model has no tokenizer")
        if canvas is not None:
            params = self._starting_from(canvas, params)
        context = self.checkpoint.context_length
        room = context - len(ids)
        if room < params.first_length:
            raise UserError(
                f"the prompt has {len(ids)} tokens; with initial_length {params.first_length} that "
                f"is more than the model's context of {context}"
            )
        if params.max_new_tokens > room:
            params = params.replaced(max_new_tokens=room)
        given = None if canvas is None else list(canvas)
        return Request(id, ids, params, given, tuple(processors))

    def _starting_from(self, canvas: Sequence[int], params: DecodeParams) -> DecodeParams:
        """The same parameters for a canvas of this length."""
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
