// A chart over time: a line by uPlot, and the latest value as text for screen readers.
import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import { colours } from "./theme";

interface Line {
  label: string;
  /** Name of a CSS variable. */
  colour: string;
  format(value: number): string;
}

export function Chart({
  title,
  times,
  values,
  height = 180,
  ...line
}: Line & {
  title: string;
  times: number[];
  values: number[];
  height?: number;
}) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot>();
  const look = colours.value;
  useEffect(() => {
    const node = box.current!;
    plot.current = new uPlot(options(node, line, height), [times, values], node);
    const observer = new ResizeObserver(() =>
      plot.current?.setSize({ width: node.clientWidth, height }),
    );
    observer.observe(node);
    return () => {
      observer.disconnect();
      plot.current?.destroy();
    };
  }, [line.label, line.colour, look, height]);
  useEffect(() => plot.current?.setData([times, values]), [times, values]);
  return (
    <figure class="chart">
      <figcaption>
        <strong>{title}</strong>{" "}
        <span class="muted">now: {line.format(values[values.length - 1] ?? 0)}</span>
      </figcaption>
      <div ref={box} class="plot" aria-hidden="true" />
    </figure>
  );
}

function options(node: HTMLElement, line: Line, height: number): uPlot.Options {
  const { label, format } = line;
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
        // Wider than a time.
        space: 70,
        values: (_, ticks) => ticks.map((t) => new Date(t * 1000).toLocaleTimeString("en-GB")),
      },
      { ...axis, size: 84, values: (_, ticks) => ticks.map((v) => format(v)) },
    ],
    series: [
      {
        label: "time",
        value: (_, t) => (t ? new Date(t * 1000).toLocaleTimeString("en-GB") : "–"),
      },
      {
        label,
        stroke: colour(line.colour),
        width: 1.75,
        points: { show: false },
        value: (_, v: number | null) => (v === null ? "–" : format(v)),
      },
    ],
  };
}
