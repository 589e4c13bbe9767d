// The topology view: a live picture of the fabric, and the same as lists.
import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { mayChange } from "../api/session";
import type { Mode } from "../graph/layout";
import { type Frame, frame } from "../graph/scene";
import { type Target, edgeKey } from "../graph/target";
import { plural } from "../model/format";
import { Failure, Heading, Waiting } from "../parts/basics";
import { link, route } from "../parts/route";
import { NoSwitch } from "./switches";
import { MOST_NODES, useFabric, useHosts, useTaps } from "./topology-data";
import { Picture } from "./topology-picture";
import { Side } from "./topology-side";

export function TopologyView() {
  const [most, setMost] = useState(MOST_NODES);
  const [mode, setMode] = useState<Mode>("auto");
  const [members, setMembers] = useState<string[]>();
  const [selected, setSelected] = useState<Target | undefined>(fromAddress);
  const [near, setNear] = useState<string[]>([]);
  useEffect(() => setSelected((before) => fromAddress() ?? before), [route.value]);
  const fabric = useFabric(most, members);
  const taps = useTaps(selected?.kind === "tap" ? selected.name : undefined);
  const shape = useShape(fabric.topology);
  const total = shape.nodes.reduce((sum, node) => sum + node.hosts, 0);
  const hosts = useHosts(total, [...new Set([...near, ...switchesOf(selected, shape)])]);
  const isEmpty = fabric.topology !== undefined && shape.nodes.length === 0;
  return (
    <div class="topology">
      <Heading title="Topology">
        {fabric.topology && <Size shape={shape} hosts={total} />}
        {members && (
          <button type="button" onClick={() => setMembers(undefined)}>
            Back to the whole fabric
          </button>
        )}
        <Chooser mode={mode} onMode={setMode} most={most} onMost={setMost} />
        {mayChange() && (
          <a class="button primary" href={link(["new"])}>
            New policy
          </a>
        )}
      </Heading>
      <Failure error={fabric.error} what="Topology" hasData={fabric.topology !== undefined} />
      <Waiting is={!fabric.topology && !fabric.error} />
      {!fabric.hasLinks && fabric.topology && !isEmpty && (
        <p class="note">This controller does not report links between switches.</p>
      )}
      {isEmpty && <NoSwitch />}
      {!isEmpty && (fabric.topology || !fabric.error) && (
        <div class="picture">
          <Picture
            shape={shape}
            mode={mode}
            hosts={hosts}
            taps={taps}
            selected={selected}
            onSelect={setSelected}
            onNear={setNear}
            onGroup={setMembers}
          />
          <Side
            shape={shape}
            hosts={hosts}
            taps={taps}
            selected={selected}
            onSelect={setSelected}
            onGroup={setMembers}
          />
        </div>
      )}
    </div>
  );
}

/** The switches whose hosts the selection needs, even if they are too far away to be drawn. */
function switchesOf(selected: Target | undefined, { edges }: Frame): string[] {
  if (selected?.kind === "host") return [selected.switch];
  if (selected?.kind !== "link") return [];
  const { link } = edges.find((edge) => edgeKey(edge) === selected.key) ?? {};
  return link ? [link.a, link.b].flatMap((end) => (end.port === null ? [] : end.switch)) : [];
}

function Size({ shape: { nodes, edges }, hosts }: { shape: Frame; hosts: number }) {
  const switches = nodes.reduce((sum, node) => sum + node.switches, 0);
  const groups = nodes.filter((node) => node.group).length;
  return (
    <span class="muted" data-what="size">
      {plural(switches, "switch", "switches")}
      {groups > 0 && ` in ${plural(groups, "group")}`}, {plural(edges.length, "link")}
      {groups > 0 && " between them"}, {plural(hosts, "host")}
    </span>
  );
}

/** The target of `#/topology?switch=0x1` or `?tap=web`. */
function fromAddress(): Target | undefined {
  const { query } = route.value;
  const [id, name] = [query.get("switch"), query.get("tap")];
  if (id) return { kind: "node", id };
  return name ? { kind: "tap", name } : undefined;
}

function Chooser({
  mode,
  onMode,
  most,
  onMost,
}: {
  mode: Mode;
  onMode(mode: Mode): void;
  most: number;
  onMost(most: number): void;
}) {
  return (
    <>
      <select
        aria-label="Layout"
        value={mode}
        onChange={(event) => onMode(event.currentTarget.value as Mode)}
      >
        <option value="auto">Layout: automatic</option>
        <option value="layers">Layout: layered</option>
        <option value="forces">Layout: force-directed</option>
      </select>
      <select
        aria-label="Detail"
        value={String(most)}
        onChange={(event) => onMost(Number(event.currentTarget.value))}
      >
        <option value={String(MOST_NODES)}>Every switch</option>
        <option value="200">At most 200 groups</option>
        <option value="40">At most 40 groups</option>
      </select>
    </>
  );
}

/** Nodes and links; nodes keep their positions while only numbers change. */
function useShape(topology: Parameters<typeof frame>[0] | undefined): Frame {
  const last = useRef<Frame>();
  return useMemo(() => {
    const next = topology ? frame(topology) : { nodes: [], edges: [], index: new Map() };
    const before = last.current;
    for (const node of next.nodes) {
      const old = before?.nodes[before.index.get(node.id) ?? -1];
      if (old?.id === node.id) [node.x, node.y] = [old.x, old.y];
      else [node.x, node.y] = [NaN, NaN];
    }
    last.current = next;
    return next;
  }, [topology]);
}
