/** The clock of the page: how many forwards are shown, and how fast more of them are. */

/** Forwards a second at which a finished run is replayed when the pace is "live". */
const REPLAY_RATE = 30;

export class Player {
  position = 0;
  total = 0;
  playing = false;
  pace = "live"; // or forwards a second
  #streaming = false;
  #last = 0;
  #credit = 0;
  #onChange;

  constructor(onChange) {
    this.#onChange = onChange;
  }

  /** A new run begins: follow it from its first forward. */
  follow() {
    this.position = 0;
    this.total = 0;
    this.#streaming = true;
    this.play();
  }

  /** Another run, complete: shown to its end, or from its start. */
  load(total, fromStart = false) {
    this.#streaming = false;
    this.total = total;
    this.seek(fromStart ? 0 : total);
    if (fromStart) this.play();
  }

  /** So many forwards have arrived; `streaming` says whether more may. */
  extend(total, streaming) {
    this.total = total;
    this.#streaming = streaming;
    if (!this.playing) this.#onChange();
  }

  play() {
    if (this.position >= this.total && !this.#streaming) this.position = 0;
    this.#credit = 0;
    this.#last = performance.now();
    if (!this.playing) {
      this.playing = true;
      requestAnimationFrame((now) => this.#frame(now));
    }
    this.#onChange();
  }

  pause() {
    this.playing = false;
    this.#onChange();
  }

  seek(position) {
    this.position = Math.min(this.total, Math.max(0, position));
    this.pause();
  }

  #frame(now) {
    if (!this.playing) return;
    const before = this.position;
    this.#advance(now);
    if (this.position >= this.total && !this.#streaming) this.playing = false;
    if (this.position !== before || !this.playing) this.#onChange();
    if (this.playing) requestAnimationFrame((next) => this.#frame(next));
  }

  #advance(now) {
    const elapsed = Math.max(0, now - this.#last) / 1000;
    this.#last = now;
    if (this.pace === "live" && this.#streaming) {
      this.position = this.total;
      return;
    }
    const rate = this.pace === "live" ? REPLAY_RATE : this.pace;
    this.#credit = Math.min(this.#credit + elapsed * rate, this.total - this.position + 1);
    const whole = Math.floor(this.#credit);
    this.#credit -= whole;
    this.position = Math.min(this.total, this.position + whole);
  }
}
