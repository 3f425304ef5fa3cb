"""Whether a device computes what a CPU computes in float32, one row at a time and unpacked."""

import copy
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from rho_eos.base.errors import UserError, first_line
from rho_eos.base.tokens import SpecialTokens
from rho_eos.engine.batch import RowInput
from rho_eos.engine.runner import ModelRunner
from rho_eos.llm import LLM
from rho_eos.models.family import FAMILIES, Family
from rho_eos.models.placement import is_native, name_of
from rho_eos.models.quantize import check_available, quantize

_SPECIAL = SpecialTokens(mask=3, eos=2)
_VOCABULARY = 320
#: Sizes of the small models, by the names that most configs give them.
_SIZES = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": _VOCABULARY,
    "max_position_embeddings": 512,
}
_EXPERTS = {
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
    "n_group": 2,
    "topk_group": 1,
}
#: The largest error of logits, relative to their size, at half of the positions: a wrong kernel is
#: off by more than 1, and random models of this width forgive little.
LARGEST = {"float32": 1e-3, "bfloat16": 0.05, "float16": 0.02, "int8": 0.15, "int4": 0.6}
_PROMPTS = (
    "Mia has 8 plums. 1) buys 6. 2) eats 5. How many are there now?",
    "Tom has 9 coins. 1) loses 4. 2) triples them. How many are left?",
    "Compute\n1) (17 - 9)\n2) + (3 * 2)",
)


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    passed: bool | None  # None: it cannot be tried here
    found: str


def families(device: torch.device) -> Iterator[Check]:
    """Logits of a small random model of each family, packed on the device, in every format."""
    half = half_of(device)
    for name, family in FAMILIES.all().items():
        for dtype, kind in (
            (torch.float32, "none"),
            (half, "none"),
            (half, "int8"),
            (half, "int4"),
        ):
            how = name_of(dtype) if kind == "none" else kind
            yield _tried(f"{name}, {how}", family, device, dtype, kind)


def half_of(device: torch.device) -> torch.dtype:
    """The 16-bit type that models run in: a CPU that cannot multiply bfloat16 widens it."""
    native = device.type == "cpu" or is_native(torch.bfloat16, device)
    return torch.bfloat16 if native else torch.float16


def _tried(name: str, family: Family, device: torch.device, dtype: torch.dtype, kind: str) -> Check:
    try:
        check_available(kind, device)
        model = small(family, separate=kind != "none")
    except Exception as error:  # a plugin's config may ask for anything
        return Check(name, None, first_line(error))
    try:
        found = _error(family, model, device, dtype, kind)
    except Exception as error:  # whatever a driver says is what the page is for
        return Check(name, False, f"{type(error).__name__}: {first_line(error)}")
    largest = LARGEST[name_of(dtype) if kind == "none" else kind]
    return Check(name, found <= largest, f"off by {found:.2g} of the logits, {largest:g} allowed")


def small(family: Family, separate: bool) -> Any:
    """A random model of a family, with experts one by one if need be."""
    config_class: Any = family.config
    names = getattr(config_class, "attribute_map", None) or {}
    has_experts = hasattr(family.masked_lm, "separate") and family.masked_lm.separate
    sizes = _SIZES | (_EXPERTS if has_experts else {})
    model_class = family.masked_lm
    if separate and has_experts:
        model_class = model_class.separate
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        config = config_class(**{names.get(size, size): value for size, value in sizes.items()})
        model = model_class(config).eval().requires_grad_(False)
        for weight in model.parameters():
            if weight.ndim > 1:  # so large that layers change what passes through them
                weight.normal_(0, weight.shape[-1] ** -0.5)
    return model


@torch.inference_mode()
def _error(
    family: Family, model: Any, device: torch.device, dtype: torch.dtype, kind: str
) -> float:
    """The median over positions."""
    length = family.blocks.length if family.blocks else None
    draw = np.random.default_rng(0)
    rows = []
    for prompt, canvas in ((37, 24), (12, 40)):
        ids = draw.integers(4, _VOCABULARY, prompt + canvas)
        ids[prompt + 3 :] = _SPECIAL.mask
        wanted = np.arange(canvas)
        blocks = None if length is None else (length, 0)
        rows.append(RowInput(ids[:prompt], ids[prompt:], wanted, blocks=blocks))
    plain = []
    for row in rows:
        whole = torch.from_numpy(np.concatenate((row.prompt, row.canvas)))
        told = {} if length is None else {"block_length": length}
        at = torch.from_numpy(len(row.prompt) + row.wanted - model.prediction_shift)
        plain.append(model(whole[None], **told).logits[0, at])
    with torch.inference_mode(False):
        moved = copy.deepcopy(model).to(dtype)
        if kind != "none":
            quantize(moved, kind, device, dtype)
        runner = ModelRunner(moved.to(device), _SPECIAL)
    packed = [logits.float().cpu() for _, logits in runner.logits(runner.pack(rows))]
    found, exact = torch.cat(packed), torch.cat(plain)
    return float(((found - exact).norm(dim=-1) / exact.norm(dim=-1)).median())


def tokens(device: torch.device) -> Iterator[Check]:
    """What the embedded models write in float32: together on the device, each alone on a CPU."""
    for model, caches in (("tiny", ("none", "window")), ("tiny-blocks", ("none", "blocks"))):
        try:
            alone, together = (
                LLM(model, device=at, dtype="float32") for at in ("cpu", str(device))
            )
        except UserError as error:
            yield Check(f"tokens of {model}", None, str(error))
            continue
        for cache in caches:
            asked = {"cache": cache, "max_new_tokens": 32}
            name = f"tokens of {model}, cache {cache}"
            try:
                found = [each.token_ids for each in together.generate(list(_PROMPTS), asked)]
                wanted = [alone.generate([each], asked)[0].token_ids for each in _PROMPTS]
            except Exception as error:  # as above
                yield Check(name, False, f"{type(error).__name__}: {first_line(error)}")
                continue
            same = sum(a == b for a, b in zip(found, wanted, strict=True))
            yield Check(name, same == len(_PROMPTS), f"{same} of {len(_PROMPTS)} answers equal")
