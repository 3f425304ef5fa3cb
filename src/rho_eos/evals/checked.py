"""Options that people write in files, checked: a mistake is one sentence that names the key."""

from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError

from rho_eos.errors import UserError


class Checked(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    @classmethod
    def from_mapping(cls, mapping: Mapping[Any, Any]) -> Self:
        try:
            return cls.model_validate({str(key): value for key, value in mapping.items()})
        except ValidationError as error:
            complaints = [cls._sentence(problem) for problem in error.errors()]
            raise UserError("; ".join(complaints)) from None

    @classmethod
    def _sentence(cls, problem: Any) -> str:
        key = ".".join(map(str, problem["loc"]))
        if problem["type"] == "extra_forbidden":
            return f"unknown key {key!r}; known are {', '.join(cls.model_fields) or 'none'}"
        if problem["type"] == "missing":
            return f"{key} is missing"
        takes = problem["msg"].removeprefix("Value error, ").removeprefix("Input should be ")
        takes = takes.replace("String should have", "text of")
        return f"{key} is {problem['input']!r}, but takes {takes}"
