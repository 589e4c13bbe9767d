// A list that is searched by the controller and sorted here.
import { useState } from "preact/hooks";
import type { Topic } from "../api/live";
import { count, plural } from "../model/format";
import { type Sort, sorted, useSettled } from "./basics";
import { usePages } from "./pages";
import { route } from "./route";

/** What is searched for, how it is sorted, and the rows; `by` is the column at first. */
export function useList<T, C extends string>(
  path: string | undefined,
  order: Record<C, (item: T) => string | number>,
  by: NoInfer<C>,
  options: { topics: Topic[]; everyMs: number },
  filters: Record<string, string | undefined> = {},
) {
  const [text, setText] = useState(route.value.query.get("q") ?? "");
  const [sort, setSort] = useState<Sort<C>>({ by: by as C, isDown: false });
  const q = useSettled(text.trim());
  const pages = usePages<T>(path, { q, ...filters }, options);
  const rows = sorted(pages.items, order[sort.by], sort.isDown);
  return { text, setText, q, sort, setSort, pages, rows };
}

/** How many there are, and a way to the rest. */
export function Foot({
  shown,
  total,
  more,
  what = "policy",
  many = "policies",
}: {
  shown: number;
  total: number;
  more: (() => void) | undefined;
  what?: string;
  many?: string;
}) {
  if (total === 0) return null;
  const all = shown >= total;
  return (
    <p class="foot">
      {all
        ? plural(total, what, many)
        : `The first ${count(shown)} of ${plural(total, what, many)}.`}
      {more && (
        <>
          {" "}
          <button type="button" onClick={more}>
            Show more
          </button>
        </>
      )}
      {!all && !more && " Search to see others."}
    </p>
  );
}
