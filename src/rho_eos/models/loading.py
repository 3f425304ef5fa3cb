"""From a folder or a Hub id to a model on a device. safetensors only, never any remote code."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import transformers
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig, AutoModelForMaskedLM, AutoTokenizer

from rho_eos.config import EngineConfig
from rho_eos.errors import UserError
from rho_eos.models import FAMILIES
from rho_eos.models.attention import PACKED
from rho_eos.models.placement import Placement
from rho_eos.models.quantize import quantize
from rho_eos.models.special_tokens import find_special_tokens
from rho_eos.models.widening import widen
from rho_eos.tokens import SpecialTokens

TINY = Path(__file__).parent.parent / "tiny" / "checkpoint"
#: What of a Hub repository is needed: no pickles, no code.
HUB_FILES = ["*.json", "*.safetensors", "*.txt", "*.model", "*.jinja"]
#: Tokenizers that a repository ships as code, and the class of transformers they copy.
NATIVE_TOKENIZERS = {"DreamTokenizer": "Qwen2Tokenizer"}
_LARGE = 200 * 2**20  # bytes of weights from which a progress bar is worth its line


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint on disk, checked but not loaded: what `rho-eos info` shows."""

    folder: Path
    config: Any
    tokenizer: Any  # None where the folder has no tokenizer: prompts are token ids then
    special: SpecialTokens
    files: tuple[Path, ...]
    parameters: int
    stored_bytes: int
    stored_dtypes: tuple[str, ...]  # that of most weights first

    @property
    def family(self) -> str:
        return str(self.config.model_type)

    @property
    def context_length(self) -> int:
        return int(self.config.max_position_embeddings)


def open_checkpoint(config: EngineConfig) -> Checkpoint:
    """Find the checkpoint, fetching it from the Hub if need be, and check that it can be loaded."""
    folder = find_folder(config.model, config.revision)
    model_config = _read_config(folder)
    tokenizer = _read_tokenizer(folder)
    files = _weight_files(folder)
    parameters, stored_bytes, dtypes = _measure(files)
    return Checkpoint(
        folder,
        model_config,
        tokenizer,
        find_special_tokens(config, model_config, tokenizer),
        files,
        parameters,
        stored_bytes,
        dtypes,
    )


def load_model(checkpoint: Checkpoint, placement: Placement) -> Any:
    """The model, ready to run packed rows. Weights are memory-mapped while loading.

    What is kept as it was stored stays mapped; what is quantised is so one weight after the other.
    """
    quantized = placement.quantization != "none"
    progress = transformers.utils.logging
    if checkpoint.stored_bytes < _LARGE:
        progress.disable_progress_bar()
    try:
        model = AutoModelForMaskedLM.from_pretrained(
            checkpoint.folder,
            config=checkpoint.config,
            dtype=placement.stored if quantized else placement.precision.weights,
            use_safetensors=True,
            attn_implementation=PACKED,
        )
    except (OSError, RuntimeError, SafetensorError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"cannot load the weights in {checkpoint.folder}: {reason}") from error
    finally:
        progress.enable_progress_bar()
    model.eval().requires_grad_(False)
    if quantized:
        quantize(model, placement.quantization, placement.device, placement.precision.weights)
    if placement.precision.weights != placement.precision.compute:
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


def find_folder(model: str, revision: str | None = None) -> Path:
    """`tiny`, a local folder, or a Hub id, which is downloaded or found in the local cache."""
    if model == "tiny":
        return TINY
    path = Path(model).expanduser()
    if path.is_dir():
        return path
    if path.exists():
        raise UserError(f"model is {model!r}, which is a file; give the folder that holds it")
    looks_like_path = model.startswith((".", "/", "~")) or model.count("/") != 1
    if looks_like_path:
        raise UserError(f"no such model: there is no folder {model!r}")
    try:
        return Path(snapshot_download(model, revision=revision, allow_patterns=HUB_FILES))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        at = f" at revision {revision}" if revision else ""
        reason = str(error).strip().splitlines()[0]
        raise UserError(
            f"no such model: {model!r} is no local folder, and the Hub gave nothing{at}: {reason}"
        ) from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    if not isinstance(content, dict):
        raise UserError(f"cannot read {path}: it is no JSON object")
    return content


def _read_config(folder: Path) -> Any:
    path = folder / "config.json"
    if not path.exists():
        raise UserError(f"{folder} has no config.json, so it is no checkpoint folder")
    model_type = _read_json(path).get("model_type")
    if model_type not in FAMILIES:
        raise UserError(
            f"{path} says model_type {model_type!r}; known families are {', '.join(FAMILIES)}"
        )
    try:
        return AutoConfig.from_pretrained(folder)
    except UserError:
        raise
    except (TypeError, ValueError) as error:
        raise UserError(f"{path} is no usable {model_type} config: {error}") from error


def _read_tokenizer(folder: Path) -> Any:
    settings = folder / "tokenizer_config.json"
    if not settings.exists() and not (folder / "tokenizer.json").exists():
        return None
    declared = _read_json(settings).get("tokenizer_class") if settings.exists() else None
    native = NATIVE_TOKENIZERS.get(str(declared))
    loader = getattr(transformers, native) if native else AutoTokenizer
    try:
        return loader.from_pretrained(folder)
    except Exception as error:  # the tokenizers library raises plain Exception for a bad file
        raise UserError(f"cannot read the tokenizer in {folder}: {error}") from error


def _weight_files(folder: Path) -> tuple[Path, ...]:
    index = folder / "model.safetensors.index.json"
    if index.exists():
        shards = sorted(set(_read_json(index).get("weight_map", {}).values()))
        files = tuple(folder / name for name in shards)
    else:
        files = (folder / "model.safetensors",)
    for file in files:
        if not file.exists():
            raise UserError(f"{folder} has no {file.name} (weights are read from safetensors only)")
    return files


def _measure(files: tuple[Path, ...]) -> tuple[int, int, tuple[str, ...]]:
    """Parameters, bytes, and dtypes with that of most weights first, read from the files' headers.

    A damaged file is named.
    """
    parameters: Counter[str] = Counter()
    for file in files:
        try:
            with safe_open(file, framework="pt") as weights:
                for key in weights.keys():  # noqa: SIM118 (not a dict)
                    piece = weights.get_slice(key)
                    parameters[str(piece.get_dtype())] += torch.Size(piece.get_shape()).numel()
        except (SafetensorError, OSError) as error:
            raise UserError(f"{file} is damaged or incomplete: {error}") from error
    dtypes = tuple(dtype for dtype, _ in parameters.most_common())
    return parameters.total(), sum(file.stat().st_size for file in files), dtypes
