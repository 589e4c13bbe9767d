// All policies: how each is doing, what it costs, and what can be done with it.
import { useMemo, useState } from "preact/hooks";
import { mayChange } from "../api/session";
import type { PolicyReport } from "../api/types";
import { bitRate, count, packetRate, plural } from "../model/format";
import {
  endsAt,
  ledger,
  monitorNames,
  monitorPorts,
  monitorText,
  owner,
  state,
  totals,
  traffic,
} from "../model/policy";
import { Countdown, Empty, Failure, Heading, Search, Table, Tag } from "../parts/basics";
import { type Sort, SortHead } from "../parts/basics";
import { Foot, useList } from "../parts/list";
import { ConfirmChange } from "../parts/change";
import { feed, rateOf } from "../parts/rates";
import { link } from "../parts/route";

type Column = "name" | "state" | "rate" | "matched" | "delivered" | "dropped" | "ends";

export function Policies() {
  const [doomed, setDoomed] = useState<PolicyReport>();
  const { text, setText, q, sort, setSort, pages, rows } = useList("/policies", ORDER, "name", {
    topics: ["policy"],
    everyMs: 1000,
  });
  useMemo(() => feed(pages.items, pages.at), [pages.at]);
  return (
    <>
      <Heading title="Policies">
        <Search value={text} onChange={setText} label="Search policies" />
        {mayChange() && (
          <a class="button primary" href={link(["new"])}>
            New policy
          </a>
        )}
      </Heading>
      <Failure error={pages.error} what="Policies" />
      {pages.data && rows.length === 0 && <Nothing q={q} />}
      {rows.length > 0 && (
        <Table label="Policies">
          <Head sort={sort} onSort={setSort} />
          <tbody>
            {rows.map((report) => (
              <Row key={report.policy.name} report={report} onDelete={() => setDoomed(report)} />
            ))}
          </tbody>
        </Table>
      )}
      <Foot shown={rows.length} total={pages.total} more={pages.more} />
      {doomed && (
        <Delete
          report={doomed}
          onDeleted={() => (setDoomed(undefined), pages.reload())}
          onCancel={() => setDoomed(undefined)}
        />
      )}
    </>
  );
}

const ORDER: Record<Column, (report: PolicyReport) => string | number> = {
  name: (r) => r.policy.name,
  state: (r) => r.state.is,
  rate: (r) => rateOf(r.policy.name)?.deliveredBits ?? 0,
  matched: (r) => r.matched.packets,
  delivered: (r) => totals(r).delivered,
  dropped: (r) => totals(r).dropped,
  ends: (r) => endsAt(r) ?? Number.MAX_SAFE_INTEGER,
};

function Nothing({ q }: { q: string }) {
  if (q) return <Empty title={`No policy has “${q}” in it`} />;
  return (
    <Empty title="Nothing is tapped">
      <p>A policy copies chosen traffic to a monitor and leaves the traffic alone.</p>
      {mayChange() && (
        <p>
          <a class="button primary" href={link(["new"])}>
            Make the first policy
          </a>
        </p>
      )}
    </Empty>
  );
}

function Head({ sort, onSort }: { sort: Sort<Column>; onSort(sort: Sort<Column>): void }) {
  const same = { sort, onSort };
  return (
    <thead>
      <tr>
        <SortHead id="name" {...same}>
          Policy
        </SortHead>
        <SortHead id="state" {...same}>
          State
        </SortHead>
        <th scope="col">Traffic</th>
        <th scope="col">Monitor</th>
        <SortHead id="rate" isNumber {...same}>
          Copies
        </SortHead>
        <SortHead id="matched" isNumber {...same}>
          Matched
        </SortHead>
        <SortHead id="delivered" isNumber {...same}>
          Delivered
        </SortHead>
        <SortHead id="dropped" isNumber {...same}>
          Dropped
        </SortHead>
        <th scope="col">Ledger</th>
        <SortHead id="ends" {...same}>
          Ends in
        </SortHead>
        <th scope="col">Owner</th>
        <th scope="col">
          <span class="unseen">What to do</span>
        </th>
      </tr>
    </thead>
  );
}

function Row({ report, onDelete }: { report: PolicyReport; onDelete(): void }) {
  const { name } = report.policy;
  const [how, books, sums] = [state(report), ledger(report), totals(report)];
  const rate = rateOf(name);
  const end = endsAt(report);
  return (
    <tr class={books.tone === "bad" ? "bad-row" : undefined} data-policy={name}>
      <th scope="row" class="wide">
        <a href={link(["policies", name])}>{name}</a>
      </th>
      <td>
        <Tag tone={how.tone} title={how.sentence}>
          {how.word}
        </Tag>
        <NoteCount report={report} />
      </td>
      <td class="wide">{traffic(report.policy)}</td>
      <td class="wide">{monitors(report)}</td>
      <td class="number">{rate ? bitRate(rate.deliveredBits) : "–"}</td>
      <td class="number">{count(sums.matched)}</td>
      <td class="number">{count(sums.delivered)}</td>
      <td class="number">
        {count(sums.dropped)}
        {rate?.dropped ? ` (${packetRate(rate.dropped)})` : ""}
      </td>
      <td>
        <Tag tone={books.tone} title={books.sentence}>
          {books.word}
        </Tag>
      </td>
      <td>{end === undefined ? "–" : <Countdown endsAt={end} />}</td>
      <td class="wide">{owner(report) ?? "–"}</td>
      <td class="actions">
        {mayChange() && (
          <>
            <a
              class="button small"
              href={link(["policies", name, "edit"])}
              aria-label={`Edit ${name}`}
            >
              Edit
            </a>
            <button type="button" class="small" onClick={onDelete} aria-label={`Delete ${name}`}>
              Delete
            </button>
          </>
        )}
      </td>
    </tr>
  );
}

function NoteCount({ report: { policy, notes = [] } }: { report: PolicyReport }) {
  if (notes.length === 0) return null;
  const words = plural(notes.length, "note");
  return (
    <>
      {" "}
      <a href={link(["policies", policy.name])} aria-label={`${words} on ${policy.name}`}>
        {words}
      </a>
    </>
  );
}

function monitors(report: PolicyReport): string {
  const ports = monitorPorts(report);
  return ports.length ? ports.map(monitorText).join(", ") : monitorNames(report.policy).join(", ");
}

/** Shows what deleting would do, asks, deletes, and says what went wrong. */
export function Delete({
  report,
  onDeleted,
  onCancel,
}: {
  report: PolicyReport;
  onDeleted(): void;
  onCancel(): void;
}) {
  const { name } = report.policy;
  return (
    <ConfirmChange
      change={{ method: "DELETE", path: `/policies/${encodeURIComponent(name)}` }}
      title={`Delete ${name}?`}
      action="Delete"
      failed="Not deleted"
      onMade={onDeleted}
      onCancel={onCancel}
    >
      <p>
        No copies are made from then on; the traffic itself is not touched. The audit log keeps what
        was tapped.
      </p>
    </ConfirmChange>
  );
}
