/**
 * A generation, recorded: the canvas after any number of steps, rebuilt from the step events alone.
 *
 * Cells are never changed in place. A cell keeps its `id` when its MASK is committed, so a view can
 * tell "the same position, now filled" from "a new position", and animate growth where it happens.
 */

const KEYFRAME_EVERY = 16;

export class Recording {
  constructor(start) {
    this.start = start;
    this.steps = [];
    this.done = null;
    this.stopped = false; // by the reader, before it was done
    this.totals = [{ committed: 0, expansions: 0, contractions: 0, exact: 0, refreshes: 0 }];
    this.peak = start.length;
    this.keyframes = [firstCanvas(start)];
    this.newest = this.keyframes[0]; // the canvas after all steps so far
    this.shown = { count: 0, canvas: this.keyframes[0] };
  }

  push(step) {
    this.steps.push(step);
    this.newest = apply(this.newest, step);
    if (this.steps.length % KEYFRAME_EVERY === 0) this.keyframes.push(this.newest);
    this.peak = Math.max(this.peak, step.length, this.newest.cells.length);
    const before = this.totals.at(-1);
    this.totals.push({
      committed: before.committed + step.committed.length,
      expansions: before.expansions + (step.change > 0),
      contractions: before.contractions + (step.change < 0),
      exact: before.exact + step.exact,
      refreshes: before.refreshes + (step.computed === step.exact),
    });
  }

  /** The text before the first position that is open. */
  get finalText() {
    const { cells } = this.newest;
    const end = cells.findIndex((cell) => cell.text === null || cell.isEnd);
    const final = end < 0 ? cells : cells.slice(0, end);
    return final.map((cell) => cell.text).join("");
  }

  /** Everything that is known of the run, for a file. */
  toJSON() {
    const { request, start, steps, done, stopped } = this;
    return { request, start, steps, done, stopped };
  }

  get length() {
    return this.steps.length;
  }

  /** The cells after `count` steps. Playing forward costs one step, a jump at most a keyframe's. */
  cellsAt(count) {
    if (count === this.length) return this.newest.cells;
    const keyframe = Math.floor(count / KEYFRAME_EVERY);
    let from = { count: keyframe * KEYFRAME_EVERY, canvas: this.keyframes[keyframe] };
    if (this.shown.count <= count && this.shown.count > from.count) from = this.shown;
    let canvas = from.canvas;
    for (let k = from.count; k < count; k++) canvas = apply(canvas, this.steps[k]);
    this.shown = { count, canvas };
    return canvas.cells;
  }

  /** The open block of a block diffusion model in the last of `count` steps, as [first, end]. */
  blockAt(count) {
    return count ? this.steps[count - 1].block : null;
  }

  /** What it has cost after `count` steps; at the end, the server's own figures. */
  figuresAt(count) {
    const cells = this.cellsAt(count);
    const atEnd = this.done !== null && count === this.length;
    const usage = atEnd ? this.done.usage : null;
    const { committed, expansions, contractions, exact, refreshes } = this.totals[count];
    const used = cells.filter((cell) => cell.text !== null && !cell.isEnd).length;
    return {
      nfe: usage?.rho_eos.nfe ?? count,
      positions: usage?.rho_eos.positions_evaluated ?? this.#positionsAt(count),
      exact: usage?.rho_eos.positions_exact ?? exact,
      reused: usage?.rho_eos.positions_reused ?? 0,
      refreshes: usage?.rho_eos.refreshes ?? refreshes,
      tokensPerForward: usage?.rho_eos.tokens_per_forward ?? (count ? committed / count : 0),
      eRatio: usage
        ? ratio(usage.completion_tokens, usage.rho_eos.n_token)
        : ratio(used, cells.length),
      length: cells.length,
      expansions,
      contractions,
    };
  }

  #positionsAt(count) {
    return count ? this.steps[count - 1].positions_evaluated : 0;
  }
}

function ratio(part, whole) {
  return whole ? part / whole : 0;
}

/** MASKs, and what a template gives between its gaps. */
function firstCanvas({ length, given = [] }) {
  const cells = masks(0, length);
  for (const [position, text, isEnd] of given)
    cells[position] = { ...cells[position], text, confidence: 1, isEnd };
  return { cells, nextId: length };
}

function masks(firstId, count) {
  return Array.from({ length: count }, (_, k) => maskCell(firstId + k));
}

function maskCell(id) {
  return { id, text: null, confidence: 0, isEnd: false, step: -1 };
}

/** One step: the commits, then where every cell went, then what edits wrote. */
function apply({ cells, nextId }, step) {
  cells = cells.slice();
  for (const [position, text, confidence, isEnd] of step.committed)
    cells[position] = { id: cells[position].id, text, confidence, isEnd, step: step.step };
  if (step.moved === null) return { cells, nextId };
  const moved = [];
  for (const [first, count] of step.moved) {
    moved.push(...(first === null ? masks(nextId, count) : cells.slice(first, first + count)));
    if (first === null) nextId += count;
  }
  for (const [position, text, isEnd] of step.written) {
    const confidence = text === null ? 0 : 1; // null: taken back, a MASK again
    moved[position] = { id: moved[position].id, text, confidence, isEnd, step: step.step };
  }
  return { cells: moved, nextId };
}
