// The selected object, with its actions.
import { mayChange } from "../api/session";
import type { HostReport, PolicyReport } from "../api/types";
import { linkWord, loadText } from "../graph/load";
import { type Edge, type Frame, type Node, nodeCondition } from "../graph/scene";
import { type Target, edgeKey } from "../graph/target";
import { count, latency, plural } from "../model/format";
import { addresses, pairs, unproven, vlans } from "../model/host";
import { ledger, state, totals } from "../model/policy";
import { Fact, Notes, Tag, Traffic, Waiting } from "../parts/basics";
import { rateText } from "../parts/rates";
import { link } from "../parts/route";
import { tapHost } from "./switch";
import type { Taps } from "./topology-data";

/** Properties of everything beside the picture. */
export interface SideProps {
  shape: Frame;
  hosts: HostReport[];
  taps: Taps;
  selected: Target | undefined;
  onSelect(target: Target | undefined): void;
  onGroup(members: string[]): void;
}

export function Selection(props: SideProps) {
  const { selected, shape, hosts, taps } = props;
  if (!selected) return null;
  const close = (
    <button type="button" class="small close" onClick={() => props.onSelect(undefined)}>
      Close
    </button>
  );
  const content = selectionOf(selected, shape, hosts, taps, props.onGroup);
  return (
    <section class="selection" aria-label="Selected">
      {close}
      {content}
    </section>
  );
}

function selectionOf(
  selected: Target,
  shape: Frame,
  hosts: HostReport[],
  taps: Taps,
  onGroup: SideProps["onGroup"],
) {
  switch (selected.kind) {
    case "node": {
      const node = shape.nodes[shape.index.get(selected.id) ?? -1];
      if (node) return <NodeCard node={node} onGroup={onGroup} />;
      return shape.nodes.length > 0 ? <p>{selected.id} is not in the picture.</p> : <Waiting is />;
    }
    case "host": {
      const host = hosts.find((h) => h.mac === selected.mac && h.switch === selected.switch);
      return host ? <HostCard host={host} /> : <p>The host has gone.</p>;
    }
    case "link": {
      const edge = shape.edges.find((e) => edgeKey(e) === selected.key);
      return edge ? <LinkCard edge={edge} hosts={hosts} /> : <p>The link has gone.</p>;
    }
    case "tap": {
      const report = taps.reports.find((r) => r.policy.name === selected.name);
      if (report) return <TapCard report={report} />;
      return taps.isPending ? <Waiting is /> : <p>The policy has ended.</p>;
    }
  }
}

function NodeCard({ node, onGroup }: { node: Node; onGroup: SideProps["onGroup"] }) {
  const { group, member } = node;
  const how = nodeCondition(node);
  return (
    <>
      <h2>{group ? `${count(node.switches)} switches` : `Switch ${node.id}`}</h2>
      <dl class="facts">
        <Fact name="State">
          <Tag tone={how.tone} title={how.sentence}>
            {how.word}
          </Tag>
        </Fact>
        <Fact name="Hosts">{count(node.hosts)}</Fact>
        {member && <Fact name="Ports">{count(member.ports)}</Fact>}
        {member && <Fact name="Monitors">{count(member.monitors)}</Fact>}
      </dl>
      {group && (
        <button type="button" onClick={() => onGroup(group.members)}>
          Open the group
        </button>
      )}
      {!group && (
        <a class="button" href={link(["switches", node.id])}>
          Ports, rules and groups
        </a>
      )}
      {group && (
        <details>
          <summary>Members</summary>
          <ul>
            {group.members.slice(0, 200).map((id) => (
              <li key={id}>
                <a href={link(["switches", id])}>{id}</a>
              </li>
            ))}
          </ul>
        </details>
      )}
    </>
  );
}

function HostCard({ host }: { host: HostReport }) {
  return (
    <>
      <h2>Host {host.addresses[0] ?? host.mac}</h2>
      <dl class="facts">
        <Fact name="MAC">
          <code>{host.mac}</code>
        </Fact>
        <Fact name="IP">{addresses(host) || "none seen"}</Fact>
        <Fact name="VLAN">{vlans(host) || "none"}</Fact>
        <Fact name="At">
          <a href={link(["switches", host.switch])}>{host.switch}</a>, {host.port_name} (port{" "}
          {host.port})
        </Fact>
      </dl>
      {unproven([host]) && <p class="muted">{unproven([host])}</p>}
      {mayChange() && (
        <a class="button primary" href={tapHost(host)}>
          Tap this host
        </a>
      )}
      {mayChange() && (
        <a class="button" href={link(["new"], { monitor: `${host.switch}/${host.port}` })}>
          Use its port as a monitor
        </a>
      )}
    </>
  );
}

function LinkCard({ edge, hosts }: { edge: Edge; hosts: HostReport[] }) {
  const { a, b, is_up, is_tree, latency_ns, held_ms } = edge.link;
  const end = (e: typeof a) =>
    `${e.switch}${e.port === null ? "" : `, ${e.port_name || "port"} (${e.port})`}`;
  return (
    <>
      <h2>Link</h2>
      <dl class="facts">
        <Fact name="From">{end(a)}</Fact>
        <Fact name="To">{end(b)}</Fact>
        <Fact name="State">
          <Tag tone={is_up ? "good" : "bad"}>{linkWord(edge.link)}</Tag>
          {held_ms !== undefined &&
            ` flapping: not used for at least ${plural(Math.ceil(held_ms / 1000), "second")}`}
        </Fact>
        <Fact name="Load">{loadText(edge.link)}</Fact>
        <Fact name="Latency">
          {latency_ns == null ? "unknown" : `at most ${latency(latency_ns)}`}
        </Fact>
        {is_tree !== undefined && (
          <Fact name="Floods">{is_tree ? "on it (spanning tree)" : "not on it"}</Fact>
        )}
      </dl>
      {mayChange() && <TapLink edge={edge} hosts={hosts} />}
    </>
  );
}

/** Policies select traffic, not links: suggests pairs of hosts at the ends of the link. */
function TapLink({ edge, hosts }: { edge: Edge; hosts: HostReport[] }) {
  const ends = [edge.link.a.switch, edge.link.b.switch];
  const [left, right] = ends.map((id) =>
    hosts.filter((host) => host.switch === id && host.addresses.length > 0),
  ) as [HostReport[], HostReport[]];
  if (left.length === 0 && right.length === 0) {
    return (
      <p class="muted">
        To tap a link, create a policy for hosts behind it. No host is known at its ends yet.
      </p>
    );
  }
  const found: [string, string | undefined][] =
    left.length && right.length ? pairs(left, right) : alone([...left, ...right]);
  if (found.length === 0) {
    return (
      <p class="muted">
        To tap a link, create a policy for hosts behind it. No two hosts at its ends have addresses
        of the same family, IPv4 or IPv6.
      </p>
    );
  }
  const hint = (address: string, other: string | undefined) =>
    link(["new"], {
      "src-ip": address,
      ...(other ? { "dst-ip": other } : {}),
      direction: "both",
      name: `link ${ends.join(" ")} ${address}`,
    });
  return (
    <>
      <h3>Tap traffic on this link</h3>
      <ul class="plain">
        {found.map(([a, b]) => (
          <li key={`${a} ${b}`}>
            <a class="button small" href={hint(a, b)}>
              {a} ↔ {b ?? "any"}
            </a>
          </li>
        ))}
      </ul>
    </>
  );
}

/** Addresses at one end, if no host is known at the other. */
const alone = (hosts: HostReport[]): [string, undefined][] =>
  hosts
    .flatMap((host) => host.addresses)
    .slice(0, 4)
    .map((address) => [address, undefined]);

function TapCard({ report }: { report: PolicyReport }) {
  const [how, books, sums] = [state(report), ledger(report), totals(report)];
  return (
    <>
      <h2>TAP {report.policy.name}</h2>
      <dl class="facts">
        <Fact name="State">
          <Tag tone={how.tone}>{how.word}</Tag> {how.tone === "good" ? "" : how.sentence}
        </Fact>
        <Fact name="Ledger">
          <Tag tone={books.tone}>{books.word}</Tag>
        </Fact>
        <Fact name="Traffic">
          <Traffic of={report.policy} />
        </Fact>
        <Fact name="Copy rate">{rateText(report.policy.name)}</Fact>
        <Fact name="Matched">{count(sums.matched)}</Fact>
        <Fact name="Delivered">{count(sums.delivered)}</Fact>
        <Fact name="Dropped">{count(sums.dropped)}</Fact>
      </dl>
      <Notes notes={report.notes} />
      <a class="button" href={link(["policies", report.policy.name])}>
        Details
      </a>
    </>
  );
}
