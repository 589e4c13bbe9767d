// Data of the topology view: the fabric, the hosts of nearby switches, and the TAPs.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { type ApiError, get, query } from "../api/client";
import { listen } from "../api/live";
import { useResource } from "../api/resource";
import type {
  HostReport,
  ListOf,
  SwitchPort,
  PolicyReport,
  SwitchReport,
  Topology,
} from "../api/types";
import { aggregate, only } from "../graph/aggregate";
import { hasProblem, worstFirst } from "../model/policy";
import { feed } from "../parts/rates";

/** Maximum number of nodes unless the user selects fewer. */
export const MOST_NODES = 1500;
const fabricPath = (most: number | undefined): string => `/topology${query({ max_nodes: most })}`;
/** The first request of the view. */
export const WHOLE_FABRIC = fabricPath(MOST_NODES);

export interface Fabric {
  topology: Topology | undefined;
  /** False if the controller reports only switches. */
  hasLinks: boolean;
  error: ApiError | undefined;
}

/** The fabric with at most `most` nodes, or the switches `members` of a group. */
export function useFabric(most: number, members: string[] | undefined): Fabric {
  const limit = members ? undefined : most;
  const fabric = useResource<Topology>(fabricPath(limit), {
    topics: ["switch", "link"],
    everyMs: 3000,
  });
  const isMissing = fabric.error?.isMissingEndpoint === true;
  const switches = useResource<ListOf<SwitchReport>>(
    isMissing ? "/switches?limit=1000" : undefined,
    { topics: ["switch"], everyMs: 3000 },
  );
  const topology = useMemo(() => {
    const whole = isMissing ? switches.data && fromSwitches(switches.data.items) : fabric.data;
    if (!whole) return undefined;
    return members ? only(whole, members) : aggregate(whole, most);
  }, [fabric.data, switches.data, isMissing, most, members]);
  const error = isMissing ? switches.error : fabric.error;
  return { topology, error, hasLinks: !isMissing && fabric.data?.links !== undefined };
}

function fromSwitches(items: SwitchReport[]): Topology {
  return {
    switches: items.map(({ switch: id, is_connected, is_silent, ports, hosts }) => ({
      switch: id,
      is_connected,
      is_silent,
      hosts,
      ports: ports.length,
      monitors: 0,
    })),
  };
}

/** Hosts of the switches `near`, or all hosts if there are few. */
export function useHosts(total: number, near: string[]): HostReport[] {
  const isFew = total <= FEW_HOSTS;
  const all = useResource<ListOf<HostReport>>(isFew ? `/hosts?limit=${FEW_HOSTS}` : undefined, {
    topics: ["host", "switch"],
    everyMs: 5000,
  });
  const some = useHostsOf(isFew ? NONE : near);
  return isFew ? (all.data?.items ?? NONE) : some;
}

/** Hosts by switch: fetched when a switch comes into view, and again when they may have changed. */
function useHostsOf(switches: string[]): HostReport[] {
  const known = useRef(new Map<string, { hosts: HostReport[]; at: number }>());
  const [turn, setTurn] = useState(0);
  const key = switches.join();
  useEffect(() => {
    const lists = known.current;
    const age = (id: string) => Date.now() - (lists.get(id)?.at ?? 0);
    const ask = async (id: string) => {
      lists.set(id, { hosts: lists.get(id)?.hosts ?? [], at: Date.now() });
      const hosts = await hostsOf(id);
      if (hosts) lists.set(id, { hosts, at: Date.now() });
      if (hosts) setTurn((n) => n + 1);
    };
    const look = () => {
      if (document.hidden) return;
      for (const id of lists.keys()) if (age(id) > KEPT_MS) lists.delete(id);
      for (const id of switches) if (age(id) > FRESH_MS) void ask(id);
    };
    const deaf = listen((topic, event) => {
      const ports = topic === "host" ? [event.at_port, event.from] : [];
      const touched = topic === "again" ? [...lists.keys()] : ports.map(switchOf);
      for (const id of touched) if (lists.has(id)) lists.get(id)!.at = 0;
    });
    look();
    const timer = setInterval(look, LOOK_MS);
    return () => {
      clearInterval(timer);
      deaf();
    };
  }, [key]);
  return useMemo(() => switches.flatMap((id) => known.current.get(id)?.hosts ?? []), [key, turn]);
}

const switchOf = (port: unknown): string => (port as SwitchPort | undefined)?.switch ?? "";

const hostsOf = (id: string): Promise<HostReport[] | undefined> =>
  get<ListOf<HostReport>>(`/hosts${query({ switch: id, limit: 100 })}`).then(
    (list) => list.items,
    () => undefined,
  );

export interface Taps {
  /** The TAPs to draw. */
  reports: PolicyReport[];
  /** `undefined` until known. */
  total: number | undefined;
  /** Number of policies with problems, of all policies. */
  problems: number;
  /** Whether the selected TAP has been asked for, but not answered yet. */
  isPending: boolean;
  error: ApiError | undefined;
}

/**
 * TAPs with the paths of their copies: those with problems, the first by name, the selected one.
 */
export function useTaps(chosen: string | undefined): Taps {
  const list = useResource<ListOf<PolicyReport>>(`/policies?limit=${MOST_TAPS}`, {
    topics: ["policy"],
    everyMs: 1000,
  });
  const items = list.data?.items ?? NONE;
  const total = list.data?.total;
  const isPart = (total ?? 0) > items.length;
  const bad = useResource<ListOf<PolicyReport>>(
    isPart ? `/policies?has_problem=true&limit=${MOST_TAPS}` : undefined,
    { topics: ["policy"], everyMs: PROBLEMS_MS },
  ).data;
  const drawn = useMemo(() => {
    const others = (bad?.items ?? NONE).filter(({ policy }) => !has(items, policy.name));
    return worstFirst([...items, ...others]).slice(0, MOST_TAPS);
  }, [items, bad]);
  const isExtra = chosen !== undefined && list.data && !has(drawn, chosen);
  const extra = useResource<PolicyReport>(
    isExtra ? `/policies/${encodeURIComponent(chosen)}` : undefined,
    { topics: ["policy"], everyMs: 1000 },
  );
  const told = useWays(drawn, list.at);
  const reports = useMemo(() => {
    const known = drawn.map((report) => {
      const way = told.get(report.policy.name);
      // The list is newer than the single report.
      if (!has(items, report.policy.name)) return way?.report ?? report;
      return { ...report, path: report.path ?? way?.report?.path };
    });
    return extra.data ? [...known, extra.data] : known;
  }, [drawn, told, extra.data]);
  useMemo(() => feed(items, list.at), [list.at]);
  useMemo(() => {
    for (const [name, { report, at }] of told) if (report && !has(items, name)) feed([report], at);
  }, [told]);
  useMemo(() => extra.data && feed([extra.data], extra.at), [extra.at]);
  const problems = Math.max(bad?.total ?? 0, drawn.filter(hasProblem).length);
  const asked = isExtra ? extra : list;
  const isPending = asked.data === undefined && !asked.error;
  return { reports, total, problems, isPending, error: list.error };
}

const has = (reports: PolicyReport[], name: string): boolean =>
  reports.some(({ policy }) => policy.name === name);

/**
 * A policy's own report, which includes its paths, with the time of the request and the state then.
 */
interface Way {
  report: PolicyReport | undefined;
  at: number;
  state: string;
}

/** The paths of policies by name, which lists lack; all due ones are fetched in parallel. */
function useWays(items: PolicyReport[], at: number): Map<string, Way> {
  const [ways, setWays] = useState(new Map<string, Way>());
  const isBusy = useRef(false);
  const isStale = useRef(false);
  useEffect(
    () =>
      listen((topic) => {
        if (topic === "link" || topic === "again" || topic === "switch") isStale.current = true;
      }),
    [],
  );
  useEffect(() => {
    const now = Date.now();
    const isDue = ({ policy, state, path }: PolicyReport) => {
      const known = ways.get(policy.name);
      const isOld = !known || known.state !== state.is || now - known.at > WAYS_MS;
      return path === undefined && (isOld || isStale.current);
    };
    const due = items.filter(isDue);
    if (due.length === 0 || isBusy.current) return;
    isStale.current = false;
    isBusy.current = true;
    void Promise.all(due.map((report) => wayOf(report, ways.get(report.policy.name), now)))
      .then((fresh) => {
        const names = items.map((report) => report.policy.name);
        const both = new Map([...ways, ...fresh]);
        setWays(new Map([...both].filter(([name]) => names.includes(name))));
      })
      .finally(() => (isBusy.current = false));
  }, [at]);
  return ways;
}

/** Keeps the previous report if the request fails. */
const wayOf = (
  { policy: { name }, state }: PolicyReport,
  before: Way | undefined,
  at: number,
): Promise<[string, Way]> =>
  get<PolicyReport>(`/policies/${encodeURIComponent(name)}`).then(
    (report) => [name, { report, at, state: state.is }],
    () => [name, { report: before?.report, at, state: state.is }],
  );

const NONE: never[] = [];
const FEW_HOSTS = 300;
/** Delay before hosts that may have changed are fetched; others are fetched after `FRESH_MS`. */
const LOOK_MS = 500;
const FRESH_MS = 5000;
const KEPT_MS = 60_000;
const MOST_TAPS = 25;
const WAYS_MS = 4000;
const PROBLEMS_MS = 3000;
