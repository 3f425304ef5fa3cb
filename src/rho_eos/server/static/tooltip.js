/** One small floating note for cells and charts. */

import { el } from "./dom.js";

const MARGIN = 8;

export class Tooltip {
  #node = el("div", { class: "tooltip", role: "presentation", hidden: true });

  constructor() {
    document.body.append(this.#node);
    addEventListener("scroll", () => this.hide(), { passive: true, capture: true });
  }

  /** Lines of text above the anchor, or below it where there is no room; never off the screen. */
  show(lines, anchor) {
    const node = this.#node;
    node.replaceChildren(...lines.map((text) => el("div", { text })));
    node.hidden = false;
    const { width, height } = node.getBoundingClientRect();
    const middle = anchor.left + anchor.width / 2 - width / 2;
    const left = Math.min(Math.max(MARGIN, middle), innerWidth - width - MARGIN);
    const above = anchor.top - height - MARGIN;
    const top = above > MARGIN ? above : anchor.bottom + MARGIN;
    node.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
  }

  hide() {
    this.#node.hidden = true;
  }
}
