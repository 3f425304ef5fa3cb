"""Fill a prompt template: `$name` stands for a field of the sample, `$$` for a dollar sign."""

from string import Template

from rho_eos.base.errors import UserError


def fill(template: str, /, **fields: str) -> str:
    try:
        return Template(template).substitute(fields)
    except KeyError as error:
        known = ", ".join(f"${name}" for name in fields)
        raise UserError(f"the template asks for ${error.args[0]}, expected {known}") from None
    except ValueError as error:
        raise UserError(f"the template is not valid: {error}") from None
