"""What a result depends on, written down: which weights, which files, which versions, where."""

import json
import os
import platform
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from hashlib import blake2b
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from rho_eos.base.fingerprint import fingerprint
from rho_eos.base.registry import code_of
from rho_eos.config import EngineConfig
from rho_eos.models.loading import Checkpoint, open_checkpoint
from rho_eos.models.placement import choose_device, describe

_TOKENIZER_FILES = ("tokenizer*", "vocab*", "merges*", "chat_template*", "*tokens*.json")
PACKAGES = ("rho-eos", "torch", "transformers", "tokenizers", "numpy", "math-verify")


def model_identity(config: EngineConfig, checkpoint: Checkpoint | None = None) -> dict[str, Any]:
    """Which model answers: a name can be given to other weights, so their fingerprint as well."""
    checkpoint = checkpoint or open_checkpoint(config)
    folder, special = checkpoint.folder.absolute(), checkpoint.special
    placement = describe(config, checkpoint, choose_device(config.device))
    family: Any = checkpoint.family.config
    code = code_of(family)
    return {
        "model": config.model,
        "revision": folder.name if folder.parent.name == "snapshots" else config.revision,
        "weights": _weights(checkpoint),
        **({"adapters": [a.as_dict() for a in checkpoint.adapters]} if checkpoint.adapters else {}),
        **placement.identity(),
        **({"blocks": asdict(checkpoint.blocks)} if checkpoint.blocks else {}),
        **({"code of the family": code} if code else {}),
        "special_tokens": [special.mask, special.eos, special.end_of_turn],
    }


def model_hash(config: EngineConfig) -> str:
    """A hash that is the same for models that answer alike, wherever they lie."""
    named = ("model", "revision")
    checkpoint = open_checkpoint(config)
    identity = {k: v for k, v in model_identity(config, checkpoint).items() if k not in named}
    if checkpoint.adapters:
        identity["adapters"] = [each.identity for each in checkpoint.adapters]
    found = {file for kind in _TOKENIZER_FILES for file in checkpoint.folder.glob(kind)}
    files = sorted(file for file in found if file.is_file())
    text = json.dumps({**identity, "tokenizer": fingerprint(files)}, sort_keys=True)
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _weights(checkpoint: Checkpoint) -> str:
    """What names the weights: of a Hub model its commit, as the driver of a cluster has no
    weights."""
    return checkpoint.commit or fingerprint(checkpoint.files)


def session_facts(config: EngineConfig | None, sandbox: str | None) -> dict[str, Any]:
    """Where and with what one process works on a run. Without a model, `config` is None."""
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        with suppress(PackageNotFoundError):  # of an extra
            versions[package] = version(package)
    facts: dict[str, Any] = {
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "versions": versions,
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "sandbox": sandbox,
    }
    if config is not None:
        device = choose_device(config.device)
        cuda = device.type == "cuda"
        facts |= {
            "device": torch.cuda.get_device_name(device) if cuda else device.type,
            "threads": torch.get_num_threads(),
            "batch_size": config.max_rows,
            "max_positions": config.max_positions,
        }
    return facts
