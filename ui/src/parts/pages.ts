// Paged lists: one page that grows, so that all rows are from the same time.
import { useEffect, useState } from "preact/hooks";
import { query } from "../api/client";
import type { Topic } from "../api/live";
import { type Resource, useResource } from "../api/resource";
import type { ListOf } from "../api/types";

export interface Pages<T> extends Resource<ListOf<T>> {
  items: T[];
  total: number;
  /** Shows more rows; `undefined` if all are shown or the maximum of a view is reached. */
  more: (() => void) | undefined;
}

export function usePages<T>(
  path: string | undefined,
  filters: Record<string, string | undefined>,
  options: { topics?: Topic[]; everyMs?: number; step?: number } = {},
): Pages<T> {
  const { step = 100, ...rest } = options;
  const [limit, setLimit] = useState(step);
  const key = JSON.stringify(filters);
  useEffect(() => setLimit(step), [key, step]);
  const asked = path && path + query({ limit, ...filters });
  const resource = useResource<ListOf<T>>(asked, rest);
  const [last, setLast] = useState<ListOf<T>>();
  useEffect(() => {
    if (resource.data) setLast(resource.data);
  }, [resource.data]);
  // The old page stays until the larger or other one arrives.
  const list = resource.data ?? last;
  const items = list?.items ?? [];
  const total = list?.total ?? items.length;
  const hasMore = items.length < total && limit < MOST_ROWS;
  return {
    ...resource,
    data: list,
    items,
    total,
    more: hasMore ? () => setLimit(Math.min(MOST_ROWS, limit * 2)) : undefined,
  };
}

/** Maximum rows in a view; the search finds others. */
const MOST_ROWS = 1000;
