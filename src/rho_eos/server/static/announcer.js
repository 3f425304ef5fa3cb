/** What a screen reader hears of a run: that it starts, how the length changes, how it ends. */

import { ending, halted, resized } from "./words.js";

const PAUSE_MS = 1200; // between two messages, so that each can be read out

export class Announcer {
  #node;
  #waiting = [];
  #timer = null;
  #heard = new WeakMap(); // recording → how much of it has been told: { count, length, ended }

  /** `node` is a live region. */
  constructor(node) {
    this.#node = node;
  }

  /** A new run: what waits to be said of an older one is old news. */
  clear() {
    this.#waiting = [];
  }

  /** Tell what is new in a run of which `count` forwards are on show. A replay tells nothing. */
  follow(recording, count) {
    const { title, start } = recording;
    let heard = this.#heard.get(recording);
    if (!heard) {
      heard = { count: 0, length: start.length, ended: false };
      this.#heard.set(recording, heard);
      this.#say({ text: `${title}: started with a canvas of ${start.length} positions.` });
    }
    if (heard.ended || count < heard.count) return;
    const { length } = recording.cellsAt(count);
    if (length !== heard.length) this.#sayLength(recording, heard.length, length);
    heard.count = count;
    heard.length = length;
    if (count < recording.length || !(recording.done || recording.stopped)) return;
    heard.ended = true;
    const end = recording.done ? ending(recording.done) : halted(recording);
    this.#say({ text: `${title}: ${end}` });
  }

  /** Changes that follow each other faster than they can be read out are told as one. */
  #sayLength(recording, from, to) {
    const last = this.#waiting.at(-1);
    if (last?.recording === recording) last.to = to;
    else this.#say({ recording, from, to });
  }

  #say(message) {
    this.#waiting.push(message);
    this.#timer ??= setTimeout(() => this.#next(), 0);
  }

  #next() {
    const message = this.#waiting.shift();
    this.#timer = message ? setTimeout(() => this.#next(), PAUSE_MS) : null;
    if (!message) return;
    const { text, recording, from, to } = message;
    this.#node.textContent = text ?? `${recording.title}: ${resized(from, to)}`;
  }
}
