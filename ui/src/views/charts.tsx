// Throughput and loss: of all policies since the page was opened, and of selected ones.
import { useMemo, useState } from "preact/hooks";
import { type Moment, moments } from "../api/history";
import { useResource } from "../api/resource";
import type { ListOf, PolicyReport } from "../api/types";
import { count, plural } from "../model/format";
import { totals } from "../model/policy";
import { Empty, Heading, Search, Unanswered, useSettled } from "../parts/basics";
import { usePages } from "../parts/pages";
import { RateCharts } from "../parts/rate-charts";
import { link } from "../parts/route";
import { SeriesChart } from "./policy";

export function Charts() {
  const { data, error } = useResource<ListOf<PolicyReport>>("/policies?limit=200", {
    topics: ["policy"],
    everyMs: 5000,
  });
  const reports = data?.items ?? [];
  const [chosen, setChosen] = useState<string[]>();
  const busiest = useMemo(() => mostTapped(reports), [reports.map((r) => r.policy.name).join()]);
  const shown = chosen ?? busiest;
  return (
    <>
      <Heading title="Charts" />
      <Unanswered of={{ data, error }} what="Charts" />
      {data && reports.length === 0 && (
        <Empty title="No policies">
          <p>
            <a href={link(["new"])}>Create a policy</a> to see its throughput and loss here.
          </p>
        </Empty>
      )}
      {reports.length > 0 && <All points={moments.value} />}
      {reports.length > 0 && <Chooser chosen={shown} onChange={setChosen} />}
      {!chosen && data && data.total > reports.length && (
        <p class="muted">The busiest of the first {count(reports.length)} policies by name:</p>
      )}
      {shown.map((name) => (
        <SeriesChart key={name} name={name} heading={name} />
      ))}
    </>
  );
}

const mostTapped = (reports: PolicyReport[]): string[] =>
  [...reports]
    .sort((a, b) => totals(b).matched - totals(a).matched)
    .slice(0, 3)
    .map((r) => r.policy.name);

function All({ points }: { points: Moment[] }) {
  return (
    <section aria-labelledby="all">
      <h2 id="all">All policies</h2>
      {points.length === 0 ? (
        <p class="muted">Updated every second, starting when this page was opened.</p>
      ) : (
        <RateCharts points={points} />
      )}
    </section>
  );
}

/** Selects policies; the controller searches all of them. */
function Chooser({ chosen, onChange }: { chosen: string[]; onChange(names: string[]): void }) {
  const add = (name: string) =>
    name && !chosen.includes(name) && onChange([...chosen, name].slice(-MOST_CHARTS));
  const [text, setText] = useState("");
  const q = useSettled(text.trim());
  const { items, total } = usePages<PolicyReport>("/policies", { q }, { topics: ["policy"] });
  const others = items.filter((r) => !chosen.includes(r.policy.name));
  return (
    <div class="chooser">
      <Search value={text} onChange={setText} label="Search policies" />
      <label for="chart-policy">Add a policy</label>
      <select id="chart-policy" value="" onChange={(event) => add(event.currentTarget.value)}>
        <option value="">choose …</option>
        {others.map(({ policy }) => (
          <option key={policy.name} value={policy.name}>
            {policy.name}
          </option>
        ))}
      </select>
      {total > items.length && (
        <span class="muted">
          {count(items.length)} of {plural(total, "policy", "policies")}: search for others
        </span>
      )}
      {chosen.map((name) => (
        <button key={name} type="button" onClick={() => onChange(chosen.filter((n) => n !== name))}>
          Hide {name}
        </button>
      ))}
    </div>
  );
}

const MOST_CHARTS = 8;
