"""Several policies in one YAML file:

    policies:
      fixed-512: {policy: fixed, initial_length: 512}
      sym: {preset: sym}
      asym: {preset: asym, expansion: linear}

Each name becomes a folder; what a policy does not say comes from the command line.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rho_eos.base.errors import UserError
from rho_eos.base.registry import NAME
from rho_eos.decoding.params import DecodeParams, merged
from rho_eos.evals.files import read_yaml


def params_of(options: Mapping[str, Any]) -> DecodeParams | None:
    """Checked parameters; None for the policy `gold`, which asks no model."""
    if options.get("policy") != "gold":
        return DecodeParams.from_mapping(options)
    others = sorted(set(options) - {"policy"})
    if others:
        raise UserError(f"policy gold asks no model, so it takes no {', '.join(others)}")
    return None


def read_sweep(path: Path, defaults: Mapping[str, Any]) -> dict[str, DecodeParams | None]:
    """The policies of a file by name, all checked before any of them runs."""
    content = read_yaml(path)
    policies = content.get("policies") if isinstance(content, dict) else None
    if not isinstance(policies, dict) or not policies or set(content) != {"policies"}:
        raise UserError(f"{path} takes one key, policies: a mapping of names to parameters")
    found = {}
    for name, options in policies.items():
        own = options or {}
        if not NAME.fullmatch(str(name)):
            raise UserError(f"{path}: {name!r} is no name for a folder: use letters, digits, . _ -")
        if not isinstance(own, dict):
            raise UserError(f"{path}: {name} takes a mapping of parameters, but got {options!r}")
        given = own if own.get("policy") == "gold" else merged(defaults, own)
        try:
            found[str(name)] = params_of(given)
        except UserError as error:
            raise UserError(f"{path}: {name}: {error}") from error
    return found
