// A chart over time: lines by uPlot, and the latest values as text for screen readers.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { colours } from "./theme";

export interface Line {
  label: string;
  /** Name of a CSS variable. */
  colour: string;
  values: (number | null)[];
}

export function Chart({
  title,
  times,
  lines,
  format,
  height = 180,
}: {
  title: string;
  times: number[];
  lines: Line[];
  format(value: number): string;
  height?: number;
}) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>();
  const shape = lines.map((line) => line.label + line.colour).join();
  const look = colours.value;
  useEffect(() => {
    const node = box.current!;
    plot.current = new uPlot(options(node, lines, format, height), data(times, lines), node);
    const observer = new ResizeObserver(() =>
      plot.current?.setSize({ width: node.clientWidth, height }),
    );
    observer.observe(node);
    return () => {
      observer.disconnect();
      plot.current?.destroy();
    };
  }, [shape, look, height]);
  useEffect(() => plot.current?.setData(data(times, lines)), [times, lines]);
  const latest = lines.map(
    (line) => `${line.label} ${format(line.values[line.values.length - 1] ?? 0)}`,
  );
  return (
    <figure class="chart">
      <figcaption>
        <strong>{title}</strong> <span class="muted">now: {latest.join(", ")}</span>
      </figcaption>
      <div ref={box} class="plot" aria-hidden="true" />
    </figure>
  );
}

const data = (times: number[], lines: Line[]): uPlot.AlignedData =>
  [times, ...lines.map((line) => line.values)] as uPlot.AlignedData;

function options(
  node: HTMLElement,
  lines: Line[],
  format: (value: number) => string,
  height: number,
): uPlot.Options {
  const style = getComputedStyle(node);
  const colour = (name: string) => style.getPropertyValue(`--${name}`).trim();
  const axis = {
    stroke: colour("muted"),
    grid: { stroke: colour("line"), width: 1 },
    ticks: { stroke: colour("line"), width: 1 },
    font: "11px system-ui, sans-serif",
  };
  return {
    width: Math.max(node.clientWidth, 200),
    height,
    cursor: { drag: { x: false, y: false } },
    legend: { show: true, live: true },
    scales: { y: { range: (_, low, high) => [Math.min(0, low), high > 0 ? high * 1.1 : 1] } },
    axes: [
      {
        ...axis,
        values: (_, ticks) => ticks.map((t) => new Date(t * 1000).toLocaleTimeString("en-GB")),
      },
      { ...axis, size: 84, values: (_, ticks) => ticks.map((v) => format(v)) },
    ],
    series: [
      {
        label: "time",
        value: (_, t) => (t ? new Date(t * 1000).toLocaleTimeString("en-GB") : "–"),
      },
      ...lines.map((line) => ({
        label: line.label,
        stroke: colour(line.colour),
        width: 1.75,
        points: { show: false },
        value: (_: uPlot, v: number | null) => (v === null ? "–" : format(v)),
      })),
    ],
  };
}
