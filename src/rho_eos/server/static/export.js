/** Files to take home: a chart as a picture, a run as JSON. */

import { el, svg } from "./dom.js";

/** What a chart's look consists of; in a file there is no style sheet. */
const LOOK = [
  ...["fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-linejoin", "opacity"],
  ...["font-family", "font-size", "text-anchor"],
];
const CAPTION = 26; // pixels above the chart
const SCALE = 2; // of a PNG, for sharp print and screens

export function saveJson(name, content) {
  save(`${name}.json`, new Blob([JSON.stringify(content, null, 1)], { type: "application/json" }));
}

export function saveSvg(name, chart, caption) {
  save(`${name}.svg`, standalone(chart, caption).blob);
}

export async function savePng(name, chart, caption) {
  const { blob, width, height } = standalone(chart, caption);
  const address = URL.createObjectURL(blob);
  const image = new Image(width, height);
  image.src = address;
  await image.decode();
  const canvas = el("canvas", { width: width * SCALE, height: height * SCALE });
  canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
  URL.revokeObjectURL(address);
  canvas.toBlob((png) => save(`${name}.png`, png), "image/png");
}

/** The chart as it is on screen, on its paper and under its caption, needing nothing beside it. */
function standalone(chart, caption) {
  const [, , width, inner] = chart.getAttribute("viewBox").split(" ").map(Number);
  const height = inner + CAPTION;
  const page = getComputedStyle(chart.closest(".card"));
  const copy = chart.cloneNode(true);
  const [originals, copies] = [chart, copy].map((root) => [...root.querySelectorAll("*")]);
  copies.forEach((node, k) => {
    const style = getComputedStyle(originals[k]);
    if (style.visibility === "hidden") return node.remove();
    node.removeAttribute("class");
    for (const name of LOOK) node.setAttribute(name, style.getPropertyValue(name));
  });
  const head = { x: 12, y: 18, fill: page.color, "font-family": page.fontFamily, "font-size": 13 };
  const root = svg(
    "svg",
    { width, height, viewBox: `0 0 ${width} ${height}` },
    svg("title", { text: `${caption}. ${chart.getAttribute("aria-label")}` }),
    svg("rect", { width, height, fill: page.backgroundColor }),
    svg("text", { ...head, text: caption }),
    svg("g", { transform: `translate(0 ${CAPTION})` }, ...copy.childNodes),
  );
  const text = new XMLSerializer().serializeToString(root);
  return { blob: new Blob([text], { type: "image/svg+xml" }), width, height };
}

function save(name, blob) {
  const href = URL.createObjectURL(blob);
  const link = el("a", { href, download: name.replaceAll(/[^\w.-]+/g, "-") });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(href), 10_000);
}
