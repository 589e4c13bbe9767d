// One switch: its ports, hosts, rules and groups.
import { useResource } from "../api/resource";
import { mayChange } from "../api/session";
import type { HostReport, ListOf, PortDetail, SwitchReport } from "../api/types";
import { bitRate, count, plural, size } from "../model/format";
import { addresses, tapped, unproven, vlans } from "../model/host";
import type { Tone } from "../model/policy";
import { condition, troubles } from "../model/switch";
import { Empty, Fact, Failure, Heading, Table, Tag, Unanswered, Waiting } from "../parts/basics";
import { Foot } from "../parts/list";
import { usePages } from "../parts/pages";
import { link } from "../parts/route";
import { Groups, Rules } from "./switch-tables";

export function Switch({ id }: { id: string }) {
  const path = `/switches/${encodeURIComponent(id)}`;
  const plain = useResource<SwitchReport>(path, { topics: ["switch"], everyMs: 2000 });
  const report = plain.data;
  const how = report && condition(report);
  if (!report || !how) {
    const isGone = plain.error?.status === 404;
    return (
      <>
        <Heading title={`Switch ${id}`} />
        {isGone ? (
          <Empty title={`The controller does not know switch ${id}`} />
        ) : (
          <Failure error={plain.error} what="Switch" />
        )}
        <Waiting is={!plain.error} />
      </>
    );
  }
  return (
    <>
      <Heading title={`Switch ${id}`}>
        <a class="button" href={link(["topology"], { switch: id })}>
          Show in topology
        </a>
      </Heading>
      <dl class="facts">
        <Fact name="State">
          <Tag tone={how.tone}>{how.word}</Tag> {how.sentence}
        </Fact>
        {report.is_ours !== undefined && (
          <Fact name="Kind">{report.is_ours ? "tapswitch" : "another OpenFlow switch"}</Fact>
        )}
        <Fact name="Controller's rules">{count(report.rules)}</Fact>
        <Fact name="Controller's groups">{count(report.groups)}</Fact>
        <Fact name="Refusals">{count(report.refusals)}</Fact>
        <Fact name="Hosts refused">{count(report.hosts_refused)}</Fact>
        <Fact name="Address conflicts">{count(report.address_conflicts)}</Fact>
        {report.lldp_forged !== undefined && (
          <Fact name="Forged LLDP">{count(report.lldp_forged)}</Fact>
        )}
        {report.lldp_late !== undefined && <Fact name="Late LLDP">{count(report.lldp_late)}</Fact>}
      </dl>
      <Troubles report={report} />
      <Ports id={id} isConnected={report.is_connected} />
      <Hosts id={id} />
      <Rules id={id} />
      <Groups id={id} />
    </>
  );
}

function Troubles({ report }: { report: SwitchReport }) {
  const all = troubles(report);
  if (all.length === 0) return null;
  return (
    <section aria-labelledby="troubles">
      <h2 id="troubles">Warnings</h2>
      <ul>
        {all.map((words) => (
          <li key={words}>{words}</li>
        ))}
      </ul>
    </section>
  );
}

const ROLES: Record<string, string> = {
  edge: "hosts",
  link: "another switch",
  closed: "not known yet; closed",
  monitor: "copies only",
};

/** Counter columns: key, heading, format. */
const COUNTERS: [string, string, (n: number) => string][] = [
  ["rx_packets", "Packets in", count],
  ["rx_bytes", "Bytes in", size],
  ["rx_dropped", "Dropped in", count],
  ["tx_packets", "Packets out", count],
  ["tx_bytes", "Bytes out", size],
  ["tx_dropped", "Dropped out", count],
];

function Ports({ id, isConnected }: { id: string; isConnected: boolean }) {
  const path = `/switches/${encodeURIComponent(id)}/ports`;
  const pages = usePages<PortDetail>(path, {}, { topics: ["port", "link"], everyMs: 2000 });
  const words = ["Rate in", "Rate out", ...COUNTERS.map(([, title]) => title)];
  return (
    <section aria-labelledby="ports">
      <h2 id="ports">Ports</h2>
      <Unanswered of={pages} what="Ports" />
      {pages.data && pages.items.length === 0 && <Empty title="No ports" />}
      {pages.items.length > 0 && (
        <Table label="All ports">
          <thead>
            <tr>
              <th scope="col" class="number">
                Port
              </th>
              {["Name", "State", "Attached"].map((title) => (
                <th key={title} scope="col">
                  {title}
                </th>
              ))}
              {words.map((title) => (
                <th key={title} scope="col" class="number">
                  {title}
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {pages.items.map((port) => (
              <Port key={port.port} port={port} isConnected={isConnected} />
            ))}
          </tbody>
        </Table>
      )}
      <Foot shown={pages.items.length} {...pages} what="port" many="ports" />
    </section>
  );
}

function Port({ port, isConnected }: { port: PortDetail; isConnected: boolean }) {
  const { counters } = port;
  // The last load of a disconnected switch is outdated.
  const load = isConnected ? port.load : undefined;
  const [tone, word]: [Tone, string] = !isConnected
    ? ["wait", "unknown"]
    : port.is_up
      ? ["good", "up"]
      : ["bad", "down"];
  return (
    <tr data-port={port.port}>
      <th scope="row" class="number">
        {port.port}
      </th>
      <td>{port.name}</td>
      <td>
        <Tag tone={tone}>{word}</Tag>
      </td>
      <td>{ROLES[port.role] ?? port.role}</td>
      {[load?.rx, load?.tx].map((bytes, i) => (
        <td key={i} class="number">
          {bytes === undefined ? "–" : bitRate(bytes * 8)}
        </td>
      ))}
      {COUNTERS.map(([key, , text]) => (
        <td key={key} class="number">
          {counters?.[key] == null ? "–" : text(counters[key])}
        </td>
      ))}
    </tr>
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
      <Unanswered of={{ data, error }} what="Hosts" />
      {data && hosts.length === 0 && <Empty title="No hosts seen yet" />}
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
                <span class="unseen">Actions</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {hosts.map((host) => (
              <tr key={`${host.mac} ${host.vlan}`}>
                <th scope="row">
                  <code>{host.mac}</code>
                </th>
                <td>{addresses(host) || "–"}</td>
                <td>{vlans(host) || "–"}</td>
                <td>
                  {host.port_name} ({host.port})
                </td>
                <td>
                  {mayChange() && (
                    <a class="button small" href={tapHost(host)}>
                      Tap
                    </a>
                  )}
                </td>
              </tr>
            ))}
          </tbody>
        </Table>
      )}
      {unproven(hosts) && <p class="foot">{unproven(hosts)}</p>}
      {data && data.total > hosts.length && (
        <p class="foot">
          The first {count(hosts.length)} of {plural(data.total, "host")}.
        </p>
      )}
    </section>
  );
}

/** Link to a new policy for all traffic of a host. */
export const tapHost = (host: HostReport): string => link(["new"], tapped(host));
