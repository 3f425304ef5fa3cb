/** What the numbers mean, in sentences. */

const whole = new Intl.NumberFormat("en");

export function count(number, noun) {
  return `${whole.format(number)} ${noun}${number === 1 ? "" : "s"}`;
}

export function number(value) {
  return whole.format(value);
}

/** What somebody else said, as a sentence. */
export function sentence(text) {
  return text.charAt(0).toUpperCase() + text.slice(1) + (/[\p{L}\p{N}'")]$/u.test(text) ? "." : "");
}

/** `expand +16` in two or three words, with the arrow that the charts use. */
export function actionLabel({ action, change, refresh }) {
  if (!refresh) return "window";
  if (change > 0) return `▲ ${action} +${change}`;
  if (change < 0) return `▼ ${action} −${-change}`;
  return action;
}

/** The sentence under the canvas: why the policy did what it did, and what was written. */
export function narrate(step) {
  const { length } = step.committed;
  const taken = step.written.filter(([, text]) => text === null).length;
  const done = [
    length && `${count(length, "token")} committed`,
    taken && `${number(taken)} taken back`,
  ].filter(Boolean);
  return [step.why, done.length ? `${done.join(", ")}.` : ""].filter(Boolean).join(" ");
}

/** How a run ended, in a word or two. */
export function endLabel({ done }) {
  if (!done) return "stopped";
  return { stop: "complete", length: "canvas full" }[done.finish_reason] ?? done.finish_reason;
}

/** A run that was stopped by its reader. */
export function halted(recording) {
  const open = recording.newest.cells.filter((cell) => cell.text === null).length;
  const of = `${number(open)} of ${count(recording.newest.cells.length, "position")}`;
  return `Stopped after ${count(recording.length, "forward")}: ${of} still open.`;
}

/** A change of the length. */
export function resized(from, to) {
  if (from === to) return `the canvas changed and is ${to} positions long again.`;
  return `the canvas ${from < to ? "grows" : "shrinks"} from ${from} to ${to} positions.`;
}

/** What the cache saved; nothing where every forward computed everything. Blocks need no refresh. */
export function savings({ positions, exact, reused, refreshes, nfe }, inBlocks) {
  if (positions === exact) return "";
  const share = Math.round((100 * positions) / exact);
  const of = `${share}% of the ${number(exact)} positions that decoding without a cache computes`;
  const kept = `${number(reused)} of the prompt were kept from earlier requests`;
  if (inBlocks) return reused ? `${of}; ${kept}` : of;
  const often = `${number(refreshes)} refresh${refreshes === 1 ? "" : "es"}`;
  return `${of}, with ${often} in ${count(nfe, "forward")}`;
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

function cost(recording) {
  return recording.done.usage.rho_eos.positions_evaluated;
}

function nameBoth(first, second) {
  if (first.title !== second.title) return [first.title, second.title];
  return [first, second].map((recording) => `${recording.title} (${recording.side})`);
}
