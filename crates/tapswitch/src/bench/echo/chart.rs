//! The picture: packets per second of each cell as bars, drawn as SVG 1.1.
//!
//! The scale is linear. The picture shows the ratio of bars, and the length of a bar on a
//! logarithmic scale has no meaning. All bars have their number beside them, including those too
//! short to compare.

use super::means::Means;
use super::results::Row;
use crate::bench::svg::Svg;

/// Draws the rows, in order, below a line with the machine that they were measured on.
pub(super) fn draw(rows: &[Row], machine: &str) -> String {
    let groups = groups(rows);
    let mut chart = Chart::new(rows);
    chart.head(machine, &legend(rows));
    for group in groups {
        chart.group(group);
    }
    if rows.iter().any(|row| !row.saturated) {
        chart.foot("* the echo was not busy all the time: the bottleneck is elsewhere");
    }
    chart.svg.finish(WIDTH, chart.y + MARGIN, ".number{font-size:11px}")
}

/// Rows that differ only in offloads and candidate.
fn groups(rows: &[Row]) -> impl Iterator<Item = &[Row]> {
    rows.chunk_by(|a, b| heading(a) == heading(b))
}

fn heading(row: &Row) -> String {
    let task = row.cell.task();
    task.rsplit_once(", ").map_or(task.clone(), |(heading, _)| heading.to_owned())
}

fn legend(rows: &[Row]) -> Vec<Means> {
    let mut means: Vec<_> = rows.iter().map(|row| row.cell.means).collect();
    means.sort_unstable();
    means.dedup();
    means
}

/// A picture that grows downwards.
struct Chart {
    svg: Svg,
    /// Position of the next element, from the top.
    y: usize,
    /// Packets per second of the longest bar.
    most: f64,
}

impl Chart {
    fn new(rows: &[Row]) -> Self {
        let most = rows.iter().map(|row| row.packets_per_second).fold(1.0, f64::max);
        Self { svg: Svg::default(), y: MARGIN, most }
    }

    fn head(&mut self, machine: &str, legend: &[Means]) {
        self.y += 16;
        self.text(MARGIN, "title", "Packets per second through an echo on one core, MTU 1500");
        self.y += LINE;
        self.text(MARGIN, "note", machine);
        self.y += LINE;
        let mut x = MARGIN;
        for &means in legend {
            let (y, color) = (self.y - 9, color(means));
            self.svg
                .put(format_args!("<rect x='{x}' y='{y}' width='10' height='10' fill='{color}'/>"));
            self.text(x + 15, "note", means.name());
            x += 30 + means.name().chars().count() * LETTER;
        }
        self.y += GAP;
    }

    fn group(&mut self, rows: &[Row]) {
        self.y += LINE;
        if let Some(first) = rows.first() {
            self.text(MARGIN, "group", &heading(first));
        }
        self.y += 6;
        for same in rows.chunk_by(|a, b| a.cell.offloads == b.cell.offloads) {
            self.bars(same);
        }
    }

    /// The bars of one state of the offloads, with one label.
    fn bars(&mut self, rows: &[Row]) {
        for (index, row) in rows.iter().enumerate() {
            let (top, width, color) = (self.y + 2, self.width(row), color(row.cell.means));
            self.y += BAR - DESCENT;
            if index == 0 {
                let state = if row.cell.offloads { "offloads on" } else { "offloads off" };
                self.text(MARGIN, "note", state);
            }
            self.svg.put(format_args!(
                "<rect x='{START}' y='{top}' width='{width:.1}' height='{}' fill='{color}'/>",
                BAR - 2
            ));
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "≤ LENGTH"
            )]
            self.text(START + width.ceil() as usize + 5, "number", &number(row));
            self.y += DESCENT;
        }
        self.y += 4;
    }

    fn foot(&mut self, note: &str) {
        self.y += LINE;
        self.text(MARGIN, "note", note);
    }

    fn width(&self, row: &Row) -> f64 {
        (row.packets_per_second / self.most * LENGTH).clamp(1.0, LENGTH)
    }

    fn text(&mut self, x: usize, class: &str, text: &str) {
        self.svg.text(x, self.y, class, text);
    }
}

fn number(row: &Row) -> String {
    let packets = if row.packets_per_second < 999_500.0 {
        format!("{:.0} k", row.packets_per_second / 1e3)
    } else {
        format!("{:.2} M", row.packets_per_second / 1e6)
    };
    let trains = row.trains_per_second / 1e3;
    let in_trains =
        if row.cell.offloads { format!(", {trains:.0} k trains/s") } else { String::new() };
    let idle = if row.saturated { "" } else { " *" };
    format!("{packets}{in_trains}{idle}")
}

fn color(means: Means) -> &'static str {
    match means {
        Means::Bare => "#8f8f8a",
        Means::Drain => "#2f6fb3",
        Means::Uring => "#5fa8a0",
        Means::TunRs => "#c9772b",
    }
}

const WIDTH: usize = 760;
const MARGIN: usize = 20;
/// Start of the bars, from the left.
const START: usize = 110;
/// Length of the longest bar; the rest is for its number.
const LENGTH: f64 = 480.0;
const BAR: usize = 14;
/// Distance of a label's baseline from the bottom of the bar.
const DESCENT: usize = 2;
const LINE: usize = 20;
const GAP: usize = 6;
/// Approximate width of a letter of 12 pixels.
const LETTER: usize = 7;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::echo::cell::Cell;
    use crate::bench::echo::results::Results;
    use crate::bench::echo::stage::Rates;

    #[test]
    fn a_bar_is_as_long_as_its_number_is_large() {
        let svg = draw(&rows(), "a machine");
        let widths = attributes(&bars(&svg), "width");
        assert_eq!(widths.len(), 16, "one per cell");
        let longest = widths.iter().copied().fold(0.0, f64::max);
        assert!((longest - LENGTH).abs() < 0.1, "the largest takes all room: {widths:?}");
        for (index, width) in widths.iter().enumerate() {
            let expected = LENGTH * (index + 1) as f64 / 16.0;
            assert!((width - expected).abs() < 0.1, "bar {index}: {width} for {expected}");
        }
    }

    #[test]
    fn everything_lies_inside_and_nothing_on_top_of_another() {
        let svg = draw(&rows(), "a machine");
        let height = attributes(&[svg.lines().next().unwrap()], "height")[0];
        let tops = attributes(&bars(&svg), "y");
        assert!(tops.is_sorted(), "{tops:?}");
        assert!(tops.windows(2).all(|pair| pair[1] - pair[0] >= BAR as f64), "{tops:?}");
        assert!(tops.last().unwrap() + (BAR as f64) < height);
    }

    #[test]
    fn what_is_shown_is_told() {
        let svg = draw(&rows(), "5 < 6 cores");
        for part in ["5 &lt; 6 cores", "TAP, TCP, 1 queue<", "offloads off", "bare loop", "16.00 M"]
        {
            assert!(svg.contains(part), "'{part}' is not in {svg}");
        }
        assert!(svg.contains("16.00 M, 2 k trains/s *<"), "not saturated, and in trains: {svg}");
        assert_eq!(svg.matches("<svg").count(), svg.matches("</svg>").count());
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
    }

    #[test]
    fn nothing_measured_is_a_picture_without_bars() {
        assert_eq!(bars(&draw(&[], "a machine")).len(), 0);
    }

    /// 16 cells with one to sixteen million packets per second.
    fn rows() -> Vec<Row> {
        let mut results = Results::default();
        for (index, cell) in (1..=16).zip(Cell::all(&[Means::Bare, Means::Drain], &[1, 2])) {
            let packets = f64::from(index) * 1e6;
            results.add(cell, Rates { packets, trains: 2e3, cores: 1.0, ..Rates::default() });
        }
        results.rows()
    }

    fn bars(svg: &str) -> Vec<&str> {
        let start = format!("<rect x='{START}'");
        svg.lines().filter(|line| line.starts_with(&start)).collect()
    }

    fn attributes(lines: &[&str], name: &str) -> Vec<f64> {
        let start = format!(" {name}='");
        let value = |line: &&str| line.split(&start).nth(1)?.split('\'').next()?.parse().ok();
        lines.iter().filter_map(value).collect()
    }
}
