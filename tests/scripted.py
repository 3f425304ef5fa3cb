"""Models without weights: predictions written by the test, and a tokenizer of bytes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from rho_eos.decoding.params import DecodeParams
from rho_eos.decoding.policy import Prediction
from rho_eos.engine.engine import Engine
from rho_eos.engine.request import Handle, Request
from rho_eos.engine.row import Row
from rho_eos.outputs import Output
from rho_eos.tokens import SpecialTokens

END_OF_TURN, EOS, MASK = 1, 2, 3
FIRST_BYTE = 4  # byte b is token b + 4
VOCABULARY = FIRST_BYTE + 256
SPECIAL = SpecialTokens(mask=MASK, eos=EOS, end_of_turn=END_OF_TURN)


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

    def predict(self, rows: Sequence[Row]) -> list[Prediction]:
        self.batches.append([row.id for row in rows])
        self.positions.append(sum(row.cost for row in rows))
        return [self._predict(row) for row in rows]

    def release(self, row: Row) -> None:
        pass

    def _predict(self, row: Row) -> Prediction:
        guesses = self.script(row.prompt.tolist(), row.canvas.tolist(), row.steps)
        wanted = row.input().wanted
        return Prediction(
            wanted, guesses.token[wanted], guesses.confidence[wanted], guesses.eos[wanted]
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


def engine_of(runner: ScriptedRunner | Script, **limits: int) -> Engine:
    scripted = runner if isinstance(runner, ScriptedRunner) else ScriptedRunner(runner)
    return Engine(scripted, SPECIAL, decode, **limits)


def run_all(engine: Engine, handles: Sequence[Handle]) -> dict[str, Output]:
    """Step until all of these are done; outputs by request id."""
    return {output.id: output for output in engine.finish(handles)}


def run_one(runner: ScriptedRunner | Script, params: DecodeParams, prompt: str = "?") -> Output:
    engine = engine_of(runner)
    return engine.finish([engine.submit(Request("only", encode(prompt), params))])[0]
