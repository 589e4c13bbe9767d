// The audit log: who tapped which traffic, when, why, and until when.
import { useState } from "preact/hooks";
import { BASE } from "../api/client";
import type { Topic } from "../api/live";
import type { AuditRecord } from "../api/types";
import { dateTime, isolated } from "../model/format";
import { monitorNames, traffic } from "../model/policy";
import { Empty, Heading, Search, Table, Tag, Unanswered, useSettled } from "../parts/basics";
import { Foot } from "../parts/list";
import { usePages } from "../parts/pages";

export function Audit() {
  const [text, setText] = useState("");
  const q = useSettled(text.trim());
  // A search reads thousands of records, so new records do not trigger it.
  const topics: Topic[] = q ? [] : ["audit"];
  const pages = usePages<AuditRecord>("/audit", { q }, { topics, everyMs: 5000 });
  const { items, total, data } = pages;
  return (
    <>
      <Heading title="Audit">
        <Search value={text} onChange={setText} label="Search records" />
        <a class="button" href={`${BASE}/audit/export`} download="audit.jsonl">
          Export
        </a>
      </Heading>
      <p class="muted">
        Each record contains the SHA-256 hash of the previous one;{" "}
        <code>tapswitch audit --verify</code> checks the chain.
      </p>
      <Unanswered of={pages} what="Audit log" />
      {data && items.length === 0 && (
        <Empty title={q ? `No record matches “${q}”` : "No records yet"} />
      )}
      {items.length > 0 && (
        <Table label="Audit log">
          <thead>
            <tr>
              <th scope="col" class="number">
                No.
              </th>
              {[
                "Time",
                "User",
                "From",
                "Action",
                "Policy",
                "Reason",
                "Until",
                "Result",
                "Hash",
              ].map((word) => (
                <th key={word} scope="col">
                  {word}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {items.map((record) => (
              <Row key={record.seq} record={record} />
            ))}
          </tbody>
        </Table>
      )}
      <Foot shown={items.length} total={total} more={pages.more} what="record" many="records" />
      {data?.next != null && items.length === total && (
        <p class="foot">Older records were not searched; the export contains them.</p>
      )}
    </>
  );
}

function Row({ record }: { record: AuditRecord }) {
  const { policy } = record;
  const words =
    policy === null
      ? "–"
      : typeof policy === "string"
        ? policy
        : `${isolated(policy.name)}: ${traffic(policy)} to ${monitorNames(policy).join(", ")}`;
  const [result, ...why] = record.result.split(": ");
  const isOk = !/^(refused|failed)/.test(record.result);
  return (
    <tr>
      <td class="number">{record.seq}</td>
      <td class="when">{dateTime(record.at)}</td>
      <td>
        {record.who}
        {record.role && <span class="muted"> ({record.role})</span>}
      </td>
      <td>{record.from || "–"}</td>
      <td>
        {record.what}
        {LOOKS[record.what] && <span class="muted"> {LOOKS[record.what]}</span>}
      </td>
      <td class="wide">{words}</td>
      <td class="wide">{record.reason ?? "–"}</td>
      <td class="when">{record.until ? dateTime(record.until) : "–"}</td>
      <td class="wide">
        <Tag tone={isOk ? "good" : "bad"}>{result}</Tag> {why.join(": ")}
      </td>
      <td>
        <code title={record.hash}>{record.hash?.slice(0, 10)}</code>
      </td>
    </tr>
  );
}

/** Actions that changed nothing, but disclosed data. */
const LOOKS: Record<string, string> = {
  "packets.watch": "watched packets",
  "packets.download": "downloaded packets",
  "audit.export": "exported this log",
};
