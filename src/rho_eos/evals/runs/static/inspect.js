"use strict";
/* All texts reach the page through textContent; nothing is ever parsed as HTML. */

const run = JSON.parse(document.getElementById("data").textContent);
const byId = (id) => document.getElementById(id);

/* Where no forward used the cache, these say nothing new. */
const cached = run.samples.some((s) => s.positions_evaluated < s.positions_exact);
const OF_THE_CACHE = [
  { key: "positions_exact", label: "exact" },
  { key: "refreshes", label: "refreshes" },
];
const reused = run.samples.some((s) => s.positions_reused > 0);
const COLUMNS = [
  { key: "id", label: "sample" },
  { key: "correct", label: "verdict", show: (s) => (s.correct ? "right" : "wrong") },
  { key: "extracted", label: "answer", show: (s) => shorten(s.extracted ?? "–") },
  { key: "e_token", label: "E_token" },
  { key: "n_token", label: "N_token" },
  { key: "nfe", label: "NFE" },
  { key: "positions_evaluated", label: "positions" },
  ...(cached ? OF_THE_CACHE : []),
  ...(reused ? [{ key: "positions_reused", label: "reused" }] : []),
  { key: "tokens_per_forward", label: "tok/NFE", show: (s) => decimals(s.tokens_per_forward, 2) },
  { key: "adjustments", label: "Step" },
  { key: "finish_reason", label: "end" },
];
const FACTS = [...COLUMNS.slice(3), { key: "e_ratio", label: "E_ratio", show: (s) => percent(s.e_ratio) }];
const NAMES = new Intl.Collator("en", { numeric: true });

const state = { sort: "correct", direction: 1, chosen: null };
const rows = new Map(run.samples.map((sample) => [sample.id, makeRow(sample)]));

function element(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name in node) node[name] = value;
    else node.setAttribute(name, value);
  }
  node.append(...children);
  return node;
}

function shorten(text) {
  const line = text.trim().split("\n")[0];
  return line.length > 24 ? `${line.slice(0, 23)}…` : line;
}

function decimals(value, digits) {
  return value === undefined ? "–" : value.toFixed(digits);
}

function percent(share) {
  return share === undefined ? "–" : `${(100 * share).toFixed(1)}%`;
}

function shown(column, sample) {
  return column.show ? column.show(sample) : String(sample[column.key] ?? "–");
}

/* Summary */

function showSummary() {
  document.title = `${run.name} – rho-eos`;
  byId("name").textContent = run.name;
  const { model, params } = run.settings;
  const wrong = run.samples.filter((sample) => !sample.correct).length;
  byId("about").textContent =
    `${model ? model.model : "reference answers"} · ${params.policy} · ` +
    `${run.samples.length} answers, ${wrong} wrong`;
  const cells = (tag, texts) => texts.map((text) => element(tag, { textContent: text }));
  byId("summary").append(
    element("thead", {}, element("tr", {}, ...cells("th", run.summary.columns))),
    element("tbody", {}, ...run.summary.rows.map((row) => element("tr", {}, ...cells("td", row)))),
  );
  const provenance = { settings: run.settings, sessions: run.sessions };
  byId("provenance").textContent = JSON.stringify(provenance, null, 2);
}

/* The list */

function makeRow(sample) {
  const cells = COLUMNS.map((column) => element("td", { textContent: shown(column, sample) }));
  cells[1].className = sample.correct ? "right" : "wrong";
  cells[0].title = sample.id; // both are cut where there is no room
  cells[2].title = sample.extracted ?? "";
  return element("tr", { tabIndex: -1, onclick: () => choose(sample.id) }, ...cells);
}

function compare(a, b) {
  const [x, y] = [a[state.sort], b[state.sort]];
  const first =
    typeof x === "string" || typeof y === "string"
      ? NAMES.compare(x ?? "", y ?? "")
      : Number(x ?? -1) - Number(y ?? -1);
  return state.direction * first || NAMES.compare(a.id, b.id);
}

function wanted(sample) {
  const words = byId("search").value.toLowerCase();
  const verdict = byId("verdict").value;
  return (
    (!byId("task").value || sample.task === byId("task").value) &&
    (!verdict || sample.correct === (verdict === "right")) &&
    (!byId("finish").value || sample.finish_reason === byId("finish").value) &&
    (!words || [sample.id, sample.prompt, sample.text].some((t) => t.toLowerCase().includes(words)))
  );
}

function listed() {
  return run.samples.filter(wanted).sort(compare);
}

function showList() {
  const samples = listed();
  byId("samples").tBodies[0].replaceChildren(...samples.map((sample) => rows.get(sample.id)));
  byId("count").textContent = `${samples.length} of ${run.samples.length}`;
  COLUMNS.forEach((column, index) => {
    const sorted = column.key === state.sort;
    const order = state.direction > 0 ? "ascending" : "descending";
    byId("samples").tHead.rows[0].cells[index].setAttribute("aria-sort", sorted ? order : "none");
  });
}

function sortBy(key) {
  state.direction = state.sort === key ? -state.direction : 1;
  state.sort = key;
  showList();
}

function addControls() {
  byId("samples").tHead.rows[0].append(
    ...COLUMNS.map(({ key, label }) =>
      element("th", { scope: "col" }, element("button", { textContent: label, onclick: () => sortBy(key) })),
    ),
  );
  const fill = (id, key) => {
    const values = [...new Set(run.samples.map((sample) => sample[key]))].sort();
    byId(id).append(...values.map((value) => element("option", { value, textContent: value })));
  };
  fill("task", "task");
  fill("finish", "finish_reason");
  byId("filters").addEventListener("input", showList);
  byId("filters").addEventListener("submit", (event) => event.preventDefault());
  byId("samples").addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    event.preventDefault();
    const ids = listed().map((sample) => sample.id);
    const next = ids[ids.indexOf(state.chosen) + step];
    if (next) choose(next);
  });
}

/* One sample */

function choose(id) {
  const sample = run.samples.find((each) => each.id === id);
  if (!sample) return;
  rows.get(state.chosen)?.setAttribute("aria-selected", "false");
  state.chosen = id;
  const row = rows.get(id);
  for (const other of rows.values()) other.tabIndex = -1;
  row.tabIndex = 0;
  row.setAttribute("aria-selected", "true");
  if (row.isConnected) row.focus({ preventScroll: false });
  history.replaceState(null, "", `#${encodeURIComponent(id)}`);
  showDetail(sample);
}

function showDetail(sample) {
  const block = (title, text, id) => [
    element("h3", { textContent: title }),
    element("pre", { id, textContent: text }),
  ];
  const verdict = sample.correct ? "right" : "wrong";
  const facts = sample.nfe === undefined ? [] : FACTS;
  byId("detail").replaceChildren(
    element("h2", { textContent: sample.id }),
    element("p", { id: "grade", className: verdict, textContent: `${verdict}: ${sample.detail}` }),
    element(
      "dl",
      { className: "facts" },
      ...facts.map((column) =>
        element(
          "div",
          {},
          element("dt", { textContent: column.label }),
          element("dd", { textContent: shown(column, sample) }),
        ),
      ),
    ),
    ...curves(sample),
    ...canvas(sample),
    ...block("Prompt", sample.prompt, "prompt"),
    ...block("Text", sample.text, "text"),
    ...block("Reference", sample.reference, "reference"),
  );
  byId("detail").scrollTop = 0;
}

function curves({ nfe, trace }) {
  if (nfe === undefined) return [];
  if (!trace) {
    return [element("p", { className: "soft", textContent: "No curves: the run was made without --trace." })];
  }
  const over = (name) => trace.map((step) => step[name]);
  const [rho, length, masks, computed, exact] = ["rho", "length", "masks", "computed", "exact"].map(over);
  const windows = over("refresh").map((whole) => !whole);
  const costs = computed.some((each, k) => each < exact[k])
    ? [
        element("h3", { textContent: "Positions computed, and without the cache (dashed), over steps" }),
        chart("positions over steps", Math.max(1, ...exact), [
          { name: "exact", values: exact },
          { name: "computed", values: computed },
        ]),
      ]
    : [];
  return [
    element("h3", { textContent: "ρ over steps" }),
    chart("ρ over steps", 1, [{ name: "rho", values: rho }], run.region, windows),
    element("h3", { textContent: "Canvas length, and MASKs left (dashed), over steps" }),
    chart("length over steps", Math.max(1, ...length), [
      { name: "masks", values: masks },
      { name: "length", values: length },
    ]),
    ...costs,
  ];
}

/* The canvas, replayed: what was committed, then where every cell went, then what edits wrote. */

function canvas({ trace: steps }) {
  if (!steps) return [];
  const title = element("h3", { textContent: "Canvas" });
  const frames = [Array.from({ length: steps[0].length }, () => null)];
  steps.forEach((step, k) => frames.push(applied(frames[k], step, k)));
  const cells = element("div", { id: "canvas", className: "cells" });
  const about = element("output", { className: "soft" });
  const show = (count) => {
    cells.replaceChildren(...frames[count].map(cellNode));
    const { action } = steps[count - 1] ?? { action: "start" };
    about.textContent = `after ${count} of ${steps.length} forwards: ${action}, L ${frames[count].length}`;
  };
  const scrubber = element("input", { type: "range", min: 0, max: steps.length, ariaLabel: "Forward" });
  scrubber.oninput = () => show(Number(scrubber.value));
  scrubber.value = steps.length;
  show(steps.length);
  return [title, element("div", { className: "scrub" }, scrubber, about), cells];
}

/** A cell is null for a MASK, else { token, confidence, forward }. */
function applied(before, { committed, moved, written }, k) {
  const cells = before.slice();
  for (const [position, token, confidence] of committed)
    cells[position] = { token, confidence, forward: k + 1 };
  if (!moved) return cells;
  const after = moved.flatMap(([first, count]) =>
    first === null ? Array.from({ length: count }, () => null) : cells.slice(first, first + count),
  );
  for (const [position, token] of written)
    after[position] = token === null ? null : { token, confidence: 1, forward: k + 1 };
  return after;
}

function cellNode(cell) {
  if (!cell) return element("i", { title: "MASK" });
  const title = `token ${cell.token}, confidence ${cell.confidence.toFixed(2)}, forward ${cell.forward}`;
  const node = element("i", { className: "filled", title });
  node.style.setProperty("--sure", cell.confidence);
  return node;
}

function svg(tag, attributes, text = "") {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.textContent = text;
  return node;
}

/** Lines over steps from 0 to `top`; a null value is a gap, unless the step is one to pass over. */
function chart(label, top, lines, band = null, passed = null) {
  const [width, height, left, right, above, below] = [560, 130, 40, 8, 8, 20];
  const steps = lines[0].values.length;
  const x = (k) => left + (k / Math.max(1, steps - 1)) * (width - left - right);
  const y = (value) => height - below - (value / top) * (height - above - below);
  const path = (values) => {
    let pen = "M";
    return values
      .map((value, k) => {
        if (value === null) {
          if (!passed?.[k]) pen = "M";
          return "";
        }
        const point = `${pen}${x(k).toFixed(1)} ${y(value).toFixed(1)}${steps === 1 ? "h1" : ""}`;
        pen = "L";
        return point;
      })
      .join("");
  };
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label });
  if (band) {
    const [low, high] = band.map(y);
    const size = { width: width - left - right, height: Math.max(1, low - high) };
    picture.append(svg("rect", { class: "band", x: left, y: high, ...size }));
  }
  for (const value of [0, top / 2, top]) {
    picture.append(
      svg("line", { class: "axis", x1: left, x2: width - right, y1: y(value), y2: y(value) }),
      svg("text", { x: left - 6, y: y(value) + 4, "text-anchor": "end" }, String(value)),
    );
  }
  for (const step of new Set([0, Math.floor((steps - 1) / 2), steps - 1])) {
    const anchor = step === steps - 1 && step ? "end" : "middle";
    picture.append(svg("text", { x: x(step), y: height - 4, "text-anchor": anchor }, String(step + 1)));
  }
  picture.append(...lines.map(({ name, values }) => svg("path", { class: name, d: path(values) })));
  return picture;
}

showSummary();
addControls();
showList();
const linked = run.samples.find(({ id }) => `#${encodeURIComponent(id)}` === location.hash);
choose((linked ?? listed()[0])?.id);
