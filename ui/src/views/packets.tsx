// Live packets of a policy whose monitor is the controller.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { ApiError, BASE, get } from "../api/client";
import { parse } from "../api/json";
import { useResource } from "../api/resource";
import { mayChange } from "../api/session";
import type { Packet, PolicyReport } from "../api/types";
import { decode, fromHex, hexDump } from "../model/decode";
import { FilterError, type Predicate, compile, subject } from "../model/filter";
import { count, plural, preciseTime } from "../model/format";
import { isShownHere, state } from "../model/policy";
import { Empty, Failure, Heading, useLast, useSettled } from "../parts/basics";
import { link } from "../parts/route";
import { MayNotWatch, NotWatched, OnlyHere, StopWatching } from "./watch";

interface Row {
  id: number;
  packet: Packet;
}

export function Packets({ name }: { name: string }) {
  const path = `/policies/${encodeURIComponent(name)}`;
  const { data, error, reload } = useResource<PolicyReport>(path, { topics: ["policy"] });
  // Packets stay visible after their policy has ended.
  const report = useLast(data);
  // The controller shows packets only to users who may change policies.
  const isMine = report !== undefined && isShownHere(report.policy) && mayChange();
  const stream = useStream(isMine ? `${path}/packets` : undefined);
  return (
    <>
      <Heading title={`Packets of ${name}`}>
        <a class="button" href={link(["policies", name])}>
          Policy
        </a>
        <Controls stream={stream} name={name} isLive={isMine && !stream.error} />
        {isMine && <StopWatching report={report} onMade={reload} />}
      </Heading>
      <Failure error={error ?? stream.error} what="Packets" />
      {report && !mayChange() && <MayNotWatch />}
      {report && mayChange() && !isMine && <NotWatched report={report} onMade={reload} />}
      {isMine && !stream.error && <Watched report={report} stream={stream} />}
    </>
  );
}

/** Buttons for live packets; disabled while there are none. */
function Controls({ stream, name, isLive }: { stream: Stream; name: string; isLive: boolean }) {
  const file = `${BASE}/policies/${encodeURIComponent(name)}/packets?download=pcapng`;
  return (
    <>
      <button
        type="button"
        disabled={!isLive}
        aria-pressed={stream.isPaused}
        onClick={stream.pause}
      >
        {stream.isPaused ? "Resume" : "Pause"}
      </button>
      <button type="button" disabled={!isLive} onClick={stream.clear}>
        Clear
      </button>
      {isLive ? (
        <a class="button" href={file} download={`${name}.pcapng`}>
          Download pcapng
        </a>
      ) : (
        <button type="button" disabled>
          Download pcapng
        </button>
      )}
    </>
  );
}

function Watched({ report, stream }: { report: PolicyReport; stream: Stream }) {
  const [text, setText] = useState("");
  const [chosen, setChosen] = useState<Row>();
  const filter = useFilter(useSettled(text, 150));
  const rows = useMemo(
    () => stream.rows.filter(({ packet }) => filter.accepts(packet)),
    [stream.rows, filter],
  );
  return (
    <>
      <FilterBox text={text} onChange={setText} problem={filter.problem} />
      <p class="muted" aria-live="off">
        {plural(rows.length, "packet")}
        {text.trim() && ` of ${count(stream.rows.length)}`}; this page keeps the last {count(MOST)}.
        {stream.isPaused && ` Paused: ${plural(stream.waiting, "packet")} pending.`}
        <OnlyHere report={report} />
      </p>
      <div class="packets">
        <List
          rows={rows}
          chosen={chosen}
          onChoose={setChosen}
          isEmpty={stream.rows.length === 0}
          report={report}
        />
        {chosen && <Detail packet={chosen.packet} />}
      </div>
    </>
  );
}

interface Stream {
  rows: Row[];
  waiting: number;
  isPaused: boolean;
  error: ApiError | undefined;
  pause(): void;
  clear(): void;
}

/**
 * Live packets, batched so that high rates do not block the page; none while `path` is undefined.
 */
function useStream(path: string | undefined): Stream {
  const [rows, setRows] = useState<Row[]>([]);
  const [isPaused, setPaused] = useState(false);
  const [error, setError] = useState<ApiError>();
  const [waiting, setWaiting] = useState(0);
  const pending = useRef<Row[]>([]);
  const next = useRef(0);
  useEffect(() => {
    if (path === undefined) return;
    let isOver = false;
    let last = "";
    let source: EventSource;
    let retry: ReturnType<typeof setTimeout>;
    const take = (message: MessageEvent<string>) => {
      // After a reconnect, some packets are sent again, even if they were cleared.
      if (!isAfter(message.lastEventId, last)) return;
      last = message.lastEventId;
      pending.current.push({ id: next.current++, packet: parse(message.data) as Packet });
      if (pending.current.length > MOST) pending.current.shift();
    };
    const open = () => {
      source = new EventSource(BASE + path);
      source.addEventListener("packet", take);
      source.onopen = () => setError(undefined);
      source.onerror = () => source.readyState === EventSource.CLOSED && void refused();
    };
    // The browser does not reconnect then; errors that may pass are retried here.
    const refused = async () => {
      const why = await reason(path);
      if (isOver) return;
      setError(why);
      if (why?.mayHeal ?? true) retry = setTimeout(open, AGAIN_MS);
    };
    open();
    return () => {
      isOver = true;
      clearTimeout(retry);
      source.close();
      clear();
      setPaused(false);
      setError(undefined);
    };
  }, [path]);
  useEffect(() => {
    const timer = setInterval(() => {
      if (isPaused) return setWaiting(pending.current.length);
      const fresh = pending.current.splice(0);
      if (fresh.length) setRows((before) => [...before, ...fresh].slice(-MOST));
    }, TAKE_MS);
    return () => clearInterval(timer);
  }, [isPaused]);
  const clear = () => {
    pending.current = [];
    setRows([]);
  };
  return { rows, waiting, isPaused, error, pause: () => setPaused(!isPaused), clear };
}

/** Whether a packet came after `last`: an id consists of the controller's run and a number. */
function isAfter(id: string, last: string): boolean {
  const [[run, number], [lastRun, lastNumber]] = [id.split("-"), last.split("-")];
  return id === "" || run !== lastRun || Number(number) > Number(lastNumber);
}

/** The reason why a stream was refused. An EventSource does not have it, so the path is fetched. */
async function reason(path: string): Promise<ApiError | undefined> {
  const abort = new AbortController();
  const timer = setTimeout(() => abort.abort(), 2000);
  try {
    await get(path, abort.signal);
  } catch (error) {
    if (error instanceof ApiError) return error;
  } finally {
    clearTimeout(timer);
  }
  return undefined;
}

interface Filter {
  accepts(packet: Packet): boolean;
  problem: FilterError | undefined;
}

/** While an expression is invalid, the last valid one stays in force. */
function useFilter(expression: string): Filter {
  const last = useRef<Predicate>(() => true);
  return useMemo(() => {
    let problem: FilterError | undefined;
    try {
      last.current = compile(expression);
    } catch (error) {
      if (!(error instanceof FilterError)) throw error;
      problem = error;
    }
    const predicate = last.current;
    const isAll = expression.trim() === "" && !problem;
    return { problem, accepts: (packet) => isAll || predicate(subject(packet)) };
  }, [expression]);
}

function FilterBox({
  text,
  onChange,
  problem,
}: {
  text: string;
  onChange(text: string): void;
  problem: FilterError | undefined;
}) {
  return (
    <div class="field filter-box">
      <label for="packet-filter">Filter</label>
      <input
        id="packet-filter"
        type="search"
        value={text}
        spellcheck={false}
        autocomplete="off"
        aria-invalid={problem !== undefined}
        aria-describedby="packet-filter-hint packet-filter-problem"
        onInput={(event) => onChange(event.currentTarget.value)}
      />
      <p class="hint" id="packet-filter-hint">
        tcp port 80 and host 10.0.0.1; not arp; vlan 100; "echo request"
      </p>
      <p class="problem" id="packet-filter-problem" aria-live="polite">
        {problem && `${problem.message} (at character ${problem.at + 1})`}
      </p>
    </div>
  );
}

/** Scrolls with new packets until the user scrolls up. */
function List({
  rows,
  chosen,
  onChoose,
  isEmpty,
  report,
}: {
  rows: Row[];
  chosen: Row | undefined;
  onChoose(row: Row): void;
  isEmpty: boolean;
  report: PolicyReport;
}) {
  const box = useRef<HTMLDivElement>(null);
  const isAtEnd = useRef(true);
  const shown = rows.slice(-MOST_SHOWN);
  useEffect(() => {
    if (isAtEnd.current && box.current) box.current.scrollTop = box.current.scrollHeight;
  }, [rows]);
  const onScroll = () => {
    const { scrollTop, scrollHeight, clientHeight } = box.current!;
    isAtEnd.current = scrollTop + clientHeight > scrollHeight - 40;
  };
  if (shown.length === 0) {
    return isEmpty ? (
      <Empty title="No packets yet">
        <p>{waitingFor(report)}</p>
      </Empty>
    ) : (
      <Empty title="No packet matches the filter" />
    );
  }
  return (
    <div
      class="table packet-list"
      ref={box}
      onScroll={onScroll}
      role="region"
      aria-label="Packets"
      tabIndex={0}
    >
      <table>
        <thead>
          <tr>
            <th scope="col">Time</th>
            <th scope="col">Switch</th>
            <th scope="col" class="number">
              Bytes
            </th>
            <th scope="col">Packet</th>
          </tr>
        </thead>
        <tbody>
          {shown.map((row) => (
            <tr
              key={row.id}
              class={row === chosen ? "chosen" : undefined}
              onClick={() => onChoose(row)}
            >
              <td class="when">{preciseTime(row.packet.at)}</td>
              <td>{row.packet.switch}</td>
              <td class="number">{count(row.packet.len)}</td>
              <td class="wide">
                <button
                  type="button"
                  class="plain"
                  aria-pressed={row === chosen}
                  onClick={() => onChoose(row)}
                >
                  {row.packet.summary}
                </button>
              </td>
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

function waitingFor(report: PolicyReport): string {
  const { word, sentence } = state(report);
  if (word === "active") return "Packets appear here as soon as traffic matches the policy.";
  return `The policy is ${word}${sentence && `: ${sentence}`}`;
}

function Detail({ packet }: { packet: Packet }) {
  const bytes = useMemo(() => fromHex(packet.bytes_hex), [packet]);
  const { layers } = useMemo(() => decode(bytes), [bytes]);
  return (
    <section class="detail" aria-label="Selected packet">
      <h2>
        {preciseTime(packet.at)}, {plural(packet.len, "byte")}
      </h2>
      {layers.map((layer, i) => (
        <details key={i} open>
          <summary>
            <strong>{layer.name}</strong> {layer.line}
          </summary>
          <dl>
            {layer.fields.map(([name, value]) => (
              <div key={name} class="fact">
                <dt>{name}</dt>
                <dd>{value}</dd>
              </div>
            ))}
          </dl>
        </details>
      ))}
      <pre class="hex" tabIndex={0} aria-label="Bytes">
        {hexDump(bytes).join("\n")}
      </pre>
      {bytes.length < packet.len && (
        <p class="muted">The last {plural(packet.len - bytes.length, "byte")} were not captured.</p>
      )}
    </section>
  );
}

const MOST = 5000;
const MOST_SHOWN = 500;
const TAKE_MS = 200;
const AGAIN_MS = 1500;
