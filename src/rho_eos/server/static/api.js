/** The server's side of the conversation: its description, and a generation as a stream of events. */

import { readDescription } from "./parameters.js";

/** What the server (or the lack of one) answered, in words; `status` 0 means it was not reached. */
export class ServerError extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

/** What the page needs to know of the server: its model, and its policies. */
export async function describe(key) {
  const ask = async (path) => (await request(path, { headers: headers(key) })).json();
  const paths = ["v1/rho_eos/playground", "v1/rho_eos/schema"];
  return readDescription(...(await Promise.all(paths.map(ask))));
}

/** The events of one generation, in order; ends after `[DONE]`, throws what went wrong. */
export async function* denoise(body, key, signal) {
  const endpoint = "messages" in body ? "v1/chat/completions" : "v1/completions";
  const response = await request(endpoint, {
    method: "POST",
    headers: { ...headers(key), "Content-Type": "application/json" },
    body: JSON.stringify({ ...body, stream: true, stream_mode: "denoise" }),
    signal,
  });
  for await (const data of serverSentData(response.body)) {
    if (data === "[DONE]") return;
    const event = JSON.parse(data);
    if (event.error) throw new ServerError(event.error.message, response.status);
    yield event;
  }
  throw new ServerError("The connection ended before the answer was complete.");
}

function headers(key) {
  return key ? { Authorization: `Bearer ${key}` } : {};
}

async function request(url, options) {
  let response;
  try {
    response = await fetch(url, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ServerError("The server cannot be reached. Is `rho-eos serve` still running?");
  }
  if (!response.ok) throw new ServerError(await messageOf(response), response.status);
  return response;
}

async function messageOf(response) {
  const fallback = `The server answered ${response.status} ${response.statusText}`.trim() + ".";
  try {
    return (await response.json()).error?.message ?? fallback;
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
      const { done, value } = await reader.read();
      if (done) return;
      const lines = (pending + value).split(/\r?\n/);
      pending = lines.pop();
      for (const line of lines) if (line.startsWith("data:")) yield line.slice(5).trim();
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
