"""What a family of models is: how its checkpoints are recognised, and the classes that read them.

`model_type` alone does not say it (LLaDA with and without experts share one), so a family looks at
the whole config. Ours are the files in `families/`; others come from plugins and from installed
packages. Modelling code is slow to import, so it is imported when a model is built.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar

from rho_eos.base.errors import UserError, shown
from rho_eos.base.registry import Registry
from rho_eos.decoding.blocks import Blocks
from rho_eos.models.known import refuse_type


@dataclass(frozen=True)
class Family:
    """A family of models, and what its checkpoints leave unsaid.

    Args:
        config: The class of its configs. Its `model_type` is the family's name.
        layers: Whose layers it has, by the name that transformers gives them (`Llama`, `Qwen2`,
            `Qwen3`): they are run without their causal mask. Where that does not make the model,
            its own class (see `MaskedDiffusionHead`), or `module:Class`, which is imported when a
            model is built.
        matches: Whether it reads a checkpoint, given the content of its config.json; by default
            those of its own `model_type`.
        prediction_shift: The prediction for position i is read at position i - prediction_shift.
        mask_names: How its tokenizers may name MASK, where no config gives its id.
        eos_names: The same for EOS.
        end_of_turn_names: The same for the end of a turn.
        context_limit: Positions it was trained on, where its configs promise more than that.
        caches: Whether keys and values may be kept from step to step. A family whose attention
            does not allow it says False, and requests with a cache are refused.
        blocks: The blocks of a block diffusion model, with the length that counts where neither a
            checkpoint's config nor its name says one. None: every position sees every other,
            unless a checkpoint's config names a length.
        blocks_named: Where its checkpoints come with and without blocks and their configs cannot
            tell which: what their names hold, in lower case, if they have blocks.
        decoding: Decoding parameters that its checkpoints are published with, where they attend
            in blocks. They count where nobody says otherwise.
        decoding_named: Further ones of checkpoints whose names hold a word, in lower case.
        template: What its chat template is to be given beside the messages.
    """

    config: type[Any]
    layers: str | type[Any]
    matches: Callable[[Mapping[str, Any]], bool] | None = None
    prediction_shift: int = 0
    mask_names: tuple[str, ...] = ()
    eos_names: tuple[str, ...] = ()
    end_of_turn_names: tuple[str, ...] = ()
    context_limit: int | None = None
    caches: bool = True
    blocks: Blocks | None = None
    blocks_named: str | None = None
    decoding: Mapping[str, Any] = field(default_factory=dict)
    decoding_named: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    template: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return str(self.config.model_type)

    def reads(self, config: Mapping[str, Any]) -> bool:
        """Whether a checkpoint with this config.json is one of this family."""
        if self.matches is None:
            return config.get("model_type") == self.name
        return self.matches(config)

    @cached_property
    def masked_lm(self) -> type[Any]:
        """The class of its language model, made or imported when it is first asked for."""
        from rho_eos.models.backbone import build

        return build(self)


def register_family(family: Family) -> Family:
    """Make a family known, so that its checkpoints can be opened by folder or Hub id.

    Examples:
        >>> register_family(Family(config=MyConfig, layers="Qwen2", mask_names=("<|mask|>",)))
    """
    if not isinstance(family, Family) or not issubclass(family.config, FamilyConfig):
        raise UserError(f"{family!r} is no Family whose config is a FamilyConfig")
    FAMILIES.add(family.name, family, family.config.__module__)
    return family


FAMILIES: Registry[Family] = Registry(
    "family", "rho_eos.models.families", "rho_eos.families", register_family
)


def find_family(config: Mapping[str, Any]) -> Family:
    """The family that reads a checkpoint with this config.json."""
    known = FAMILIES.all()
    for family in known.values():
        if family.reads(config):
            return family
    refuse_type(config.get("model_type"))
    raise UserError(
        f"unknown model_type {config.get('model_type')!r}; known families are {', '.join(known)} "
        "(--plugin adds others)"
    )


_LONGEST_BLOCK = 2**16
#: What is not taken over from a published config: `auto_map` names Python files of the checkpoint,
#: which transformers offers to run, and how attention is computed is not the checkpoint's to say.
_NOT_OURS = ("auto_map", "model_type", "attn_implementation")


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
    #: Options that we build only with these values, which all checkpoints we know of have.
    supported: ClassVar[Mapping[str, Any]] = {"use_sliding_window": False}
    #: Which of its fields may say how long a block is, the first that is given.
    block_fields: ClassVar[tuple[str, ...]] = ()
    # Not every transformers config has these fields.
    mask_token_id: int | None = None
    expand_token_id: int | None = None

    def __post_init__(self, **kwargs: Any) -> None:
        for name, value in self.supported.items():
            given = kwargs.get(name, getattr(self, name, value))
            if (given or None) != (value or None):
                raise UserError(
                    f"{self.model_type} config field {name} is {given!r}; "
                    f"only {value!r} is supported"
                )
            if not hasattr(self, name):  # published configs name them all
                kwargs.setdefault(name, value)
        super().__post_init__(**kwargs)  # type: ignore[misc]
        for name in self.block_fields:
            length = getattr(self, name, None)
            if length is not None and not (type(length) is int and 1 <= length <= _LONGEST_BLOCK):
                raise UserError(
                    f"{self.model_type} config field {name} is {shown(length)}, but takes an "
                    f"integer from 1 to {_LONGEST_BLOCK}"
                )

    def block_length_field(self) -> str | None:
        """The field that says how long a block is; None where there is none."""
        given = (field for field in self.block_fields if getattr(self, field, None) is not None)
        return next(given, None)

    def mlp_widths(self) -> list[int]:
        """How wide the MLP of each layer is, all its experts together."""
        shape: Any = self
        return [shape.intermediate_size or 0] * int(shape.num_hidden_layers)

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
        ours = {k: v for k, v in config_dict.items() if k not in _NOT_OURS}
        made = super().from_dict(ours, **kwargs)  # type: ignore[misc]
        config = made[0] if isinstance(made, tuple) else made
        for field in cls.required if "model_type" in config_dict else ():
            if getattr(config, field) is None:  # by another name of it, which the layers read
                raise UserError(f"the {cls.model_type} config has two values for {field}")
        return made

    def to_dict(self) -> dict[str, Any]:
        fields: dict[str, Any] = super().to_dict()  # type: ignore[misc]
        return fields | {"architectures": [self.architecture]}


def check_choice(config: Any, most: int) -> None:
    """Refuse a config by which a position uses more experts than there are to choose from."""
    if not 1 <= config.num_experts_per_tok <= most:
        raise UserError(
            f"{config.model_type} config field num_experts_per_tok is "
            f"{config.num_experts_per_tok}; it takes 1 to {most}, from which they are chosen"
        )
