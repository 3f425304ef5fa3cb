/** One parameter as a form field: which kind of input it gets follows from its type alone. */

import { el } from "./dom.js";
import { asText, label, parse } from "./parameters.js";

/** `onEdit(value)` is called with each usable value; a field that holds none says what it takes. */
export class Field {
  #spec;
  #input;

  constructor(id, name, spec, onEdit) {
    this.#spec = spec;
    const inputId = `${name}-${id}`;
    const about = el("div", { class: "about" }, el("label", { for: inputId, text: label(name) }));
    if (spec.help) about.append(el("small", { id: `${inputId}-help`, text: spec.help }));
    this.#input = input(spec, {
      id: inputId,
      name,
      "aria-describedby": spec.help ? `${inputId}-help` : null,
      oninput: () => this.#read(onEdit),
    });
    const parts = spec.type === "flag" ? [this.#input, about] : [about, this.#input];
    this.element = el("div", { class: `field ${spec.type}` }, ...parts);
  }

  /** What is being typed, or is wrong, is left as it is. */
  show(value) {
    if (this.#spec.type === "flag") this.#input.checked = value;
    else if (document.activeElement !== this.#input && this.#input.checkValidity())
      this.#input.value = asText(value);
  }

  /** Whether it holds a usable value; if not, and `aloud`, the browser says what it takes. */
  isValid(aloud = false) {
    return aloud ? this.#input.reportValidity() : this.#input.checkValidity();
  }

  #read(onEdit) {
    const { type, takes } = this.#spec;
    const text = type === "flag" ? String(this.#input.checked) : this.#input.value;
    const value = this.#input.validity.badInput ? undefined : parse(this.#spec, text);
    this.#input.setCustomValidity(value === undefined ? `This takes ${takes}.` : "");
    if (value !== undefined) onEdit(value);
  }
}

function input(spec, attributes) {
  const { ge, gt, le, lt } = spec.bounds;
  switch (spec.type) {
    case "flag":
      return el("input", { ...attributes, type: "checkbox" });
    case "choice":
      return el(
        "select",
        attributes,
        spec.optional ? el("option", { value: "", text: "none" }) : null,
        ...spec.choices.map((value) => el("option", { value, text: value })),
      );
    case "integer":
    case "number":
      return el("input", {
        ...attributes,
        type: "number",
        inputmode: spec.type === "integer" ? "numeric" : "decimal",
        min: ge ?? gt,
        max: le ?? lt,
        step: spec.type === "integer" ? 1 : "any",
        placeholder: spec.optional ? "none" : null,
      });
    case "texts":
    case "integers":
    case "numbers":
      return el("textarea", { ...attributes, rows: 1, placeholder: "one on each line" });
    default:
      return el("input", { ...attributes, type: "text" });
  }
}
