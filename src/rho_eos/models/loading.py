"""From a folder or a Hub id to a model on a device. safetensors only, never any remote code."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from safetensors import SafetensorError, safe_open
from transformers import (
    AutoConfig,
    AutoModelForMaskedLM,
    AutoTokenizer,
    PreTrainedTokenizerFast,
)

from rho_eos.base.errors import UserError
from rho_eos.base.tokens import SpecialTokens
from rho_eos.config import EngineConfig
from rho_eos.models import FAMILIES, find_family
from rho_eos.models.attention import PACKED
from rho_eos.models.download import fetch_weights
from rho_eos.models.hub import HubModel, find_hub_model, remote_header
from rho_eos.models.known import EMBEDDED, did_you_mean
from rho_eos.models.placement import Placement
from rho_eos.models.quantize import quantize
from rho_eos.models.sanity import (
    check_amount,
    check_built,
    check_config,
    check_files,
    read_json,
)
from rho_eos.models.special_tokens import find_special_tokens
from rho_eos.models.widening import widen

#: Tokenizers that a repository ships as code, and the class of transformers they copy.
NATIVE_TOKENIZERS = {"DreamTokenizer": "Qwen2Tokenizer"}
_LARGE = 200 * 2**20  # bytes of weights from which a progress bar is worth its line


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint, checked but not loaded: what `rho-eos info` shows.

    Of a Hub model the weights may not be on disk yet; they are fetched when it is loaded.
    """

    folder: Path
    config: Any
    tokenizer: Any  # None where the folder has no tokenizer: prompts are token ids then
    special: SpecialTokens
    files: tuple[Path, ...]
    parameters: int
    stored_bytes: int
    stored_dtypes: tuple[str, ...]  # that of most weights first
    hub: HubModel | None = None

    @property
    def family(self) -> str:
        return str(self.config.model_type)

    @property
    def context_length(self) -> int:
        """What the model was trained on, which may be less than its config promises."""
        promised = int(self.config.max_position_embeddings)
        return min(promised, FAMILIES[self.family].context_limit or promised)


def open_checkpoint(config: EngineConfig) -> Checkpoint:
    """Find the checkpoint, asking the Hub if need be, and check that it can be loaded."""
    folder, hub = find_folder(config.model, config.revision)
    check_files(folder)
    model_config = _read_config(folder)
    tokenizer = _read_tokenizer(folder)
    files = weight_files(folder)
    parameters, stored_bytes, dtypes = measure(files, hub)
    check_amount(model_config, parameters)
    return Checkpoint(
        folder,
        model_config,
        tokenizer,
        find_special_tokens(config, model_config, tokenizer),
        files,
        parameters,
        stored_bytes,
        dtypes,
        hub,
    )


def load_model(checkpoint: Checkpoint, placement: Placement) -> Any:
    """The model, ready to run packed rows. Weights are memory-mapped while loading.

    What is kept as it was stored stays mapped; what is quantised is so one weight after the other.
    """
    quantized = placement.quantization != "none"
    mixed = placement.precision.weights != placement.precision.compute
    separate = FAMILIES[checkpoint.family].separate if quantized or mixed else None
    if checkpoint.hub is not None:
        fetch_weights(checkpoint.hub, checkpoint.files)
    progress = transformers.utils.logging
    if checkpoint.stored_bytes < _LARGE:
        progress.disable_progress_bar()
    try:
        model = (separate or AutoModelForMaskedLM).from_pretrained(
            checkpoint.folder,
            config=checkpoint.config,
            dtype=placement.stored if quantized else placement.precision.weights,
            use_safetensors=True,
            attn_implementation=PACKED,
            trust_remote_code=False,
        )
    except UserError:
        raise
    except Exception as error:  # whatever a damaged file leads to, it is the file that is at fault
        raise UserError(
            f"cannot load the weights in {checkpoint.folder}: {_reason(error)}"
        ) from error
    finally:
        progress.enable_progress_bar()
    model.eval().requires_grad_(False)
    if quantized:
        quantize(model, placement.quantization, placement.device, placement.precision.weights)
    if mixed:
        widen(model, placement.precision.compute)
    return model.to(placement.device)


def choose_device(name: str) -> torch.device:
    """`auto` takes the best there is; a device that is asked for and absent is an error."""
    cuda, mps = torch.cuda.is_available(), torch.backends.mps.is_available()
    if name == "auto":
        return torch.device("cuda" if cuda else "mps" if mps else "cpu")
    kind, _, index = name.partition(":")
    if kind not in ("cpu", "cuda", "mps") or (index and not index.isdigit()):
        raise UserError(f"device is {name!r}, but takes auto, cpu, cuda, cuda:N or mps")
    if (kind == "cuda" and not cuda) or (kind == "mps" and not mps):
        raise UserError(f"device is {name!r}, but this machine has no {kind}")
    if kind == "cuda" and index and int(index) >= torch.cuda.device_count():
        raise UserError(f"device is {name!r}, but there are only {torch.cuda.device_count()} GPUs")
    return torch.device(name)


def find_folder(model: str, revision: str | None = None) -> tuple[Path, HubModel | None]:
    """An embedded model, a local folder, or a Hub id, whose folder may still lack the weights."""
    if model in EMBEDDED:
        return EMBEDDED[model], None
    path = Path(model).expanduser()
    if path.is_dir():
        return path, None
    if path.exists():
        raise UserError(f"model is {model!r}, which is a file; give the folder that holds it")
    looks_like_path = model.startswith((".", "/", "~")) or model.count("/") != 1
    if looks_like_path:
        raise UserError(f"no such model: there is no folder {model!r}{did_you_mean(model)}")
    hub = find_hub_model(model, revision)
    return hub.folder, hub


def _read_config(folder: Path) -> Any:
    path = folder / "config.json"
    if not path.exists():
        raise UserError(f"{folder} has no config.json, so it is no checkpoint folder")
    content = read_json(path)
    try:
        family = find_family(content)
        check_config(content)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    try:
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        check_built(config)
    except UserError:
        raise
    except Exception as error:  # fields of any type lead to errors of any type
        raise UserError(f"{path} is no usable {family.name} config: {_reason(error)}") from error
    return config


def _reason(error: BaseException) -> str:
    """The first line of what it says, after its kind where that says little."""
    lines = str(error).strip().splitlines() or [""]
    known = isinstance(error, OSError | ValueError | RuntimeError | SafetensorError)
    return lines[0] if known and lines[0] else f"{type(error).__name__}: {lines[0]}"


def _read_tokenizer(folder: Path) -> Any:
    settings = folder / "tokenizer_config.json"
    whole = (folder / "tokenizer.json").exists()
    if not settings.exists() and not whole:
        return None
    declared = read_json(settings) if settings.exists() else {}
    kind = str(declared.get("tokenizer_class"))
    loader: Any = AutoTokenizer
    if kind in NATIVE_TOKENIZERS:
        loader = getattr(transformers, NATIVE_TOKENIZERS[kind])
    elif "auto_map" in declared and not hasattr(transformers, kind):
        if not whole:
            raise UserError(
                f"the tokenizer in {folder} is a {kind}, its own code, which is never run"
            )
        loader = PreTrainedTokenizerFast  # tokenizer.json says all that is needed
    try:
        tokenizer = loader.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:  # the tokenizers library raises plain Exception for a bad file
        raise UserError(f"cannot read the tokenizer in {folder}: {_reason(error)}") from error
    if not hasattr(tokenizer, "backend_tokenizer"):
        raise UserError(f"the tokenizer in {folder} is a {kind}, which has no fast form")
    return tokenizer


def weight_files(folder: Path) -> tuple[Path, ...]:
    """Where the weights are, or will be when they are fetched."""
    index = folder / "model.safetensors.index.json"
    single = folder / "model.safetensors"
    if single.exists() or not index.exists():  # transformers takes the single one, too
        return (single,)
    shards = read_json(index).get("weight_map")
    names = sorted(set(map(str, shards.values()))) if isinstance(shards, dict) else []
    if not names or any(not _is_file_name(name) for name in names):
        raise UserError(f"{index} is damaged: its weight_map does not name files of its folder")
    return tuple(folder / name for name in names)


def _is_file_name(name: str) -> bool:
    """A weight file beside its index: neither a path nor anything else."""
    return name.endswith(".safetensors") and not set(name) & set("/\\\0") and name[0] != "."


def measure(files: tuple[Path, ...], hub: HubModel | None) -> tuple[int, int, tuple[str, ...]]:
    """Parameters, bytes, and dtypes with that of most weights first, from the files' headers.

    A damaged file is named.
    """
    parameters: Counter[str] = Counter()
    stored = 0
    for file in files:
        if file.exists():
            count, size = _header(file), file.stat().st_size
        elif hub is not None:
            count, size = remote_header(hub, file.name)
        else:
            raise UserError(
                f"{file.parent} has no {file.name} (weights are read from safetensors only)"
            )
        parameters += count
        stored += size
    dtypes = tuple(dtype for dtype, _ in parameters.most_common())
    return parameters.total(), stored, dtypes


def _header(file: Path) -> Counter[str]:
    """How many numbers of each dtype it holds."""
    parameters: Counter[str] = Counter()
    try:
        with safe_open(file, framework="pt") as weights:
            for key in weights.keys():  # noqa: SIM118 (not a dict)
                piece = weights.get_slice(key)
                parameters[str(piece.get_dtype())] += torch.Size(piece.get_shape()).numel()
    except (SafetensorError, OSError, RuntimeError, OverflowError) as error:
        raise UserError(f"{file} is damaged or incomplete: {error}") from error
    return parameters
