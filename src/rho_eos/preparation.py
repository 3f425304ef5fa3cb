"""Requests made ready for an engine: token ids and parameters, checked against the model's context.

It needs a checkpoint's tokenizer and configuration, not its weights: requests for engines that run
elsewhere are checked here all the same.
"""

import dataclasses
import threading

from rho_eos.config import DecodeParams
from rho_eos.errors import UserError
from rho_eos.models.loading import Checkpoint
from rho_eos.prompts import Prompt, encode_prompt


class Preparer:
    def __init__(self, checkpoint: Checkpoint) -> None:
        self.checkpoint = checkpoint
        self.tokenizer = checkpoint.tokenizer
        # How a tokenizer treats special tokens is its state, set for each text: one at a time.
        self.tokenizer_lock = threading.Lock()

    def prepare(
        self, prompt: Prompt, params: DecodeParams, raw: bool = False, answer_prefix: str = ""
    ) -> tuple[list[int], DecodeParams]:
        """Token ids and parameters, checked against the model's context."""
        vocabulary = self.checkpoint.config.vocab_size
        with self.tokenizer_lock:
            ids = encode_prompt(prompt, self.tokenizer, vocabulary, raw, answer_prefix)
        if params.stop and self.tokenizer is None:
            raise UserError("stop takes strings, but this model has no tokenizer")
        context = self.checkpoint.context_length
        room = context - len(ids)
        if room < params.first_length:
            raise UserError(
                f"the prompt has {len(ids)} tokens; with initial_length {params.first_length} that "
                f"is more than the model's context of {context}"
            )
        limit = min(params.max_new_tokens, room)
        return ids, dataclasses.replace(params, max_new_tokens=limit)

    def detokenize(self, ids: list[int]) -> str:
        if self.tokenizer is None:
            return ""
        with self.tokenizer_lock:
            return str(self.tokenizer.decode(ids, skip_special_tokens=True))
