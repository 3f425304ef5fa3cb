/** The canvas on screen: one span per position, MASKs as boxes, text as text. */

import { el } from "./dom.js";

/** Lower bounds of the confidence colours, most certain first; the legend is drawn from it too. */
const BANDS = [
  { from: 0.99, label: "≥ .99" },
  { from: 0.9, label: "≥ .9" },
  { from: 0.7, label: "≥ .7" },
  { from: 0.5, label: "≥ .5" },
  { from: 0, label: "< .5" },
];
const LEAVING_MS = 260;

export class CanvasView {
  #root;
  #nodes = new Map(); // cell id → span
  #drawn = new WeakMap(); // span → what it shows: { cell, fresh, kept }
  #tooltip;

  constructor(root, tooltip) {
    this.#root = root;
    this.#tooltip = tooltip;
    root.addEventListener("pointerover", (event) => this.#describe(event));
    root.addEventListener("pointerleave", () => tooltip.hide());
  }

  clear() {
    this.#root.replaceChildren();
    this.#nodes.clear();
  }

  /**
   * Show these cells; those written or taken back in `freshStep` are highlighted, and the first
   * `kept` marked as those of finished blocks. Touches only what changed.
   */
  draw(cells, freshStep, kept, animate) {
    this.#removeGhosts();
    this.#drop(cells, animate);
    let cursor = this.#root.firstChild;
    for (const [position, cell] of cells.entries()) {
      let node = this.#nodes.get(cell.id);
      if (!node) {
        node = el("span");
        this.#nodes.set(cell.id, node);
        if (animate) node.dataset.born = "";
      }
      if (node === cursor) cursor = cursor.nextSibling;
      else this.#root.insertBefore(node, cursor);
      this.#paint(node, cell, cell.step === freshStep, position < kept);
    }
  }

  #paint(node, cell, fresh, kept) {
    const drawn = this.#drawn.get(node);
    if (drawn?.cell === cell && drawn.fresh === fresh && drawn.kept === kept) return;
    if (drawn?.cell !== cell) {
      node.textContent = cell.text !== null && !cell.isEnd ? cell.text : "";
      if (cell.text !== null) delete node.dataset.born;
    }
    node.className = classOf(cell) + (fresh ? " fresh" : "") + (kept ? " kept" : "");
    this.#drawn.set(node, { cell, fresh, kept });
  }

  /** Positions that are gone leave visibly, if only the end was cut and motion is welcome. */
  #drop(cells, animate) {
    const kept = new Set(cells.map((cell) => cell.id));
    const gone = [...this.#nodes].filter(([id]) => !kept.has(id));
    for (const [id, node] of gone) {
      this.#nodes.delete(id);
      if (animate) node.className += " leaving";
      else node.remove();
    }
    if (animate && gone.length) {
      // Ghosts wait behind the living cells, then go.
      this.#root.append(...gone.map(([, node]) => node));
      setTimeout(() => gone.forEach(([, node]) => node.remove()), LEAVING_MS);
    }
  }

  #removeGhosts() {
    while (this.#root.lastChild?.classList.contains("leaving")) this.#root.lastChild.remove();
  }

  #describe(event) {
    const drawn = this.#drawn.get(event.target);
    if (!drawn) return this.#tooltip.hide();
    const { cell, kept } = drawn;
    const position = [...this.#root.children].indexOf(event.target) + 1;
    const lines =
      cell.text === null
        ? [`position ${position}`, cell.step < 0 ? "MASK: not decided yet" : takenBack(cell)]
        : [
            `position ${position} · ${cell.isEnd ? "end of text" : JSON.stringify(cell.text)}`,
            `confidence ${cell.confidence.toFixed(3)} · forward ${cell.step + 1}`,
          ];
    if (kept) lines.push("kept block");
    this.#tooltip.show(lines, event.target.getBoundingClientRect());
  }
}

/** What the colours and marks mean, on the canvas of a model that writes in blocks or one that does not. */
export function legend(inBlocks) {
  const key = (mark, label) => el("span", { class: "key" }, mark, label);
  const sample = (kind, text = "") => el("i", { class: `cell ${kind}`, text });
  return el(
    "div",
    { class: "legend", role: "group", "aria-label": "Legend" },
    key(sample("mask"), "MASK"),
    key(sample("token fresh", "new"), "just committed"),
    key(sample("mask fresh"), "taken back"),
    el("span", { class: "key", text: "confidence" }),
    ...BANDS.map(({ label }, band) => key(el("i", { class: `swatch c${band}` }), label)),
    key(sample("newline"), "line break"),
    key(sample("end"), "end of text"),
    inBlocks ? key(sample("token kept", "kept"), "kept block: finished, computed no more") : null,
  );
}

function takenBack(cell) {
  return `MASK: taken back in forward ${cell.step + 1}`;
}

function classOf(cell) {
  if (cell.text === null) return "cell mask";
  if (cell.isEnd) return "cell end";
  const band = BANDS.findIndex(({ from }) => cell.confidence >= from);
  return `cell token c${band}${cell.text.includes("\n") ? " newline" : ""}`;
}
