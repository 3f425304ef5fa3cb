"""YAML files of evaluations."""

from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

from rho_eos.base.errors import UserError
from rho_eos.base.small_files import read_small


def read_yaml(path: Path) -> Any:
    try:
        return yaml.safe_load(read_small(path).decode())
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"cannot read {path}: {' '.join(str(reason).split())}") from error
