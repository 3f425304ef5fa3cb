"""Which weights of ours a name means: that of a family's own code, or that of our layers.

What is trained with a family's own code (checkpoints, adapters, the state of a trainer's model)
uses its names: LLaDA's `model.transformer.blocks.0.ff_proj.weight` is our
`model.layers.0.mlp.gate_proj.weight`. The renames by which a family's checkpoints are loaded say
so, and they are read here for single weights. A published weight may be a piece of one of ours
(experts are stored as one weight), or several of ours one behind the other (queries, keys and
values in one).
"""

import re
from dataclasses import dataclass
from typing import Any

import torch
from transformers.conversion_mapping import get_model_conversion_mapping
from transformers.core_model_loading import (
    Concatenate,
    MergeModulelist,
    Split,
    WeightConverter,
    WeightRenaming,
    rename_source_key,
)


@dataclass(frozen=True, slots=True)
class Part:
    """A weight of a model by its name, or the piece of it that an index cuts out."""

    name: str
    index: tuple[int | slice, ...] = ()


class WeightNames:
    """The weights of a model, which may lie on the meta device, by all names they have.

    Examples:
        >>> names = WeightNames(model)
        >>> torch.cat([names.tensor(part) for part in names.parts(name)])  # as it is published
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._base = f"{model.base_model_prefix}."
        self._known = frozenset(model.state_dict(keep_vars=True))  # both names of a tied weight
        transforms = get_model_conversion_mapping(model, add_legacy=False)
        self._renamings = [each for each in transforms if isinstance(each, WeightRenaming)]
        self._converters = [each for each in transforms if isinstance(each, WeightConverter)]

    def parts(self, name: str) -> tuple[Part, ...]:
        """What a weight is made of, one behind the other in its first dimension; (): no such."""
        if name in self._known:
            return (Part(name),)
        for tried in (name, self._base + name):  # a bare stack has no prefix
            ours, source = rename_source_key(tried, self._renamings, self._converters)
            if source is None and ours in self._known:
                return (Part(ours),)
            if source is not None:
                found = self._converted(tried, ours, source)
                if found and all(part.name in self._known for part in found):
                    return found
        return ()

    def tensor(self, part: Part) -> torch.Tensor:
        """The weight as the model has it now; what is written into it is in the model."""
        path, _, leaf = part.name.rpartition(".")
        weight: torch.Tensor = getattr(self._model.get_submodule(path), leaf)
        return weight[part.index] if part.index else weight

    def shape(self, parts: tuple[Part, ...]) -> tuple[int, ...]:
        """The shape of what the parts make together."""
        first, *_ = shapes = [tuple(self.tensor(part).shape) for part in parts]
        return (sum(shape[0] for shape in shapes), *first[1:]) if first else first

    def _converted(self, name: str, ours: str, source: str) -> tuple[Part, ...]:
        """What the one converter of a family that reads a name makes of it."""
        converter = next(each for each in self._converters if source in each.source_patterns)
        operations: list[Any] = converter.operations
        first, last = operations[0], operations[-1]
        if isinstance(first, Split):
            targets = converter.target_patterns
            return tuple(Part(ours.replace(targets[0], target)) for target in targets)
        number = re.search(r"\.(\d+)\.", name[name.index(source.partition("*")[0]) :])
        if not isinstance(first, MergeModulelist) or number is None or ours not in self._known:
            return ()
        expert, weight = int(number[1]), self.tensor(Part(ours))
        if expert >= len(weight):
            return ()
        if not isinstance(last, Concatenate):
            return (Part(ours, (expert,)),)
        count = len(converter.source_patterns)
        size = weight.shape[last.dim] // count
        start = converter.source_patterns.index(source) * size
        return (Part(ours, (expert, slice(start, start + size))),)
