/**
 * Building elements. Everything a model or a server says enters the page through `textContent`
 * here; nothing in this application ever parses a string as HTML.
 */

const SVG = "http://www.w3.org/2000/svg";

/** `el("p", { class: "hint", text: "…", onclick: f, "aria-label": "…" }, child, …)` */
export function el(tag, properties = {}, ...children) {
  return assemble(document.createElement(tag), properties, children);
}

export function svg(tag, properties = {}, ...children) {
  return assemble(document.createElementNS(SVG, tag), properties, children);
}

export function setAttributes(node, attributes) {
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
}

function assemble(node, properties, children) {
  for (const [name, value] of Object.entries(properties)) {
    if (name === "text") node.textContent = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined)
      node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}
