"""Three right answers to every problem, which differ in length: `unsure` gives any of them.

Here are those to "8 plums. 1) buys 6.", to "1) (9 - 2)" and of a step of a program:

    full    Start with 8.
            1) buys 6, so now we have 8 and add 6 to it: 8 + 6 = 14
            Start with 0.
            1) (9 - 2) = 7, so the total is 0 + 7 = 7
            # step 1) add 3, so now we change n like this:
            n = n + 3
    brief   1) buys 6: 8 + 6 = 14
            1) 9 - 2 = 7, 0 + 7 = 7
            # 1) add 3
            n = n + 3
    bare    8.
            1) + 6 = 14
            At 0.
            1) + 7 = 7
            # 1
            n = n + 3

Steps are numbered in all of them, so that each can be looked up in the prompt. A bare answer is
about half as long as a full one or less. The three differ in the first token in which they can, and
then they seldom have the same token at the same place: what all of them begin with is committed
first, and nothing that two of them share decides against the third.
"""

from __future__ import annotations

import re

from rho_problems.problem import Problem

FORMS = ("full", "brief", "bare")
_EVENT = re.compile(r"^([0-9]+)\) ([a-z ]+[0-9]*).*: ([0-9]+) ([-+*]) ([0-9]+) = ([0-9]+)$", re.M)
_TERM = re.compile(r"^([0-9]+)\) ([-+])? ?\((.*)\) = ([0-9]+)", re.M)
_STEP = re.compile(r"^    # ([0-9]+)\) (.*)$", re.M)
_VARIABLE = re.compile(r"return ([a-z]+)$")
_WORDS = {"+": "add {} to it", "-": "take {} from it", "*": "multiply it by {}"}


def forms(problem: Problem) -> tuple[str, str, str]:
    """The answers in the order of FORMS."""
    if returned := _VARIABLE.search(problem.answer):
        return _of_program(problem.answer, returned[1])
    result = problem.answer[problem.answer.index("####") :]
    events = _EVENT.findall(problem.answer)
    terms = _TERM.findall(problem.answer)
    full, brief, bare = _of_sum(terms) if terms else _of_story(events)
    return full + result, brief + result, bare + result


def _of_story(events: list[tuple[str, ...]]) -> tuple[str, str, str]:
    start = events[0][2]
    full, brief, bare = f"Start with {start}.\n", "", f"{start}.\n"
    for number, event, before, sign, operand, after in events:
        equation = f"{before} {sign} {operand} = {after}"
        words = _WORDS[sign].format(operand)
        full += f"{number}) {event}, so now we have {before} and {words}: {equation}\n"
        brief += f"{number}) {event}: {equation}\n"
        bare += f"{number}) {sign} {operand} = {after}\n"
    return full, brief, bare


def _of_sum(terms: list[tuple[str, ...]]) -> tuple[str, str, str]:
    full, brief, bare = "Start with 0.\n", "", "At 0.\n"
    total = 0
    for number, sign, bracket, value in terms:
        before, total = total, total + int(f"{sign}{value}")
        equation = f"{before} {sign or '+'} {value} = {total}"
        term = f"{sign} ({bracket})".lstrip()
        full += f"{number}) {term} = {value}, so the total is {equation}\n"
        brief += f"{number}) {bracket} = {value}, {equation}\n"
        bare += f"{number}) {sign or '+'} {value} = {total}\n"
    return full, brief, bare


def _of_program(program: str, variable: str) -> tuple[str, str, str]:
    what = "the list xs" if variable == "xs" else variable
    announced = rf"    # step \1) \2, so now we change {what} like this:"
    return _STEP.sub(announced, program), program, _STEP.sub(r"    # \1", program)
