"""YAML files of evaluations."""

from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from rho_eos.base.errors import UserError


def read_yaml(path: Path) -> Any:
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot read {path}: {' '.join(str(reason).split())}") from error
