/**
 * Policies, commit rules, caches and their parameters, as the server describes them. None is known
 * here by name: what is registered with the server is what the page offers.
 *
 * A panel's state is `{ policy, given }`. `given` holds only what was chosen, the commit rule and the
 * cache included; everything else follows from it on the server, and is shown here as the server's
 * description says.
 */

/** What everyone looks for first. */
const LENGTHS = ["initial_length", "max_tokens"];

/** The server's facts and its schema as one description, with parameters by their names in HTTP. */
export function readDescription(facts, schema) {
  const rename = (values) =>
    Object.fromEntries(
      Object.entries(values)
        .map(([name, value]) => [name in facts.names ? facts.names[name] : name, value])
        .filter(([name]) => name !== null),
    );
  const mapped = (object, change) =>
    Object.fromEntries(Object.entries(object).map(([name, value]) => [name, change(value, name)]));
  const defaults = rename(facts.defaults); // of this server, for requests that do not say
  const described = (spec, name) => {
    const usual = name in defaults ? { ...spec, default: defaults[name] } : spec;
    return LENGTHS.includes(name) ? shortened(usual, facts.max_new_tokens) : usual;
  };
  const only = (object, isKept) =>
    Object.fromEntries(Object.entries(object).filter(([name]) => isKept(name)));
  const taken = (name, parameters) =>
    only(parameters, (each) => !(facts.refused[name] ?? []).includes(each));
  // What has no title is nothing that this model can be decoded with.
  const axes = mapped(schema.axes, (parts, axis) =>
    mapped(only(parts, (name) => name in facts.titles[axis]), (part, name) => ({
      ...part,
      presets: mapped(part.presets, rename),
      parameters: mapped(rename(taken(name, part.parameters)), described),
      implied: mapped(facts.implied[name] ?? {}, (choices) => mapped(choices, rename)),
    })),
  );
  const panels = mapped(facts.panels, ({ policy, ...given }) =>
    policy in axes.policy
      ? { policy, given: rename(given) }
      : { policy: Object.keys(axes.policy)[0], given: {} },
  );
  return { ...facts, common: schema.common, axes, panels };
}

/**
 * What decodes with this state: the policy, with the parameters of the commit rule and the cache
 * beside its own, and the choice of the two. `rule` and `cache` are their parts; a policy may have a
 * rule of its own, and there may be no cache.
 */
export function compose({ axes, usual, titles }, { policy, given }) {
  const own = axes.policy[policy];
  const chosen = { ...usual, ...given };
  const rule = own.own_commit ? undefined : axes.commit[chosen.commit];
  const cache = axes.cache[chosen.cache];
  const choice = (axis) => ({ type: "choice", default: usual[axis], choices: Object.keys(titles[axis]) });
  const parameters = {
    ...(rule && { commit: choice("commit") }),
    cache: choice("cache"),
    ...own.parameters,
    ...rule?.parameters,
    ...cache?.parameters,
    ...own.parameters, // its own declaration of a name counts
  };
  return { ...own, rule, cache, parameters };
}

/** A length as far as the model's context goes. */
function shortened(spec, limit) {
  const le = Math.min(spec.bounds.le ?? limit, limit);
  return { ...spec, default: Math.min(spec.default, limit), bounds: { ...spec.bounds, le } };
}

/** The value of every parameter of a policy that follows from what is given. */
export function resolve(policy, given) {
  const values = Object.fromEntries(
    Object.entries(policy.parameters).map(([name, spec]) => [name, spec.default]),
  );
  for (const [name, choices] of Object.entries(policy.implied))
    Object.assign(values, choices[given[name] ?? values[name]] ?? {});
  for (const [name, value] of Object.entries(given)) if (name in values) values[name] = value;
  // Who only says how long a text may become did not ask for a longer start.
  if (!("initial_length" in given) && values.max_tokens < values.initial_length)
    values.initial_length = values.max_tokens;
  return values;
}

/** What is given, less what would be so anyway and what the policy does not have. */
export function necessary(policy, given) {
  const known = Object.entries(given).filter(([name]) => name in policy.parameters);
  return Object.fromEntries(
    known.filter(([name, value]) => {
      const rest = Object.fromEntries(known.filter(([other]) => other !== name));
      return !same(resolve(policy, rest)[name], value);
    }),
  );
}

/** What was given for one policy and means the same to another. */
export function carriedOver(given, from, to) {
  const meaning = (policy, name) => {
    const { type, default: usual, choices, bounds, optional } = policy.parameters[name] ?? {};
    return [type, usual, choices, bounds, optional];
  };
  return Object.fromEntries(
    Object.entries(given).filter(([name]) => same(meaning(from, name), meaning(to, name))),
  );
}

/**
 * Which widgets the form of what `compose` gives has, and where. First the lengths and what this policy,
 * this rule and this cache bring; then, behind "more", what several policies or all rules have, and
 * last what every request has.
 */
export function layout({ axes, common }, { parameters, presets, rule, cache }) {
  const region = ["rho_low", "rho_high"].every((end) => isShare(parameters[end]));
  const hasPresets = Object.keys(presets).length > 0;
  const hasOwnWidget = (each) =>
    (region && ["rho_low", "rho_high"].includes(each)) || (each === "preset" && hasPresets);
  const having = (axis, each) => Object.values(axes[axis]).filter((part) => each in part.parameters);
  const isShared = (each) => {
    if (each in (cache?.parameters ?? {})) return false;
    if (each in (rule?.parameters ?? {}))
      return having("commit", each).length === Object.keys(axes.commit).length;
    return having("policy", each).length > 1;
  };
  const rank = (each) => {
    if (LENGTHS.includes(each)) return 0;
    if (common.includes(each)) return 3;
    return isShared(each) ? 2 : 1;
  };
  const names = Object.keys(parameters).filter(
    (each) => !hasOwnWidget(each) && each !== "commit" && each !== "cache",
  );
  const ranked = (...ranks) => ranks.flatMap((k) => names.filter((each) => rank(each) === k));
  return { region, presets: Object.keys(presets), first: ranked(0, 1), later: ranked(2, 3) };
}

function isShare(spec) {
  return spec?.type === "number" && spec.bounds.ge === 0 && spec.bounds.le === 1;
}

/** `initial_length` → `Initial length`. */
export function label(name) {
  const words = name.replaceAll("_", " ");
  return words[0].toUpperCase() + words.slice(1);
}

/** A value as it stands in a field or in a link. */
export function asText(value) {
  return Array.isArray(value) ? value.join("\n") : String(value ?? "");
}

/** The value that a text stands for, or undefined if the parameter takes no such thing. */
export function parse(spec, text) {
  if (spec.type === "texts") return text.split("\n").filter((line) => line !== "");
  if (spec.type === "integers" || spec.type === "numbers") {
    const item = { ...spec, type: spec.type.slice(0, -1), optional: false };
    const values = text.split(/[\s,]+/).filter((word) => word !== "").map((word) => parse(item, word));
    return values.includes(undefined) ? undefined : values;
  }
  if (text === "") return spec.optional ? null : undefined;
  if (spec.type === "choice") return spec.choices.includes(text) ? text : undefined;
  if (spec.type === "flag") return { true: true, false: false }[text];
  if (spec.type === "text") return text;
  const number = Number(text);
  if (!Number.isFinite(number)) return undefined;
  if (spec.type === "integer" && !Number.isSafeInteger(number)) return undefined;
  const { ge = -Infinity, gt = -Infinity, le = Infinity, lt = Infinity } = spec.bounds;
  return number >= ge && number > gt && number <= le && number < lt ? number : undefined;
}

/** The top-level fields of the request: the policy, and what was chosen for it. */
export function requestFields({ policy, given }) {
  return { policy, ...given };
}

/** A panel in a few words: its policy, and what was chosen of first length, commit rule and cache. */
export function title({ titles }, { policy, given }) {
  const { initial_length, commit, cache } = given;
  const parts = [titles.policy[policy], initial_length, titles.commit[commit]];
  if (cache !== undefined) parts.push(`${titles.cache[cache]} cache`);
  return parts.filter((part) => part !== undefined).join(" · ");
}

export function same(left, right) {
  return JSON.stringify(left) === JSON.stringify(right);
}
