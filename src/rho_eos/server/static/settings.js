/** How one panel decodes: the form, its values, and the fields of the request they become. */

import { el } from "./dom.js";
import { RegionSlider } from "./slider.js";

export const POLICY_NAMES = { "rho-eos": "ρ-EOS", fixed: "Fixed length", daedal: "DAEDAL" };
/** DAEDAL's own thresholds on EOS confidence. */
const DAEDAL_REGION = [0.5, 0.9];
const USUAL_LENGTH = { "rho-eos": 64, fixed: 256, daedal: 64 };

const MEASURES = {
  density: "ρ, the share of MASKs that expect the end",
  confidence: "EOS confidence: how sure of the end the last 32 positions are",
};

const ALL = ["rho-eos", "fixed", "daedal"];
const VARIABLE = ["rho-eos", "daedal"];
const FIELDS = [
  {
    name: "initial_length",
    label: "Initial length",
    hint: "MASKs to start with",
    policies: ALL,
    min: 1,
    integer: true,
    main: true,
  },
  {
    name: "max_tokens",
    label: "Longest canvas",
    hint: "L max",
    policies: VARIABLE,
    min: 1,
    integer: true,
    main: true,
  },
  {
    name: "threshold",
    label: "Commit above",
    hint: "confidence τ",
    policies: ALL,
    min: 0.01,
    max: 1,
  },
  {
    name: "block_length",
    label: "Block length",
    hint: "empty: anywhere",
    policies: ALL,
    min: 1,
    integer: true,
    optional: true,
  },
  {
    name: "steps",
    label: "Steps",
    hint: "empty: the τ rule",
    policies: ["fixed"],
    min: 1,
    integer: true,
    optional: true,
  },
  {
    name: "expansion",
    label: "Change of length",
    hint: "E(ρ)",
    policies: ["rho-eos"],
    choices: [
      ["constant", "constant"],
      ["linear", "linear"],
      ["exponential", "exponential"],
    ],
  },
  {
    name: "horizon",
    label: "Adjust until forward",
    hint: "N",
    policies: ["rho-eos"],
    min: 0,
    integer: true,
  },
  {
    name: "signal",
    label: "Signal",
    hint: "steers the length",
    policies: VARIABLE,
    choices: [
      ["", "the policy’s own"],
      ["density", "EOS density ρ"],
      ["confidence", "EOS confidence"],
    ],
  },
  { name: "temperature", label: "Temperature", hint: "0: greedy", policies: ALL, min: 0 },
  { name: "seed", label: "Seed", hint: "of the noise", policies: ALL, min: 0, integer: true },
  {
    name: "early_stop",
    label: "Stop once the text is complete",
    hint: "",
    policies: ALL,
    flag: true,
  },
];

/** A panel's values before anyone touches it. */
export function defaultValues(description, policy) {
  const given = description.defaults ?? {};
  const limit = description.max_new_tokens ?? 2048;
  return {
    policy,
    preset: given.preset ?? "asym",
    rho_low: null,
    rho_high: null,
    signal: null,
    initial_length: Math.min(USUAL_LENGTH[policy], limit),
    max_tokens: limit,
    threshold: given.threshold ?? 0.9,
    block_length: given.block_length === undefined ? 32 : given.block_length,
    steps: null,
    expansion: given.expansion ?? "exponential",
    horizon: given.horizon ?? 64,
    temperature: given.temperature ?? 0,
    seed: given.seed ?? 0,
    early_stop: given.early_stop ?? true,
  };
}

/** The number that steers the length: what the policy says, unless it is chosen. */
export function signalOf(values) {
  const published = values.policy === "daedal" || values.preset === "released";
  return values.signal ?? (published ? "confidence" : "density");
}

export function regionOf(values, presets) {
  const daedal = values.policy === "daedal" && signalOf(values) === "confidence";
  const [low, high] = daedal ? DAEDAL_REGION : (presets[values.preset] ?? [0.4, 0.8]);
  return [values.rho_low ?? low, values.rho_high ?? high];
}

/** The top-level fields of the request: only those that mean something to the policy. */
export function requestFields(values, presets) {
  const fields = { policy: values.policy };
  for (const { name, policies } of FIELDS)
    if (policies.includes(values.policy) && values[name] !== null) fields[name] = values[name];
  if (values.policy === "fixed") fields.max_tokens = values.initial_length;
  else {
    const [rho_low, rho_high] = regionOf(values, presets);
    Object.assign(fields, { preset: values.preset, rho_low, rho_high });
  }
  fields.block_length = values.block_length; // null is a value: no blocks
  return fields;
}

export class Settings {
  #presets;
  #onChange;
  #slider = new RegionSlider(([low, high]) => this.#edit({ rho_low: low, rho_high: high }));
  #inputs = new Map();
  #policies;
  #presetButtons;
  #regionBox;
  #regionName = el("span", { class: "label" });
  #regionValue = el("output", { class: "region-value" });
  #regionNote = el("p", { class: "hint" });
  #more;

  constructor(id, description, values, onChange) {
    this.values = values;
    this.#presets = description.presets;
    this.#onChange = onChange;
    this.#policies = Object.entries(POLICY_NAMES).map(([policy, name]) =>
      el(
        "label",
        { class: "segment" },
        el("input", {
          type: "radio",
          name: `policy-${id}`,
          value: policy,
          onchange: () => this.#choosePolicy(policy),
        }),
        el("span", { text: name }),
      ),
    );
    this.#presetButtons = Object.keys(this.#presets).map((preset) =>
      el("button", {
        type: "button",
        class: "chip",
        text: preset,
        "data-preset": preset,
        onclick: () => this.#edit({ preset, rho_low: null, rho_high: null, signal: null }),
      }),
    );
    this.#regionBox = el(
      "div",
      { class: "region-box" },
      el(
        "div",
        { class: "row" },
        this.#regionName,
        this.#regionValue,
        el(
          "div",
          { class: "presets", role: "group", "aria-label": "Presets" },
          ...this.#presetButtons,
        ),
      ),
      this.#slider.element,
      this.#regionNote,
    );
    const field = (spec) => this.#field(id, spec);
    this.#more = el(
      "details",
      { class: "more" },
      el("summary", { text: "More parameters" }),
      el("div", { class: "fields" }, ...FIELDS.filter((spec) => !spec.main).map(field)),
    );
    this.element = el(
      "form",
      { class: "settings", novalidate: true, onsubmit: (event) => event.preventDefault() },
      el(
        "div",
        { class: "segments", role: "radiogroup", "aria-label": "Policy" },
        ...this.#policies,
      ),
      this.#regionBox,
      el("div", { class: "fields" }, ...FIELDS.filter((spec) => spec.main).map(field)),
      this.#more,
    );
    this.show(values);
  }

  get region() {
    return regionOf(this.values, this.#presets);
  }

  get request() {
    return requestFields(this.values, this.#presets);
  }

  /** Whether every field holds a usable value; if not, the browser says which and why. */
  validate() {
    const wrong = [...this.#inputs.values()].find(
      ({ box, input }) => !box.hidden && !input.checkValidity(),
    );
    if (!wrong) return true;
    this.#more.open ||= this.#more.contains(wrong.input);
    wrong.input.reportValidity();
    return false;
  }

  /** The needle on the region. */
  point(value) {
    this.#slider.point(value);
  }

  show(values) {
    this.values = values;
    const { policy, preset } = values;
    for (const label of this.#policies) {
      const radio = label.firstChild;
      radio.checked = radio.value === policy;
    }
    for (const { spec, input, box, name } of this.#inputs.values()) {
      box.hidden = !spec.policies.includes(policy);
      if (spec.flag) input.checked = values[spec.name];
      else if (document.activeElement !== input) input.value = values[spec.name] ?? "";
      if (spec.name === "initial_length")
        name.textContent = policy === "fixed" ? "Length" : spec.label;
    }
    this.#regionBox.hidden = policy === "fixed";
    const region = this.region;
    this.#slider.set(region);
    this.#regionValue.textContent = `${region[0].toFixed(2)} – ${region[1].toFixed(2)}`;
    const measure = MEASURES[signalOf(values)];
    const grows = policy === "daedal";
    this.#slider.name(grows ? ["grow", "insert", "hold"] : ["grow", "hold", "shrink"]);
    this.#regionName.textContent = grows ? "Thresholds" : "Equilibrium region";
    this.#regionNote.textContent = grows
      ? `On ${measure}. DAEDAL grows first, then inserts where it is unsure; it never shrinks.`
      : `Of ${measure}.`;
    const free = values.rho_low !== null || values.rho_high !== null;
    for (const button of this.#presetButtons) {
      button.setAttribute("aria-pressed", String(!free && button.dataset.preset === preset));
      button.hidden = policy === "daedal";
    }
  }

  #field(id, spec) {
    const inputId = `${spec.name}-${id}`;
    const common = { id: inputId, name: spec.name, onchange: () => this.#read(spec, input) };
    const range = { min: spec.min, max: spec.max, step: spec.integer ? 1 : "any" };
    const input = spec.choices
      ? el("select", common, ...spec.choices.map(([value, text]) => el("option", { value, text })))
      : spec.flag
        ? el("input", { ...common, type: "checkbox" })
        : el("input", {
            ...common,
            type: "number",
            inputmode: "decimal",
            required: !spec.optional,
            ...range,
          });
    const name = el("span", { text: spec.label });
    const label = el("label", { for: inputId }, name);
    if (spec.hint) label.append(el("small", { text: spec.hint }));
    const box = el("div", { class: spec.flag ? "field flag" : "field" }, label, input);
    this.#inputs.set(spec.name, { spec, input, box, name });
    return box;
  }

  #read(spec, input) {
    if (spec.flag) this.#edit({ [spec.name]: input.checked });
    else if (spec.choices) this.#edit({ [spec.name]: input.value || null });
    else this.#edit({ [spec.name]: input.value === "" ? null : Number(input.value) });
  }

  /** A policy comes with its usual length, unless another one was typed. */
  #choosePolicy(policy) {
    const usual = this.values.initial_length === USUAL_LENGTH[this.values.policy];
    const initial_length = usual
      ? Math.min(USUAL_LENGTH[policy], this.values.max_tokens)
      : this.values.initial_length;
    this.#edit({ policy, initial_length, rho_low: null, rho_high: null });
  }

  #edit(change) {
    this.show({ ...this.values, ...change });
    this.#onChange();
  }
}
