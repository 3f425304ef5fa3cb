"""What a request has cost so far."""

import time
from dataclasses import dataclass

import numpy as np

from rho_eos.base.outputs import Usage
from rho_eos.decoding.canvas import Canvas


@dataclass(slots=True)
class Cost:
    """Sums over the forwards of a row, and when it began."""

    positions_evaluated: int = 0
    positions_exact: int = 0
    reused: int = 0
    refreshes: int = 0
    committed: int = 0
    expansions: int = 0
    contractions: int = 0
    stored: int = 0  # forwards that predicted nothing, and only computed what is kept
    started: float | None = None
    first_token: float | None = None

    def usage(self, canvas: Canvas, submitted: float) -> Usage:
        """The figures that an output reports, with the lengths of the canvas as it stands now."""
        now = time.perf_counter()
        started = now if self.started is None else self.started
        own = canvas.filled[: canvas.most][~canvas.given[: canvas.most]]
        not_eos = np.flatnonzero(own != canvas.special.eos)
        return Usage(
            prompt_tokens=canvas.given_length,
            n_token=len(own),
            e_token=int(not_eos[-1]) + 1 if len(not_eos) else 0,
            nfe=canvas.step + self.stored,
            positions_evaluated=self.positions_evaluated,
            positions_exact=self.positions_exact,
            positions_reused=self.reused,
            refreshes=self.refreshes,
            committed=self.committed,
            expansions=self.expansions,
            contractions=self.contractions,
            seconds_waiting=started - submitted,
            seconds_running=now - started,
            seconds_to_first_token=None
            if self.first_token is None
            else self.first_token - submitted,
        )
