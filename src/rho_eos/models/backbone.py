"""What all masked diffusion families share: a bidirectional stack and a language-model head.

The layers are transformers' own (Llama, Qwen2, Qwen3); these mixins replace only the causal forward
around them and make loading strict: transformers fills a missing weight with random numbers and a
warning, and a diffusion model with one random layer still writes fluent nonsense.
"""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import torch
import transformers
from torch import nn
from torch.nn.functional import cross_entropy
from transformers.conversion_mapping import register_checkpoint_conversion_mapping
from transformers.core_model_loading import WeightTransform
from transformers.masking_utils import create_bidirectional_mask
from transformers.modeling_outputs import BaseModelOutput, MaskedLMOutput

from rho_eos.base.collector import paused
from rho_eos.base.errors import UserError
from rho_eos.models.blocks import length_of_forward
from rho_eos.models.family import Family
from rho_eos.models.layer import Attention, Rotation, run_layer, with_our_attention


def build(family: Family) -> type[Any]:
    """The class of a family's language model, made of transformers' layers where it has no own."""
    model = family.layers
    if isinstance(model, str) and ":" in model:
        module, _, name = model.partition(":")
        with paused():
            model = getattr(import_module(module), name)
    elif isinstance(model, str):
        model = _of_layers(model, family.config)
    model.prediction_shift = family.prediction_shift
    return model


def _of_layers(layers: str, config: type[Any]) -> type[Any]:
    try:
        with paused():
            stack, base = (
                getattr(transformers, f"{layers}{kind}") for kind in ("Model", "PreTrainedModel")
            )
    except AttributeError as error:
        raise UserError(
            f"family {config.model_type} has the layers {layers!r}, but transformers has no "
            f"{layers}Model"
        ) from error
    prefix = config.__name__.removesuffix("Config")
    about = {"config_class": config, "__module__": config.__module__}
    own_stack = type(f"{prefix}Model", (BidirectionalStack, stack), about)
    head = about | {"stack_class": own_stack}
    return type(f"{prefix}ForMaskedLM", (MaskedDiffusionHead, base), head)


class BidirectionalStack:
    """Mixed into a transformers decoder (`LlamaModel`, …): its layers, every position sees all."""

    config: Any
    embed_tokens: nn.Embedding
    layers: nn.ModuleList
    norm: nn.Module
    rotary_emb: nn.Module
    rotates_in_float32 = False

    def __init__(self, config: Any) -> None:
        super().__init__(config)  # type: ignore[call-arg]
        # EOS is the padding token *and* the signal: its embedding must be trained like any other.
        self.embed_tokens.padding_idx = None
        for layer in self.layers:
            attention: Any = layer.self_attn
            attention.is_causal = False
            attention.__class__ = with_our_attention(type(attention)) or type(attention)
        _fuse_norms(self)  # type: ignore[arg-type]
        self.block_length = length_of_forward(config)

    def forward(
        self,
        input_ids: torch.Tensor | None = None,  # (batch, length)
        attention_mask: torch.Tensor | None = None,  # (batch, length) or (batch, 1, length, length)
        position_ids: torch.Tensor | None = None,  # (batch, length)
        inputs_embeds: torch.Tensor | None = None,
        read_at: torch.Tensor | None = None,  # (wanted,) int64: return these positions only
        block_length: int | None = None,
        block_offsets: torch.Tensor | None = None,  # (batch,)
        **kwargs: Any,
    ) -> BaseModelOutput:
        """The layers; in blocks of `block_length`, or of the checkpoint's length where it has one.

        Position i sees position j if (j + offset) // block_length is not larger than
        (i + offset) // block_length, with the offset of its row, 0 by default. Packed rows bring
        their own rule with them, and a mask of four dimensions is the whole rule.
        """
        hidden = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        if position_ids is None:
            position_ids = torch.arange(hidden.shape[1], device=hidden.device).unsqueeze(0)
            if attention_mask is not None and attention_mask.dim() == 2:
                # Blocks are counted from the first token of a row, not from padding before it.
                padding = attention_mask.long().argmax(dim=1, keepdim=True)
                position_ids = (position_ids - padding).clamp(min=0)
        visible = None
        if kwargs.get("rows") is None:
            visible = self._visible(position_ids, len(hidden), block_length, block_offsets)
        mask = create_bidirectional_mask(
            config=self.config,
            inputs_embeds=hidden,
            attention_mask=attention_mask,
            and_mask_function=visible,
        )
        kwargs |= {
            "attention_mask": mask,
            "position_embeddings": self._rotation(hidden, position_ids),
        }
        if kwargs.get("rows") is None and read_at is None:
            for layer in self.layers:
                hidden = layer(hidden, **kwargs)
        else:
            for number, layer in enumerate(self.layers, 1):
                read = read_at if number == len(self.layers) else None
                hidden = run_layer(layer, hidden, read, **kwargs)
        return BaseModelOutput(last_hidden_state=self.norm(hidden))

    def _visible(
        self,
        position_ids: torch.Tensor,
        rows: int,
        length: int | None,
        offsets: torch.Tensor | None,
    ) -> Callable[..., torch.Tensor] | None:
        """Whether a position is in no later block than another; None: there are no blocks."""
        length = self.block_length if length is None else int(length)
        if length is None and offsets is not None:
            raise UserError("block_offsets were given, but neither block_length nor the config is")
        if length is None:
            return None
        if length < 1:
            raise UserError(f"block_length is {length}, but takes a number from 1")
        moved = position_ids.expand(rows, -1)
        if offsets is not None:
            moved = moved + torch.as_tensor(offsets, device=moved.device).reshape(-1, 1)
        block = moved // length

        def visible(
            row: torch.Tensor, _: torch.Tensor, seeing: torch.Tensor, seen: torch.Tensor
        ) -> torch.Tensor:
            return block[row, seen] <= block[row, seeing]

        return visible

    def _rotation(self, hidden: torch.Tensor, position_ids: torch.Tensor) -> Any:
        """Cosines and sines, in the type of the hidden states, or in float32 where the family
        says."""
        like = hidden[:0].float() if self.rotates_in_float32 else hidden
        cos, sin = self.rotary_emb(like, position_ids)
        attention: Any = self.layers[0].self_attn
        if isinstance(attention, Attention):
            return Rotation.of(cos, sin, attention.head_dim)
        return cos, sin  # as transformers' own take them

    def _apply(self, fn: Any, recurse: bool = True) -> Any:
        """Cast and move as asked, but leave the rotation's frequencies in float32.

        Rounded to bfloat16 they are off by a radian a few hundred positions on.
        """
        before = dict(self.rotary_emb.named_buffers())
        result = super()._apply(fn, recurse)  # type: ignore[misc]
        for name, after in list(self.rotary_emb.named_buffers()):
            if after.dtype != before[name].dtype:
                setattr(self.rotary_emb, name, before[name].to(after.device))
        return result


def _fuse_norms(stack: nn.Module) -> None:
    """Put torch's RMSNorm, one kernel, in the place of transformers', which is six."""
    for module in list(stack.modules()):
        for name, norm in list(module.named_children()):
            if type(norm).__name__.endswith("RMSNorm"):
                eps: Any = norm.variance_epsilon
                setattr(module, name, nn.RMSNorm(norm.weight.shape, eps, dtype=norm.weight.dtype))


class MaskedDiffusionHead:
    """Mixed into a transformers `PreTrainedModel`: stack, vocabulary projection, strict loading."""

    config_class: type[Any]
    stack_class: type[nn.Module]
    prediction_shift = 0  # the family's
    #: From published weight names to ours, where they differ.
    weights: ClassVar[tuple[WeightTransform, ...]] = ()
    #: Where weights are merged while loading: a class that keeps each as it is stored, which
    #: quantisation needs.
    separate: ClassVar[type[Any] | None] = None
    _tied_weights_keys = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for each in (cls, cls.stack_class) if cls.weights else ():
            register_checkpoint_conversion_mapping(each.__name__, [*cls.weights], overwrite=True)

    def __init__(self, config: Any) -> None:
        if not isinstance(config, self.config_class):
            raise UserError(
                f"{type(self).__name__} takes a {self.config_class.__name__}, but got a "
                f"{type(config).__name__}; AutoModelForMaskedLM finds the right class"
            )
        super().__init__(config)  # type: ignore[call-arg]
        self.model = self.stack_class(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()  # type: ignore[attr-defined]

    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        position_ids: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        labels: torch.Tensor | None = None,  # -100 where no prediction is asked for
        return_dict: bool | None = None,
        **kwargs: Any,
    ) -> MaskedLMOutput | tuple[torch.Tensor, ...]:
        """Raw logits, as the family's own code gives them: whoever reads them applies the shift."""
        hidden = self.model(
            input_ids, attention_mask, position_ids, inputs_embeds, **kwargs
        ).last_hidden_state
        logits = self.lm_head(hidden)
        loss = None if labels is None else cross_entropy(logits.flatten(0, 1), labels.flatten())
        output = MaskedLMOutput(loss=loss, logits=logits)
        return output.to_tuple() if return_dict is False else output

    @classmethod
    def check_folder(cls, folder: Path) -> None:
        """Refuse a folder with a fault that `from_pretrained` does not find. Families override
        it."""

    @classmethod
    def from_pretrained(
        cls, source: Any, *args: Any, output_loading_info: bool = False, **kwargs: Any
    ) -> Any:
        """Load as transformers does, but fail when any weight is missing, unknown or misshapen."""
        if source is not None and Path(source).is_dir():
            cls.check_folder(Path(source))
        # Sizes are "ignored" only so that a misshapen weight reaches the complaints below by name.
        kwargs |= {"output_loading_info": True, "ignore_mismatched_sizes": True}
        model, info = super().from_pretrained(source, *args, **kwargs)  # type: ignore[misc]
        complaints = [
            f"{what} {_some(keys)}"
            for what, keys in (
                ("lacks", info["missing_keys"]),
                ("holds unknown", info["unexpected_keys"]),
                ("has misshapen", [entry[0] for entry in info["mismatched_keys"]]),
                ("could not convert", info.get("conversion_errors") or ()),
            )
            if keys
        ]
        if complaints:
            raise UserError(
                f"the checkpoint does not fit {cls.__name__}: it {'; it '.join(complaints)}"
            )
        return (model, info) if output_loading_info else model


def _some(keys: Any, most: int = 4) -> str:
    names = sorted(map(str, keys))
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
