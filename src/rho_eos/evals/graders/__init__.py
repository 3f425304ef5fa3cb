"""Graders by name: each finds the answer in a model's text and compares it with a reference."""

from collections.abc import Mapping
from typing import Any

from rho_eos.base.errors import UserError
from rho_eos.evals.graders.grader import Exact, Grader, Mathematics, NumberAfter, Pattern
from rho_eos.evals.graders.python_tests import PythonTests

__all__ = ["Exact", "Grader", "Mathematics", "NumberAfter", "Pattern", "PythonTests"]

GRADERS: dict[str, type[Grader]] = {
    grader.name: grader for grader in (Exact, NumberAfter, Pattern, Mathematics, PythonTests)
}


def make_grader(what: Any) -> Grader:
    """`exact`, or with options `{name: number, marker: "Answer:"}`."""
    options = dict(what) if isinstance(what, Mapping) else {"name": what}
    name = options.pop("name", None)
    if not isinstance(name, str) or name not in GRADERS:
        raise UserError(f"grader is {name!r}, but takes one of {', '.join(GRADERS)}")
    try:
        return GRADERS[name].from_mapping(options)
    except UserError as error:
        raise UserError(f"grader {name}: {error}") from None
