// Charts of throughput and loss. Each has a scale of its own: few drops among many packets are seen.
import { useMemo } from "preact/hooks";
import type { Moment } from "../api/history";
import { bitRate, packetRate } from "../model/format";
import { Chart } from "./chart";

export function RateCharts({ points }: { points: Moment[] }) {
  const { times, delivered, matched, dropped } = useMemo(
    () => ({
      times: points.map((p) => p.at),
      delivered: points.map((p) => p.delivered),
      matched: points.map((p) => p.matched),
      dropped: points.map((p) => p.dropped),
    }),
    [points],
  );
  const copies = { times, values: delivered, colour: "tap", format: bitRate };
  const packets = { times, values: matched, colour: "accent", format: packetRate };
  const drops = { times, values: dropped, colour: "bad", format: packetRate };
  return (
    <div class="charts">
      <Chart title="Copies delivered" label="delivered" {...copies} />
      <Chart title="Packets matched" label="matched" {...packets} />
      <Chart title="Copies dropped" label="dropped" {...drops} />
    </div>
  );
}
