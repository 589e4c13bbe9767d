// One switch: its ports, hosts, rules and groups.
import { useState } from "preact/hooks";
import { useResource } from "../api/resource";
import type { HostReport, ListOf, PortReport, SwitchReport } from "../api/types";
import { count, plural } from "../model/format";
import { Empty, Fact, Failure, Heading, Search, Table, Tag } from "../parts/basics";
import { link } from "../parts/route";
import { Connected } from "./switches";

export function Switch({ id }: { id: string }) {
  const [hasRules, setRules] = useState(false);
  const path = `/switches/${encodeURIComponent(id)}`;
  const plain = useResource<SwitchReport>(path, { topics: ["switch"], everyMs: 2000 });
  const full = useResource<SwitchReport>(hasRules ? `${path}?rules=true` : undefined, {
    topics: ["switch", "policy"],
    everyMs: 5000,
  });
  const report = plain.data;
  if (!report) {
    const isGone = plain.error?.status === 404;
    return (
      <>
        <Heading title={`Switch ${id}`} />
        {isGone ? (
          <Empty title={`The controller does not know a switch ${id}`} />
        ) : (
          <Failure error={plain.error} what="Switch" />
        )}
      </>
    );
  }
  const number = (list: number | string[]) => (typeof list === "number" ? list : list.length);
  return (
    <>
      <Heading title={`Switch ${id}`}>
        <a class="button" href={link(["topology"], { switch: id })}>
          Show in the topology
        </a>
      </Heading>
      <dl class="facts">
        <Fact name="State">
          <Connected is={report.is_connected} />
        </Fact>
        {report.is_ours !== undefined && (
          <Fact name="Kind">{report.is_ours ? "tapswitch" : "another OpenFlow switch"}</Fact>
        )}
        <Fact name="Rules of ours">{count(number(report.rules))}</Fact>
        <Fact name="Groups of ours">{count(number(report.groups))}</Fact>
        <Fact name="Refused by it">{count(report.refusals)}</Fact>
        <Fact name="Hosts without room">{count(report.hosts_refused)}</Fact>
        <Fact name="Address conflicts">{count(report.address_conflicts)}</Fact>
        {report.lldp_forged !== undefined && (
          <Fact name="Forged LLDP">{count(report.lldp_forged)}</Fact>
        )}
      </dl>
      <Ports ports={report.ports} />
      <Hosts id={id} />
      <section aria-labelledby="rules">
        <h2 id="rules">Rules and groups</h2>
        {!hasRules && (
          <button type="button" onClick={() => setRules(true)}>
            Show what the switch holds
          </button>
        )}
        {hasRules && <Failure error={full.error} what="Rules" />}
        {hasRules && full.data && <Rules report={full.data} />}
      </section>
    </>
  );
}

/** Counters that a controller may tell of ports, in the order of the columns. */
const COUNTERS: [string, string][] = [
  ["rx_packets", "Packets in"],
  ["rx_bytes", "Bytes in"],
  ["rx_dropped", "Dropped in"],
  ["tx_packets", "Packets out"],
  ["tx_bytes", "Bytes out"],
  ["tx_dropped", "Dropped out"],
];

const ROLES: Record<string, string> = {
  edge: "hosts",
  link: "another switch",
  closed: "not known yet; nothing passes",
};

function Ports({ ports }: { ports: PortReport[] }) {
  const flat = ports.map(
    (port) => ({ ...port, ...(port.counters as object | undefined) }) as PortReport,
  );
  const hasRoles = ports.some((port) => port.role !== undefined);
  const told = COUNTERS.filter(([key]) => flat.some((port) => typeof port[key] === "number"));
  return (
    <section aria-labelledby="ports">
      <h2 id="ports">Ports</h2>
      {ports.length === 0 ? (
        <Empty title="It has no ports" />
      ) : (
        <Table label="All ports">
          <thead>
            <tr>
              <th scope="col" class="number">
                Port
              </th>
              <th scope="col">Name</th>
              <th scope="col">State</th>
              {hasRoles && <th scope="col">What is there</th>}
              {told.map(([key, words]) => (
                <th key={key} scope="col" class="number">
                  {words}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {flat.map((port) => (
              <tr key={port.port}>
                <th scope="row" class="number">
                  {port.port}
                </th>
                <td>{port.name}</td>
                <td>
                  <Tag tone={port.is_up ? "good" : "bad"}>{port.is_up ? "up" : "down"}</Tag>
                </td>
                {hasRoles && <td>{ROLES[String(port.role)] ?? String(port.role)}</td>}
                {told.map(([key]) => (
                  <td key={key} class="number">
                    {typeof port[key] === "number" ? count(port[key] as number) : "–"}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </Table>
      )}
    </section>
  );
}

function Hosts({ id }: { id: string }) {
  const { data, error } = useResource<ListOf<HostReport>>(
    `/hosts?limit=200&switch=${encodeURIComponent(id)}`,
    { topics: ["host"], everyMs: 5000 },
  );
  const hosts = data?.items ?? [];
  return (
    <section aria-labelledby="hosts">
      <h2 id="hosts">Hosts</h2>
      <Failure error={error} what="Hosts" />
      {data && hosts.length === 0 && <Empty title="No host was seen here yet" />}
      {hosts.length > 0 && (
        <Table label="All hosts">
          <thead>
            <tr>
              {["MAC address", "IP addresses", "VLAN", "Port"].map((word) => (
                <th key={word} scope="col">
                  {word}
                </th>
              ))}
              <th scope="col">
                <span class="unseen">What to do</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {hosts.map((host) => (
              <tr key={`${host.mac} ${host.vlan}`}>
                <th scope="row">
                  <code>{host.mac}</code>
                </th>
                <td>{host.addresses.join(", ") || "–"}</td>
                <td>{host.vlan ?? "–"}</td>
                <td>
                  {host.port_name} ({host.port})
                </td>
                <td>
                  <a class="button small" href={tapHost(host)}>
                    Tap it
                  </a>
                </td>
              </tr>
            ))}
          </tbody>
        </Table>
      )}
      {data && data.total > hosts.length && (
        <p class="foot">
          The first {count(hosts.length)} of {plural(data.total, "host")}.
        </p>
      )}
    </section>
  );
}

/** A new policy for all that a host says and hears. */
export function tapHost(host: HostReport): string {
  const [address] = host.addresses;
  const who: Record<string, string> = address ? { "src-ip": address } : { "src-mac": host.mac };
  return link(["new"], { ...who, direction: "both", name: `host ${address ?? host.mac}` });
}

function Rules({ report }: { report: SwitchReport }) {
  const [text, setText] = useState("");
  const lists: [string, number | string[]][] = [
    ["Rules", report.rules],
    ["Groups", report.groups],
  ];
  return (
    <>
      <Search value={text} onChange={setText} label="Search rules and groups" />
      {lists.map(([name, list]) => (
        <section key={name} aria-label={name}>
          <h3>{name}</h3>
          {Array.isArray(list) ? (
            <Lines lines={list.filter((l) => l.includes(text))} label={name} />
          ) : (
            <p class="muted">
              {plural(list, "entry", "entries")}; this controller does not tell more.
            </p>
          )}
        </section>
      ))}
    </>
  );
}

function Lines({ lines, label }: { lines: string[]; label: string }) {
  if (lines.length === 0) return <p class="muted">None.</p>;
  const shown = lines.slice(0, MOST_LINES);
  return (
    <>
      <pre class="rules" tabIndex={0} aria-label={label}>
        {shown.join("\n")}
      </pre>
      {lines.length > shown.length && (
        <p class="foot">
          The first {count(shown.length)} of {count(lines.length)}; search for others.
        </p>
      )}
    </>
  );
}

const MOST_LINES = 500;
