"""Adapters in PEFT's format: found, and checked against the model before any weights are loaded.

An adapter is foreign data. Its weights are read from safetensors only, its settings are looked at
one by one, and all of its tensors must fit the model under some name that the family has for them.
`models/merging.py` puts it into the weights.
"""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from rho_eos.base.errors import UserError, needs_extra, shown
from rho_eos.base.fingerprint import fingerprint
from rho_eos.models.family import Family
from rho_eos.models.hub import CONFIGS, fetch_weights, find_folder, remote_headers
from rho_eos.models.sanity import check_files, read_json
from rho_eos.models.weights import tensors_of

if TYPE_CHECKING:
    from rho_eos.models.names import WeightNames

WEIGHTS, PICKLE = "adapter_model.safetensors", "adapter_model.bin"
MOST_RANK, MOST_PATTERNS = 2**16, 2**14
#: Fields that decide what is added to the weights, and what they take.
_NUMBER = (lambda value: type(value) in (int, float) and math.isfinite(value), "a number")
_FLAG = (lambda value: isinstance(value, bool), "true or false")
_READ: Mapping[str, tuple[Any, str]] = {
    "r": (lambda value: type(value) is int and 1 <= value <= MOST_RANK, "a rank from 1"),
    "lora_alpha": _NUMBER,
    "use_rslora": _FLAG,
    "use_dora": _FLAG,
    "lora_bias": _FLAG,
    "rank_pattern": (lambda value: _is_pattern(value, int), "ranks by names of modules"),
    "alpha_pattern": (lambda value: _is_pattern(value, int, float), "numbers by names of modules"),
}
#: Fields of training and of housekeeping, which the merged weights do not depend on.
_IDLE = frozenset(
    (
        *("peft_type", "task_type", "auto_mapping", "peft_version", "base_model_name_or_path"),
        *("revision", "inference_mode", "target_modules", "exclude_modules", "modules_to_save"),
        *("bias", "lora_dropout", "init_lora_weights", "layers_to_transform", "layers_pattern"),
        *("fan_in_fan_out", "megatron_core", "loftq_config", "eva_config", "qalora_group_size"),
        *("runtime_config", "velora_config"),
    )
)
#: How training may have begun so that the base is still the one that is loaded here. PiSSA, OLoRA
#: and the like take a part of the base away first.
_BEGINNINGS = (True, False, None, "gaussian", "eva", "orthogonal")
_LORA = re.compile(
    r"(?P<module>.+)\.(?P<part>lora_(?:A|B|embedding_A|embedding_B|magnitude_vector))"
    r"(?:\.default)?(?P<leaf>\.weight|\.bias)?"
)
#: What wrappers of a trained model put before or into its names.
_WRAPPERS = re.compile(r"^base_model\.model\.|\b(?:_orig_mod|_fsdp_wrapped_module|base_layer)\.")
_COPY = re.compile(r"\bmodules_to_save\.(?:default\.)?")


@dataclass(frozen=True, slots=True)
class Change:
    """What an adapter does to one weight: another one in its place, or a product that is added."""

    weight: str  # the name that the adapter has for it
    keys: Mapping[str, str]  # from PEFT's names of its tensors to those in the file
    replaces: bool = False

    @property
    def module(self) -> str:
        return self.weight.rpartition(".")[0]

    @property
    def bias(self) -> str | None:
        """The bias of the same module, where it changes too."""
        return f"{self.module}.bias" if "lora_B.bias" in self.keys else None


@dataclass(frozen=True, slots=True)
class Adapter:
    """An adapter, checked but not loaded. Of a Hub id the weights may not be on disk yet."""

    given: str  # as it was asked for
    folder: Path
    repo: str | None
    settings: Mapping[str, Any]  # of `_READ`
    made_for: str | None  # the model it was trained on, by its own words
    identity: str  # of what it holds: the commit of a Hub id, else a fingerprint
    parameters: int
    changes: tuple[Change, ...]

    @property
    def file(self) -> Path:
        return self.folder / WEIGHTS

    @property
    def label(self) -> str:
        """Its name for others: where a folder lies on this machine is nobody's business."""
        return self.repo or self.folder.resolve().name

    def as_dict(self) -> dict[str, str]:
        """For answers and records."""
        return {"adapter": self.label, "weights": self.identity}

    @property
    def pinned(self) -> str:
        """The same adapter for another process, elsewhere or later."""
        return f"{self.repo}@{self.identity}" if self.repo else str(self.folder.absolute())

    def fetch(self) -> None:
        if self.repo is not None:
            fetch_weights(self.repo, self.folder, [WEIGHTS])


def open_adapters(given: tuple[str, ...], family: Family, config: Any) -> tuple[Adapter, ...]:
    """Find adapters, asking the Hub if need be, and check that each fits the model."""
    if not given:
        return ()
    if find_spec("peft") is None:
        raise needs_extra("an adapter", "peft", "adapters")
    from rho_eos.models.names import WeightNames  # with transformers' code for loading

    with torch.device("meta"):
        names = WeightNames(family.masked_lm(config))
    return tuple(_open(each, names) for each in given)


def _open(given: str, names: "WeightNames") -> Adapter:
    name, _, revision = given.partition("@") if not Path(given).is_dir() else (given, "", "")
    folder, repo = find_folder(name, revision or None, "adapter")
    check_files(folder)
    path = folder / CONFIGS["adapter"]
    if not path.exists():
        raise UserError(f"{folder} has no {path.name}, so it is no adapter in PEFT's format")
    content = read_json(path)
    try:
        settings = _checked(content)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    file = folder / WEIGHTS
    if file.exists():
        shapes = {name: shape for name, _, shape in tensors_of(file)}
    elif repo is not None:
        header = remote_headers(repo, folder.name, [WEIGHTS])[WEIGHTS]
        shapes = {name: tuple(about.shape) for name, about in header.tensors.items()}
    else:
        pickle = (folder / PICKLE).exists()
        other = f"; {PICKLE} is a pickle, which may run code when it is read" if pickle else ""
        raise UserError(f"{folder} has no {WEIGHTS}{other}")
    try:
        changes = tuple(_changes(settings, shapes, names))
    except UserError as error:
        raise UserError(f"the adapter {given} does not fit the model: {error}") from error
    base = content.get("base_model_name_or_path")
    return Adapter(
        given=given,
        folder=folder,
        repo=repo,
        settings=settings,
        made_for=base if isinstance(base, str) and base else None,
        identity=folder.name if repo else fingerprint([path, file]),
        parameters=sum(map(math.prod, shapes.values())),
        changes=changes,
    )


def _checked(content: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that count, checked; a field that would change the result unread is refused."""
    kind = content.get("peft_type")
    if kind != "LORA":
        raise UserError(f"peft_type is {shown(kind)}, but only LORA can be merged into the weights")
    begun = content.get("init_lora_weights")
    if not any(begun is each or begun == each for each in _BEGINNINGS):
        raise UserError(
            f"init_lora_weights is {shown(begun)}, which takes a part of the base away before "
            "training; save the adapter with path_initial_model_for_weight_conversion"
        )
    for field, value in content.items():
        if field not in _READ and field not in _IDLE and value not in (None, False, [], {}):
            raise UserError(f"{field} is {shown(value)}, which cannot be merged into the weights")
    settings = {}
    for field, (good, takes) in _READ.items():
        value = content.get(field)
        if value is not None:
            if not good(value):
                raise UserError(f"{field} is {shown(value)}, but takes {takes}")
            settings[field] = value
    return {"r": 8, "lora_alpha": 8, **settings}  # PEFT's own defaults


def _is_pattern(value: Any, *kinds: type) -> bool:
    """Numbers by names. PEFT reads the names as regular expressions, so what could take it
    for ever is not let through: repeated groups, and many repetitions."""
    if not isinstance(value, dict) or len(value) > MOST_PATTERNS:
        return False
    return all(
        len(name) <= 200
        and re.fullmatch(r"[\w.\\^$|()*+-]*", name)
        and not re.search(r"\)[*+]|[*+]{2}", name)
        and len(re.findall(r"[*+]", name)) <= 2
        and _compiles(name)
        and type(each) in kinds
        and 0 < each <= 2**31
        for name, each in value.items()
    )


def _compiles(pattern: str) -> bool:
    try:
        re.compile(pattern)
    except re.error:
        return False
    return True


def _rank(settings: Mapping[str, Any], module: str) -> int:
    from peft.utils.other import get_pattern_key

    patterns = settings.get("rank_pattern") or {}
    return int(patterns.get(get_pattern_key(list(patterns), module), settings["r"]))


def _changes(
    settings: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]], names: "WeightNames"
) -> Iterator[Change]:
    """What the tensors of a file do to the model. One that fits nothing is refused by its name."""
    products: dict[str, dict[str, str]] = {}
    if not shapes:
        raise UserError("it holds no weights")
    for key in shapes:
        clean = _COPY.sub("", _WRAPPERS.sub("", key))
        if found := _LORA.fullmatch(clean):
            tensor = found["part"] + (found["leaf"] or "")
            if found["part"].startswith(("lora_emb", "lora_mag")):
                tensor = found["part"]
            if not names.parts(f"{found['module']}.weight"):
                raise UserError(f"{key} belongs to no weight of it")
            products.setdefault(found["module"], {})[tensor] = key
        else:
            parts = names.parts(clean)
            if not parts:
                raise UserError(f"{key} belongs to no weight of it")
            if names.shape(parts) != shapes[key]:
                raise _misshapen(key, shapes[key], names.shape(parts))
            yield Change(clean, {"": key}, replaces=True)
    for module, keys in products.items():
        yield _product(settings, module, keys, shapes, names)


def _product(
    settings: Mapping[str, Any],
    module: str,
    keys: dict[str, str],
    shapes: Mapping[str, tuple[int, ...]],
    names: "WeightNames",
) -> Change:
    """The change of one module, whose tensors must be all there and of the right shapes."""
    first = next(iter(keys.values()))
    weight, rank = names.shape(names.parts(f"{module}.weight")), _rank(settings, module)
    if len(weight) != 2:
        raise UserError(f"{first} belongs to a weight that is no matrix")
    out, inner = weight
    wanted: dict[str, tuple[int, ...]]
    if "lora_embedding_A" in keys:
        wanted = {"lora_embedding_A": (rank, out), "lora_embedding_B": (inner, rank)}
        magnitudes = inner
    else:
        wanted = {"lora_A.weight": (rank, inner), "lora_B.weight": (out, rank)}
        magnitudes = out
    if settings.get("use_dora"):
        wanted["lora_magnitude_vector"] = (magnitudes,)
    if settings.get("lora_bias") and "lora_embedding_A" not in keys:
        wanted["lora_B.bias"] = (out,)
        if not names.parts(f"{module}.bias"):
            raise UserError(f"{keys.get('lora_B.bias', first)} belongs to no bias of it")
    for tensor, shape in wanted.items():
        key = keys.get(tensor)
        if key is None:
            raise UserError(f"it lacks {tensor} of {module}")
        if shapes[key] != shape:
            raise _misshapen(key, shapes[key], shape)
    if extra := keys.keys() - wanted.keys():
        raise UserError(f"{keys[min(extra)]} is not what its settings describe")
    return Change(f"{module}.weight", keys)


def _misshapen(key: str, got: tuple[int, ...], wanted: tuple[int, ...]) -> UserError:
    return UserError(f"{key} is {' × '.join(map(str, got))}, not {' × '.join(map(str, wanted))}")
