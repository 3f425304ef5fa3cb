"""Writes a model with its adapters merged, in the layout of the checkpoint it came from."""

import json
import shutil
from pathlib import Path

import torch

from rho_eos.base.errors import StorageError, UserError
from rho_eos.models.hub import CONFIGS, SMALL_FILES
from rho_eos.models.loading import Checkpoint, load_model, quiet
from rho_eos.models.placement import Placement, free_memory, gigabytes, stored_dtype

SHARD = "5GB"


def write_merged(checkpoint: Checkpoint, target: Path) -> None:
    """Write the merged weights under their published names, and the other files as they are.

    The folder appears when it is whole. Weights have the type that most of them are stored in.
    """
    if target.exists():
        raise UserError(f"{target} exists already; name a folder that does not")
    target.parent.mkdir(parents=True, exist_ok=True)
    size, room = checkpoint.stored_bytes, shutil.disk_usage(target.parent).free
    if size > room:
        raise UserError(
            f"the merged model needs {gigabytes(size)}, but {target.parent} has room for "
            f"{gigabytes(room)}"
        )
    stored, cpu = stored_dtype(checkpoint), torch.device("cpu")
    needed = checkpoint.parameters * stored.itemsize
    placement = Placement(cpu, stored, stored, "none", stored, needed, free_memory(cpu))
    if not placement.fits:
        raise UserError(f"merging needs {gigabytes(needed)} of memory: {placement.sentence}")
    model = load_model(checkpoint, placement)
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    try:
        with quiet(checkpoint):
            model.save_pretrained(partial, max_shard_size=SHARD)
        _copy_small_files(checkpoint.folder, partial)
        _untie(checkpoint, model, partial)
        partial.rename(target)
    except OSError as error:
        raise StorageError(f"cannot write {target}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _copy_small_files(folder: Path, target: Path) -> None:
    """All that describes the model; of weights there is no index but the one just written."""
    for pattern in SMALL_FILES:
        for file in folder.glob(pattern):
            if file.is_file() and not file.name.endswith(".safetensors.index.json"):
                shutil.copyfile(file, target / file.name)


def _untie(checkpoint: Checkpoint, model: object, target: Path) -> None:
    """Embedding and head that shared their weights may not do so any more."""
    if not is_untied(model):
        return
    path = target / CONFIGS["model"]
    content = json.loads(path.read_text(encoding="utf-8"))
    fields = type(checkpoint.config).attribute_map
    content[fields.get("tie_word_embeddings", "tie_word_embeddings")] = False
    path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def is_untied(model: object) -> bool:
    """Whether an adapter changed only one of two weights that its checkpoint has as one."""
    embedding, head = model.model.embed_tokens.weight, model.lm_head.weight  # type: ignore[attr-defined]
    return bool(model.config.tie_word_embeddings) and embedding is not head  # type: ignore[attr-defined]
