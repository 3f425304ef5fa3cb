/** A conversation: turns of one who asks and a model that answers, each answer with its recording. */

import { el } from "./dom.js";
import { count, number } from "./words.js";

export class Conversation {
  #turns = []; // { message, recording, node, … }
  #list;
  #onReplay;

  /** `list` is the element that holds the turns; `onReplay(recording)` shows an answer's canvas. */
  constructor(list, onReplay) {
    this.#list = list;
    this.#onReplay = onReplay;
  }

  get length() {
    return this.#turns.length;
  }

  /** What the server is sent: all turns, the last of them without an answer. */
  get messages() {
    return this.#turns.flatMap(({ message, recording }) => [
      { role: "user", content: message },
      ...(recording?.done ? [{ role: "assistant", content: recording.done.text }] : []),
    ]);
  }

  ask(message) {
    const turn = {
      message,
      recording: null,
      answer: el("p", { class: "answer waiting", text: "…" }),
      facts: el("small"),
      replay: el("button", {
        type: "button",
        class: "quiet",
        text: "▶ Replay",
        disabled: true,
        onclick: () => this.#onReplay(turn.recording),
      }),
    };
    turn.node = el(
      "li",
      { class: "turn" },
      el("p", { class: "question", text: message }),
      turn.answer,
      el("div", { class: "row wrap" }, turn.replay, turn.facts),
    );
    this.#turns.push(turn);
    this.#list.append(turn.node);
    this.#list.hidden = false;
    this.#list.scrollTop = this.#list.scrollHeight;
  }

  /** The answer to the last question is being written. */
  answer(recording) {
    this.#turns.at(-1).recording = recording;
  }

  /** The last turn got no answer: it was not part of the conversation. Returns what was asked. */
  takeBack() {
    const { message, node } = this.#turns.pop();
    node.remove();
    this.#list.hidden = !this.length;
    return message;
  }

  clear() {
    this.#turns = [];
    this.#list.replaceChildren();
    this.#list.hidden = true;
  }

  /** Draw what is known by now; `shown` is the recording whose canvas is on the stage. */
  show(shown, running) {
    const { scrollHeight, scrollTop, clientHeight } = this.#list;
    const atEnd = scrollHeight - scrollTop - clientHeight < 40;
    for (const { recording, answer, facts, replay, node } of this.#turns) {
      if (!recording) continue;
      const text = recording.done?.text ?? recording.finalText;
      if (answer.textContent !== text && text) {
        answer.textContent = text;
        answer.classList.remove("waiting");
      }
      if (recording.done && !facts.textContent) facts.textContent = cost(recording.done.usage);
      if (recording.done && !text) answer.textContent = "(an empty answer)";
      replay.disabled = running || !recording.done;
      if (recording === shown) node.setAttribute("aria-current", "true");
      else node.removeAttribute("aria-current");
    }
    if (atEnd) this.#list.scrollTop = this.#list.scrollHeight;
  }
}

function cost({ rho_eos }) {
  const { n_token, nfe, positions_evaluated } = rho_eos;
  return `L ${n_token} · ${count(nfe, "forward")} · ${number(positions_evaluated)} positions`;
}
