// What the controller's REST API (v1) says, as its OpenAPI document has it.

/** Packets and bytes. Our switch counts the packets of a train, Open vSwitch counts it as one. */
export interface Counts {
  packets: number;
  bytes: number;
}

/** A port of a switch where copies go. */
export interface MonitorPort {
  switch: string;
  port: number;
  /** What it was where the port is gone; empty when nobody has told it. */
  name: string;
}

/** Copies to one monitor, and what became of them there. */
export interface Copied extends Counts {
  monitor: MonitorPort;
  delivered: Counts;
  flooded: number;
  in_flight: number;
  dropped: Record<string, number>;
}

export type PolicyState =
  | { is: "pending" | "partial" | "resting" | "failed"; reason: string }
  | { is: "installing" | "active" | "deleted" };

/** A policy as an operator writes it; fields that are left out match anything. */
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

/** One switch on the way of copies. */
export interface Hop {
  switch: string;
  in_port?: number | string | null;
  out_port?: number | string | null;
}

/** The way of copies to one monitor. */
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
  /** What is not as the policy asks, or not known; also what was not proved when it was put in force. */
  notes?: string[];
  created_at?: string | null;
  expires_at?: string | null;
  /** Who added it; whose it is says the policy itself. */
  owner?: string | null;
  /** When, and by whom, it was changed last. */
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
  /** It does not tell its counters; what it told before counts on. */
  is_silent?: boolean;
  is_ours?: boolean;
  ports: PortReport[];
  hosts: number;
  hosts_refused: number;
  address_conflicts: number;
  rules: number;
  groups: number;
  refusals: number;
  /** Frames that claim to prove a link and do not. */
  lldp_forged?: number;
  /** Frames of the controller's own that came too late to prove one. */
  lldp_late?: number;
  /** Rules and groups that were not as told, and were put right. */
  drifted?: number;
}

export interface HostReport {
  switch: string;
  port: string;
  port_name: string;
  mac: string;
  vlan: number | null;
  /** Of the tags inside that one, from the outside. */
  inner_vlans?: number[];
  addresses: string[];
  /** Those of them that it merely sent packets from. */
  unproven_addresses?: string[];
}

/** One end of a link. */
export interface LinkEnd {
  /** Or the id of a group. */
  switch: string;
  /** None at a group. */
  port: number | null;
  port_name?: string;
}

export interface Link {
  a: LinkEnd;
  b: LinkEnd;
  is_up: boolean;
  /** It is not used for so long, as it came and went again and again. */
  held_ms?: number;
  is_tree?: boolean;
  latency_ns?: number | null;
  /** Both ways together. */
  bits_per_second?: number | null;
  a_to_b_bits_per_second?: number | null;
  b_to_a_bits_per_second?: number | null;
}

export interface TopologySwitch {
  switch: string;
  is_connected: boolean;
  is_silent?: boolean;
  is_ours?: boolean;
  /** Counts; the lists are at `/switches/{id}`. */
  ports: number;
  hosts: number;
  monitors: number;
}

/** Switches that were joined into one node, since there are many. */
export interface Group {
  id: string;
  switches: number;
  hosts: number;
  /** Whether all are. */
  is_connected: boolean;
  /** Whether one of them is. */
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
  /** Whether there is something to sign out of. */
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

/** One packet that a monitor of kind `controller` saw. */
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

/** What a filter matches, in words. */
export interface FilterCheck {
  ok: boolean;
  regions?: number;
  matches?: string[];
  total?: number;
}

/** A port with what it counted; null for what its switch does not count. */
export interface PortDetail extends PortReport {
  role: string;
  counters: Record<string, number | null> | null;
  /** Bytes per second. */
  load: { rx: number; tx: number } | null;
}

/** Whether a switch has what it shall have. */
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
