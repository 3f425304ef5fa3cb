/** The decoding parameters: what they default to, what they imply, and the request they become. */

export const POLICY_NAMES = { "rho-eos": "ρ-EOS", fixed: "Fixed length", daedal: "DAEDAL" };
/** DAEDAL's own thresholds on EOS confidence. */
const DAEDAL_REGION = [0.5, 0.9];
/** The canvas that a policy is usually started with. */
export const USUAL_LENGTH = { "rho-eos": 64, fixed: 256, daedal: 64 };

const ALL = ["rho-eos", "fixed", "daedal"];
const VARIABLE = ["rho-eos", "daedal"];
/** Every field of the form, and the policies it means something to. */
export const FIELDS = [
  {
    name: "initial_length",
    label: "Initial length",
    hint: "MASKs to start with",
    policies: ALL,
    min: 1,
    integer: true,
    main: true,
  },
  {
    name: "max_tokens",
    label: "Longest canvas",
    hint: "L max",
    policies: VARIABLE,
    min: 1,
    integer: true,
    main: true,
  },
  {
    name: "threshold",
    label: "Commit above",
    hint: "confidence τ",
    policies: ALL,
    min: 0.01,
    max: 1,
  },
  {
    name: "block_length",
    label: "Block length",
    hint: "empty: anywhere",
    policies: ALL,
    min: 1,
    integer: true,
    optional: true,
  },
  {
    name: "steps",
    label: "Steps",
    hint: "empty: the τ rule",
    policies: ["fixed"],
    min: 1,
    integer: true,
    optional: true,
  },
  {
    name: "expansion",
    label: "Change of length",
    hint: "E(ρ)",
    policies: ["rho-eos"],
    choices: [
      ["constant", "constant"],
      ["linear", "linear"],
      ["exponential", "exponential"],
    ],
  },
  {
    name: "horizon",
    label: "Adjust until forward",
    hint: "N",
    policies: ["rho-eos"],
    min: 0,
    integer: true,
  },
  {
    name: "signal",
    label: "Signal",
    hint: "steers the length",
    policies: VARIABLE,
    choices: [
      ["", "the policy’s own"],
      ["density", "EOS density ρ"],
      ["confidence", "EOS confidence"],
    ],
  },
  { name: "temperature", label: "Temperature", hint: "0: greedy", policies: ALL, min: 0 },
  { name: "seed", label: "Seed", hint: "of the noise", policies: ALL, min: 0, integer: true },
  {
    name: "early_stop",
    label: "Stop once the text is complete",
    hint: "",
    policies: ALL,
    flag: true,
  },
];

/** A panel's values before anyone touches it. */
export function defaultValues(description, policy) {
  const given = description.defaults ?? {};
  const limit = description.max_new_tokens ?? 2048;
  return {
    policy,
    preset: given.preset ?? "asym",
    rho_low: null,
    rho_high: null,
    signal: null,
    initial_length: Math.min(USUAL_LENGTH[policy], limit),
    max_tokens: limit,
    threshold: given.threshold ?? 0.9,
    block_length: given.block_length === undefined ? 32 : given.block_length,
    steps: null,
    expansion: given.expansion ?? "exponential",
    horizon: given.horizon ?? 64,
    temperature: given.temperature ?? 0,
    seed: given.seed ?? 0,
    early_stop: given.early_stop ?? true,
  };
}

/** The same values with what cannot be right (a link can say anything) put back to its default. */
export function repaired(values, defaults) {
  const isShare = (value) => value === null || (value >= 0 && value <= 1);
  const isRight = (name, value) => {
    if (name === "policy") return Object.hasOwn(POLICY_NAMES, value);
    if (name === "rho_low" || name === "rho_high") return isShare(value);
    return value === null || defaults[name] === null || typeof value === typeof defaults[name];
  };
  return Object.fromEntries(
    Object.entries(values).map(([name, value]) => [
      name,
      isRight(name, value) ? value : defaults[name],
    ]),
  );
}

/** The number that steers the length: what the policy says, unless it is chosen. */
export function signalOf(values) {
  const published = values.policy === "daedal" || values.preset === "released";
  return values.signal ?? (published ? "confidence" : "density");
}

export function regionOf(values, presets) {
  const daedal = values.policy === "daedal" && signalOf(values) === "confidence";
  const [low, high] = daedal ? DAEDAL_REGION : (presets[values.preset] ?? [0.4, 0.8]);
  return [values.rho_low ?? low, values.rho_high ?? high];
}

/** The top-level fields of the request: only those that mean something to the policy. */
export function requestFields(values, presets) {
  const fields = { policy: values.policy };
  for (const { name, policies } of FIELDS)
    if (policies.includes(values.policy) && values[name] !== null) fields[name] = values[name];
  if (values.policy === "fixed") fields.max_tokens = values.initial_length;
  else {
    const [rho_low, rho_high] = regionOf(values, presets);
    Object.assign(fields, { preset: values.preset, rho_low, rho_high });
  }
  fields.block_length = values.block_length; // null is a value: no blocks
  return fields;
}

/** What the region is compared with, where it is not the ρ that the page explains. */
export function regionNote(values) {
  const confidence = signalOf(values) === "confidence";
  const measure = confidence
    ? "EOS confidence: how sure the last 32 positions are of the end"
    : "ρ";
  if (values.policy === "daedal")
    return `On ${measure}. DAEDAL grows first, then inserts where it is unsure; it never shrinks.`;
  return confidence ? `Of ${measure}.` : "";
}
