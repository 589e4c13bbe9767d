// All policies, or those with problems: state, counters and actions.
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
  urgency,
} from "../model/policy";
import {
  Countdown,
  Empty,
  Heading,
  Search,
  Table,
  Tag,
  Traffic,
  Unanswered,
} from "../parts/basics";
import { type Sort, SortHead } from "../parts/basics";
import { Foot, useList } from "../parts/list";
import { ConfirmChange } from "../parts/change";
import { feed, rateOf } from "../parts/rates";
import { go, link, route } from "../parts/route";

type Column = "name" | "state" | "rate" | "matched" | "delivered" | "dropped" | "ledger" | "ends";

export function Policies() {
  const [doomed, setDoomed] = useState<PolicyReport>();
  const isNarrow = route.value.query.get("show") === "problems";
  const { text, setText, q, sort, setSort, pages, rows, isSorted } = useList(
    "/policies",
    ORDER,
    "name",
    { topics: ["policy"], everyMs: 1000 },
    isNarrow ? { has_problem: "true" } : undefined,
  );
  useMemo(() => feed(pages.items, pages.at), [pages.at]);
  return (
    <>
      <Heading title="Policies">
        <select
          aria-label="Which policies"
          value={isNarrow ? "problems" : ""}
          onChange={(event) => go(["policies"], showing(event.currentTarget.value))}
        >
          <option value="">All policies</option>
          <option value="problems">With problems</option>
        </select>
        <Search value={text} onChange={setText} label="Search policies" />
        {mayChange() && (
          <a class="button primary" href={link(["new"])}>
            New policy
          </a>
        )}
      </Heading>
      <Unanswered of={pages} what="Policies" />
      {pages.data && rows.length === 0 && <Nothing q={q} isNarrow={isNarrow} />}
      {rows.length > 0 && (
        <Table label="Policies" kind="policies">
          <Head sort={sort} onSort={setSort} />
          <tbody>
            {rows.map((report) => (
              <Row
                key={report.policy.name}
                report={report}
                hasReasons={isNarrow}
                onDelete={() => setDoomed(report)}
              />
            ))}
          </tbody>
        </Table>
      )}
      <Foot
        shown={rows.length}
        total={pages.total}
        more={pages.more}
        isSorted={isSorted}
        {...(isNarrow && WITH_PROBLEMS)}
      />
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

const WITH_PROBLEMS = { what: "policy with a problem", many: "policies with problems" };

/** Part of the URL, so that links can lead here. */
const showing = (what: string): Record<string, string> => (what ? { show: what } : {});

const ORDER: Record<Column, (report: PolicyReport) => string | number> = {
  name: (r) => r.policy.name,
  state: (r) => urgency(state(r).tone),
  rate: (r) => rateOf(r.policy.name)?.deliveredBits ?? 0,
  matched: (r) => r.matched.packets,
  delivered: (r) => totals(r).delivered,
  dropped: (r) => totals(r).dropped,
  ledger: (r) => urgency(ledger(r).tone),
  ends: (r) => endsAt(r) ?? Number.MAX_SAFE_INTEGER,
};

function Nothing({ q, isNarrow }: { q: string; isNarrow: boolean }) {
  if (q) return <Empty title={`No policy${isNarrow ? " with a problem" : ""} matches “${q}”`} />;
  if (isNarrow) {
    return (
      <Empty title="No policy has a problem">
        <p>No policy has failed, and every ledger adds up.</p>
      </Empty>
    );
  }
  return (
    <Empty title="No policies">
      <p>A policy copies selected traffic to a monitor without affecting the original.</p>
      {mayChange() && (
        <p>
          <a class="button primary" href={link(["new"])}>
            Create the first policy
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
        <SortHead id="ledger" {...same}>
          Ledger
        </SortHead>
        <SortHead id="ends" {...same}>
          Ends in
        </SortHead>
        <th scope="col">Owner</th>
        <th scope="col">
          <span class="unseen">Actions</span>
        </th>
      </tr>
    </thead>
  );
}

function Row({
  report,
  hasReasons,
  onDelete,
}: {
  report: PolicyReport;
  /** Whether to show reasons in the row, rather than as tooltips. */
  hasReasons: boolean;
  onDelete(): void;
}) {
  const { name } = report.policy;
  const [how, books, sums] = [state(report), ledger(report), totals(report)];
  const bad = hasReasons ? [how, books].filter(({ tone }) => tone === "bad") : [];
  const rate = rateOf(name);
  const end = endsAt(report);
  return (
    <tr class={books.tone === "bad" ? "bad-row" : undefined} data-policy={name}>
      <th scope="row" class="wide">
        <a href={link(["policies", name])}>{name}</a>
        <span class="below">
          <bdi>{owner(report) ?? ""}</bdi>
        </span>
      </th>
      <td>
        <Tag tone={how.tone} title={how.sentence}>
          {how.word}
        </Tag>
        <NoteCount report={report} />
        {end !== undefined && (
          <span class="below">
            ends in <Countdown endsAt={end} />
          </span>
        )}
        {bad.map(({ sentence: words }) => (
          <p key={words} class="reason">
            {words}
          </p>
        ))}
      </td>
      <td class="wide traffic">
        <Traffic of={report.policy} />
      </td>
      <td class="wide">{monitors(report)}</td>
      <td class="number">{rate ? bitRate(rate.deliveredBits) : "–"}</td>
      <td class="number">{count(sums.matched)}</td>
      <td class="number">
        {count(sums.delivered)}
        <span class="below">of {count(sums.matched)}</span>
      </td>
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
      <td class="wide">
        <bdi>{owner(report) ?? "–"}</bdi>
      </td>
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

/**
 * Shows the effects of deleting a policy, asks for confirmation, deletes it, and reports errors.
 */
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
        This stops the copies and does not affect the original traffic. The audit log keeps the
        records of this policy.
      </p>
    </ConfirmChange>
  );
}
