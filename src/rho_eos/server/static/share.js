/** Settings in the address bar: a link shows a colleague exactly what one sees. */

import { asText, compose, parse, same } from "./parameters.js";

const SIDES = ["a", "b"];

/** `{ prompt, suffix, template, question, tab, compare, speed, a, b }` → what stands after the `#`; the usual is left out. */
export function encode(state, usual) {
  const query = new URLSearchParams();
  query.set("prompt", state.prompt);
  if (state.suffix) query.set("suffix", state.suffix);
  if (state.template) query.set("template", "1");
  if (state.question) query.set("question", state.question);
  if (state.tab !== "prompt") query.set("tab", state.tab);
  if (state.compare) query.set("compare", "1");
  if (state.speed !== "live") query.set("speed", state.speed);
  for (const side of SIDES) {
    if (same(state[side], usual[side])) continue;
    query.set(`${side}.policy`, state[side].policy);
    for (const [name, value] of Object.entries(state[side].given))
      query.set(`${side}.${name}`, asText(value));
  }
  return query.toString();
}

/**
 * The reverse; what the link does not say is as usual. What is unknown here, or wrong, is left out and
 * named in `dropped`.
 */
export function decode(hash, description) {
  const { axes, panels: usual } = description;
  const query = new URLSearchParams(hash.replace(/^#/, ""));
  const dropped = [];
  const side = (name) => {
    const said = [...query].filter(([key]) => key.startsWith(`${name}.`));
    if (!said.length) return usual[name];
    const named = query.get(`${name}.policy`);
    const policy = Object.hasOwn(axes.policy, named) ? named : usual[name].policy;
    if (named !== null && named !== policy) dropped.push(`${name}.policy ${named}`);
    // Which parameters there are follows from the commit rule and the cache.
    const read = (given, isRead) => {
      const { parameters } = compose(description, { policy, given });
      for (const [key, text] of said) {
        const parameter = key.slice(name.length + 1);
        if (!Object.hasOwn(parameters, parameter) || !isRead(parameter)) continue;
        const value = parse(parameters[parameter], text);
        if (value !== undefined) given[parameter] = value;
      }
      return given;
    };
    const parts = read({}, (parameter) => ["commit", "cache"].includes(parameter));
    const given = read(parts, () => true);
    for (const [key, text] of said) {
      const parameter = key.slice(name.length + 1);
      if (parameter !== "policy" && !Object.hasOwn(given, parameter)) dropped.push(`${key} ${text}`);
    }
    return { policy, given };
  };
  return {
    prompt: query.get("prompt"),
    tab: query.get("tab") === "chat" ? "chat" : "prompt",
    suffix: query.get("suffix") ?? "",
    template: query.get("template") === "1",
    question: query.get("question") ?? "",
    dropped,
    compare: query.get("compare") === "1",
    speed: query.get("speed") ?? "live",
    ...Object.fromEntries(SIDES.map((name) => [name, side(name)])),
  };
}
