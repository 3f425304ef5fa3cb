"""What is decoded: a model, prompts and parameters that both decoders get alike."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from rho_eos.base.tokens import SpecialTokens
from rho_eos.config import EngineConfig
from rho_eos.decoding.params import DecodeParams
from rho_eos.models.loading import load_model, open_checkpoint
from rho_eos.models.placement import place
from rho_eos.text.prompts import Encoder
from rho_problems import TASKS, held_out
from tests.reference.bridge import SPECIAL
from tests.reference.random_llada import random_llada

BATCH = 8
LLADA_VOCABULARY = 126_464


@dataclass(frozen=True)
class Case:
    model: Any
    special: SpecialTokens
    prompts: list[list[int]]
    params: DecodeParams


def embedded(quick: bool = False) -> Case:
    """The embedded model on problems of all its tasks, in turn: short and long answers mixed."""
    config = EngineConfig(model="tiny")
    checkpoint = open_checkpoint(config)
    model = load_model(checkpoint, place(config, checkpoint, torch.device("cpu")))
    each = [held_out(task, 1 if quick else 16) for task in TASKS]
    problems = [problem for group in zip(*each, strict=True) for problem in group]
    encoder = Encoder(checkpoint.tokenizer, model.config.vocab_size)
    prompts = [encoder.prompt(problem.prompt) for problem in problems]
    params = DecodeParams(max_new_tokens=512)
    if quick:
        params = DecodeParams(initial_length=16, max_new_tokens=32)
    return Case(model, checkpoint.special, prompts, params)


def large_vocabulary(quick: bool = False) -> Case:
    """A random model of 105M parameters with LLaDA's vocabulary, and prompts of 8 to 64 tokens.

    Nothing tells a random model to end its text, so both decoders fill every canvas to its end:
    the ratio owes nothing to stopping early.
    """
    vocabulary = 2_000 if quick else LLADA_VOCABULARY
    model = random_llada(
        seed=1,
        vocabulary=vocabulary,
        width=48 if quick else 384,
        layers=2 if quick else 4,
        heads=6,
        sharpness=5.0,
        eos_share=0.35,
    )
    random = np.random.default_rng(0)
    lengths = np.linspace(8, 64, 4 if quick else 16).astype(int)
    prompts = [random.integers(4, vocabulary, n).tolist() for n in random.permutation(lengths)]
    params = DecodeParams(initial_length=32, max_new_tokens=64, early_stop=False)
    return Case(model, SPECIAL, prompts, params)


CASES: dict[str, Callable[[bool], Case]] = {
    "embedded": embedded,
    "large_vocabulary": large_vocabulary,
}
