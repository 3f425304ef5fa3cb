/** Settings in the address bar: a link shows a colleague exactly what one sees. */

/** `{ prompt, compare, speed, a: {…}, b: {…} }` → what stands after the `#`; defaults are left out. */
export function encode(state, defaults) {
  const query = new URLSearchParams();
  query.set("prompt", state.prompt);
  if (state.compare) query.set("compare", "1");
  if (state.speed !== "live") query.set("speed", state.speed);
  for (const side of ["a", "b"])
    for (const [name, value] of Object.entries(state[side]))
      if (value !== defaults[side][name]) query.set(`${side}.${name}`, value ?? "");
  return query.toString();
}

/** The reverse; what the link does not say keeps its default, what is unknown is ignored. */
export function decode(hash, defaults) {
  const query = new URLSearchParams(hash.replace(/^#/, ""));
  const side = (name) =>
    Object.fromEntries(
      Object.entries(defaults[name]).map(([key, value]) => {
        const given = query.get(`${name}.${key}`);
        return [key, given === null ? value : parse(given)];
      }),
    );
  return {
    prompt: query.get("prompt"),
    compare: query.get("compare") === "1",
    speed: query.get("speed") ?? "live",
    a: side("a"),
    b: side("b"),
  };
}

function parse(text) {
  if (text === "") return null;
  if (text === "true" || text === "false") return text === "true";
  return Number.isFinite(Number(text)) ? Number(text) : text;
}
