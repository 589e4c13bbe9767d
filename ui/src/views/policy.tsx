// One policy: its ledger by monitor, the paths of its copies, and its last five minutes.
import { useMemo, useState } from "preact/hooks";
import { mayChange } from "../api/session";
import { useResource } from "../api/resource";
import type { Moment } from "../api/history";
import type { Copied, MonitorPort, PolicyReport, Series, SeriesPoint } from "../api/types";
import { count, dateTime, size } from "../model/format";
import {
  accounted,
  contractText,
  endsAt,
  isController,
  ledger,
  lost,
  monitorNames,
  monitorPorts,
  monitorText,
  owner,
  paths,
  pointText,
  state,
  totals,
} from "../model/policy";
import {
  Countdown,
  Empty,
  Fact,
  Failure,
  Heading,
  Notes,
  Table,
  Tag,
  Waiting,
  Traffic,
} from "../parts/basics";
import { RateCharts } from "../parts/rate-charts";
import { feed, rateText } from "../parts/rates";
import { go, link } from "../parts/route";
import { Delete } from "./policies";

export function Policy({ name }: { name: string }) {
  const path = `/policies/${encodeURIComponent(name)}`;
  const {
    data: report,
    error,
    at,
  } = useResource<PolicyReport>(path, { topics: ["policy"], everyMs: 1000 });
  const [isDoomed, setDoomed] = useState(false);
  useMemo(() => report && feed([report], at), [at]);
  if (!report) {
    return (
      <>
        <Heading title={name} />
        <Missing name={name} error={error} />
      </>
    );
  }
  return (
    <>
      <Heading title={name}>
        <a class="button" href={link(["topology"], { tap: name })}>
          Show in topology
        </a>
        <a class="button" href={link(["policies", name, "packets"])}>
          Packets
        </a>
        {mayChange() && (
          <a class="button" href={link(["policies", name, "edit"])}>
            Edit
          </a>
        )}
        {mayChange() && (
          <button type="button" onClick={() => setDoomed(true)}>
            Delete
          </button>
        )}
      </Heading>
      <Failure error={error} what="Not up to date" />
      <Notes notes={report.notes} />
      <Facts report={report} />
      <Books report={report} />
      <PathList report={report} />
      <SeriesChart name={name} />
      {isDoomed && (
        <Delete
          report={report}
          onDeleted={() => go(["policies"])}
          onCancel={() => setDoomed(false)}
        />
      )}
    </>
  );
}

function Missing({ name, error }: { name: string; error: Parameters<typeof Failure>[0]["error"] }) {
  if (error?.status === 404) {
    return (
      <Empty title={`There is no policy ${name}`}>
        <p>
          It was deleted, or it has ended. <a href={link(["policies"])}>All policies</a>
        </p>
      </Empty>
    );
  }
  return (
    <>
      <Failure error={error} what="Policy" />
      <Waiting is={!error} />
    </>
  );
}

function Facts({ report }: { report: PolicyReport }) {
  const { policy } = report;
  const how = state(report);
  const end = endsAt(report);
  const optional = ["snaplen", "sample", "tags", "transport", "schedule", "priority"].filter(
    (f) => policy[f] !== undefined,
  );
  return (
    <dl class="facts">
      <Fact name="State">
        <Tag tone={how.tone}>{how.word}</Tag> {how.sentence}
      </Fact>
      <Fact name="Traffic">
        <Traffic of={policy} />
      </Fact>
      <Fact name="Monitor">
        {monitorPorts(report).map(monitorText).join(", ") || monitorNames(policy).join(", ")}
      </Fact>
      <Fact name="Copy rate">{rateText(policy.name)}</Fact>
      {policy.point && <Fact name="Copy point">{pointText(policy.point)}</Fact>}
      {policy.delivery && <Fact name="Delivery">{contractText(policy.delivery)}</Fact>}
      {optional.map((field) => (
        <Fact key={field} name={title(field)}>
          {String(policy[field])}
        </Fact>
      ))}
      {end !== undefined && (
        <Fact name="Ends in">
          <Countdown endsAt={end} />
        </Fact>
      )}
      {owner(report) && (
        <Fact name="Owner">
          <bdi>{owner(report)}</bdi>
        </Fact>
      )}
      {report.owner && <Fact name="Added by">{report.owner}</Fact>}
      {policy.reason && (
        <Fact name="Reason">
          <bdi>{policy.reason}</bdi>
        </Fact>
      )}
      {report.created_at && <Fact name="Created">{dateTime(report.created_at)}</Fact>}
      {report.changed_at && (
        <Fact name="Last changed">
          {dateTime(report.changed_at)}
          {report.changed_by && ` by ${report.changed_by}`}
        </Fact>
      )}
    </dl>
  );
}

const title = (field: string): string => field[0]!.toUpperCase() + field.slice(1);

function Books({ report }: { report: PolicyReport }) {
  const [books, sums] = [ledger(report), totals(report)];
  return (
    <section aria-labelledby="ledger">
      <h2 id="ledger">
        Ledger <Tag tone={books.tone}>{books.word}</Tag>
      </h2>
      <p class="muted">
        {books.sentence} {count(sums.matched)} matched ({size(report.matched.bytes)}).
      </p>
      {report.copied.length === 0 ? (
        <Empty title="No copies yet" />
      ) : (
        <Table label="Ledger by monitor">
          <thead>
            <tr>
              <th scope="col">Monitor</th>
              {["Copied", "Delivered", "Flooded", "In flight", "Dropped", "Accounted for"].map(
                (word) => (
                  <th key={word} scope="col" class="number">
                    {word}
                  </th>
                ),
              )}
              <th scope="col">Drops by name</th>
            </tr>
          </thead>
          <tbody>
            {report.copied.map((copied) => (
              <Copies key={portKey(copied.monitor)} name={report.policy.name} copied={copied} />
            ))}
          </tbody>
        </Table>
      )}
    </section>
  );
}

function Copies({ name, copied }: { name: string; copied: Copied }) {
  const all = accounted(copied);
  const isOff = all !== copied.packets;
  const drops = Object.entries(copied.dropped).filter(([, n]) => n > 0);
  return (
    <tr data-monitor={copied.monitor.name}>
      <th scope="row">
        {isController(copied.monitor) ? (
          <>
            <a href={link(["policies", name, "packets"])}>{monitorText(copied.monitor)}</a>, from{" "}
            {copied.monitor.switch}
          </>
        ) : (
          <a href={link(["switches", copied.monitor.switch])}>{monitorText(copied.monitor)}</a>
        )}
      </th>
      <td class="number">{count(copied.packets)}</td>
      <td class="number" data-what="delivered">
        {count(copied.delivered.packets)}
      </td>
      <td class="number">{count(copied.flooded)}</td>
      <td class="number">{count(copied.in_flight)}</td>
      <td class="number">{count(lost(copied))}</td>
      <td class="number">
        {count(all)}
        {isOff && (
          <>
            {" "}
            <span class="muted">({count(copied.packets - all)} off)</span>
          </>
        )}
      </td>
      <td>{drops.map(([reason, n]) => `${reason}: ${count(n)}`).join(", ") || "–"}</td>
    </tr>
  );
}

/** Identifies a port; the port number alone does not, as every switch has a port CONTROLLER. */
const portKey = ({ switch: id, port }: MonitorPort): string => `${id}/${port}`;

function PathList({ report }: { report: PolicyReport }) {
  const ways = paths(report);
  return (
    <section aria-labelledby="path">
      <h2 id="path">Path of the copies</h2>
      {ways.length === 0 && (
        <p class="muted">The controller reports no path, or there is none yet.</p>
      )}
      <ul class="paths">
        {ways.map((way) => (
          <li key={`${way.hops[0]?.switch} ${portKey(way.monitor)}`}>
            {way.hops.map((hop, i) => (
              <span key={i}>
                {i > 0 && " → "}
                <a href={link(["switches", hop.switch])}>{hop.switch}</a>
                {ports(hop)}
              </span>
            ))}
            {" → "}
            {monitorText(way.monitor)}
          </li>
        ))}
      </ul>
    </section>
  );
}

function ports({ in_port, out_port }: { in_port?: unknown; out_port?: unknown }): string {
  const words = [in_port != null && `in ${in_port}`, out_port != null && `out ${out_port}`].filter(
    Boolean,
  );
  return words.length ? ` (${words.join(", ")})` : "";
}

export function SeriesChart({
  name,
  heading = "The last five minutes",
}: {
  name: string;
  heading?: string;
}) {
  const path = `/policies/${encodeURIComponent(name)}/series`;
  const { data, error } = useResource<Series>(path, { everyMs: 1000 });
  const points = useMemo(() => (data?.points ?? []).map(asMoment), [data]);
  return (
    <section aria-label={`${heading} of ${name}`}>
      <h2>{heading}</h2>
      <Failure error={error} what="Chart" />
      {data && points.length === 0 && <Empty title="No data yet" />}
      {points.length > 0 && <RateCharts points={points} />}
    </section>
  );
}

const asMoment = ({ at, delivered_bps, matched_pps, dropped_pps }: SeriesPoint): Moment => ({
  at: Date.parse(at) / 1000,
  delivered: delivered_bps,
  matched: matched_pps,
  dropped: dropped_pps,
});
