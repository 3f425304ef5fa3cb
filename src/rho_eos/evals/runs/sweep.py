"""Several runs in one YAML file: policies by name, a grid of values, or both.

    policies:
      fixed-512: {policy: fixed, initial_length: 512}
      asym: {preset: asym, expansion: linear}
    grid:
      cache: [none, window]
      threshold: [0.9, 0.999]
      model: [tiny, terse]

Each policy is run with every combination of the grid's values; without policies the combinations
are the runs. Each becomes a folder, whose name is made of the policy's and the values. What neither
says comes from the command line.
"""

import re
from collections.abc import Iterator, Mapping
from itertools import product
from pathlib import Path
from typing import Any

from rho_eos.base.errors import UserError, did_you_mean
from rho_eos.base.registry import NAME
from rho_eos.decoding.params import DecodeParams, composed, merged, parts_of
from rho_eos.decoding.schema import AXES, parameters
from rho_eos.evals.files import read_yaml

KEYS = ("policies", "grid")
MODEL = "model"

#: Checked parameters, or None for the policy `gold`; and the model, if the sweep names one.
Point = tuple[DecodeParams | None, str | None]


def params_of(options: Mapping[str, Any]) -> DecodeParams | None:
    """Checked parameters; None for the policy `gold`, which asks no model."""
    if options.get("policy") != "gold":
        return DecodeParams.from_mapping(options)
    others = sorted(set(options) - {"policy"})
    if others:
        raise UserError(f"policy gold asks no model, so it takes no {', '.join(others)}")
    return None


def read_sweep(path: Path, defaults: Mapping[str, Any]) -> dict[str, Point]:
    """The runs of a file by name, all checked before any of them runs."""
    content = read_yaml(path)
    if not isinstance(content, dict) or not content or not set(content) <= set(KEYS):
        raise UserError(
            f"{path} takes policies, a mapping of names to parameters, or grid, a mapping of "
            "parameters to lists of values, or both"
        )
    policies = content.get("policies", {"": {}})
    if not isinstance(policies, dict) or not policies:
        raise UserError(f"{path}: policies takes a mapping of names to parameters")
    grid = _checked(path, content.get("grid", {}))
    found: dict[str, Point] = {}
    used: set[str] = set()
    for name, options in policies.items():
        if name and not NAME.fullmatch(str(name)):
            raise UserError(f"{path}: {name!r} is no name for a folder: use letters, digits, . _ -")
        if not isinstance(options or {}, dict):
            raise UserError(f"{path}: {name} takes a mapping of parameters, but got {options!r}")
        for values in product(*grid.values()):
            axes = dict(zip(grid, values, strict=True))
            try:
                point, mine = _point(defaults, options or {}, axes)
            except UserError as error:
                raise UserError(f"{path}: {name or ' '.join(_words(axes))}: {error}") from error
            whole = "_".join([*([str(name)] if name else []), *_words(mine)]) or "default"
            if found.setdefault(whole, point) != point:
                raise UserError(f"{path}: two of its runs would be named {whole}")
            used |= mine.keys()
    if idle := [axis for axis in grid if axis not in used]:
        raise UserError(f"{path}: none of its policies has the parameter {idle[0]!r}")
    return found


def _checked(path: Path, grid: Any) -> dict[str, list[Any]]:
    """The values of each axis; one alone is an axis of length one."""
    if not isinstance(grid, dict):
        raise UserError(f"{path}: grid takes a mapping of parameters to lists of values")
    known = (MODEL, *parameters())
    for name, values in grid.items():
        if name not in known:
            near = did_you_mean(str(name), known)
            raise UserError(f"{path}: grid has {name!r}, which is no decoding parameter{near}")
        if values == []:
            raise UserError(f"{path}: grid has no value for {name}")
    return {name: each if isinstance(each, list) else [each] for name, each in grid.items()}


def _point(
    defaults: Mapping[str, Any], own: Mapping[str, Any], axes: Mapping[str, Any]
) -> tuple[Point, Mapping[str, Any]]:
    """One run, and the axes that concern it: not those whose parameter its parts do not have."""
    given = {**own, **axes}
    model = given.pop(MODEL, None)
    if model is not None and not isinstance(model, str):
        raise UserError.of(MODEL, model, "a name, a folder or a Hub id")
    if given.get("policy") == "gold":
        return (params_of({**own, "policy": "gold"}), None), {
            name: value for name, value in axes.items() if name == "policy"
        }
    known = (*composed(parts_of(merged(defaults, given))).model_fields, MODEL)
    mine = {name: value for name, value in axes.items() if name in known}
    given = {**{name: value for name, value in own.items() if name != MODEL}, **mine}
    given.pop(MODEL, None)
    return (params_of(merged(defaults, given)), model), mine


def _words(axes: Mapping[str, Any]) -> Iterator[str]:
    """What a folder's name says of a point: values that are words speak for themselves."""
    for name, value in axes.items():
        alone = name in (*AXES, MODEL, "preset")
        word = f"{value}" if alone else f"{name}-{value}"
        yield re.sub(r"[^A-Za-z0-9._-]+", "-", word).strip("-.")
