// Requests to the node that serves the page, and its stream of events.

const API = "/console/api/";

export class Refusal extends Error {}

async function answer(response) {
  let value = null;
  try {
    value = await response.json();
  } catch {
    value = null;
  }
  if (!response.ok) throw new Refusal((value && value.error) || `The node answered with status ${response.status}.`);
  return value;
}

export async function get(path, parameters = {}, signal = undefined) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) if (value !== null && value !== undefined && value !== "") query.set(name, value);
  const text = query.toString();
  return answer(await fetch(API + path + (text ? "?" + text : ""), { signal, credentials: "same-origin" }));
}

export async function act(name, body) {
  const headers = { "Content-Type": "application/json", "X-Ottla-Console": "1" };
  return answer(await fetch(`${API}actions/${name}`, { method: "POST", headers, body: JSON.stringify(body), credentials: "same-origin" }));
}

/** The latest overview; `listen` calls back with each, and with whether the connection is there. */
export const live = {
  latest: null,
  samples: [],
  connected: false,
  since: Date.now(),
  listeners: new Set(),
  listen(listener) {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  },
  tell() {
    for (const listener of this.listeners) listener(this);
  },
  /** `onOpen` is called with each new connection: the node may have started again with other settings. */
  start(onOpen) {
    const source = new EventSource(API + "events");
    source.addEventListener("open", () => {
      this.set(true);
      onOpen();
    });
    source.addEventListener("error", () => {
      this.set(false);
      if (source.readyState === EventSource.CLOSED) setTimeout(() => this.start(onOpen), 3000);
    });
    source.addEventListener("bye", () => this.set(false));
    source.addEventListener("overview", (event) => {
      this.latest = JSON.parse(event.data);
      const { time_ms, totals } = this.latest;
      this.samples.push({ time_ms, ...totals });
      while (this.samples.length && time_ms - this.samples[0].time_ms > 600000) this.samples.shift();
      this.set(true);
    });
  },
  set(connected) {
    if (connected !== this.connected) this.since = Date.now();
    this.connected = connected;
    this.tell();
  },
};
