"""Checks of a checkpoint folder that come before transformers reads it.

transformers builds whatever a config describes, and reads whatever file lies there. What would make
it wait, take all memory, or fail with an error about something else is refused here first, in one
sentence. These checks need only the small files and the headers of the weights.
"""

import json
import math
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rho_eos.base.errors import UserError
from rho_eos.base.settings import shown

#: Kinds of files that are read, and the bytes that none of them comes near. Weights have no limit
#: here: of them only headers are read before memory is asked for.
_LARGEST = dict.fromkeys((".json", ".txt", ".model"), 256 * 2**20) | {
    ".jinja": 2**20,
    ".safetensors": math.inf,
}
_LARGEST_CONFIG = 4 * 2**20
_MOST_FILES = 10_000
#: Fields that are sizes, by the largest that any model comes near. Families use various names.
_BOUNDS = {
    1024: "num_hidden_layers n_layers",
    2**16: "num_attention_heads n_heads num_key_value_heads n_kv_heads num_experts "
    "num_experts_per_tok",
    2**20: "hidden_size d_model head_dim mlp_ratio",
    2**24: "intermediate_size mlp_hidden_size dense_intermediate_size expert_intermediate_size "
    "vocab_size embedding_size",
    2**30: "max_position_embeddings max_sequence_length",
}
_SIZES = {field: largest for largest, fields in _BOUNDS.items() for field in fields.split()}
#: What a model is built from, whatever its family calls it.
_NEEDED = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "vocab_size",
    "max_position_embeddings",
)
_FRACTIONS = ("rope_theta", "rms_norm_eps", "layer_norm_eps", "attention_dropout")
_FLAGS = ("weight_tying", "tie_word_embeddings")
_IDS = ("mask_token_id", "eos_token_id", "bos_token_id", "pad_token_id")


def check_files(folder: Path) -> None:
    """Refuse files that are not regular (reading a pipe may never end) or that are too large."""
    try:
        entries = [path for path in folder.iterdir() if path.suffix in _LARGEST]
        entries += (folder / "additional_chat_templates").glob("*.jinja")
    except OSError as error:
        raise UserError(f"cannot read {folder}: {error}") from error
    if len(entries) > _MOST_FILES:
        raise UserError(f"{folder} holds {len(entries)} files; a checkpoint has fewer")
    for path in entries:
        try:
            status = path.stat()
        except FileNotFoundError:
            continue  # a link into a cache that lacks the file: who needs it says so
        except OSError as error:
            raise UserError(f"cannot read {path}: {error}") from error
        if not stat.S_ISREG(status.st_mode):
            raise UserError(f"{path} is no regular file")
        largest = _LARGEST_CONFIG if path.name == "config.json" else _LARGEST[path.suffix]
        if status.st_size > largest:
            raise UserError(
                f"{path} has {status.st_size} bytes, but {largest} are the most that is read"
            )


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file that `check_files` has seen."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"), parse_constant=_refuse_constant)
    except RecursionError as error:
        raise UserError(f"cannot read {path}: it is nested too deeply") from error
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    if not isinstance(content, dict):
        raise UserError(f"cannot read {path}: it is no JSON object")
    return content


def check_config(config: Mapping[str, Any]) -> None:
    """Sizes are integers in their bounds and go together, before a model is built from them."""
    for field, largest in _SIZES.items():
        value = config.get(field)
        if value is None or (value == 0 and field == "num_experts" and value is not False):
            continue
        if type(value) is not int or not 1 <= value <= largest:
            raise UserError(
                f"config field {field} is {shown(value)}, but takes an integer from 1 to {largest}"
            )
    for field in _FRACTIONS:
        value = config.get(field)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (number and 0 <= value < 1e12):
            raise UserError(f"config field {field} is {shown(value)}, but takes a number from 0")
    for field in _FLAGS:
        if not isinstance(config.get(field), bool | None):
            raise UserError(f"config field {field} is {shown(config[field])}, but takes a boolean")
    for field in _IDS:
        value = config.get(field)
        ids = value if isinstance(value, list) else [value]
        if any(each is not None and type(each) is not int for each in ids):
            raise UserError(f"config field {field} is {shown(value)}, but takes a token id")


def check_built(config: Any) -> None:
    """Check a config object: heads share the width equally and have an even width."""
    for field in _NEEDED:
        if type(getattr(config, field, None)) is not int:
            raise UserError(f"the config has no {field}")
    heads, groups = config.num_attention_heads, config.num_key_value_heads or 1
    width = getattr(config, "head_dim", None) or config.hidden_size // heads
    if heads % groups:
        raise UserError(f"the config's {heads} heads cannot share {groups} keys equally")
    if config.hidden_size % heads and not getattr(config, "head_dim", None):
        raise UserError(f"the config's {heads} heads cannot share {config.hidden_size} equally")
    if not width or width % 2:
        raise UserError(f"the config's heads have {width} dimensions, but takes an even number")


def check_amount(config: Any, stored: int) -> None:
    """Refuse a config that describes many more parameters than are stored."""
    described = described_parameters(config)
    if described > 2 * stored + 2**16:
        raise UserError(
            f"the config describes a model of about {described:,} parameters, but the weight files "
            f"hold {stored:,}"
        )


def described_parameters(config: Any) -> int:
    """About how many parameters a config describes, without norms and biases."""
    hidden, layers = config.hidden_size, config.num_hidden_layers
    width = getattr(config, "head_dim", None) or hidden // config.num_attention_heads
    heads = config.num_attention_heads + (config.num_key_value_heads or config.num_attention_heads)
    attention = 2 * hidden * width * heads
    inner = layers * 3 * hidden * (config.intermediate_size or 0)
    if hasattr(type(config), "moe_layer_freq"):  # else a field that its family does not read
        sparse = sum(config.moe_layer_freq)
        experts = config.num_experts * config.expert_intermediate_size
        inner = inner // layers * (layers - sparse) + sparse * 3 * hidden * experts
    ends = config.vocab_size * hidden * (1 if config.tie_word_embeddings else 2)
    return int(layers * attention + inner + ends)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")
