"""The canvas on a terminal, step by step: a header, the gauge of ρ, and the tokens."""

from typing import Any

from rich.console import Console, Group
from rich.panel import Panel
from rich.text import Text

from rho_eos.base.outputs import Output, StepRecord
from rho_eos.decoding.curve import SHARES
from rho_eos.engine.replay import Cell, Replay
from rho_eos.engine.request import StepEvent
from rho_eos.text.ask import Request
from rho_eos.views.narration import explain, title_of

HEIGHTS = "▁▂▃▄▅▆▇█"  # from 0 to 1
GAUGE = 40  # columns of the gauge at least; on a wider terminal it has more
FRAME = 4  # columns of a panel beside what is in it
_MASK, _EOS = "░", "·"
KEPT = "dim"  # finished blocks of a block diffusion model


def plain_line(record: StepRecord) -> str:
    """What a step did, for logs and pipes; what it found out, in a line below."""
    rho = "  – " if record.rho is None else f"{record.rho:.2f}"
    change = f"{record.action} {record.change:+d}" if record.change else record.action
    return (
        f"step {record.step + 1:3d}  L {record.length:4d}  MASKs {record.masks:4d}  "
        f"ρ {rho}  {change:<13} {len(record.committed):3d} committed  "
        f"{record.computed:5d} of {record.exact:5d} positions"
        + (f"  {_open_block(record)}" if record.block else "")
        + (f"\n          {record.note}" if record.note else "")
    )


def _open_block(record: StepRecord) -> str:
    """The block that is being written, in positions counted from 1."""
    assert record.block is not None
    first, end = record.block
    return f"block {first + 1}–{end}, {first} kept"


class Screen:
    """The picture after each step: a header, the gauge of ρ, and the canvas."""

    def __init__(self, llm: Any, request: Request) -> None:
        self.llm = llm
        self.params = request.params
        self.replay = Replay(request.canvas.length, request.canvas.between)
        self.record: StepRecord | None = None
        self.computed = self.exact = 0  # positions, of all forwards so far
        self.output: Output | None = None

    def show(self, event: StepEvent) -> None:
        self.replay.apply(event.record)
        self.record = event.record
        self.computed += event.record.computed
        self.exact += event.record.exact
        self.output = event.output

    def closing_line(self) -> str:
        """What the request has cost, in a line."""
        assert self.output is not None and self.record is not None
        usage = self.output.usage
        positions = f"{usage.positions_evaluated:,} positions evaluated"
        if usage.positions_evaluated < usage.positions_exact:
            positions += f", {usage.positions_exact:,} without the cache"
            if self.record.block is None:
                positions += f" ({usage.refreshes} refreshes)"
        return (
            f"{self.output.finish_reason} · {usage.e_token} of {usage.n_token} positions used "
            f"({usage.e_ratio:.0%}) · {usage.nfe} forwards · {positions} "
            f"· {usage.expansions} expansions, {usage.contractions} contractions"
        )

    def render(self, width: int, height: int) -> Panel:
        """The picture, as wide as the terminal and at most as high."""
        assert self.record is not None
        title = f"{title_of(self.params.policy)} · step {self.record.step + 1}"
        if self.record.block is not None:
            title += f" · {_open_block(self.record)}"
        inside = max(1, width - FRAME)
        body = Group(
            self._header(),
            self._gauge(inside),
            *self._curve(),
            Text(explain(self.params, self.record), style="dim"),
            "",
            self._canvas(inside, max(4, height - 10)),
        )
        return Panel(body, title=title, title_align="left", width=width)

    def _header(self) -> Text:
        assert self.record is not None
        mark = "▲" if self.record.change > 0 else "▼"
        moved = f"{mark} {self.record.action} {self.record.change:+d}"
        change = moved if self.record.change else ""
        masks = sum(cell.token is None for cell in self.replay.cells)
        return Text(
            f"L {len(self.replay.cells):4d}   MASKs {masks:4d}   "
            f"committed {len(self.record.committed):3d}   {change:<13}{self._saved()}"
        )

    def _saved(self) -> str:
        """The share of positions that all forwards so far computed, where that is not all."""
        share = self.computed / max(1, self.exact)
        return "" if self.computed == self.exact else f"   computed {share:.0%}"

    def _gauge(self, width: int) -> Text:
        """ρ from 0 to 1, the equilibrium region shaded."""
        assert self.record is not None
        region = self.params.region
        low, high = region if region is not None else (2.0, 2.0)  # nowhere
        rho = self.record.rho
        before, behind = "ρ 0 ", " 1   " + ("–" if rho is None else f"{rho:.2f}")
        ticks = max(2, width // 2, min(GAUGE, width - len(before) - len(" 1   0.00")))
        at = None if rho is None else round(rho * (ticks - 1))
        bar = Text(before)
        for tick in range(ticks):
            inside = low <= tick / (ticks - 1) <= high
            if tick == at:
                bar.append("█", style="bold green" if inside else "bold red")
            else:
                bar.append("▒" if inside else "─", style="green" if inside else "dim")
        bar.append(behind)
        return bar

    def _curve(self) -> list[Text]:
        """How sure the model is, from the canvas's beginning to its end, that the text is over."""
        assert self.record is not None
        told = self.record.foretold
        if told is None:
            return []
        heights = (HEIGHTS[round(share * (len(HEIGHTS) - 1))] for share in told.curve)
        half, most = (told.quantiles[SHARES.index(share)] for share in (0.5, 0.9))
        words = (
            f"{share} by {'–' if n is None else n}" for share, n in (("50%", half), ("90%", most))
        )
        return [Text(f"F 0 {''.join(heights)} L   the text is over: {', '.join(words)}")]

    def _canvas(self, width: int, lines: int) -> Text:
        """The tokens in reading order; only as many as the terminal has room for."""
        text = Text(no_wrap=False)
        for index, cell in enumerate(self.replay.cells):
            text.append(*self._styled(cell, self._is_kept(index)))
        wrapped = list(text.wrap(Console(width=80), width))
        if len(wrapped) > lines:
            more = Text(f"… {len(wrapped) - lines + 1} more lines", style="dim")
            wrapped = [*wrapped[: lines - 1], more]
        return Text("\n").join(wrapped)

    def _is_kept(self, index: int) -> bool:
        """Whether a position is in a finished block, which no later forward computes or changes."""
        assert self.record is not None
        return self.record.block is not None and index < self.record.block[0]

    def _styled(self, cell: Cell, kept: bool) -> tuple[str, str]:
        if cell.token is None:
            return _MASK, "dim"
        if cell.token in self.llm.special.ends:
            return _EOS, "dim blue"
        text = self.llm.tokenizer.decode([cell.token]) if self.llm.tokenizer else f"{cell.token} "
        text = "".join(sign if sign.isprintable() or sign == "\n" else "�" for sign in text)
        if self.record is not None and cell.step == self.record.step:
            return text, "reverse"
        return text, KEPT if kept else confidence_style(cell.confidence)


def confidence_style(confidence: float) -> str:
    """Certain tokens are plain, doubtful ones stand out."""
    if confidence > 0.9:
        return "green"
    return "yellow" if confidence > 0.5 else "red"
