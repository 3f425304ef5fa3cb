/** A region between two thresholds as a slider, and a needle at the signal of the moment. */

import { el, setAttributes } from "./dom.js";

const STEP = 0.01;
const PAGE = 0.1;

export class RegionSlider {
  #low;
  #high;
  #track;
  #onChange;
  #region = [0, 1];
  #ends = [el("b"), el("b")];

  /** `helps` says what each of the two thresholds is for. */
  constructor(helps, onChange) {
    this.#onChange = onChange;
    this.#low = this.#handle(0, `Lower threshold: ${helps[0]}`);
    this.#high = this.#handle(1, `Upper threshold: ${helps[1]}`);
    this.#track = el(
      "div",
      { class: "region-track", onpointerdown: (event) => this.#grab(event) },
      el("span", { class: "zone" }),
      el("span", { class: "needle", hidden: true }),
      this.#low,
      this.#high,
    );
    const ticks = [0, 0.25, 0.5, 0.75, 1].map((tick) => el("span", { text: String(tick) }));
    this.element = el(
      "div",
      { class: "region" },
      this.#track,
      el("div", { class: "region-ticks", "aria-hidden": "true" }, ...ticks),
      el("ul", { class: "hint" }, ...this.#ends.map((end, k) => el("li", {}, end, ` ${helps[k]}`))),
    );
    this.set(this.#region);
  }

  set(region) {
    this.#region = region;
    const [low, high] = region;
    this.#track.style.setProperty("--low", low);
    this.#track.style.setProperty("--high", high);
    this.#ends.forEach((end, k) => (end.textContent = region[k].toFixed(2)));
    describe(this.#low, low, 0, high, low.toFixed(2));
    describe(this.#high, high, low, 1, high.toFixed(2));
  }

  /** Where the signal stands now; null hides the needle. */
  point(value) {
    const needle = this.#track.querySelector(".needle");
    needle.hidden = value === null;
    if (value !== null) this.#track.style.setProperty("--now", value);
  }

  #handle(index, label) {
    return el("span", {
      class: "handle",
      role: "slider",
      tabindex: "0",
      "aria-label": label,
      onkeydown: (event) => this.#key(event, index),
    });
  }

  #key(event, index) {
    const steps = {
      ArrowRight: STEP,
      ArrowUp: STEP,
      ArrowLeft: -STEP,
      ArrowDown: -STEP,
      PageUp: PAGE,
      PageDown: -PAGE,
      Home: -1,
      End: 1,
    };
    if (!(event.key in steps)) return;
    event.preventDefault();
    this.#move(index, this.#region[index] + steps[event.key]);
  }

  /** A press anywhere takes the nearer handle and drags it. */
  #grab(event) {
    if (event.button !== 0) return;
    event.preventDefault();
    const [low, high] = this.#region;
    const at = this.#valueAt(event);
    const nearer = Math.abs(at - low) < Math.abs(at - high) || (low === high && at < low) ? 0 : 1;
    (nearer === 0 ? this.#low : this.#high).focus();
    this.#track.setPointerCapture(event.pointerId);
    const drag = (moved) => this.#move(nearer, this.#valueAt(moved));
    this.#track.addEventListener("pointermove", drag);
    this.#track.addEventListener(
      "lostpointercapture",
      () => this.#track.removeEventListener("pointermove", drag),
      { once: true },
    );
    drag(event);
  }

  #valueAt(event) {
    const { left, width } = this.#track.getBoundingClientRect();
    return (event.clientX - left) / width;
  }

  #move(index, value) {
    const [low, high] = this.#region;
    const [least, most] = index === 0 ? [0, high] : [low, 1];
    const moved = Math.round(Math.min(most, Math.max(least, value)) * 100) / 100;
    if (moved === this.#region[index]) return;
    this.set(index === 0 ? [moved, high] : [low, moved]);
    this.#onChange(this.#region);
  }
}

function describe(handle, now, min, max, text) {
  setAttributes(handle, {
    "aria-valuenow": now,
    "aria-valuemin": min,
    "aria-valuemax": max,
    "aria-valuetext": text,
  });
}
