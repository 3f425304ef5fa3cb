/** F at the forward on show: how sure the model is, at each length, that the text is over by there. */

import { el, setAttributes, svg } from "./dom.js";

const WIDTH = 320;
const HEIGHT = 96;
const PAD = { left: 40, right: 10, top: 8, bottom: 20 };
const INNER = { width: WIDTH - PAD.left - PAD.right, height: HEIGHT - PAD.top - PAD.bottom };
const DEFAULT_SHARE = 0.9;

export class CurveView {
  #area = svg("path", { class: "foretold-area" });
  #line = svg("path", { class: "foretold-line" });
  #mark = svg("line", { class: "foretold-mark" });
  #axis = svg("g", { class: "grid" });
  #words = el("p", { class: "foretold-words" });
  #picture = svg(
    "svg",
    { class: "foretold", role: "img", viewBox: `0 0 ${WIDTH} ${HEIGHT}` },
    this.#axis,
    this.#area,
    this.#line,
    this.#mark,
  );
  element = el(
    "figure",
    { hidden: true },
    el("figcaption", {}, el("b", { text: "F" }), " over the canvas, at this forward"),
    this.#picture,
    this.#words,
  );

  /** The last forward up to `count` that says something of the length; none hides the figure. */
  show({ steps, start }, count) {
    const step = steps.slice(0, count).findLast((each) => each.foretold);
    this.element.hidden = !step;
    if (!step) return;
    const { curve, expected } = step.foretold;
    const share = start.params.risk === undefined ? DEFAULT_SHARE : 1 - start.params.risk;
    const x = (part) => PAD.left + part * INNER.width;
    const y = (value) => PAD.top + (1 - value) * INNER.height;
    const points = curve.map((value, k) => `${x(k / (curve.length - 1)).toFixed(1)} ${y(value).toFixed(1)}`);
    this.#line.setAttribute("d", `M${points.join("L")}`);
    this.#area.setAttribute("d", `M${x(0)} ${y(0)}L${points.join("L")}L${x(1)} ${y(0)}z`);
    const enough = curve.findIndex((value) => value >= share);
    const part = enough / (curve.length - 1);
    this.#mark.setAttribute("visibility", enough < 0 ? "hidden" : "visible");
    setAttributes(this.#mark, { x1: x(part), x2: x(part), y1: y(0), y2: y(1) });
    this.#drawAxis(step.length, x, y);
    const percent = Math.round(share * 100);
    const words = [
      enough < 0
        ? `No length on this canvas suffices with ${percent}%.`
        : `About ${Math.round(part * step.length)} tokens suffice with ${percent}%.`,
      `It expects ${Math.round(expected)}.`,
    ].join(" ");
    this.#words.textContent = words;
    this.#picture.setAttribute("aria-label", `How sure the model is of the length. ${words}`);
  }

  #drawAxis(length, x, y) {
    const text = (words, at, height, anchor) =>
      Object.assign(svg("text", { x: at, y: height, "text-anchor": anchor }), { textContent: words });
    this.#axis.replaceChildren(
      text("1", PAD.left - 6, y(1) + 4, "end"),
      text("0", PAD.left - 6, y(0) + 4, "end"),
      text("0", x(0), HEIGHT - 5, "middle"),
      text(`L = ${length}`, x(1), HEIGHT - 5, "end"),
      svg("line", { x1: x(0), x2: x(1), y1: y(0), y2: y(0) }),
    );
  }
}
