// The event log, newest first.
import { useEffect, useState } from "preact/hooks";
import { listen, liveness } from "../api/live";
import { useResource } from "../api/resource";
import type { AuditRecord, ListOf, LoggedEvent, SwitchPort } from "../api/types";
import { count, dateTime, isolated } from "../model/format";
import { monitorNames } from "../model/policy";
import { Empty, Failure, Heading, Search, Table, Tag, Waiting } from "../parts/basics";

const KINDS = ["switch", "link", "host", "port", "policy", "alarm", "audit"];

export function Events() {
  const isPolled = liveness.value === "polled";
  const { data, error } = useResource<ListOf<LoggedEvent> | LoggedEvent[]>(
    `/events/log?limit=${MOST}`,
    { everyMs: isPolled ? 3000 : 0 },
  );
  const [fresh, setFresh] = useFresh();
  const [kind, setKind] = useState("");
  const [text, setText] = useState("");
  useEffect(() => setFresh([]), [data]);
  const logged = Array.isArray(data) ? data : (data?.items ?? []);
  const total = Array.isArray(data) ? logged.length : (data?.total ?? 0);
  const seen = new Set(logged.map((event) => String(event.id)));
  const all = [...fresh.filter((event) => !seen.has(String(event.id))), ...logged].slice(0, MOST);
  const shown = all.filter(
    (event) =>
      (!kind || kindOf(event) === kind) && words(event).toLowerCase().includes(text.toLowerCase()),
  );
  return (
    <>
      <Heading title="Events">
        <select
          aria-label="Kind of event"
          value={kind}
          onChange={(event) => setKind(event.currentTarget.value)}
        >
          <option value="">All kinds</option>
          {KINDS.map((word) => (
            <option key={word} value={word}>
              {word}
            </option>
          ))}
        </select>
        <Search value={text} onChange={setText} label="Search events" />
      </Heading>
      <Failure error={error} what="Event log" />
      <Waiting is={!data && !error && all.length === 0} />
      {all.length > 0 && shown.length === 0 && <Empty title="No matching events" />}
      {all.length === 0 && (data || error) && (
        <Empty title="No events yet">
          <p>Changes of switches, links, ports, hosts and policies are listed here.</p>
        </Empty>
      )}
      {shown.length > 0 && (
        <Table label="Events">
          <thead>
            <tr>
              <th scope="col">Time</th>
              <th scope="col">Kind</th>
              <th scope="col">Event</th>
            </tr>
          </thead>
          <tbody>
            {shown.map((event) => (
              <tr key={`${event.id} ${event.at}`}>
                <td class="when">{event.at ? dateTime(event.at) : "–"}</td>
                <td>
                  <Tag tone={kindOf(event) === "alarm" ? "bad" : "plain"}>{kindOf(event)}</Tag>
                </td>
                <td class="wide">{words(event)}</td>
              </tr>
            ))}
          </tbody>
        </Table>
      )}
      {total > logged.length && (
        <p class="foot">
          The newest {count(all.length)} events; the controller keeps {count(total)}.
        </p>
      )}
    </>
  );
}

/** Events since the view was opened, newest first. They are batched, as there may be many. */
function useFresh() {
  const [fresh, setFresh] = useState<LoggedEvent[]>([]);
  useEffect(() => {
    let pending: LoggedEvent[] = [];
    const deaf = listen((topic, event) => {
      if (!KINDS.includes(topic)) return;
      pending.unshift({ at: new Date().toISOString(), ...event, event: topic });
      pending.length = Math.min(pending.length, MOST);
    });
    const timer = setInterval(() => {
      const taken = pending;
      pending = [];
      if (taken.length) setFresh((before) => [...taken, ...before].slice(0, MOST));
    }, TAKE_MS);
    return () => {
      deaf();
      clearInterval(timer);
    };
  }, []);
  return [fresh, setFresh] as const;
}

export const kindOf = (event: LoggedEvent): string => String(event.event ?? event.kind ?? "");

/**
 * An event as text: the controller's if there is one, else ours for known kinds, else its fields.
 */
export function words(event: LoggedEvent): string {
  const own = event.message ?? event.text ?? event.summary;
  if (typeof own === "string") return event.switch ? `${event.switch}: ${own}` : own;
  const sentence = SENTENCES[kindOf(event)]?.(event);
  if (sentence) return sentence;
  const { id: _id, at: _at, event: _event, kind: _kind, ...fields } = event;
  return Object.entries(fields)
    .filter(([, value]) => value !== undefined && value !== null)
    .map(([key, value]) => `${key}: ${typeof value === "object" ? JSON.stringify(value) : value}`)
    .join(", ");
}

const SENTENCES: Record<string, (event: LoggedEvent) => string | undefined> = {
  switch({ switch: id, is_connected, reason }) {
    if (typeof is_connected !== "boolean") return undefined;
    return `${id} is ${is_connected ? "connected" : "lost"}${because(reason)}`;
  },
  link({ what, a, b }) {
    return isPort(a) && isPort(b) ? `${portText(a)} – ${portText(b)} is ${what}` : undefined;
  },
  port({ what, at_port }) {
    return isPort(at_port) ? `${portText(at_port)} is ${what}` : undefined;
  },
  host({ what, mac, vlan, at_port, from, untold }) {
    if (!isPort(at_port)) return undefined;
    const who = `${mac}${vlan == null ? "" : ` in VLAN ${vlan}`}`;
    const where =
      what === "moved" && isPort(from)
        ? `moved from ${portText(from)} to ${portText(at_port)}`
        : what === "gone"
          ? `is gone from ${portText(at_port)}`
          : `was seen at ${portText(at_port)}`;
    const others = typeof untold === "number" ? ` (${count(untold)} earlier events omitted)` : "";
    return `${who} ${where}${others}`;
  },
  policy({ name, state, unproved }) {
    const { is, reason } = (state ?? {}) as { is?: string; reason?: string };
    const left = unproved ? `; not all of it could be proved${because(unproved)}` : "";
    return is && `${isolated(String(name))} is ${is}${because(reason)}${left}`;
  },
  audit({ record }) {
    const { who, what, policy, result } = (record ?? {}) as Partial<AuditRecord>;
    const tapped = typeof policy === "object" ? policy : undefined;
    const name = isolated(String((tapped ? tapped.name : policy) ?? ""));
    const to = tapped ? monitorNames(tapped).join(", ") : "";
    const parts = [what, name, to && `to ${to}`].filter(Boolean).join(" ");
    return who ? `${who}: ${parts}${result ? ` (${result})` : ""}` : undefined;
  },
};

const isPort = (value: unknown): value is SwitchPort =>
  typeof value === "object" && value !== null && "switch" in value && "port" in value;

const portText = ({ switch: id, port, name }: SwitchPort): string =>
  `${id}/${port}${name ? ` (${name})` : ""}`;

const because = (reason: unknown): string => (typeof reason === "string" ? `: ${reason}` : "");

/** Maximum rows, and the most that the controller gives at once. */
const MOST = 1000;
const TAKE_MS = 250;
