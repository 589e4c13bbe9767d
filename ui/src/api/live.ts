// The controller's event stream and the state of the connection.
import { signal } from "@preact/signals";
import { BASE } from "./client";
import { parse } from "./json";
import type { LoggedEvent } from "./types";

/**
 * `polled`: the controller has no event stream, so it is polled. `follows`: another controller
 * leads; this one is polled until it leads itself.
 */
export type Liveness = "connecting" | "live" | "lost" | "polled" | "follows";

export const liveness = signal<Liveness>("connecting");
/** When the connection was lost, in milliseconds of the browser's clock. */
export const lostAt = signal(0);
/** The last alarms, newest first. */
export const alarms = signal<LoggedEvent[]>([]);

export const TOPICS = [
  "switch",
  "link",
  "host",
  "port",
  "policy",
  "alarm",
  "audit",
  "tick",
] as const;
export type Topic = (typeof TOPICS)[number] | "again";

type Listener = (topic: Topic, event: LoggedEvent) => void;
const listeners = new Set<Listener>();
let source: EventSource | undefined;
let retry: ReturnType<typeof setTimeout> | undefined;

/** Calls `listener` for each event. `again` means that events may have been missed. */
export function listen(listener: Listener): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Connects, and reconnects until `disconnect`. */
export function connect(): void {
  disconnect();
  source = new EventSource(`${BASE}/events`);
  source.onopen = () => {
    const wasLost = liveness.value === "lost" || liveness.value === "follows";
    liveness.value = "live";
    if (wasLost) tell("again", { id: "" });
  };
  source.onerror = () => lost();
  // Missed events are no longer available, so views fetch their lists again.
  source.addEventListener("reset", () => tell("again", { id: "" }));
  for (const topic of TOPICS) {
    source.addEventListener(topic, (message) => take(topic, message as MessageEvent<string>));
  }
}

export function disconnect(): void {
  source?.close();
  clearTimeout(retry);
}

/** The browser reconnects by itself, except after a response that is not an event stream. */
function lost(): void {
  const isRefused = source?.readyState === EventSource.CLOSED;
  // A follower refuses the stream every time; `again` checks whether it still follows.
  if (!isRefused || liveness.value !== "follows") note("lost");
  if (!isRefused) return;
  clearTimeout(retry);
  retry = setTimeout(() => void again(), RETRY_MS);
}

function note(value: "lost" | "follows"): void {
  if (value === "lost" && liveness.value !== "lost") lostAt.value = Date.now();
  liveness.value = value;
}

/** Finds out why the stream was refused: no event stream, a follower, or no token. */
async function again(): Promise<void> {
  const status = await fetch(`${BASE}/events/log?limit=1`).then(
    (r) => r.status,
    () => 0,
  );
  if (status === 404) {
    liveness.value = "polled";
    return;
  }
  if (status === 421) note("follows");
  else if (status !== 200) note("lost");
  if (status === 401) tell("again", { id: "" });
  else connect();
}

function take(topic: Topic, message: MessageEvent<string>): void {
  const event = { id: message.lastEventId, ...data(message.data) } as LoggedEvent;
  if (topic === "alarm") alarms.value = [event, ...alarms.value].slice(0, MOST_ALARMS);
  tell(topic, event);
}

function tell(topic: Topic, event: LoggedEvent): void {
  for (const listener of [...listeners]) listener(topic, event);
}

function data(text: string): object {
  try {
    return parse(text) as object;
  } catch {
    return {};
  }
}

const RETRY_MS = 1000;
const MOST_ALARMS = 20;
