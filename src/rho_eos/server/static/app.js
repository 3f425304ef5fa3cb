/** The playground: prompt, panels and clock, wired together. */

import { denoise, describe } from "./api.js";
import { el } from "./dom.js";
import { Panel } from "./panel.js";
import { Player } from "./player.js";
import { Recording } from "./replay.js";
import { decode, encode } from "./share.js";
import { installTheme } from "./theme.js";
import { Tooltip } from "./tooltip.js";
import { compare } from "./words.js";

const page = Object.fromEntries(
  [...document.querySelectorAll("[id]")].map((node) => [node.id, node]),
);
const player = new Player(() => render());
let description = null;
let panels = []; // a and, in compare mode, b
let running = null; // AbortController of the run in flight

installTheme(page.theme);
connect();

/** Ask the server what it serves, then build the page around it. */
async function connect() {
  page.problem.hidden = true;
  try {
    description = await describe(page.key.value);
  } catch (error) {
    return report(error);
  }
  page["key-box"].hidden = true;
  const tooltip = new Tooltip();
  const hooks = { tooltip, onChange: settingsChanged, onSeek: (count) => player.seek(count) };
  panels = ["a", "b"].map((side) => new Panel(side, description, hooks));
  page.panels.replaceChildren(...panels.map((panel) => panel.element));
  page.model.textContent = description.model;
  page.examples.append(...exampleButtons(description.examples ?? []));
  listen();
  restore();
  page.run.disabled = false;
}

function listen() {
  page.run.addEventListener("click", () => (running || player.playing ? stop() : run()));
  page.compare.addEventListener("change", () => {
    stop();
    for (const panel of panels) panel.fit(page.compare.checked);
    remember();
    render();
  });
  for (const box of [page.prompt, page.suffix]) box.addEventListener("input", remember);
  page.speed.addEventListener("change", () => {
    setPace();
    remember();
  });
  page.scrubber.addEventListener("input", () => player.seek(Number(page.scrubber.value)));
  page.play.addEventListener("click", () => (player.playing ? player.pause() : player.play()));
  page.back.addEventListener("click", () => player.seek(player.position - 1));
  page.forward.addEventListener("click", () => player.seek(player.position + 1));
  page.share.addEventListener("click", share);
  addEventListener("hashchange", restore);
  addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) run();
    else if (event.key === "Escape") stop();
  });
}

/** Run the prompt on every panel on show, at once. */
async function run() {
  if (running || page.run.disabled) return;
  const active = visiblePanels();
  const prompt = page.prompt.value;
  if (!prompt.trim()) {
    report(new Error("The prompt is empty. Write one, or take an example."));
    page.prompt.focus();
    return;
  }
  if (!active.every((panel) => panel.settings.validate())) return;
  page.problem.hidden = true;
  running = new AbortController();
  active.forEach((panel) => panel.reset());
  active[0].reveal();
  player.follow();
  await Promise.all(active.map((panel) => generate(panel, prompt, running.signal)));
  running = null;
  player.extend(totalForwards(), false);
  render();
}

/** One panel's generation, recorded as it comes. What fails is said in that panel. */
async function generate(panel, prompt, signal) {
  const { state } = panel.settings;
  const suffix = page.suffix.value;
  const asked = suffix ? { prompt, suffix } : { messages: [{ role: "user", content: prompt }] };
  const body = { model: description.model, ...asked, ...panel.settings.request };
  try {
    for await (const event of denoise(body, page.key.value, signal)) {
      if (event.object === "rho_eos.start") panel.begin(new Recording(event), state);
      else if (event.object === "rho_eos.step") panel.recording.push(event);
      else if (event.object === "rho_eos.done") panel.recording.done = event;
      player.extend(totalForwards(), true);
    }
  } catch (error) {
    if (error.name === "AbortError") return;
    panel.fail(error.message);
    if (error.status === 401) askForKey();
  }
}

function stop() {
  running?.abort();
  player.pause();
}

function visiblePanels() {
  return page.compare.checked ? panels : panels.slice(0, 1);
}

function totalForwards() {
  return Math.max(0, ...visiblePanels().map((panel) => panel.recording?.length ?? 0));
}

/** Everything on screen follows from the panels' recordings and the player's position. */
function render() {
  const shown = visiblePanels();
  document.body.classList.toggle("comparing", page.compare.checked);
  if (panels.length) panels[1].element.hidden = !page.compare.checked;
  const total = totalForwards();
  const scale = {
    forwards: Math.max(8, total),
    length: Math.max(64, ...shown.map((panel) => panel.recording?.peak ?? 0)),
  };
  for (const panel of shown) panel.show(player.position, scale);
  const busy = running !== null || player.playing;
  page.run.textContent = busy ? "Stop" : "Run";
  page.run.dataset.busy = String(busy);
  page.scrubber.max = total;
  page.scrubber.value = player.position;
  page.scrubber.setAttribute("aria-valuetext", `forward ${player.position} of ${total}`);
  page.clock.textContent = `${player.position} / ${total}`;
  page.play.textContent = player.playing ? "❚❚" : "▶";
  page.play.setAttribute("aria-label", player.playing ? "Pause" : "Replay");
  for (const control of [page.play, page.back, page.forward, page.scrubber])
    control.disabled = total === 0;
  showVerdict(shown, player.position >= total && !busy);
}

/** The comparison, once both runs are complete and shown to their end. */
function showVerdict(shown, atEnd) {
  const complete = shown.length === 2 && shown.every((panel) => panel.recording?.done);
  page.verdict.hidden = !(complete && atEnd);
  if (!page.verdict.hidden) {
    const sentence = compare(shown[0].recording, shown[1].recording);
    if (page.verdict.textContent !== sentence) page.verdict.textContent = sentence;
  }
}

function exampleButtons(examples) {
  const byTask = Map.groupBy(examples, (example) => example.task);
  return [...byTask].map(([task, problems]) => {
    let next = 0;
    return el("button", {
      type: "button",
      class: "chip",
      text: task,
      title: "Fill in an example; press again for another",
      onclick: () => {
        page.prompt.value = problems[next++ % problems.length].prompt;
        remember();
      },
    });
  });
}

function settingsChanged() {
  remember();
  render();
}

/** Settings → address bar, without a new entry in the history. */
function remember() {
  const [a, b] = panels.map((panel) => panel.settings.state);
  const state = {
    prompt: page.prompt.value,
    suffix: page.suffix.value,
    compare: page.compare.checked,
    speed: page.speed.value,
    a,
    b,
  };
  history.replaceState(null, "", `#${encode(state, description.panels)}`);
}

/** Address bar → settings. */
function restore() {
  const state = decode(location.hash, description);
  page.prompt.value = state.prompt ?? description.examples?.[0]?.prompt ?? "";
  page.suffix.value = state.suffix;
  page["suffix-box"].open = page["suffix-box"].open || state.suffix !== "";
  page.compare.checked = state.compare;
  const known = [...page.speed.options].some((option) => option.value === state.speed);
  page.speed.value = known ? state.speed : "live";
  setPace();
  for (const panel of panels) {
    panel.update(state[panel.side]);
    panel.fit(state.compare);
  }
  render();
}

function setPace() {
  player.pace = page.speed.value === "live" ? "live" : Number(page.speed.value);
}

async function share() {
  remember();
  try {
    await navigator.clipboard.writeText(location.href);
    page.share.textContent = "Link copied";
  } catch {
    page.share.textContent = "Link is in the address bar";
  }
  setTimeout(() => (page.share.textContent = "Share"), 1500);
}

function report(error) {
  page.problem.textContent = error.message;
  page.problem.hidden = false;
  if (error.status === 401) askForKey();
}

function askForKey() {
  page["key-box"].hidden = false;
  page.key.focus();
  page["key-box"].onsubmit = (event) => {
    event.preventDefault();
    if (description === null) connect();
    else run();
  };
}
