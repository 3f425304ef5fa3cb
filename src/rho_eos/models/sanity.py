"""Checks of a checkpoint folder that come before transformers reads it.

transformers builds whatever a config describes, and reads whatever file lies there. What would make
it wait, take all memory, or fail with an error about something else is refused here first, in one
sentence. These checks need only the small files and the headers of the weights.
"""

import base64
import json
import math
import re
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rho_eos.base.errors import UserError, shown

#: The kinds of files that are read, and the most bytes that one may have. Weights have no limit
#: here, because only their headers are read before it is known whether they fit into memory.
_LARGEST = dict.fromkeys((".json", ".txt", ".model"), 256 * 2**20) | {
    ".jinja": 2**20,
    ".safetensors": math.inf,
}
_LARGEST_CONFIG = 4 * 2**20
_MOST_FILES = 10_000
#: Fields that are sizes, by the largest value that is accepted. Families use various names.
_BOUNDS = {
    1024: "num_hidden_layers n_layers",
    2**16: "num_attention_heads n_heads num_key_value_heads n_kv_heads num_experts "
    "num_experts_per_tok num_labels extra_ids",
    2**20: "hidden_size d_model head_dim mlp_ratio",
    2**24: "intermediate_size mlp_hidden_size dense_intermediate_size expert_intermediate_size "
    "vocab_size embedding_size",
    2**30: "max_position_embeddings max_sequence_length",
}
_SIZES = {field: largest for largest, fields in _BOUNDS.items() for field in fields.split()}
#: What a model is built from, whatever its family calls it.
_NEEDED = "hidden_size num_hidden_layers num_attention_heads vocab_size max_position_embeddings"
_FRACTIONS = ("rope_theta", "rms_norm_eps", "layer_norm_eps", "attention_dropout")
_FLAGS = ("weight_tying", "tie_word_embeddings")
_MAY_BE_NONE = ("num_experts", "num_labels", "extra_ids")
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")  # all but tabs and line ends
#: A tokenizer whose rules make a text this many times as long takes all memory for a short prompt.
_MOST_GROWTH = 256
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
    """Numbers, flags and ids are such, and sizes in their bounds, before a model is built."""
    check_texts(config)
    for field, value in config.items():
        if largest := _SIZES.get(field):
            least = 0 if field in _MAY_BE_NONE else 1
            good = type(value) is int and least <= value <= largest
            takes = f"an integer from 1 to {largest}"
        elif field in _FRACTIONS:
            good, takes = type(value) in (int, float) and 0 <= value < 1e12, "a number from 0"
        elif field in _FLAGS:
            good, takes = isinstance(value, bool), "a boolean"
        elif field in _IDS:
            ids = value if isinstance(value, list) else [value]
            good, takes = all(each is None or type(each) is int for each in ids), "a token id"
        else:
            continue
        if value is not None and not good:
            raise UserError(f"config field {field} is {shown(value)}, but takes {takes}")


def check_texts(content: Mapping[str, Any]) -> None:
    """No name or text holds what a terminal would obey; templates are never shown."""
    waiting: list[Any] = [{**content, "chat_template": None}]
    while waiting:
        item = waiting.pop()
        if isinstance(item, dict):
            waiting += [*item.keys(), *item.values()]
        elif isinstance(item, list):
            waiting += item
        elif isinstance(item, str) and _CONTROL.search(item):
            raise UserError(f"the text {shown(item)} holds control characters")


def check_tokenizer(content: Mapping[str, Any]) -> None:
    """The rules of a tokenizer.json do not make texts grow without bounds."""
    for part in ("normalizer", "decoder"):
        growth, waiting = 1.0, [content.get(part)]
        while waiting:
            rule = waiting.pop()
            if isinstance(rule, dict):
                growth *= _growth(rule)
                for inner in (rule.get("normalizers"), rule.get("decoders")):
                    waiting += inner if isinstance(inner, list) else []
        if growth > _MOST_GROWTH:
            raise UserError(
                f"its {part} can make a text {growth:.3g} times as long, "
                f"and {_MOST_GROWTH} times is the most that is accepted"
            )


def _growth(rule: Mapping[str, Any]) -> float:
    """At most how many characters a rule of a tokenizer makes of one."""
    content, pattern = rule.get("content"), rule.get("pattern")
    if rule.get("type") == "Replace" and isinstance(content, str):
        literal = pattern.get("String") if isinstance(pattern, dict) else None
        if isinstance(literal, str) and literal:
            return max(1.0, len(content) / len(literal))
        return 1.0 + len(content)  # a regular expression may match nothing, before each character
    if rule.get("type") == "Prepend" and isinstance(rule.get("prepend"), str):
        return 1.0 + len(rule["prepend"])
    if rule.get("type") == "Precompiled" and isinstance(rule.get("precompiled_charsmap"), str):
        # A table of what characters are replaced with, each text ended by a zero.
        try:
            table = base64.b64decode(rule["precompiled_charsmap"])
        except ValueError:
            return 1.0
        return float(
            max(1, *map(len, table[int.from_bytes(table[:4], "little") + 4 :].split(b"\0")))
        )
    return 1.0


def check_built(config: Any) -> None:
    """Check a config object: heads share the width equally and have an even width."""
    for field in _NEEDED.split():
        if type(getattr(config, field, None)) is not int:
            raise UserError(f"the config has no {field}")
    heads, groups = config.num_attention_heads, config.num_key_value_heads or 1
    width = _head_width(config)
    if heads % groups:
        raise UserError(f"the config's {heads} heads cannot share {groups} keys equally")
    if config.hidden_size % heads and not getattr(config, "head_dim", None):
        raise UserError(f"the config's {heads} heads cannot share {config.hidden_size} equally")
    if not width or width % 2:
        raise UserError(f"the config's heads have {width} dimensions, but takes an even number")


def _head_width(config: Any) -> int:
    own = getattr(config, "head_dim", None)
    return int(own or config.hidden_size // config.num_attention_heads)


def check_amount(config: Any, parameters: int) -> None:
    """Refuse a config that describes many more parameters than are stored."""
    described = described_parameters(config)
    if described > 2 * parameters + 2**16:
        raise UserError(
            f"the config describes a model of about {described:,} parameters, but the weight files "
            f"hold {parameters:,}"
        )


def described_parameters(config: Any) -> int:
    """About how many parameters a config describes, without norms and biases."""
    hidden, layers = config.hidden_size, config.num_hidden_layers
    heads = config.num_attention_heads + (config.num_key_value_heads or config.num_attention_heads)
    attention = 2 * hidden * _head_width(config) * heads
    inner = 3 * hidden * sum(config.mlp_widths())
    ends = config.vocab_size * hidden * (1 if config.tie_word_embeddings else 2)
    return int(layers * attention + inner + ends)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")
