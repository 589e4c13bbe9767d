// Default answers of the stand-in controller: a fabric of two spines and four leaves, three
// policies, and data for each view.
import { leafSpine } from "../unit/fabrics";
import { type StandIn, list } from "./stand-in";

const monitor = { switch: "0x6", port: 13, name: "watch0" };

export function report(name: string, change: object = {}) {
  return {
    policy: { name, monitor: "watch0", "src-ip": "10.0.3.1", "ip-proto": "tcp", direction: "both" },
    state: { is: "active" },
    monitor,
    matched: { packets: 146_760, bytes: 9_800_000_000 },
    copied: [
      {
        monitor,
        packets: 146_760,
        bytes: 9_800_000_000,
        delivered: { packets: 146_700, bytes: 9_790_000_000 },
        flooded: 0,
        in_flight: 10,
        dropped: { egress_full: 50 },
      },
    ],
    adds_up: true,
    is_complete: true,
    created_at: "2026-01-01T00:00:00Z",
    owner: "ada",
    path: [
      {
        monitor,
        hops: [{ switch: "0x3", out_port: 1 }, { switch: "0x1" }, { switch: "0x6", out_port: 13 }],
      },
    ],
    ...change,
  };
}

export const reports = () => [
  report("web"),
  report("db", {
    policy: {
      name: "db",
      monitor: "watch0",
      "dst-ip": "10.0.4.2",
      filter: "tcp port 5432",
      expires: new Date(Date.now() + 90_000).toISOString(),
      reason: "incident 4711",
    },
    adds_up: false,
    path: [
      { monitor, hops: [{ switch: "0x4" }, { switch: "0x2" }, { switch: "0x6", out_port: 13 }] },
    ],
  }),
  report("mail", {
    policy: { name: "mail", monitor: "10.9.9.9" },
    state: { is: "pending", reason: "no host 10.9.9.9 is known; let it say something" },
    monitor: null,
    matched: { packets: 0, bytes: 0 },
    copied: [],
    path: [],
  }),
];

/** A fabric of two spines and four leaves with three policies. */
export function furnish(made: StandIn): void {
  made.serve(leafSpine(2, 4, 3));
  for (const one of reports()) made.answers.set(`GET /policies/${one.policy.name}`, one);
  made.answers.set("GET /policies", () => list(reports()));
  const ports = [1, 2, 13].map((n) => ({
    port: String(n),
    name: n === 13 ? "watch0" : `p${n}`,
    is_up: n !== 2,
    role: n === 2 ? "link" : "edge",
    counters: { rx_packets: n * 1e6, rx_bytes: n * 1e9, tx_packets: n * 2e6, tx_dropped: null },
    load: n === 1 ? null : { rx: 1.25e8, tx: 2.5e6 },
  }));
  const one = {
    switch: "0x6",
    is_connected: true,
    ports,
    hosts: 3,
    hosts_refused: 0,
    address_conflicts: 1,
    rules: 12,
    groups: 2,
    refusals: 0,
    lldp_forged: 0,
    lldp_late: 2,
  };
  made.answers.set("GET /switches", list([one, { ...one, switch: "0x5", is_connected: false }]));
  made.answers.set("GET /switches/0x6", one);
  made.answers.set("GET /switches/0x6/ports", list(ports));
  const counts = { packets: 12_345, bytes: 6_789_000 };
  const rule = {
    table: 1,
    priority: 1002,
    purpose: "copies",
    counts,
    age_s: 75,
    policies: ["web"],
  };
  const rules = [
    { ...rule, matches: "tcp,nw_src=10.0.3.1", actions: "group:1", standing: "in-place" },
    { ...rule, matches: "udp", actions: "group:2", standing: "missing", counts: null, age_s: null },
    {
      ...rule,
      matches: "",
      actions: "drop",
      standing: "foreign",
      purpose: "foreign",
      policies: [],
    },
  ];
  made.answers.set("GET /switches/0x6/rules", (request: { url?: string }) =>
    list(request.url!.includes("table=0") ? [] : rules),
  );
  const buckets = [
    { actions: "output:1", counts },
    { actions: "output:13", counts },
  ];
  made.answers.set(
    "GET /switches/0x6/groups",
    list([
      {
        group: 0x74700001,
        kind: "all",
        buckets,
        policies: ["web"],
        standing: "in-place",
        rules: 4,
        counts,
      },
    ]),
  );
  const points = Array.from({ length: 120 }, (_, i) => ({
    at: new Date(Date.now() - (120 - i) * 1000).toISOString(),
    matched_pps: 40_000 + 9000 * Math.sin(i / 9),
    delivered_bps: 1.2e10 + 3e9 * Math.sin(i / 9),
    dropped_pps: i > 80 ? 120 : 0,
  }));
  for (const name of ["web", "db", "mail"]) {
    made.answers.set(`GET /policies/${name}/series`, {
      interval_ms: 1000,
      points: name === "mail" ? [] : points,
    });
  }
  made.answers.set(
    "GET /events/log",
    list([
      {
        id: 3,
        at: "2026-01-01T10:00:03Z",
        event: "alarm",
        text: "group table full",
        switch: "0x6",
      },
      {
        id: 6,
        at: "2026-01-01T10:00:06Z",
        event: "host",
        what: "moved",
        mac: "02:00:00:00:00:07",
        vlan: 5,
        from: { switch: "0x5", port: 2, name: "t2" },
        at_port: { switch: "0x6", port: 1, name: "p1" },
      },
      {
        id: 5,
        at: "2026-01-01T10:00:05Z",
        event: "link",
        what: "down",
        a: { switch: "0x5", port: 3, name: "" },
        b: { switch: "0x6", port: 2, name: "p2" },
      },
      {
        id: 4,
        at: "2026-01-01T10:00:04Z",
        event: "port",
        what: "down",
        at_port: { switch: "0x6", port: 2, name: "p2" },
      },
      { id: 2, at: "2026-01-01T10:00:02Z", event: "policy", name: "web", state: { is: "active" } },
      { id: 1, at: "2026-01-01T10:00:01Z", event: "switch", switch: "0x6", is_connected: true },
    ]),
  );
  const record = {
    seq: 2,
    at: "2026-01-01T10:00:02Z",
    who: "ada",
    role: "operator",
    from: "127.0.0.1",
    what: "policy.add",
    policy: report("web").policy,
    reason: "incident 4711",
    until: null,
    result: "accepted",
    hash: "9f86d081884c7d659a2feaa0c55ad015",
  };
  made.answers.set(
    "GET /audit",
    list([
      record,
      {
        ...record,
        seq: 1,
        what: "token.refused",
        policy: null,
        who: "unknown",
        result: "refused: not a token that is known",
      },
    ]),
  );
  made.answers.set("POST /policies", (request: { url?: string }, body: string) =>
    request.url!.includes("dry_run") ? DRY_RUN : report(JSON.parse(body).name),
  );
}

export const DRY_RUN = {
  changes: [
    {
      switch: "0x3",
      add: [
        "priority=10,tcp,nw_src=10.0.3.1 actions=group:7",
        "group_id=7,type=all,bucket=actions=output:1",
      ],
      remove: ["priority=10,tcp,nw_src=10.0.3.1 actions=output:1"],
    },
    { switch: "0x6", add: ["priority=20,dl_vlan=7 actions=pop_vlan,output:13"], remove: [] },
  ],
  proof: {
    is_proved: true,
    checked: 30,
    problems: [],
  },
  notes: [],
};
