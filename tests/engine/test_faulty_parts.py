"""Policies, commit rules and caches of others that misbehave: each harms its own request only."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rho_eos import (
    LLM,
    Cache,
    Canvas,
    Commit,
    CommitRule,
    DecodeParams,
    Policy,
    Prediction,
    Step,
    UserError,
    Windowed,
    register_cache,
    register_commit,
    register_policy,
)
from rho_eos.engine.errors import RequestFailedError
from tests.scripted import encode, engine_of, run_all, says


class OddRule(CommitRule):
    """Answers as the test wants."""

    name = "odd"

    def probes(self, canvas: Canvas) -> Any:
        return self.answer["probes"](canvas) if "probes" in self.answer else ()

    def __call__(self, canvas: Canvas, candidates: Prediction) -> Any:
        return self.answer["call"](canvas, candidates)

    answer: dict[str, Any]


class OddCache(Cache):
    """Raises in its second step."""

    name = "odd"

    def positions(self, canvas: Canvas) -> Any:
        return None if canvas.step == 0 else 1 / 0


class OddPolicy(Windowed, Policy):
    """Raises when it is asked for probes, in its second step."""

    name = "odd"

    def probes(self, canvas: Canvas) -> Any:
        return () if canvas.step == 0 else 1 / 0

    def step(self, canvas: Canvas, prediction: Prediction, commit: Any) -> Step:
        return Step()


@pytest.fixture(autouse=True)
def registered(own_parts: None) -> None:
    register_commit(OddRule)
    register_cache(OddCache)
    register_policy(OddPolicy)


def everything(canvas: Canvas, candidates: Prediction) -> Any:
    return candidates.positions


ANSWERS: dict[str, tuple[dict[str, Any], str]] = {
    "raises": ({"call": lambda canvas, candidates: 1 / 0}, "commit rule odd failed"),
    "probes that raise": (
        {"call": lambda canvas, seen: seen.positions[:1], "probes": lambda canvas: 1 / canvas.step},
        "failed",
    ),
    "what is no candidate": (
        {"call": lambda canvas, candidates: np.array([len(canvas.cells) - 1])},
        "may commit candidates only",
    ),
    "what it may not take back": (
        {"call": lambda canvas, seen: Commit(seen.positions[:1], np.array([0]))},
        "may not change these tokens",
    ),
}


@pytest.mark.parametrize("what", ANSWERS)
def test_a_rule_that_misbehaves_ends_its_own_request(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer, sentence = ANSWERS[what]
    monkeypatch.setattr(OddRule, "answer", answer, raising=False)
    check({"commit": "odd", "block_length": 4}, sentence)


@pytest.mark.parametrize("given", [{"cache": "odd"}, {"policy": "odd"}], ids=str)
def test_so_does_a_cache_and_a_policy(given: dict[str, str]) -> None:
    [(axis, name)] = given.items()
    check({**given, "threshold": 1.0}, f"{axis} {name} failed: ZeroDivisionError")


def check(given: dict[str, Any], sentence: str) -> None:
    engine = engine_of(says("hello", confidence=0.5))
    limits = {"initial_length": 16, "max_new_tokens": 16}
    bad = engine.add("bad", encode("?"), DecodeParams(**limits, **given))
    good = engine.add("good", encode("?"), DecodeParams(**limits))
    with pytest.raises(RequestFailedError, match=sentence) as failed:
        run_all(engine)
    if "ZeroDivisionError" in sentence:  # who runs the process is told more than clients are
        assert "division by zero" not in str(failed.value)
        assert f"division by zero ({__file__}, line " in failed.value.told
    assert bad.done and good.result().text == "hello"
    assert not engine.has_work


def test_a_family_that_keeps_nothing_refuses_a_cache(
    byte_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    llm = LLM(str(byte_checkpoint))
    family = dataclasses.replace(llm.checkpoint.family, caches=False)
    llm.preparer.checkpoint = dataclasses.replace(llm.checkpoint, family=family)
    limits = {"initial_length": 8, "max_new_tokens": 8}
    assert llm.generate("x", **limits)[0].usage.nfe > 0
    with pytest.raises(UserError) as refused:
        llm.generate("x", cache="window", **limits)
    assert refused.value.field == "cache" and family.name in str(refused.value)
