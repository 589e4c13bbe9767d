// What the topology view shows: the fabric, its hosts near enough to be seen, and the TAPs.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { type ApiError, get, query } from "../api/client";
import { listen } from "../api/live";
import { useResource } from "../api/resource";
import type { HostReport, ListOf, PolicyReport, SwitchReport, Topology } from "../api/types";
import { aggregate, only } from "../graph/aggregate";
import { feed } from "../parts/rates";

/** Nodes that are drawn without being asked to draw fewer. */
export const MOST_NODES = 1500;
const fabricPath = (most: number | undefined): string => `/topology${query({ max_nodes: most })}`;
/** What the view asks for at first. */
export const WHOLE_FABRIC = fabricPath(MOST_NODES);

export interface Fabric {
  topology: Topology | undefined;
  /** False when the controller tells of switches alone. */
  hasLinks: boolean;
  error: ApiError | undefined;
}

/** The fabric in at most `most` nodes; `members` is a group that is looked into. */
export function useFabric(most: number, members: string[] | undefined): Fabric {
  const limit = members ? undefined : most;
  const fabric = useResource<Topology>(fabricPath(limit), {
    topics: ["switch", "link", "host"],
    everyMs: 3000,
  });
  const isMissing = fabric.error?.isMissingEndpoint === true;
  const switches = useResource<ListOf<SwitchReport>>(
    isMissing ? "/switches?limit=1000" : undefined,
    { topics: ["switch", "host"], everyMs: 3000 },
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
    switches: items.map(({ switch: id, is_connected, ports, hosts }) => ({
      switch: id,
      is_connected,
      hosts,
      ports: ports.length,
      monitors: 0,
    })),
  };
}

/** Hosts of these switches, or of all when there are few. */
export function useHosts(total: number, near: string[]): HostReport[] {
  const isFew = total <= FEW_HOSTS;
  const all = useResource<ListOf<HostReport>>(isFew ? `/hosts?limit=${FEW_HOSTS}` : undefined, {
    topics: ["host", "switch"],
    everyMs: 5000,
  });
  const [known, setKnown] = useState(new Map<string, HostReport[]>());
  const key = near.join();
  useEffect(() => {
    if (isFew) return;
    const missing = near.filter((id) => !known.has(id)).slice(0, MOST_ASKED);
    if (missing.length === 0) return;
    const abort = new AbortController();
    void Promise.all(missing.map((id) => hostsOf(id, abort.signal))).then((lists) => {
      if (abort.signal.aborted) return;
      setKnown(
        (before) =>
          new Map(
            [...before, ...missing.map((id, i) => [id, lists[i]!] as const)].slice(-MOST_KEPT),
          ),
      );
    });
    return () => abort.abort();
  }, [isFew, key, known]);
  useEffect(() => listen((topic) => topic === "again" && setKnown(new Map())), []);
  return useMemo(() => {
    if (isFew) return all.data?.items ?? [];
    return near.flatMap((id) => known.get(id) ?? []);
  }, [isFew, all.data, known, key]);
}

const hostsOf = (id: string, signal: AbortSignal): Promise<HostReport[]> =>
  get<ListOf<HostReport>>(`/hosts${query({ switch: id, limit: 100 })}`, signal).then(
    (list) => list.items,
    () => [],
  );

export interface Taps {
  reports: PolicyReport[];
  total: number;
  error: ApiError | undefined;
  at: number;
}

/** The first TAPs with the ways of their copies, and the one that is looked at. */
export function useTaps(chosen: string | undefined): Taps {
  const list = useResource<ListOf<PolicyReport>>(`/policies?limit=${MOST_TAPS}`, {
    topics: ["policy"],
    everyMs: 1000,
  });
  const paths = useRef(new Map<string, { path: unknown; at: number; state: string }>());
  const [, setCount] = useState(0);
  const items = list.data?.items ?? [];
  useMemo(() => feed(items, list.at), [list.at]);
  const extra = useResource<PolicyReport>(
    chosen !== undefined && list.data && !items.some((r) => r.policy.name === chosen)
      ? `/policies/${encodeURIComponent(chosen)}`
      : undefined,
    { topics: ["policy"], everyMs: 1000 },
  );
  useEffect(() => {
    const now = Date.now();
    const old = items.filter((report) => {
      const known = paths.current.get(report.policy.name);
      return (
        report.path === undefined &&
        (!known || known.state !== report.state.is || now - known.at > PATHS_MS)
      );
    });
    for (const report of old) {
      const { name } = report.policy;
      paths.current.set(name, {
        ...paths.current.get(name),
        path: paths.current.get(name)?.path,
        at: now,
        state: report.state.is,
      });
      get<PolicyReport>(`/policies/${encodeURIComponent(name)}`).then(
        ({ path }) => {
          paths.current.set(name, { path, at: now, state: report.state.is });
          setCount((count) => count + 1);
        },
        () => undefined,
      );
    }
  }, [list.at]);
  useEffect(
    () =>
      listen((topic) => {
        if (topic === "link" || topic === "again" || topic === "switch")
          for (const p of paths.current.values()) p.at = 0;
      }),
    [],
  );
  const reports = items.map((r) =>
    r.path === undefined ? { ...r, path: paths.current.get(r.policy.name)?.path } : r,
  );
  if (extra.data) reports.push(extra.data);
  return { reports, total: list.data?.total ?? 0, error: list.error, at: list.at };
}

const FEW_HOSTS = 300;
const MOST_ASKED = 12;
const MOST_KEPT = 200;
const MOST_TAPS = 25;
const PATHS_MS = 4000;
