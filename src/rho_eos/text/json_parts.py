"""Regular expressions of the smallest parts of JSON: strings, numbers in a range, patterns.

They are in the syntax of Rust's regular expressions, which outlines-core compiles.
"""

import json
import math
from collections.abc import Iterator
from decimal import Decimal
from re import _constants as code  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from re import error as RegexError  # noqa: N812
from typing import Any

from rho_eos.base.errors import UserError, shown

#: A character of a string, written as itself or escaped.
CHARACTER = (
    r'(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u(?:[0-9A-CEFa-cef][0-9A-Fa-f]|[dD][0-7])[0-9A-Fa-f]{2}))'
)
STRING = f'"{CHARACTER}*"'
DIGITS, DECIMALS = 15, 9  # before and behind the point: what every reader of JSON reads exactly
INTEGER = rf"-?(?:0|[1-9][0-9]{{0,{DIGITS - 1}}})"
NUMBER = rf"{INTEGER}(?:\.[0-9]{{1,{DECIMALS}}})?"

_HEX, _DAY = "[0-9a-f]", "(?:0[1-9]|1[0-9]|2[0-8])"
_DATE = rf"[12][0-9]{{3}}-(?:0[1-9]|1[0-2])-{_DAY}"
_CLOCK = r"(?:[01][0-9]|2[0-3]):[0-5][0-9]"
_TIME = rf"{_CLOCK}:[0-5][0-9](?:\.[0-9]{{1,6}})?(?:Z|[+-](?:0[0-9]|1[0-4]):[0-5][0-9])"
_NAME = "[a-z0-9](?:[a-z0-9-]{0,20}[a-z0-9])?"
_BYTE = "(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
FORMATS = {
    "date": _DATE,  # the first 28 days of a month, which all of them have
    "time": _TIME,
    "date-time": f"{_DATE}T{_TIME}",
    "uuid": f"{_HEX}{{8}}-{_HEX}{{4}}-[1-5]{_HEX}{{3}}-[89ab]{_HEX}{{3}}-{_HEX}{{12}}",
    "email": rf"[a-z0-9](?:[a-z0-9._-]{{0,30}}[a-z0-9])?@{_NAME}(?:\.{_NAME})*\.[a-z]{{2,6}}",
    "ipv4": rf"{_BYTE}(?:\.{_BYTE}){{3}}",
    "uri": rf"https?://{_NAME}(?:\.{_NAME})*\.[a-z]{{2,6}}(?:/[A-Za-z0-9._~-]*)*",
}


def escaped(text: str) -> str:
    """An expression of exactly this text."""
    return "".join(f"\\{each}" if each in r"\.+*?()|[]{}^$#&-~/" else each for each in text)


# ── numbers within bounds ────────────────────────────────────────────────────────────────────


def integers(low: Any, high: Any, above: bool, below: bool) -> str | None:
    """The integers between two bounds, None: unbounded; `above` and `below` leave out a bound."""
    return _joined(_scaled(low, high, above, below, 0))


def numbers(low: Any, high: Any, above: bool, below: bool) -> str | None:
    """The same with as many decimals as the bounds have, two at least, and as integers."""
    given = [Decimal(str(each)) for each in (low, high) if each is not None]
    decimals = max(2, *(-int(each.as_tuple().exponent) for each in given))
    few = min(decimals, DECIMALS)
    fractions = _scaled(low, high, above, below, few)
    return _joined([*_scaled(low, high, above, below, 0), *fractions])


def _scaled(low: Any, high: Any, above: bool, below: bool, decimals: int) -> list[str]:
    """Expressions of the numbers with so many decimals."""
    unit, most = 10**decimals, 10 ** (DIGITS if not decimals else 9) - 1
    least = -most * unit if low is None else _ceil(Decimal(str(low)) * unit, above)
    largest = most * unit if high is None else -_ceil(-Decimal(str(high)) * unit, below)
    least, largest = max(least, -most * unit), min(largest, most * unit)
    found = [f"-{each}" for each in _magnitudes(max(1, -largest), -least, decimals)]
    return found + list(_magnitudes(max(0, least), largest, decimals))


def _ceil(value: Decimal, more: bool) -> int:
    """The first integer from `value` on, or behind it."""
    whole = math.ceil(value)
    return whole + 1 if more and whole == value else whole


def _magnitudes(low: int, high: int, decimals: int) -> Iterator[str]:
    """From `low` to `high`, by the number of digits, with the point before the last `decimals`."""
    for width in range(decimals + 1, len(str(max(high, 0))) + 1 + decimals):
        first = max(low, 0 if width == decimals + 1 else 10 ** (width - 1))
        last = min(high, 10**width - 1)
        if first > last:
            continue
        for digits in _between(str(first).zfill(width), str(last).zfill(width)):
            whole, part = digits[: width - decimals], digits[width - decimals :]
            yield "".join(whole) + (r"\." + "".join(part) if part else "")


def _between(low: str, high: str) -> list[list[str]]:
    """Digit by digit, the strings of digits of one length from `low` to `high`."""
    if not low:
        return [[]]
    rest = len(low) - 1
    if low[0] == high[0]:
        return [[low[0], *each] for each in _between(low[1:], high[1:])]
    first, last = int(low[0]), int(high[0])
    below: list[list[str]] = []
    above: list[list[str]] = []
    if low[1:] != "0" * rest:
        below = [[low[0], *each] for each in _between(low[1:], "9" * rest)]
        first += 1
    if high[1:] != "9" * rest:
        above = [[high[0], *each] for each in _between("0" * rest, high[1:])]
        last -= 1
    middle = [[f"[{first}-{last}]", *["[0-9]"] * rest]] if first <= last else []
    return [*below, *middle, *above]


def _joined(found: list[str]) -> str | None:
    return f"(?:{'|'.join(found)})" if found else None


# ── patterns ─────────────────────────────────────────────────────────────────────────────────

_SAFE = r'[^"\\\x00-\x1f]'  # characters that a string may hold as they are
_ASCII = r'[\x20-\x7e&&[^"\\]]'
#: Kinds of characters, of which only those of ASCII are written.
_KINDS = {
    code.CATEGORY_DIGIT: "0-9",
    code.CATEGORY_WORD: "0-9A-Za-z_",
    code.CATEGORY_SPACE: r"\x20",
}
_OTHERS = {
    code.CATEGORY_NOT_DIGIT: r"\x20-/:-~",
    code.CATEGORY_NOT_WORD: r"\x20-/:-@\[-\^`\{-~",
    code.CATEGORY_NOT_SPACE: r"!-~",
}


def safe_pattern(pattern: Any, where: str) -> str:
    """The texts that a schema's pattern is found in, as they stand between quotes."""
    if not isinstance(pattern, str):
        raise UserError(f"pattern of {where} is {shown(pattern)}, but takes a text", "schema")
    try:
        parsed = parser.parse(pattern)
    except (RegexError, OverflowError, RecursionError) as error:
        raise UserError(f"pattern of {where} cannot be read: {error}", "schema") from None
    items = list(parsed)
    starts = bool(items) and items[0] == (code.AT, code.AT_BEGINNING)
    ends = bool(items) and items[-1] == (code.AT, code.AT_END)
    items = items[starts : len(items) - ends]
    inside = "".join(_part(op, value, where) for op, value in items)
    return f"{'' if starts else f'{_SAFE}*'}(?:{inside}){'' if ends else f'{_SAFE}*'}"


def _part(op: Any, value: Any, where: str) -> str:
    if op is code.LITERAL:
        return escaped(json.dumps(chr(value), ensure_ascii=False)[1:-1])
    if op is code.ANY:
        return _SAFE
    if op is code.NOT_LITERAL:
        return _class([(code.NEGATE, None), (code.LITERAL, value)], where)
    if op is code.IN:
        return _class(value, where)
    if op is code.BRANCH:
        return f"(?:{'|'.join(_sequence(each, where) for each in value[1])})"
    if op is code.SUBPATTERN and not value[1] and not value[2]:
        return f"(?:{_sequence(value[3], where)})"
    if op in (code.MAX_REPEAT, code.MIN_REPEAT):
        least, most, inside = value
        times = "" if most is code.MAXREPEAT else most
        return f"(?:{_sequence(inside, where)}){{{least},{times}}}"
    name = str(value if op is code.AT else op).lower()
    raise UserError(f"pattern of {where} has a part that is not supported: {name}", "schema")


def _sequence(items: Any, where: str) -> str:
    return "".join(_part(op, value, where) for op, value in items)


def _class(items: Any, where: str) -> str:
    """A class of characters, less those that a string may not hold as they are."""
    negated, listed, of_kinds = False, "", False
    for op, value in items:
        if op is code.NEGATE:
            negated = True
        elif op is code.LITERAL:
            listed += _in_class(value)
        elif op is code.RANGE:
            listed += f"{_in_class(value[0])}-{_in_class(value[1])}"
        elif op is code.CATEGORY and value in (*_KINDS, *_OTHERS):
            listed, of_kinds = listed + (_KINDS | _OTHERS)[value], True
        else:
            raise UserError(f"pattern of {where} has a class that is not supported", "schema")
    among = _ASCII if negated and of_kinds else _SAFE
    return f"[{among}&&[{'^' if negated else ''}{listed}]]"


def _in_class(character: int) -> str:
    return f"\\x{{{character:x}}}"
