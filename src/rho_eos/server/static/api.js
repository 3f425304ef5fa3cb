/** The server's side of the conversation: its description, and a generation as a stream of events. */

import { readDescription } from "./parameters.js";
import { sentence } from "./words.js";

const UNREACHED =
  "The server cannot be reached. It may have been stopped; ask whoever runs it, then try again.";
const CUT_OFF =
  "The connection to the server was lost before the answer was complete. What had arrived is shown.";
const NO_KEY = "This server asks for an API key.";
const WRONG_KEY = "This API key is not accepted. Check it for typos, or ask whoever runs the server.";

/** What the server (or the lack of one) answered, in words; `status` 0 means it was not reached. */
export class ServerError extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

/** What the page needs to know of the server: its model, and its policies. */
export async function describe(key) {
  const ask = async (path) => (await request(path, key)).json();
  const paths = ["v1/rho_eos/playground", "v1/rho_eos/schema"];
  return readDescription(...(await Promise.all(paths.map(ask))));
}

/** The events of one generation, in order; ends after `[DONE]`, throws what went wrong. */
export async function* denoise(body, key, signal) {
  const endpoint = "messages" in body ? "v1/chat/completions" : "v1/completions";
  const response = await request(endpoint, key, {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ ...body, stream: true, stream_mode: "denoise" }),
    signal,
  });
  for await (const data of serverSentData(response.body)) {
    if (data === "[DONE]") return;
    const event = JSON.parse(data);
    if (event.error) throw new ServerError(sentence(event.error.message), response.status);
    yield event;
  }
  throw new ServerError(CUT_OFF);
}

async function request(url, key, { headers = {}, ...options } = {}) {
  // What no header can carry is no key of any server, and `fetch` would not even ask.
  if (/[^\x20-\xff]/.test(key)) throw new ServerError(WRONG_KEY, 401);
  const authorization = key ? { Authorization: `Bearer ${key}` } : {};
  const response = await reached(
    fetch(url, { ...options, headers: { ...headers, ...authorization } }),
    UNREACHED,
  );
  if (response.status === 401) throw new ServerError(key ? WRONG_KEY : NO_KEY, 401);
  if (!response.ok) throw new ServerError(await messageOf(response), response.status);
  return response;
}

/** What the network gives, or in words that it gave nothing; a reader who stops is no failure. */
async function reached(promise, otherwise) {
  try {
    return await promise;
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError(otherwise);
  }
}

async function messageOf(response) {
  const fallback = `The server answered ${response.status} ${response.statusText}`.trim() + ".";
  try {
    return sentence((await response.json()).error?.message ?? fallback);
  } catch {
    return fallback;
  }
}

/** The `data:` payloads of a server-sent event stream, however the network cuts it. */
async function* serverSentData(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let pending = "";
  try {
    for (;;) {
      const { done, value } = await reached(reader.read(), CUT_OFF);
      if (done) return;
      const lines = (pending + value).split(/\r?\n/);
      pending = lines.pop();
      for (const line of lines) if (line.startsWith("data:")) yield line.slice(5).trim();
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
