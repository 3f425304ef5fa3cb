/** How one panel decodes, as a form. */

import { el } from "./dom.js";
import {
  FIELDS,
  POLICY_NAMES,
  USUAL_LENGTH,
  regionNote,
  regionOf,
  requestFields,
} from "./parameters.js";
import { RegionSlider } from "./slider.js";

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
  #setup;

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
    this.#setup = el(
      "details",
      { class: "setup", open: true },
      el("summary", { text: "Settings" }),
      this.#regionBox,
      el("div", { class: "fields" }, ...FIELDS.filter((spec) => spec.main).map(field)),
      this.#more,
    );
    const policies = { class: "segments", role: "radiogroup", "aria-label": "Policy" };
    this.element = el(
      "form",
      { class: "settings", novalidate: true, onsubmit: (event) => event.preventDefault() },
      el("div", policies, ...this.#policies),
      this.#setup,
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
    this.#setup.open = true;
    this.#more.open ||= this.#more.contains(wrong.input);
    wrong.input.reportValidity();
    return false;
  }

  /** Where room is short, all but the policy is folded away. */
  fold(folded) {
    this.#setup.open = !folded;
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
    const grows = policy === "daedal";
    this.#slider.name(grows ? ["grow", "insert", "hold"] : ["grow", "hold", "shrink"]);
    this.#regionName.textContent = grows ? "Thresholds" : "Equilibrium region";
    this.#regionNote.textContent = regionNote(values);
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
