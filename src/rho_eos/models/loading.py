"""Opens checkpoints and loads models. Weights are safetensors; a checkpoint's code is never run."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import transformers
from safetensors import SafetensorError

from rho_eos.base.errors import UserError, first_line
from rho_eos.base.tokens import SpecialTokens
from rho_eos.config import EngineConfig
from rho_eos.decoding.blocks import Blocks
from rho_eos.models.adapters import Adapter, open_adapters
from rho_eos.models.blocks import blocks_of, published
from rho_eos.models.family import Family, find_family
from rho_eos.models.hub import CONFIGS, fetch_weights, find_folder, remote_headers
from rho_eos.models.known import refuse_name
from rho_eos.models.placement import Placement
from rho_eos.models.products import choose_products
from rho_eos.models.quantize import quantize
from rho_eos.models.sanity import (
    check_amount,
    check_built,
    check_config,
    check_files,
    check_tokenizer,
    read_json,
)
from rho_eos.models.special_tokens import find_special_tokens
from rho_eos.models.weights import measure, weight_files
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
    family: Family
    config: Any
    tokenizer: Any  # None where the folder has no tokenizer: prompts are token ids then
    special: SpecialTokens
    files: tuple[Path, ...]
    parameters: int
    stored_bytes: int
    stored_dtypes: tuple[str, ...]  # that of most weights first
    repo: str | None = None  # of a Hub model
    blocks: Blocks | None = None  # of a model that attends in blocks
    blocks_note: str = ""  # where that is known from
    decoding: Mapping[str, Any] = field(default_factory=dict)  # published with it, if in blocks
    adapters: tuple[Adapter, ...] = ()  # to be merged into its weights, in this order

    @property
    def commit(self) -> str | None:
        """The commit of a Hub model, which may be named by a branch."""
        return self.folder.name if self.repo else None

    @property
    def context_length(self) -> int:
        """What the model was trained on, which may be less than its config promises."""
        promised = int(self.config.max_position_embeddings)
        return min(promised, self.family.context_limit or promised)


def open_checkpoint(config: EngineConfig) -> Checkpoint:
    """Find the checkpoint, asking the Hub if need be, and check that it can be loaded."""
    refuse_name(config.model)
    folder, repo = find_folder(config.model, config.revision)
    check_files(folder)
    family, model_config = _read_config(folder)
    blocks = blocks_of(config, family, model_config, config.model)
    tokenizer = _read_tokenizer(folder, model_config)
    if tokenizer is not None:
        tokenizer.template_variables = family.template  # for text/chat_template.py
    special = find_special_tokens(config, family, model_config, tokenizer)
    files = weight_files(folder)
    missing = [file.name for file in files if not file.exists()]
    measured = measure(files, remote_headers(repo, folder.name, missing) if repo else {})
    check_amount(model_config, parameters=measured[0])
    found = (folder, family, model_config, tokenizer, special, files)
    decoding = published(family, config.model)
    adapters = open_adapters(config.adapter, family, model_config)
    return Checkpoint(*found, *measured, repo, *blocks, decoding, adapters)


def load_model(checkpoint: Checkpoint, placement: Placement) -> Any:
    """The model, ready to run packed rows.

    Weights are memory-mapped. Those that are kept as they were stored stay mapped; those that are
    to be quantised are read and quantised one after the other, with adapters merged into them.
    """
    from rho_eos.models.attention import PACKED  # with transformers' modelling code
    from rho_eos.models.layer import join_products
    from rho_eos.models.merging import Merger

    quantized = placement.quantization != "none"
    mixed = placement.weights != placement.compute
    if checkpoint.repo is not None:
        fetch_weights(checkpoint.repo, checkpoint.folder, [file.name for file in checkpoint.files])
    model_class = checkpoint.family.masked_lm
    if model_class.separate is not None and (quantized or mixed):
        model_class = model_class.separate
    try:
        with quiet(checkpoint):
            model = model_class.from_pretrained(
                checkpoint.folder,
                config=checkpoint.config,
                dtype=placement.stored if quantized else placement.weights,
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
    model.eval().requires_grad_(False)
    merger = Merger(model, checkpoint.adapters)
    if quantized:
        how = (placement.quantization, placement.device, placement.weights)
        quantize(model, *how, prepare=merger.layer)
    merger.merge()
    if mixed:
        widen(model, placement.compute)
    model = model.to(placement.device)
    if placement.device.type != "cpu":  # where weights stay mapped, and launches cost nothing
        join_products(model)
    else:
        choose_products(model)
    return model


@contextmanager
def quiet(checkpoint: Checkpoint) -> Iterator[None]:
    """No progress bar for what takes no time."""
    if checkpoint.stored_bytes < _LARGE:
        transformers.utils.logging.disable_progress_bar()
    try:
        yield
    finally:
        transformers.utils.logging.enable_progress_bar()


def _read_config(folder: Path) -> tuple[Family, Any]:
    path = folder / "config.json"
    if not path.exists():
        hint = "; it holds an adapter: give it as --adapter, and the model it was made for as model"
        adapter = hint if (folder / CONFIGS["adapter"]).exists() else ""
        raise UserError(f"{folder} has no config.json, so it is no checkpoint folder{adapter}")
    content = read_json(path)
    try:
        family = find_family(content)
        check_config(content)
    except UserError as error:
        raise UserError(f"{path}: {error}") from error
    try:
        config = family.config.from_dict(content)
        check_built(config)
    except UserError:
        raise
    except Exception as error:  # fields of any type lead to errors of any type
        raise UserError(f"{path} is no usable {family.name} config: {_reason(error)}") from error
    return family, config


def _reason(error: BaseException) -> str:
    """What an error says, with its kind before that where the words alone say little."""
    known = isinstance(error, OSError | ValueError | RuntimeError | SafetensorError)
    return first_line(error) if known else f"{type(error).__name__}: {first_line(error)}"


def _read_tokenizer(folder: Path, config: Any) -> Any:
    settings = folder / "tokenizer_config.json"
    whole = (folder / "tokenizer.json").exists()
    if not settings.exists() and not whole:
        return None
    declared = read_json(settings) if settings.exists() else {}
    try:
        check_config(declared)
        if whole:
            check_tokenizer(read_json(folder / "tokenizer.json"))
    except UserError as error:
        raise UserError(f"the tokenizer in {folder} cannot be used: {error}") from error
    kind = str(declared.get("tokenizer_class"))
    loader: Any = transformers.AutoTokenizer
    if kind in NATIVE_TOKENIZERS:
        loader = getattr(transformers, NATIVE_TOKENIZERS[kind])
    elif "auto_map" in declared and not hasattr(transformers, kind):
        if not whole:
            raise UserError(
                f"the tokenizer in {folder} is a {kind}, its own code, which is never run"
            )
        loader = transformers.PreTrainedTokenizerFast  # tokenizer.json says all that is needed
    try:
        tokenizer = loader.from_pretrained(folder, config=config, trust_remote_code=False)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # the tokenizers library raises Exception itself, or panics
        raise UserError(f"cannot read the tokenizer in {folder}: {_reason(error)}") from error
    if not hasattr(tokenizer, "backend_tokenizer"):
        raise UserError(f"the tokenizer in {folder} is a {kind}, which has no fast form")
    return tokenizer
