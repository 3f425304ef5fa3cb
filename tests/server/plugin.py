"""Policies of somebody else, as a file for `--plugin`: one that works, and one that misbehaves."""

PLUGIN = '''
"""Writes from the left, and takes its last token back now and then."""

from typing import Literal

import numpy as np

from rho_eos import DecodeParams, Policy, Step, register_policy
from rho_eos.decoding.edits import Overwrite
from rho_eos.decoding.policy import Keeps
from rho_eos.base.settings import setting


class DoubterParams(DecodeParams):
    endurance: int = setting(3, "forwards until a token is taken back", ge=2, le=1000)
    mood: Literal["calm", "grim"] = setting("calm", "how it speaks of it")
    rests: tuple[int, ...] = setting((), "steps in which it rests")


@register_policy
class Doubter(Policy):
    """Takes back what it wrote now and then."""

    name = "doubter"
    title = "Doubter"
    Params = DoubterParams
    edits = (Overwrite,)
    keeps = Keeps.NOTHING

    @classmethod
    def explain(cls, params, record):
        if record.action == "overwrite":
            return f"After {params.endurance} forwards, {params.mood} doubts."
        return "No doubts."

    def step(self, canvas, prediction, commit):
        first = canvas.masked[:1]
        if (canvas.step + 1) % self.params.endurance or first[0] == 0:
            return Step(commit=first)
        mask = np.array([self.special.mask])
        return Step((Overwrite(first - 1, mask),), commit=first[:0])


class FaultyParams(DecodeParams):
    fault: Literal["explain", "step", "init"] = setting("explain", "where it fails")


@register_policy
class Faulty(Policy):
    name = "faulty"
    Params = FaultyParams

    def __init__(self, params, special):
        super().__init__(params, special)
        if params.fault == "init":
            raise RuntimeError("no beginning")

    @classmethod
    def explain(cls, params, record):
        raise RuntimeError("no words")

    def step(self, canvas, prediction, commit):
        if self.params.fault == "step" and canvas.step == 2:
            raise RuntimeError("no idea")
        return Step(commit=canvas.masked[:1], signal=float("nan"))
'''
