// Types of the controller's REST API (v1), as in its OpenAPI document.

/**
 * Packets and bytes. tapswitch counts the packets of a train, Open vSwitch counts a train as one.
 */
export interface Counts {
  packets: number;
  bytes: number;
}

/** A port of a switch. */
export interface SwitchPort {
  switch: string;
  port: number;
  /** The last known name if the port is gone; empty if the controller does not know one. */
  name: string;
}

/** A port to which copies go. The controller as a monitor, for all switches, is of no switch. */
export type MonitorPort = Partial<Pick<SwitchPort, "switch">> & Omit<SwitchPort, "switch">;

/** Copies to one monitor, and what became of them. */
export interface Copied extends Counts {
  /** A port of the switch that reports the outcome; for the controller, that switch's CONTROLLER. */
  monitor: SwitchPort;
  delivered: Counts;
  flooded: number;
  in_flight: number;
  dropped: Record<string, number>;
}

export type PolicyState =
  | { is: "pending" | "partial" | "resting" | "failed"; reason: string }
  | { is: "installing" | "active" | "deleted" };

/** A policy as written by the operator; omitted fields match anything. */
export interface TapPolicy {
  name: string;
  monitor: string | string[];
  filter?: string;
  "eth-type"?: string;
  "src-mac"?: string;
  "dst-mac"?: string;
  "src-ip"?: string;
  "dst-ip"?: string;
  "ip-proto"?: string | number;
  vlan?: string | number;
  "src-port"?: string | number;
  "dst-port"?: string | number;
  direction?: string;
  delivery?: string;
  expires?: string;
  schedule?: string;
  owner?: string;
  reason?: string;
  priority?: number;
  snaplen?: number;
  sample?: string | number;
  tags?: string;
  point?: string;
  transport?: string;
  [field: string]: unknown;
}

/** One switch on the path of copies. */
export interface Hop {
  switch: string;
  in_port?: number | string | null;
  out_port?: number | string | null;
}

/** The path of copies to one monitor. */
export interface CopyPath {
  monitor: MonitorPort;
  hops: Hop[];
}

export interface PolicyReport {
  policy: TapPolicy;
  state: PolicyState;
  monitor?: MonitorPort | null;
  monitors?: MonitorPort[];
  matched: Counts;
  copied: Copied[];
  adds_up: boolean;
  is_complete: boolean;
  /** Deviations from the policy, unknowns, and what was not proved when it was applied. */
  notes?: string[];
  created_at?: string | null;
  expires_at?: string | null;
  /** The user who added the policy; `policy` has its owner. */
  owner?: string | null;
  /** Time and user of the last change. */
  changed_at?: string | null;
  changed_by?: string | null;
  path?: unknown;
}

export interface PortReport {
  port: string;
  name: string;
  is_up: boolean;
  [counter: string]: unknown;
}

export interface SwitchReport {
  switch: string;
  is_connected: boolean;
  /** The switch does not report its counters; the last reported values still count. */
  is_silent?: boolean;
  /** The controller that relays it to the leader, if it is not connected itself. */
  through?: string | null;
  is_ours?: boolean;
  ports: PortReport[];
  hosts: number;
  hosts_refused: number;
  address_conflicts: number;
  rules: number;
  groups: number;
  refusals: number;
  /** Forged link probes (LLDP). */
  lldp_forged?: number;
  /** The controller's own link probes that arrived too late. */
  lldp_late?: number;
  /** Rules and groups that differed from those installed, and were restored. */
  drifted?: number;
}

export interface HostReport {
  switch: string;
  port: string;
  port_name: string;
  mac: string;
  vlan: number | null;
  /** Inner VLAN tags, outermost first. */
  inner_vlans?: number[];
  addresses: string[];
  /** Addresses learned only from the source of packets, without ARP or neighbour discovery. */
  unproven_addresses?: string[];
}

/** One end of a link. */
export interface LinkEnd {
  /** Datapath id, or the id of a group. */
  switch: string;
  /** `null` for a group. */
  port: number | null;
  port_name?: string;
}

export interface Link {
  a: LinkEnd;
  b: LinkEnd;
  is_up: boolean;
  /** Remaining time for which the link is not used because it was flapping. */
  held_ms?: number;
  is_tree?: boolean;
  latency_ns?: number | null;
  /** Sum of both directions. */
  bits_per_second?: number | null;
  a_to_b_bits_per_second?: number | null;
  b_to_a_bits_per_second?: number | null;
}

export interface TopologySwitch {
  switch: string;
  is_connected: boolean;
  is_silent?: boolean;
  is_ours?: boolean;
  /** Number of ports; `/switches/{id}` lists them. */
  ports: number;
  hosts: number;
  monitors: number;
}

/** Switches joined into one node to limit the number of nodes. */
export interface Group {
  id: string;
  switches: number;
  hosts: number;
  /** Whether all switches of the group are connected. */
  is_connected: boolean;
  /** Whether a switch of the group is silent. */
  is_silent?: boolean;
  members: string[];
}

export interface Topology {
  generation?: number;
  switches: TopologySwitch[];
  links?: Link[];
  is_aggregated?: boolean;
  groups?: Group[];
}

export interface Me {
  name: string;
  role: "viewer" | "operator" | "admin";
  version: string;
  started_at: string;
  /** Whether the controller uses tokens, so that the user can sign out. */
  has_tokens?: boolean;
}

export interface ListOf<T> {
  items: T[];
  next: string | null;
  total: number;
}

export interface DryRun {
  changes: { switch: string; add: string[]; remove: string[] }[];
  proof?: { is_proved: boolean; checked: number; problems: string[] } | null;
  notes: string[];
}

export interface SeriesPoint {
  at: string;
  matched_pps: number;
  delivered_bps: number;
  dropped_pps: number;
}

export interface Series {
  interval_ms: number;
  points: SeriesPoint[];
}

/** A packet copied to the monitor `controller`. */
export interface Packet {
  at: string;
  len: number;
  switch: string;
  summary: string;
  bytes_hex: string;
}

/** An event as `/events/log` lists it. */
export interface LoggedEvent {
  id: number | string;
  at?: string;
  event?: string;
  kind?: string;
  [detail: string]: unknown;
}

export interface AuditRecord {
  seq: number;
  at: string;
  who: string;
  role: string;
  from: string;
  what: string;
  policy: TapPolicy | string | null;
  reason: string | null;
  until: string | null;
  result: string;
  hash: string;
}

/** What a filter matches, as text. */
export interface FilterCheck {
  ok: boolean;
  regions?: number;
  matches?: string[];
  total?: number;
}

/** A port with its counters; `null` for those that the switch does not support. */
export interface PortDetail extends PortReport {
  role: string;
  counters: Record<string, number | null> | null;
  /** Bytes per second. */
  load: { rx: number; tx: number } | null;
}

/** How the rules of a switch compare with those that the controller installed. */
export type Standing = "in-place" | "missing" | "other" | "surplus" | "foreign" | "unread";

export interface RuleReport {
  table: number;
  priority: number;
  matches: string;
  actions: string;
  purpose: string;
  policies: string[];
  standing: Standing;
  counts: Counts | null;
  age_s: number | null;
}

export interface GroupReport {
  group: number;
  kind: string;
  buckets: { actions: string; counts: Counts | null }[];
  policies: string[];
  standing: Standing;
  rules: number | null;
  counts: Counts | null;
}
