"""Who runs now: oldest first, within a budget of positions and rows per forward."""

from collections import deque

from rho_eos.engine.sequence import Sequence


class Scheduler:
    """Admission and order. Running rows may outgrow the budget: then the youngest wait a step."""

    def __init__(self, max_rows: int, max_positions: int) -> None:
        self.max_rows = max_rows
        self.max_positions = max_positions
        self.waiting: deque[Sequence] = deque()
        self.running: list[Sequence] = []  # oldest first

    def __len__(self) -> int:
        return len(self.waiting) + len(self.running)

    def add(self, sequence: Sequence) -> None:
        self.waiting.append(sequence)

    def next_batch(self) -> list[Sequence]:
        """The rows of the next forward: at least one if there is any work at all."""
        batch: list[Sequence] = []
        positions = 0
        for sequence in self.running:
            if batch and positions + sequence.cost > self.max_positions:
                return batch  # strictly by age, so that no row starves behind smaller ones
            batch.append(sequence)
            positions += sequence.cost
        while self.waiting and len(self.running) < self.max_rows:
            if batch and positions + self.waiting[0].cost > self.max_positions:
                break
            sequence = self.waiting.popleft()
            positions += sequence.cost
            self.running.append(sequence)
            batch.append(sequence)
        return batch

    def remove(self, sequence: Sequence) -> None:
        """It is finished or cancelled: its place is free in the next step."""
        if sequence in self.running:
            self.running.remove(sequence)
        else:
            self.waiting.remove(sequence)
