"""The families of models, one file each: a file here that defines FAMILY is all there is to add."""

import importlib
import pkgutil

from rho_eos.models.family import FAMILIES


def load_families() -> None:
    for module in pkgutil.iter_modules(__path__, f"{__name__}."):
        family = importlib.import_module(module.name).FAMILY
        FAMILIES[family.name] = family
