"""Models without weights: predictions written by the test, and a tokenizer of bytes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from rho_eos.base.outputs import FinishReason, Output, StepRecord
from rho_eos.base.tokens import SpecialTokens
from rho_eos.decoding.params import DecodeParams
from rho_eos.decoding.prediction import Prediction
from rho_eos.engine.engine import Engine, Runner
from rho_eos.engine.forward import Asked
from rho_eos.engine.request import Detail, Handle
from rho_eos.engine.row import Row
from tests.requests import SPECIAL
from tests.requests import request as request_for

END_OF_TURN, EOS, MASK = 1, 2, 3
FIRST_BYTE = 4  # byte b is token b + 4
VOCABULARY = FIRST_BYTE + 256


def encode(text: str) -> list[int]:
    return [FIRST_BYTE + byte for byte in text.encode()]


def decode(ids: Sequence[int]) -> str:
    return bytes(id - FIRST_BYTE for id in ids if id >= FIRST_BYTE).decode(errors="replace")


@dataclass(frozen=True)
class Guesses:
    """What the script says of every canvas position: three arrays of length L."""

    token: np.ndarray
    confidence: np.ndarray
    eos: np.ndarray  # P(EOS)


#: (prompt, canvas, step) -> guesses for the whole canvas
Script = Callable[[list[int], list[int], int], Guesses]


class ScriptedRunner:
    """A runner that asks a script, and remembers who shared each forward."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.batches: list[list[str]] = []
        self.positions: list[int] = []  # per forward
        self.released: list[str] = []  # rows that left, in their order

    def predict(self, rows: Sequence[Row]) -> list[Prediction]:
        self.batches.append([row.id for row in rows])
        self.positions.append(sum(row.cost for row in rows))
        return [self._predict(row) for row in rows]

    def release(self, row: Row) -> None:
        self.released.append(row.id)

    def _predict(self, row: Row) -> Prediction:
        own, *probes = [self._say(row, asked) for asked in row.forward.asked]
        return replace(own, probes=tuple(probes))

    def _say(self, row: Row, asked: Asked) -> Prediction:
        canvas, wanted = asked.canvas, asked.input.wanted
        shown = [*canvas.cells.tolist(), *(canvas.suffix.tolist() if asked.is_probe else ())]
        guesses = self.script(canvas.prompt.tolist(), shown, row.canvas.step)
        confidence = guesses.confidence[wanted]
        token = guesses.token[wanted]
        # As a model would, it finds something else where a token is forbidden, or text follows.
        forbidden = np.isin(token, row.forbidden(canvas))
        if len(canvas.suffix) or canvas.gaps is not None:
            forbidden |= np.isin(token, row.special.ends) & (wanted < row.first_end(canvas))
        token = np.where(forbidden, FIRST_BYTE + 100, token)
        top = row.needs.top
        rest = np.zeros((len(wanted), max(0, top - 1)))
        return Prediction(
            wanted,
            token,
            confidence,
            guesses.eos[wanted],
            entropy=1 - confidence if row.needs.entropy else None,
            margin=confidence if row.needs.margin else None,
            top_token=np.column_stack((token, rest.astype(int) - 1)) if top else None,
            top_probability=np.column_stack((confidence, rest)) if top else None,
            expected=confidence if asked.tokens is not None else None,
        )


def says(text: str, confidence: float = 0.5) -> Script:
    """A model that knows its answer: `text`, then EOS for ever, all equally sure."""
    answer = encode(text)

    def script(prompt: list[int], canvas: list[int], step: int) -> Guesses:
        token = np.array((answer + [EOS] * len(canvas))[: len(canvas)])
        return Guesses(token, np.full(len(canvas), confidence), (token == EOS) * confidence)

    return script


def arbitrary(seed: int, eos_shares: Sequence[float], sure: float = 0.2) -> Script:
    """A model without sense: any token anywhere, EOS as often as `eos_shares` says for the step."""

    def script(prompt: list[int], canvas: list[int], step: int) -> Guesses:
        random = np.random.default_rng((seed, len(prompt), step))
        kind, spread, high = random.random((3, len(canvas)))
        token = random.integers(FIRST_BYTE, VOCABULARY, len(canvas))
        token[kind > 0.98] = END_OF_TURN
        token[kind < eos_shares[step % len(eos_shares)]] = EOS
        confidence = np.where(high < sure, 0.9 + 0.1 * spread, 0.9 * spread**3)
        return Guesses(token, confidence, np.where(token == EOS, confidence, 0.01))

    return script


class Recorded(NamedTuple):
    """One step of one request, as an observer of the engine saw it."""

    before: np.ndarray  # the canvas that the model saw
    record: StepRecord
    after: np.ndarray


class RecordingEngine(Engine):
    """An engine that remembers its handles, and every canvas of every request."""

    def __init__(self, runner: Runner, special: SpecialTokens = SPECIAL, **more: Any) -> None:
        super().__init__(runner, special, more.pop("detokenize", decode), **more)
        self.handles: dict[str, Handle] = {}
        self.steps: dict[str, list[Recorded]] = {}
        self.observe = self._note

    def add(self, id: str, prompt: list[int], params: DecodeParams, **parts: Any) -> Handle:
        handle = self.submit(
            request_for(id, prompt, params, special=self.special, **parts), Detail.STEPS
        )
        self.handles[id] = handle
        self.steps[id] = []
        return handle

    def _note(self, row: Row, record: StepRecord) -> None:
        steps = self.steps.setdefault(row.id, [])
        start = np.full(record.length, self.special.mask)
        steps.append(Recorded(steps[-1].after if steps else start, record, row.canvas.cells))


def engine_of(runner: ScriptedRunner | Script, **limits: int) -> RecordingEngine:
    scripted = runner if isinstance(runner, ScriptedRunner) else ScriptedRunner(runner)
    return RecordingEngine(scripted, **limits)


def run_all(engine: RecordingEngine) -> dict[str, Output]:
    """Step until nothing is left; outputs by request id, without those that were cancelled."""
    while engine.has_work:
        engine.step()
    return {
        id: handle.result()
        for id, handle in engine.handles.items()
        if handle.result().finish_reason is not FinishReason.CANCELLED
    }


def run_one(runner: ScriptedRunner | Script, params: DecodeParams, prompt: str = "?") -> Output:
    engine = engine_of(runner)
    engine.add("only", encode(prompt), params)
    return run_all(engine)["only"]
