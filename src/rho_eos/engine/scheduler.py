"""Who runs now: oldest first, within a budget of positions and rows per forward."""

from collections import deque

from rho_eos.engine.row import Row


class Scheduler:
    """Admission and order. Running rows may outgrow the budget: then the youngest wait a step.

    With the window cache most steps of a row are small and some, its refreshes, are large. At most
    a quarter of the running rows refresh in one step, so that steps have even cost; who has to
    wait for that is first in the next one, and loses nothing but time.
    """

    def __init__(self, max_rows: int, max_positions: int) -> None:
        self.max_rows = max_rows
        self.max_positions = max_positions
        self.waiting: deque[Row] = deque()
        self.running: list[Row] = []  # oldest first

    def __len__(self) -> int:
        return len(self.waiting) + len(self.running)

    def add(self, row: Row) -> None:
        self.waiting.append(row)

    def next_batch(self, admits: bool = True) -> list[Row]:
        """The rows of the next forward: at least one if there is any work at all. Where nobody is
        admitted, those that wait go on waiting."""
        batch: list[Row] = []
        positions = 0
        refreshes = max(1, len(self.running) // 4)
        for row in sorted(self.running, key=lambda row: -row.waited):
            if batch and positions + row.cost > self.max_positions:
                return batch  # strictly by age, so that no row starves behind smaller ones
            if row.refreshes_next:
                if not refreshes:
                    row.waited += 1
                    continue
                refreshes -= 1
            row.waited = 0
            batch.append(row)
            positions += row.cost
        while admits and self.waiting and len(self.running) < self.max_rows:
            if batch and positions + self.waiting[0].cost > self.max_positions:
                break
            row = self.waiting.popleft()
            positions += row.cost
            self.running.append(row)
            batch.append(row)
        return batch

    def remove(self, row: Row) -> None:
        """Take out a row that is finished or cancelled; its place is free in the next step."""
        if row in self.running:
            self.running.remove(row)
        elif row in self.waiting:  # an interrupt may have come before it was added
            self.waiting.remove(row)
