"""The look that policies take before anything is written: a canvas long enough to read a length."""

from rho_eos.base.settings import setting
from rho_eos.decoding.params import LONGEST, DecodeParams


class LookParams(DecodeParams):
    """A length is read on half of `look` first, and on all of it where that is not clear."""

    look: int = setting(
        512,
        "longest canvas that the length is read on; half of it is tried first",
        ge=1,
        le=LONGEST,
    )

    @property
    def longest_look(self) -> int:
        """Who asks for a longer start gets it where the length is read."""
        return max(self.look, self.initial_length)

    @property
    def first_length(self) -> int:
        half = (self.longest_look + 1) // 2
        return max(self.min_new_tokens, min(half, self.max_new_tokens))

    @property
    def starts_anywhere(self) -> bool:
        return self.initial_length <= self.look
