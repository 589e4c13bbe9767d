// Policies with problems, out of all. The controller's search looks at texts, and a ledger that does
// not add up is none: so all are read, page by page, and not often.
import { useEffect, useRef } from "preact/hooks";
import { get, query } from "../api/client";
import { mismatches } from "../api/history";
import { type Resource, useResource } from "../api/resource";
import type { ListOf, PolicyReport } from "../api/types";
import { hasProblem } from "../model/policy";

export interface Problems {
  reports: PolicyReport[];
  /** Of all policies. */
  total: number;
}

/** Nothing is asked while it is not wanted. */
export function useProblems(isWanted: boolean, everyMs: number): Resource<Problems> {
  const found = useResource<Problems>(isWanted ? "/policies" : undefined, {
    topics: ["policy"],
    everyMs,
    pauseMs: PAUSE_MS,
    ask: search,
  });
  // What policies do is told by events, what their ledgers do by a number alone.
  const known = useRef(mismatches.value);
  useEffect(() => {
    if (known.current !== mismatches.value) found.reload();
    known.current = mismatches.value;
  }, [mismatches.value]);
  return found;
}

async function search(path: string, signal: AbortSignal): Promise<Problems> {
  const found: Problems = { reports: [], total: 0 };
  let cursor: string | null | undefined;
  do {
    const page = await get<ListOf<PolicyReport>>(path + query({ limit: PAGE, cursor }), signal);
    found.reports.push(...page.items.filter(hasProblem));
    found.total = page.total;
    cursor = page.next;
  } while (cursor != null);
  return found;
}

/** As many as the controller gives at once. */
const PAGE = 1000;
const PAUSE_MS = 3000;
