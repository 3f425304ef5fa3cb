/** What the numbers mean, in sentences. */

import { POLICY_NAMES, signalOf } from "./parameters.js";

const whole = new Intl.NumberFormat("en");

export function count(number, noun) {
  return `${whole.format(number)} ${noun}${number === 1 ? "" : "s"}`;
}

export function number(value) {
  return whole.format(value);
}

/** `expand +16` in two or three words, with the arrow that the charts use. */
export function actionLabel({ action, change }) {
  if (change > 0) return `▲ ${action} +${change}`;
  if (change < 0) return `▼ ${action} −${-change}`;
  return "hold";
}

/** Why a step did what it did: the sentence under the canvas. */
export function narrate(step, values, region) {
  const filled = `${count(step.committed.length, "token")} committed`;
  if (values.policy === "fixed") return `${filled}; the length is fixed, whatever ρ says.`;
  if (step.signal === null) return `${filled}.`;
  const name = signalOf(values) === "density" ? "ρ" : "EOS confidence";
  const now = `${name} = ${step.signal.toFixed(2)}`;
  const why = values.policy === "daedal" ? daedalReason : equilibriumReason;
  const end = step.committed.length ? ` ${filled}.` : "";
  return `${now}${why(step, region)}${end}`;
}

function equilibriumReason({ signal, change }, [low, high]) {
  if (change > 0) return ` < ${low}: too few MASKs expect the end, the canvas grows by ${change}.`;
  if (change < 0) return ` > ${high}: most MASKs expect the end, the canvas shrinks by ${-change}.`;
  const inside = signal >= low && signal <= high;
  return inside ? " is in the region: the length holds." : ", and the length can change no more.";
}

function daedalReason({ action, signal, change, inserted }, [low, high]) {
  if (action === "expand")
    return ` < ${low}: the canvas grows by ${change} before anything is written.`;
  if (action === "close")
    return `: long enough. Growing ends, with ${change} EOS behind the canvas.`;
  if (action === "insert") return ` < ${high}: the most doubtful MASK becomes ${inserted}.`;
  return signal < high
    ? ", but no MASK is doubtful enough to insert."
    : ": the end is sure, nothing is inserted.";
}

/** How a run ended. */
export function ending({ finish_reason, usage }) {
  const { n_token, expansions, contractions } = usage.rho_eos;
  const reason = { stop: "The text is complete", length: "The canvas is full and no end came" };
  const changes = [
    expansions && count(expansions, "expansion"),
    contractions && count(contractions, "contraction"),
  ].filter(Boolean);
  const after = changes.length ? `, after ${changes.join(" and ")}` : "";
  const used = `${number(usage.completion_tokens)} of ${count(n_token, "position")} used`;
  return `${reason[finish_reason] ?? finish_reason}: ${used}${after}.`;
}

/** Two finished runs in one sentence: who was cheaper, by how much, and whether the texts agree. */
export function compare(left, right) {
  const [cheap, dear] = cost(left) <= cost(right) ? [left, right] : [right, left];
  const factor = cost(dear) / Math.max(1, cost(cheap));
  const names = nameBoth(cheap, dear);
  const [few, many] = [cheap, dear].map((recording) => recording.done.usage.rho_eos.nfe);
  const forwards =
    few === many
      ? `${count(few, "forward")} each`
      : `${number(few)} against ${count(many, "forward")}`;
  const positions = `${number(cost(cheap))} against ${count(cost(dear), "position")} evaluated`;
  const same =
    left.done.text === right.done.text ? "The two texts are the same." : "The two texts differ.";
  const verdict =
    factor < 1.005
      ? `Both cost the same: ${count(cost(cheap), "position")} evaluated, ${forwards}.`
      : `${names[0]} cost ${factor.toFixed(factor < 10 ? 1 : 0)}× less than ${names[1]}: ${positions}, ${forwards}.`;
  return `${verdict} ${same}`;
}

export function title(values) {
  const length = values.policy === "fixed" ? ` ${values.initial_length}` : "";
  return `${values.policy === "fixed" ? "Fixed" : POLICY_NAMES[values.policy]}${length}`;
}

function cost(recording) {
  return recording.done.usage.rho_eos.positions_evaluated;
}

function nameBoth(first, second) {
  const names = [first, second].map((recording) => title(recording.values));
  if (names[0] !== names[1]) return names;
  return [first, second].map((recording) => `${title(recording.values)} (${recording.side})`);
}
