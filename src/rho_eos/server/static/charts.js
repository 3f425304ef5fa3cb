/** A small line chart over forwards: axes, a shaded band, marks where the length changed, hover. */

import { setAttributes, svg } from "./dom.js";

const HEIGHT = 132;
const PAD = { left: 40, right: 10, top: 10, bottom: 24 };
const TRIANGLE = { up: "m-4 3 4-7 4 7z", down: "m-4-3 4 7 4-7z" };

export class Chart {
  #svg;
  #parts;
  #width = 320;
  #model = null;
  #tooltip;
  #onSeek;

  /** `onSeek(count)` is called when a forward is clicked. */
  constructor(label, tooltip, onSeek) {
    this.#tooltip = tooltip;
    this.#onSeek = onSeek;
    this.#parts = {
      band: svg("rect", { class: "band" }),
      grid: svg("g", { class: "grid" }),
      second: svg("path", { class: "line second" }),
      ahead: svg("path", { class: "line ahead" }),
      line: svg("path", { class: "line" }),
      up: svg("path", { class: "mark expand" }),
      down: svg("path", { class: "mark contract" }),
      hover: svg("line", { class: "hover", visibility: "hidden" }),
      dot: svg("circle", { class: "dot", r: 4, visibility: "hidden" }),
    };
    this.#svg = svg(
      "svg",
      {
        class: "chart",
        role: "img",
        "aria-label": label,
        height: HEIGHT,
        onpointermove: (event) => this.#hover(event),
        onpointerleave: () => this.#leave(),
        onclick: (event) => this.#seek(event),
      },
      ...Object.values(this.#parts),
    );
    this.element = this.#svg;
    new ResizeObserver(([entry]) => {
      this.#width = Math.max(160, entry.contentRect.width);
      this.#draw();
    }).observe(this.#svg);
  }

  /**
   * model: `values[k]` belongs to forward k + 1 and may be null, a gap unless `bridged[k]`; `second`
   * is a fainter line; `changes[k]` is the change of length; `note(k)` gives the lines shown on hover;
   * `count` forwards are played; `xMax`, `yMax`, `yStep` are the scales; `band` is [low, high] or null.
   */
  show(model) {
    this.#model = model;
    this.#draw();
  }

  #x(k) {
    const span = Math.max(1, this.#model.xMax - 1);
    return PAD.left + (k / span) * (this.#width - PAD.left - PAD.right);
  }

  #y(value) {
    return HEIGHT - PAD.bottom - (value / this.#model.yMax) * (HEIGHT - PAD.top - PAD.bottom);
  }

  #draw() {
    if (!this.#model) return;
    const { values, second, bridged, changes, count, band } = this.#model;
    const { line, ahead, second: faint, up, down, dot } = this.#parts;
    setAttributes(this.#svg, { viewBox: `0 0 ${this.#width} ${HEIGHT}` });
    this.#drawGrid();
    this.#drawBand(band);
    line.setAttribute("d", this.#path(values, 0, count));
    let at = count - 1; // the newest value; behind a bridge, the one before it
    while (at > 0 && values[at] === null && bridged?.[at]) at--;
    ahead.setAttribute("d", this.#path(values, Math.max(0, at), values.length));
    faint.setAttribute("d", second ? this.#path(second, 0, count) : "");
    const marks = (sign, shape) =>
      changes
        .slice(0, count)
        .map((change, k) => (Math.sign(change) === sign && values[k] !== null ? k : -1))
        .filter((k) => k >= 0)
        .map((k) => `M${this.#x(k).toFixed(1)} ${this.#y(values[k]).toFixed(1)}${shape}`)
        .join("");
    up.setAttribute("d", marks(1, TRIANGLE.up));
    down.setAttribute("d", marks(-1, TRIANGLE.down));
    const now = count ? values[at] : null;
    dot.setAttribute("visibility", now === null ? "hidden" : "visible");
    if (now !== null) setAttributes(dot, { cx: this.#x(at), cy: this.#y(now) });
  }

  /** A polyline with gaps where there is no value. */
  #path(values, from, to) {
    let path = "";
    let pen = "M";
    for (let k = from; k < to; k++) {
      if (values[k] === null) {
        if (!this.#model.bridged?.[k]) pen = "M";
      } else {
        path += `${pen}${this.#x(k).toFixed(1)} ${this.#y(values[k]).toFixed(1)}`;
        pen = "L";
      }
    }
    return path;
  }

  #drawBand(band) {
    const node = this.#parts.band;
    node.setAttribute("visibility", band ? "visible" : "hidden");
    if (!band) return;
    const [low, high] = band.map((value) => this.#y(value));
    const width = this.#width - PAD.left - PAD.right;
    setAttributes(node, { x: PAD.left, y: high, width, height: Math.max(1, low - high) });
  }

  #drawGrid() {
    const { xMax, yMax, yStep } = this.#model;
    const right = this.#width - PAD.right;
    const base = HEIGHT - PAD.bottom;
    const rows = multiples(yStep, yMax).map((value) => {
      const y = this.#y(value);
      return [
        svg("line", { x1: PAD.left, x2: right, y1: y, y2: y }),
        svg("text", { x: PAD.left - 6, y: y + 4, "text-anchor": "end", text: shorten(value) }),
      ];
    });
    const columns = multiples(roundStep(xMax / Math.max(2, this.#width / 70)), xMax)
      .map((forward) => Math.max(1, forward))
      .map((forward) =>
        svg("text", {
          x: this.#x(forward - 1),
          y: base + 16,
          "text-anchor": "middle",
          text: shorten(forward),
        }),
      );
    this.#parts.grid.replaceChildren(...rows.flat(), ...columns);
  }

  #nearest(event) {
    if (!this.#model?.values.length) return null;
    const { left } = this.#svg.getBoundingClientRect();
    const share = (event.clientX - left - PAD.left) / (this.#width - PAD.left - PAD.right);
    const k = Math.round(share * Math.max(1, this.#model.xMax - 1));
    return Math.min(this.#model.values.length - 1, Math.max(0, k));
  }

  #hover(event) {
    const k = this.#nearest(event);
    if (k === null) return;
    const x = this.#x(k);
    setAttributes(this.#parts.hover, {
      x1: x,
      x2: x,
      y1: PAD.top,
      y2: HEIGHT - PAD.bottom,
      visibility: "visible",
    });
    const box = this.#svg.getBoundingClientRect();
    const y = box.top + this.#y(this.#model.values[k] ?? this.#model.yMax);
    const anchor = { left: box.left + x, width: 0, top: y - 4, bottom: y + 4 };
    this.#tooltip.show(this.#model.note(k), anchor);
  }

  #leave() {
    this.#parts.hover.setAttribute("visibility", "hidden");
    this.#tooltip.hide();
  }

  #seek(event) {
    const k = this.#nearest(event);
    if (k !== null) this.#onSeek(k + 1);
  }
}

function multiples(step, max) {
  return Array.from({ length: Math.floor(max / step + 1e-9) + 1 }, (_, k) => k * step);
}

/** The next of 1, 2, 5, 10, 20, 50, … */
function roundStep(least) {
  const magnitude = 10 ** Math.floor(Math.log10(Math.max(1, least)));
  return [1, 2, 5, 10].map((factor) => factor * magnitude).find((step) => step >= least);
}

function shorten(value) {
  return String(Math.round(value * 100) / 100);
}
