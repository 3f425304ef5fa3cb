"""What a family of models is: how its checkpoints are recognised, and the classes that read them.

`model_type` alone does not say it (LLaDA with and without experts share one), so a family looks at
the whole config. The families themselves are the files in `families/`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from transformers.core_model_loading import WeightTransform

from rho_eos.base.errors import UserError


@dataclass(frozen=True)
class Family:
    """The classes of a family, and what its checkpoints leave unsaid."""

    config: type[Any]  # its model_type is the family's name
    stack: type[Any]
    masked_lm: type[Any]
    matches: Callable[[Mapping[str, Any]], bool]  # given the content of config.json
    #: From published weight names to ours, where they differ.
    weights: tuple[WeightTransform, ...] = ()
    #: Where weights are merged while loading: a class that keeps each as it is stored, which
    #: quantisation needs, and its own renamings.
    separate: type[Any] | None = None
    separate_weights: tuple[WeightTransform, ...] = ()
    #: How its tokenizers may name MASK and the end of a turn, where nothing gives their ids.
    mask_names: tuple[str, ...] = ()
    end_of_turn_names: tuple[str, ...] = ()
    #: Positions it was trained on, where its config promises more than that.
    context_limit: int | None = None

    @property
    def name(self) -> str:
        return str(self.config.model_type)


#: Every family by its name. Filled by importing `rho_eos.models`.
FAMILIES: dict[str, Family] = {}


def find_family(config: Mapping[str, Any]) -> Family:
    """The family that reads a checkpoint with this config.json."""
    for family in FAMILIES.values():
        if family.matches(config):
            return family
    raise UserError(
        f"unknown model_type {config.get('model_type')!r}; known families are "
        f"{', '.join(sorted(FAMILIES))}"
    )


def by_model_type(model_type: str) -> Callable[[Mapping[str, Any]], bool]:
    """For a family that no other shares its model_type with."""
    return lambda config: config.get("model_type") == model_type


class FamilyConfig:
    """Mixed into a transformers config: becomes the right family's, and names no remote code."""

    model_type: ClassVar[str]
    #: The class name in published configs, kept so that the family's own code reads what we save.
    architecture: ClassVar[str]
    #: Without these a config file describes no model; a default would build one of another size.
    required: ClassVar[tuple[str, ...]] = (
        "hidden_size",
        "intermediate_size",
        "num_hidden_layers",
        "num_attention_heads",
        "vocab_size",
    )

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], **kwargs: Any) -> Any:
        # transformers looks a config class up by model_type, which two families may share.
        if "model_type" in config_dict:
            right = find_family(config_dict).config
            if right is not cls:
                return right.from_dict(config_dict, **kwargs)
            for field in cls.required:
                if config_dict.get(field) is None:
                    raise UserError(f"the {cls.model_type} config has no {field}")
        # `auto_map` names Python files of the checkpoint, which transformers offers to run.
        ours = {k: v for k, v in config_dict.items() if k not in ("auto_map", "model_type")}
        return super().from_dict(ours, **kwargs)  # type: ignore[misc]

    def to_dict(self) -> dict[str, Any]:
        fields: dict[str, Any] = super().to_dict()  # type: ignore[misc]
        return fields | {"architectures": [self.architecture]}


def supports_only(config: Any, supported: Mapping[str, Any]) -> None:
    """Refuse options of an architecture that no checkpoint we know of uses and we do not build."""
    for field, value in supported.items():
        given = getattr(config, field, None)
        if (given or None) != (value or None):
            raise UserError(
                f"{config.model_type} config field {field} is {given!r}; "
                f"only {value!r} is supported"
            )
