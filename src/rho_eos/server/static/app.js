/** The playground: prompt, panels and clock, wired together. */

import { Announcer } from "./announcer.js";
import { denoise, describe } from "./api.js";
import { Conversation } from "./chat.js";
import { el } from "./dom.js";
import { Panel } from "./panel.js";
import { Player } from "./player.js";
import { Recording } from "./replay.js";
import { decode, encode } from "./share.js";
import { recall, remember as store } from "./storage.js";
import { installTheme } from "./theme.js";
import { Tooltip } from "./tooltip.js";
import { compare } from "./words.js";

const page = Object.fromEntries(
  [...document.querySelectorAll("[id]")].map((node) => [node.id, node]),
);
const KEY = "rho-eos-key";
const session = () => sessionStorage; // a key goes with its tab
const player = new Player(() => render());
const announcer = new Announcer(page.announcer);
const conversation = new Conversation(page.turns, replay);
let description = null;
let panels = []; // a and, in compare mode, b
let running = null; // AbortController of the run in flight
let tab = "prompt"; // or "chat"
const left = { prompt: {}, chat: {} }; // how each tab was left: its draft, its recording
let typed = false; // something, before the server was heard of

installTheme(page.theme);
page.key.value = recall(session, KEY) ?? "";
page.prompt.value = new URLSearchParams(location.hash.slice(1)).get("prompt") ?? "";
page.prompt.addEventListener("input", () => (typed ||= description === null));
showTab();
page.retry.addEventListener("click", connect);
page["key-box"].addEventListener("submit", (event) => {
  event.preventDefault();
  if (description === null) connect();
  else run();
});
connect();

/** Ask the server what it serves, then build the page around it. */
async function connect() {
  page.problem.hidden = page.retry.hidden = true;
  try {
    description = await describe(page.key.value);
  } catch (error) {
    page.retry.hidden = error.status === 401;
    return report(error);
  }
  acceptKey();
  const tooltip = new Tooltip();
  const hooks = { tooltip, onChange: settingsChanged, onSeek: (count) => player.seek(count) };
  panels = ["a", "b"].map((side) => new Panel(side, description, hooks));
  page.panels.replaceChildren(...panels.map((panel) => panel.element));
  page.model.textContent = description.model;
  page["in-blocks"].hidden = description.blocks === null;
  page["asks-rho"].hidden = description.blocks !== null;
  page.examples.append(...exampleButtons(description.examples ?? []));
  listen();
  restore();
  if (typed) remember();
  typed = false;
  page.run.disabled = false;
}

/** The server takes the key: it is kept until the tab is closed. */
function acceptKey() {
  page["key-box"].hidden = true;
  store(session, KEY, page.key.value);
}

function listen() {
  page.run.addEventListener("click", () => (running || player.playing ? stop() : run()));
  page.compare.addEventListener("change", () => {
    stop();
    for (const panel of panels) panel.fit(comparing());
    remember();
    render();
  });
  page.prompt.addEventListener("input", () => {
    fitPolicies();
    remember();
  });
  for (const field of [page.suffix, page.question, page["suffix-box"]])
    field.addEventListener(field === page["suffix-box"] ? "toggle" : "input", () => {
      fitPolicies();
      settingsChanged();
    });
  page.prompt.addEventListener("keydown", (event) => {
    const sends = event.key === "Enter" && !event.shiftKey && !event.isComposing;
    if (tab !== "chat" || !sends || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    run();
  });
  for (const [name, button] of tabs()) {
    button.addEventListener("click", () => switchTo(name));
    button.addEventListener("keydown", (event) => {
      if (!["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key)) return;
      event.preventDefault();
      const other = { Home: "prompt", End: "chat" }[event.key];
      switchTo(other ?? (tab === "chat" ? "prompt" : "chat"));
      page[`tab-${tab}`].focus();
    });
  }
  page["new-chat"].addEventListener("click", newChat);
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
  if (!prompt.trim() && !textBehind()) {
    const what = tab === "chat" ? "message" : "prompt";
    report(new Error(`The ${what} is empty. Write one, or take an example.`));
    page.prompt.focus();
    return;
  }
  if (!active.every((panel) => panel.settings.validate())) return;
  page.problem.hidden = true;
  running = new AbortController();
  active.forEach((panel) => panel.reset());
  announcer.clear();
  if (tab === "chat") {
    conversation.ask(prompt);
    page.prompt.value = "";
  } else active[0].reveal();
  player.follow();
  const messages = tab === "chat" ? conversation.messages : [{ role: "user", content: prompt }];
  await Promise.all(active.map((panel) => generate(panel, messages, running.signal)));
  running = null;
  if (tab === "chat" && !active[0].recording?.done) {
    // An unanswered turn is none; what was asked can be changed and sent again.
    page.prompt.value = [conversation.takeBack(), page.prompt.value].filter(Boolean).join("\n");
  }
  if (active.some((panel) => panel.recording?.stopped)) player.load(totalForwards());
  else player.extend(totalForwards(), false);
  render();
}

/** One panel's generation, recorded as it comes. What fails is said in that panel. */
async function generate(panel, messages, signal) {
  const { state } = panel.settings;
  const body = { model: description.model, ...asked(messages), ...panel.settings.request };
  try {
    for await (const event of denoise(body, page.key.value, signal)) {
      if (event.object === "rho_eos.start") {
        acceptKey();
        panel.begin(Object.assign(new Recording(event), { request: body }), state);
        if (tab === "chat") conversation.answer(panel.recording);
      } else if (event.object === "rho_eos.step") panel.recording.push(event);
      else if (event.object === "rho_eos.done") panel.recording.done = event;
      player.extend(totalForwards(), true);
    }
  } catch (error) {
    if (error.name === "AbortError") return panel.halt();
    if (error.status !== 401 && tab === "prompt") return panel.fail(error.message);
    if (!panel.recording) panel.load(null);
    report(error);
  }
}

function stop() {
  running?.abort();
  player.pause();
}

function tabs() {
  return ["prompt", "chat"].map((name) => [name, page[`tab-${name}`]]);
}

/** The other tab, as it was left; a conversation has one answer to a turn, so one panel. */
function switchTo(name) {
  if (name === tab || running) return;
  left[tab] = { draft: page.prompt.value, recording: panels[0].recording };
  const { draft = "", recording = null } = left[name];
  tab = name;
  page.prompt.value = draft;
  panels[0].load(recording);
  for (const panel of panels) panel.fit(comparing());
  fitPolicies();
  remember();
  player.load(totalForwards());
}

/** An answer's canvas, from its first forward to its last. */
function replay(recording) {
  panels[0].load(recording);
  panels[0].reveal();
  player.load(recording.length, true);
}

function newChat() {
  conversation.clear();
  panels[0].load(null);
  player.load(0);
  page.prompt.focus();
}

/** What stands behind the gap; an answer in a conversation has nothing behind it. */
function textBehind() {
  return tab === "prompt" && canInfill() ? page.suffix.value : "";
}

/** Whether ___ in the prompt are gaps: only where the reader has opened the box that says so. */
function isTemplate() {
  const open = tab === "prompt" && canInfill() && page["suffix-box"].open;
  return open && !page.suffix.value && page.prompt.value.includes("___");
}

/** What the body of a request says of the text: a conversation, a gap, or a template. */
function asked(messages) {
  const prompt = messages.at(-1).content;
  const suffix = textBehind();
  if (!suffix && !isTemplate()) return { messages };
  const question = page.question.value.trim();
  if (!question) return suffix ? { prompt, suffix } : { template: prompt };
  const template = suffix ? `${prompt}___${suffix}` : prompt;
  return { messages: [{ role: "user", content: question }], template };
}

function canInfill() {
  return description.infilling.able.length > 0;
}

function fitPolicies() {
  for (const panel of panels) panel.infill(textBehind() !== "" || isTemplate());
}

function comparing() {
  return page.compare.checked && tab === "prompt";
}

function visiblePanels() {
  return comparing() ? panels : panels.slice(0, 1);
}

function totalForwards() {
  return Math.max(0, ...visiblePanels().map((panel) => panel.recording?.length ?? 0));
}

/** Everything on screen follows from the panels' recordings and the player's position. */
function render() {
  const shown = visiblePanels();
  document.body.classList.toggle("comparing", comparing());
  if (panels.length) panels[1].element.hidden = !comparing();
  const total = totalForwards();
  const scale = {
    forwards: Math.max(8, total),
    length: Math.max(64, ...shown.map((panel) => panel.recording?.peak ?? 0)),
  };
  for (const panel of shown) {
    panel.show(player.position, scale);
    if (panel.recording)
      announcer.follow(panel.recording, Math.min(player.position, panel.recording.length));
  }
  const busy = running !== null || player.playing;
  showTab();
  page.run.textContent = busy ? "Stop" : tab === "chat" ? "Send" : "Run";
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

/** What belongs to one of the tabs only. */
function showTab() {
  const chatting = tab === "chat";
  for (const [name, button] of tabs()) {
    button.setAttribute("aria-selected", String(name === tab));
    button.tabIndex = name === tab ? 0 : -1;
    button.disabled = running !== null && name !== tab;
  }
  page.asked.setAttribute("aria-labelledby", `tab-${tab}`);
  page["prompt-label"].textContent = chatting ? "Message" : "Prompt";
  page.prompt.placeholder = chatting ? "Your message. Enter sends it." : "";
  page["compare-switch"].hidden = chatting;
  page["suffix-box"].hidden = chatting || (description !== null && !canInfill());
  page["new-chat"].hidden = !chatting;
  page["new-chat"].disabled = running !== null || !conversation.length;
  page.turns.hidden = !chatting || !conversation.length;
  if (chatting) conversation.show(panels[0]?.recording, running !== null);
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
    prompt: tab === "prompt" ? page.prompt.value : (left.prompt.draft ?? ""),
    suffix: page.suffix.value,
    template: isTemplate(),
    question: page.question.value,
    tab,
    compare: page.compare.checked,
    speed: page.speed.value,
    a,
    b,
  };
  history.replaceState(null, "", `#${encode(state, description.panels)}`);
}

/** Address bar → settings; what was typed while the server was asked stays. */
function restore() {
  const state = decode(location.hash, description);
  const prompt = state.prompt ?? description.examples?.[0]?.prompt ?? "";
  left.prompt.draft = prompt;
  if (tab !== state.tab && !running) {
    tab = state.tab;
    panels[0].load(left[tab].recording ?? null);
    player.load(totalForwards());
    if (!typed) page.prompt.value = left[tab].draft ?? "";
  } else if (tab === "prompt" && !typed) page.prompt.value = prompt;
  page.suffix.value = state.suffix;
  page.question.value = state.question;
  const fills = state.suffix !== "" || state.template || state.question !== "";
  page["suffix-box"].open = page["suffix-box"].open || fills;
  page.compare.checked = state.compare;
  const known = [...page.speed.options].some((option) => option.value === state.speed);
  page.speed.value = known ? state.speed : "live";
  setPace();
  for (const panel of panels) {
    panel.update(state[panel.side]);
    panel.fit(comparing());
  }
  fitPolicies();
  render();
  if (state.dropped.length) {
    const what = state.dropped.join(", ");
    report(new Error(`This link also says ${what}, which this server does not take: left out.`));
  }
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
  store(session, KEY, "");
  page["key-box"].hidden = false;
  page.key.focus();
  page.key.select();
}
