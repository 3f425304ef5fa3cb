/** How one panel decodes, as a form that is built from the chosen policy's description. */

import { el } from "./dom.js";
import { carriedOver, layout, necessary, requestFields, resolve, same } from "./parameters.js";
import { RegionSlider } from "./slider.js";
import { Field } from "./widgets.js";

export class Settings {
  #id;
  #description;
  #usual; // the state this panel starts with
  #onChange;
  #radios;
  #summary = el("p", { class: "hint" });
  #setup = el("details", { class: "setup", open: true });
  #more = null;
  #built = null; // the policy that the form is for
  #replaced = null; // the state that gave way to one that can fill a gap
  #fields = new Map(); // name → Field
  #presets = [];
  #slider = null;
  #regionValue = el("output", { class: "region-value" });

  constructor(id, description, state, onChange) {
    this.#id = id;
    this.#description = description;
    this.#usual = description.panels[id];
    this.#onChange = onChange;
    this.#radios = Object.entries(this.#policies).map(([policy, { title }]) =>
      el(
        "label",
        { class: "segment" },
        el("input", {
          type: "radio",
          name: `policy-${id}`,
          value: policy,
          onchange: () => this.#choosePolicy(policy),
        }),
        el("span", { text: title }),
      ),
    );
    const group = { class: "segments", role: "radiogroup", "aria-label": "Policy" };
    this.element = el(
      "form",
      { class: "settings", novalidate: true, onsubmit: (event) => event.preventDefault() },
      el("div", { class: "policy" }, el("div", group, ...this.#radios), this.#summary),
      this.#setup,
    );
    this.show(state);
  }

  /** The ends of the region as the form has them; null where the policy has none. */
  get region() {
    if (!this.#slider) return null;
    const { rho_low, rho_high } = this.#values;
    return [rho_low, rho_high];
  }

  get request() {
    return requestFields(this.state);
  }

  get #policies() {
    return this.#description.policies;
  }

  get #policy() {
    return this.#policies[this.state.policy];
  }

  get #values() {
    return resolve(this.#policy, this.state.given);
  }

  /** Whether every field holds a usable value; if not, the browser says which and why. */
  validate() {
    const wrong = [...this.#fields.values()].find((field) => !field.isValid());
    if (!wrong) return true;
    this.#setup.open = true;
    this.#more.open ||= this.#more.contains(wrong.element);
    return wrong.isValid(true);
  }

  /** Where room is short, all but the policy is folded away. */
  fold(folded) {
    this.#setup.open = !folded;
  }

  /** The needle on the region; nothing without one, or if it points beyond the scale. */
  point(value) {
    this.#slider?.point(value !== null && value >= 0 && value <= 1 ? value : null);
  }

  /** Before given text, only policies that can stand there; without it, what there was before. */
  infill(infilling) {
    const { policies, start } = this.#description.infilling;
    for (const { firstChild: radio } of this.#radios) {
      radio.disabled = infilling && !policies.includes(radio.value);
      radio.parentElement.title = radio.disabled ? "This policy cannot stand before text" : "";
    }
    if (infilling && !policies.includes(this.state.policy)) {
      this.#replaced = this.state;
      this.show(start);
    } else if (!infilling && this.#replaced) {
      this.show(this.#replaced);
      this.#replaced = null;
    }
  }

  show(state) {
    this.state = state;
    if (this.#built !== state.policy) this.#build();
    const values = this.#values;
    for (const label of this.#radios)
      label.firstChild.checked = label.firstChild.value === state.policy;
    for (const [name, field] of this.#fields) field.show(values[name]);
    for (const button of this.#presets) {
      const { preset } = button.dataset;
      const changed = Object.keys(this.#policy.presets[preset]).some((name) => name in state.given);
      button.setAttribute("aria-pressed", String(values.preset === preset && !changed));
    }
    if (this.#slider) {
      this.#slider.set(this.region);
      this.#regionValue.textContent = this.region.map((end) => end.toFixed(2)).join(" – ");
    }
  }

  #build() {
    const { policy } = this.state;
    const { presets, region, first, later } = layout(this.#description, policy);
    this.#built = policy;
    this.#summary.textContent = this.#policy.summary;
    this.#fields.clear();
    const fields = (names) =>
      el("div", { class: "fields" }, ...names.map((name) => this.#field(name)));
    this.#more = el(
      "details",
      { class: "more", open: this.#more?.open ?? false, hidden: later.length === 0 },
      el("summary", { text: "More parameters" }),
      fields(later),
    );
    this.#setup.replaceChildren(
      el("summary", { text: "Settings" }),
      ...this.#presetRow(presets),
      ...this.#regionBox(region),
      fields(first),
      this.#more,
    );
  }

  #field(name) {
    const spec = this.#policy.parameters[name];
    const field = new Field(this.#id, name, spec, (value) => this.#edit({ [name]: value }));
    this.#fields.set(name, field);
    return field.element;
  }

  #presetRow(presets) {
    this.#presets = presets.map((preset) =>
      el("button", {
        type: "button",
        class: "chip",
        text: preset,
        "data-preset": preset,
        onclick: () => this.#choosePreset(preset),
      }),
    );
    const group = { class: "presets", role: "group", "aria-label": "Presets" };
    const name = el("span", { class: "label", text: "Preset" });
    return presets.length
      ? [el("div", { class: "row wrap" }, name, el("div", group, ...this.#presets))]
      : [];
  }

  #regionBox(shown) {
    this.#slider = null;
    if (!shown) return [];
    const { rho_low, rho_high } = this.#policy.parameters;
    this.#slider = new RegionSlider([rho_low.help, rho_high.help], ([low, high]) =>
      this.#edit({ rho_low: low, rho_high: high }),
    );
    const name = el("span", { class: "label", text: "Region" });
    return [
      el(
        "div",
        { class: "region-box" },
        el("div", { class: "row" }, name, this.#regionValue),
        this.#slider.element,
      ),
    ];
  }

  /** What was chosen stays where it means the same; what the panel began with goes with its policy. */
  #choosePolicy(policy) {
    this.#replaced = null;
    const { policy: home, given: usual } = this.#usual;
    const chosen = Object.fromEntries(
      Object.entries(this.state.given).filter(
        ([name, value]) => this.state.policy !== home || !same(usual[name], value),
      ),
    );
    const kept = carriedOver(chosen, this.#policy, this.#policies[policy]);
    this.show({ policy, given: { ...(policy === home ? usual : {}), ...kept } });
    this.#onChange();
  }

  /** A preset's own values apply again. */
  #choosePreset(preset) {
    const names = Object.keys(this.#policy.presets[preset]);
    const rest = Object.entries(this.state.given).filter(([name]) => !names.includes(name));
    this.state = { ...this.state, given: Object.fromEntries(rest) };
    this.#edit({ preset });
  }

  #edit(change) {
    const { policy, given } = this.state;
    this.show({ policy, given: necessary(this.#policy, { ...given, ...change }) });
    this.#onChange();
  }
}
