"""One run of one decoder: seconds, what was evaluated, what came out, and the memory it took."""

import threading
import time
from dataclasses import asdict, dataclass
from types import TracebackType
from typing import Any, Self

import psutil
import torch

from benchmarks.cases import BATCH, Case
from rho_eos.engine.engine import Engine
from rho_eos.engine.runner import ModelRunner
from tests.reference.bridge import logits_of, rule_of
from tests.reference.decoder import Ids, decode, returned_tokens
from tests.requests import request as request_for


@dataclass(frozen=True)
class Run:
    seconds: float
    positions: int  # that went through the model, padding included
    tokens: list[list[int]]  # per prompt; whole canvases where nothing stops early
    forward_seconds: float = 0.0  # of `seconds`, in the model; measured for ours only
    peak_megabytes: float = 0.0  # above what the loaded model takes

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


class PeakMemory:
    """The most resident memory while inside, above what it was on entry."""

    def __init__(self, every: float = 0.005) -> None:
        self.every = every
        self.megabytes = 0.0

    def __enter__(self) -> Self:
        self._process = psutil.Process()
        self._start = self._process.memory_info().rss
        self._done = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._done.set()
        self._watcher.join()

    def _watch(self) -> None:
        while not self._done.wait(self.every):
            above = self._process.memory_info().rss - self._start
            self.megabytes = max(self.megabytes, above / 2**20)


def run_engine(case: Case, rows: int = BATCH) -> Run:
    """All prompts through the engine, at most `rows` of them at a time."""
    runner = ModelRunner(case.model, case.special)
    engine = Engine(runner, case.special, lambda _: "", max_rows=rows)
    requests = [
        request_for(str(n), prompt, case.params, special=case.special)
        for n, prompt in enumerate(case.prompts)
    ]
    with PeakMemory() as memory:
        started = time.perf_counter()
        ordered = engine.finish([engine.submit(request) for request in requests])
        seconds = time.perf_counter() - started
    whole = not case.params.early_stop
    return Run(
        seconds,
        sum(output.usage.positions_evaluated for output in ordered),
        [output.canvas_token_ids if whole else output.token_ids for output in ordered],
        runner.in_model.seconds,
        memory.megabytes,
    )


def run_reference(case: Case, rows: int = BATCH, early_stop: bool = False) -> Run:
    """The same prompts through the naive decoder, in static batches of `rows`."""
    ids = Ids(case.special.mask, case.special.eos, case.special.ends)
    forward = logits_of(case.model, case.model.prediction_shift)
    positions = 0

    def logits(
        input_ids: torch.Tensor, attention_mask: torch.Tensor, position_ids: torch.Tensor
    ) -> torch.Tensor:
        nonlocal positions
        positions += input_ids.numel()
        return forward(input_ids, attention_mask, position_ids)

    rule = rule_of(case.params, early_stop=early_stop)
    with PeakMemory() as memory:
        started = time.perf_counter()
        results = decode(logits, case.prompts, [rule] * len(case.prompts), ids, rows, timed=True)
        seconds = time.perf_counter() - started
    whole = not case.params.early_stop
    tokens = [row.canvas if whole else returned_tokens(row.canvas, ids) for row in results]
    return Run(seconds, positions, tokens, peak_megabytes=memory.megabytes)
