/** One column of the page: settings, and the run they led to, drawn up to the forward on show. */

import { CanvasView, legend } from "./canvas.js";
import { Chart } from "./charts.js";
import { CurveView } from "./curve.js";
import { el } from "./dom.js";
import { saveJson, savePng, saveSvg } from "./export.js";
import { title } from "./parameters.js";
import { Settings } from "./settings.js";
import { actionLabel, endLabel, ending, halted, narrate, number, savings } from "./words.js";

const COUNTERS = [
  ["nfe", "Forwards (NFE)", "How often the model ran", number],
  [
    "positions",
    "Positions evaluated",
    "The honest cost: prompt + canvas, summed over forwards",
    number,
  ],
  ["tokensPerForward", "Tokens per forward", "Committed tokens / forwards", (x) => x.toFixed(2)],
  [
    "eRatio",
    "Canvas used (E_ratio)",
    "Share of the canvas that is text, not padding",
    (x) => `${Math.round(x * 100)}%`,
  ],
];
const INVITATION = "Nothing has run yet. The canvas will fill here.";
const narrow = matchMedia("(max-width: 900px)");
const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");

export class Panel {
  #description;
  #canvas;
  #shown = 0; // forwards on screen
  #parts = {
    title: el("h2"),
    action: el("span", { class: "pill", hidden: true }),
    length: el("span", { class: "length" }),
    bar: el(
      "div",
      { class: "bar", "aria-hidden": "true" },
      ...["text", "masks", "ends"].map((kind) => el("i", { class: kind })),
    ),
    canvas: el("div", { class: "canvas", role: "group", "aria-label": "Canvas" }),
    signal: el("b", { text: "ρ" }),
    story: el("p", { class: "story", text: INVITATION }),
    note: el("p", { class: "note", hidden: true }),
    error: el("p", { class: "error", role: "alert", hidden: true }),
    copy: el("button", { type: "button", class: "quiet", text: "Copy text", hidden: true }),
    save: el("button", {
      type: "button",
      class: "quiet",
      text: "JSON",
      "aria-label": "Save JSON",
      title: "Everything that is known of this run, as a file",
      hidden: true,
    }),
    savings: el("dd", { "data-figure": "savings" }),
  };
  #figures = Object.fromEntries(
    COUNTERS.map(([name]) => [name, el("dd", { "data-figure": name, text: "–" })]),
  );
  #charts;
  #curve = new CurveView();
  #costFigure = null;

  constructor(side, description, { tooltip, onChange, onSeek }) {
    this.side = side;
    this.recording = null;
    this.#description = description;
    this.settings = new Settings(side, description, description.panels[side], () => {
      this.#showTitle();
      onChange();
    });
    this.#canvas = new CanvasView(this.#parts.canvas, tooltip);
    this.#charts = {
      signal: new Chart("The signal per forward, with the region shaded", tooltip, onSeek),
      length: new Chart("Canvas length L per forward", tooltip, onSeek),
      positions: new Chart(
        "Positions computed per forward, and dashed those without the cache",
        tooltip,
        onSeek,
      ),
    };
    this.#parts.save.addEventListener("click", () =>
      saveJson(`rho-eos-${this.recording.start.policy}`, this.recording),
    );
    this.#parts.copy.addEventListener("click", () =>
      navigator.clipboard.writeText(this.recording.done.text).then(() => this.#sayCopied()),
    );
    this.element = el(
      "section",
      { class: "panel card", "data-side": side },
      this.settings.element,
      this.#stage(),
      this.#chartPair(),
    );
    this.#showTitle();
  }

  /** Fold the settings away where two panels, or a small screen, leave little room. */
  fit(comparing) {
    this.settings.fold(comparing || narrow.matches);
  }

  update(state) {
    this.settings.show(state);
    this.#showTitle();
  }

  /** Whether text stands behind the canvas. */
  infill(infilling) {
    this.settings.infill(infilling);
    this.#showTitle();
  }

  /** Another recording on the stage, or none, which `story` then explains. */
  load(recording, story = INVITATION) {
    this.recording = recording;
    this.#showNote();
    this.#shown = 0;
    this.#parts.error.hidden = true;
    this.#parts.copy.hidden = true;
    this.#parts.story.hidden = false;
    this.#parts.story.textContent = story;
    this.#canvas.clear();
  }

  /** Before a run: nothing recorded, no error. */
  reset() {
    this.load(null, "Waiting for the first forward…");
  }

  /** The reader has stopped the run. What was written stays. */
  halt() {
    if (this.recording) this.recording.stopped = true;
    else this.load(null, "Stopped before the first forward.");
  }

  /** Bring the canvas on screen where the settings fill it. */
  reveal() {
    const behavior = reducedMotion.matches ? "auto" : "smooth";
    if (narrow.matches) this.#parts.title.scrollIntoView({ block: "start", behavior });
  }

  /** A run has started, with this state, whatever the settings say by now. */
  begin(recording, state) {
    const { side } = this;
    this.recording = Object.assign(recording, { side, title: title(this.#description, state) });
    this.#showNote();
  }

  /** A sentence of the server on the prompt, if it has one. */
  #showNote() {
    const note = this.recording?.start.note;
    this.#parts.note.hidden = !note;
    this.#parts.note.textContent = note ?? "";
  }

  fail(message) {
    this.#parts.error.textContent = message;
    this.#parts.error.hidden = false;
    this.#parts.story.hidden = true;
  }

  /** Draw the run after `position` forwards; `scale` holds the axes that panels share. */
  show(position, scale) {
    const recording = this.recording;
    if (!recording) return this.#showEmpty(scale);
    const count = Math.min(position, recording.length);
    const cells = recording.cellsAt(count);
    const step = count ? recording.steps[count - 1] : null;
    const forward = count > this.#shown;
    const block = recording.blockAt(count);
    const animate = forward && !reducedMotion.matches;
    this.#canvas.draw(cells, step ? step.step : -2, block ? block[0] : 0, animate);
    this.#shown = count;
    this.#showLength(cells, block, scale);
    this.#showStep(step, count);
    this.#showFigures(recording.figuresAt(count));
    this.#showCharts(count, scale);
    this.#curve.show(recording, count);
    this.#offerFiles(recording.length > 0);
  }

  #stage() {
    const { title, action, length, copy, save, savings, bar, note, error, story, canvas } =
      this.#parts;
    const counter = ([name, label, hint]) =>
      el("div", { title: hint }, el("dt", { text: label }), this.#figures[name]);
    const cached = el("div", { class: "wide" }, el("dt", { text: "Cache" }), savings);
    return el(
      "div",
      { class: "stage" },
      el("header", { class: "stage-head" }, title, action, length, copy, save),
      bar,
      note,
      error,
      story,
      canvas,
      legend(this.#description.blocks !== null),
      el("dl", { class: "counters" }, ...COUNTERS.map(counter), cached),
    );
  }

  #chartPair() {
    const figure = (name, symbol) => {
      const chart = this.#charts[name].element;
      const button = (form, save) =>
        el("button", {
          type: "button",
          class: "chip",
          text: form,
          "aria-label": `Save the chart of ${name} as ${form}`,
          onclick: () => save(...this.#chartFile(name, symbol.textContent)),
        });
      return el(
        "figure",
        {},
        el("figcaption", {}, symbol, " per forward"),
        el(
          "div",
          { class: "files", hidden: true },
          button("SVG", (file, caption) => saveSvg(file, chart, caption)),
          button("PNG", (file, caption) => savePng(file, chart, caption)),
        ),
        chart,
      );
    };
    this.#costFigure = figure("positions", el("b", { text: "Computed" }));
    this.#costFigure.hidden = true;
    return el(
      "div",
      { class: "charts" },
      figure("signal", this.#parts.signal),
      figure("length", el("b", { text: "L" })),
      this.#curve.element,
      this.#costFigure,
    );
  }

  /** What the file of a chart is called, and what stands above the chart in it. */
  #chartFile(name, symbol) {
    const { start, title } = this.recording;
    return [`rho-eos-${start.policy}-${name}`, `${symbol} per forward · ${title} · ${start.model}`];
  }

  #offerFiles(offered) {
    this.#parts.save.hidden = !offered;
    for (const files of this.element.querySelectorAll(".files")) files.hidden = !offered;
  }

  #showTitle() {
    this.#parts.title.textContent = title(this.#description, this.settings.state);
  }

  #showEmpty(scale) {
    this.#parts.action.hidden = true;
    this.#parts.length.textContent = "";
    for (const part of this.#parts.bar.children) part.style.width = "0";
    for (const figure of Object.values(this.#figures)) figure.textContent = "–";
    this.#showSavings("");
    this.#curve.element.hidden = true;
    this.#offerFiles(false);
    this.settings.point(null);
    const nothing = { values: [], changes: [], note: () => [], count: 0, xMax: scale.forwards };
    this.#charts.signal.show({ ...nothing, ...signalAxis([]), band: this.settings.region });
    this.#charts.length.show({ ...nothing, ...lengthAxis(scale.length), band: null });
  }

  #showLength(cells, block, scale) {
    const ends = cells.filter((cell) => cell.isEnd).length;
    const masks = cells.filter((cell) => cell.text === null).length;
    const shares = [cells.length - ends - masks, masks, ends];
    shares.forEach(
      (share, k) => (this.#parts.bar.children[k].style.width = `${(100 * share) / scale.length}%`),
    );
    const open = block ? `block ${block[0] + 1}–${block[1]}` : "";
    const parts = [`L ${cells.length}`, `${masks} MASK`, open];
    this.#parts.length.textContent = parts.filter(Boolean).join(" · ");
    const kept = block ? `, ${open} open, ${block[0]} positions in kept blocks` : "";
    this.#parts.canvas.setAttribute(
      "aria-label",
      `Canvas: ${cells.length} positions, ${masks} still MASK${kept}`,
    );
  }

  #showStep(step, count) {
    const { action, story, copy, canvas } = this.#parts;
    const { done, stopped, start, length } = this.recording;
    const finished = done && count === length;
    const ended = finished || (stopped && count === length);
    // Where no signal is followed, that the length holds is no news.
    const news = step && (start.region !== null || step.action !== "hold" || !step.refresh);
    action.hidden = !ended && !news;
    if (ended) action.textContent = endLabel(this.recording);
    else if (step) action.textContent = actionLabel(step);
    action.dataset.direction = ended || !step ? 0 : Math.sign(step.change);
    copy.hidden = !finished || !navigator.clipboard;
    canvas.classList.toggle("finished", Boolean(finished));
    story.textContent = finished
      ? ending(done)
      : ended
        ? halted(this.recording)
        : step
          ? narrate(step)
          : `A canvas of ${start.length} MASKs after a prompt of ${start.prompt_tokens} tokens.`;
    const same = this.settings.state.policy === start.policy;
    this.settings.point(step && same ? step.signal : null);
  }

  #showFigures(figures) {
    for (const [name, , , format] of COUNTERS)
      this.#figures[name].textContent = format(figures[name]);
    this.#showSavings(savings(figures, this.#description.blocks !== null));
  }

  /** What the cache spared, where there was one. */
  #showSavings(text) {
    this.#parts.savings.textContent = text;
    this.#parts.savings.parentElement.hidden = this.#costFigure.hidden = text === "";
  }

  #showCharts(count, scale) {
    const { steps, start } = this.recording;
    // A policy that follows nothing is shown with ρ; one that follows something else, with both.
    const follows = steps.some((step) => step.signal !== null);
    const values = steps.map((step) => (follows ? step.signal : step.rho));
    const differs = steps.some((step) => follows && step.signal !== step.rho);
    const windows = steps.map((step) => !step.refresh); // in which no signal is measured
    const name = follows ? start.signal : "ρ";
    this.#parts.signal.textContent = name;
    const common = {
      changes: steps.map((step) => step.change),
      note: (k) => describeStep(steps[k], name, values[k]),
      count,
      xMax: scale.forwards,
    };
    this.#charts.signal.show({
      ...common,
      values,
      second: differs ? steps.map((step) => step.rho) : null,
      bridged: windows,
      ...signalAxis(values),
      band: start.region,
    });
    this.#charts.length.show({
      ...common,
      values: steps.map((step) => step.length),
      ...lengthAxis(scale.length),
      band: null,
    });
    if (this.#costFigure.hidden) return;
    const exact = steps.map((step) => step.exact);
    this.#charts.positions.show({
      ...common,
      changes: [],
      values: steps.map((step) => step.computed),
      second: exact,
      ...lengthAxis(Math.max(...exact)),
      band: null,
    });
  }

  #sayCopied() {
    this.#parts.copy.textContent = "Copied";
    setTimeout(() => (this.#parts.copy.textContent = "Copy text"), 1200);
  }
}

/** Shares lie between 0 and 1; the axis of a signal that does not ends at a power of two above it. */
function signalAxis(values) {
  const yMax = 2 ** Math.ceil(Math.log2(Math.max(1, ...values)));
  return { yMax, yStep: yMax / 4 };
}

/** Lengths are multiples of 8, so the axis counts in powers of two. */
function lengthAxis(longest) {
  const yStep = Math.max(8, 2 ** Math.ceil(Math.log2(longest / 4)));
  return { yStep, yMax: Math.ceil(longest / yStep) * yStep };
}

/** The two lines shown for a forward in the charts. */
function describeStep(step, name, value) {
  const length = step.change ? `${step.length} → ${step.length + step.change}` : step.length;
  return [
    `forward ${step.step + 1} · ${actionLabel(step)}`,
    `${name} ${value?.toFixed(3) ?? "–"} · L ${length}`,
    ...(step.computed === step.exact ? [] : [`${step.computed} of ${step.exact} positions computed`]),
  ];
}
