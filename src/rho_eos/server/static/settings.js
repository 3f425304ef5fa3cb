/** How one panel decodes, as a form that is built from the description of what was chosen. */

import { el } from "./dom.js";
import { carriedOver, compose, layout, necessary, requestFields, resolve, same } from "./parameters.js";
import { RegionSlider } from "./slider.js";
import { Field } from "./widgets.js";

/** What is chosen by name. */
const AXES = { policy: "Length policy", commit: "Commit rule", cache: "Cache" };
const NO_CACHE = "Every forward computes every position: exact.";

export class Settings {
  #id;
  #description;
  #usual; // the state this panel starts with
  #onChange;
  #axes; // axis → { element, select, summary }
  #setup = el("details", { class: "setup", open: true });
  #more = null;
  #built = null; // what the form is for: the names of policy, commit rule and cache
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
    this.#axes = Object.fromEntries(Object.keys(AXES).map((axis) => [axis, this.#axis(axis)]));
    this.element = el(
      "form",
      { class: "settings", novalidate: true, onsubmit: (event) => event.preventDefault() },
      el("div", { class: "axes" }, ...Object.values(this.#axes).map(({ element }) => element)),
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

  get #composed() {
    return compose(this.#description, this.state);
  }

  get #values() {
    return resolve(this.#composed, this.state.given);
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
    const { able, usual } = this.#description.infilling;
    for (const option of this.#axes.policy.select.options) {
      option.disabled = infilling && !able.includes(option.value);
      option.title = option.disabled ? "This policy cannot stand before text" : "";
    }
    if (infilling && !able.includes(this.state.policy)) {
      this.#replaced = this.state;
      this.show({ policy: usual, given: {} });
    } else if (!infilling && this.#replaced) {
      this.show(this.#replaced);
      this.#replaced = null;
    }
  }

  show(state) {
    this.state = state;
    const composed = this.#composed;
    const values = { ...this.#values, policy: state.policy };
    const chosen = Object.keys(AXES).map((axis) => values[axis]);
    if (!same(this.#built, chosen)) this.#build(composed);
    this.#built = chosen;
    for (const [axis, { select }] of Object.entries(this.#axes)) select.value = values[axis];
    for (const [name, field] of this.#fields) field.show(values[name]);
    for (const button of this.#presets) {
      const { preset } = button.dataset;
      const changed = Object.keys(composed.presets[preset]).some((name) => name in state.given);
      button.setAttribute("aria-pressed", String(values.preset === preset && !changed));
    }
    if (this.#slider) {
      this.#slider.set(this.region);
      this.#regionValue.textContent = this.region.map((end) => end.toFixed(2)).join(" – ");
    }
  }

  /** The select of an axis, and what is said of the part that it names. */
  #axis(axis) {
    const id = `${axis}-${this.#id}`;
    const summary = el("p", { class: "hint" });
    const titles = Object.entries(this.#description.titles[axis]);
    const select = el(
      "select",
      { id, name: axis, onchange: () => this.#choose(axis, select.value) },
      ...titles.map(([value, text]) => el("option", { value, text })),
    );
    const label = el("label", { class: "label", for: id, text: AXES[axis] });
    return { element: el("div", { class: "axis" }, label, select, summary), select, summary };
  }

  #build(composed) {
    const { presets, region, first, later } = layout(this.#description, composed);
    const { policy, commit, cache } = this.#axes;
    policy.summary.textContent = composed.summary;
    commit.element.hidden = !composed.rule;
    commit.summary.textContent = composed.rule?.summary ?? "";
    cache.summary.textContent = composed.cache?.summary ?? NO_CACHE;
    this.#fields.clear();
    const fields = (names) =>
      el("div", { class: "fields" }, ...names.map((name) => this.#field(name, composed)));
    this.#more = el(
      "details",
      { class: "more", open: this.#more?.open ?? false, hidden: later.length === 0 },
      el("summary", { text: "More parameters" }),
      fields(later),
    );
    this.#setup.replaceChildren(
      el("summary", { text: "Settings" }),
      ...this.#presetRow(presets),
      ...this.#regionBox(region, composed.parameters),
      fields(first),
      this.#more,
    );
  }

  #field(name, { parameters }) {
    const spec = parameters[name];
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

  #regionBox(shown, { rho_low, rho_high }) {
    this.#slider = null;
    if (!shown) return [];
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
  #choose(axis, name) {
    const { policy, given } = this.state;
    const { policy: home, given: usual } = this.#usual;
    const moves = axis === "policy";
    if (moves) this.#replaced = null;
    const chosen = Object.fromEntries(
      Object.entries(given).filter(
        ([each, value]) => !moves || policy !== home || !same(usual[each], value),
      ),
    );
    const next = moves ? { policy: name, given: chosen } : { policy, given: { ...chosen, [axis]: name } };
    const composed = compose(this.#description, next);
    const kept = carriedOver(next.given, this.#composed, composed);
    const began = moves && name === home ? usual : {};
    this.show({ policy: next.policy, given: necessary(composed, { ...began, ...kept }) });
    this.#onChange();
  }

  /** A preset's own values apply again. */
  #choosePreset(preset) {
    const names = Object.keys(this.#composed.presets[preset]);
    const rest = Object.entries(this.state.given).filter(([name]) => !names.includes(name));
    this.state = { ...this.state, given: Object.fromEntries(rest) };
    this.#edit({ preset });
  }

  #edit(change) {
    const { policy, given } = this.state;
    this.show({ policy, given: necessary(this.#composed, { ...given, ...change }) });
    this.#onChange();
  }
}
