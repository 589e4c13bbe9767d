//! The picture: million frames per second by frame size, a line for each switch, drawn as SVG 1.1;
//! plain forwarding above, copies below.
//!
//! Sizes are equidistant labels, because most of the seven are small. The rate axis is linear and
//! starts at zero.

use std::path::Path;

use rustix::fs::Access;

use super::Failure;
use super::cases::Task;
use super::loader::Load;
use super::report::Report;
use super::results::Row;
use super::switches::Candidate;
use crate::bench::svg::Svg;

/// Checks that the directory is writable.
pub(super) fn check(directory: &Path) -> Result<(), Failure> {
    let access = rustix::fs::access(directory.join("."), Access::WRITE_OK | Access::EXEC_OK);
    Ok(access.map_err(|errno| format!("{}: {errno}", directory.display()))?)
}

/// Draws a file into `directory` for each type of guests with several frame sizes.
pub(super) fn write(directory: &Path, report: &Report) -> Result<(), Failure> {
    for rows in report.kinds() {
        if let Some(first) = rows.first().filter(|row| row.load == Load::Frames) {
            let name = format!("vhost-{}-{}.svg", first.rings.name(), first.flows);
            let file = directory.join(name);
            std::fs::write(&file, draw(rows, &report.headline()))
                .map_err(|error| format!("{}: {error}", file.display()))?;
        }
    }
    Ok(())
}

/// Draws the rows of one type of guests, below a line with the machine that they were measured on.
fn draw(rows: &[Row], machine: &str) -> String {
    let mut chart = Chart::default();
    chart.text(MARGIN, MARGIN + 16.0, "title", "Million frames per second by frame size");
    let kind = rows.first().map(Row::kind).unwrap_or_default();
    chart.text(MARGIN, MARGIN + 36.0, "note", &format!("{machine}; {kind}"));
    let plain: Vec<_> = rows.iter().filter(|row| row.task == Task::Plain).collect();
    let copies: Vec<_> = rows.iter().filter(|row| row.task != Task::Plain).collect();
    chart.panel(PANEL_TOP, "plain forwarding", &plain);
    chart.panel(
        PANEL_TOP + PANEL + PANEL_GAP,
        "with a copy to a monitor, at the receiver",
        &copies,
    );
    chart.svg.finish(WIDTH, HEIGHT, "")
}

#[derive(Default)]
struct Chart {
    svg: Svg,
}

impl Chart {
    /// One diagram, `top` pixels from the top.
    fn panel(&mut self, top: f64, title: &str, rows: &[&Row]) {
        self.text(MARGIN, top - 12.0, "group", title);
        let mut sizes: Vec<_> = rows.iter().map(|row| row.size).collect();
        sizes.sort_unstable();
        sizes.dedup();
        let most = rows.iter().map(|row| row.mpps).fold(1.0, f64::max);
        self.grid(top, most);
        for (index, size) in sizes.iter().enumerate() {
            self.text(x(index, sizes.len()) - 10.0, top + PANEL + 16.0, "note", &size.to_string());
        }
        let mut lines: Vec<_> = rows.iter().map(|row| (row.candidate, row.task)).collect();
        lines.sort_unstable();
        lines.dedup();
        for (number, &line) in lines.iter().enumerate() {
            let points = rows.iter().filter(|row| (row.candidate, row.task) == line);
            let points = points.map(|row| {
                let index = sizes.iter().position(|size| *size == row.size).unwrap_or_default();
                (x(index, sizes.len()), top + PANEL - row.mpps / most * PANEL)
            });
            self.line(line, &points.collect::<Vec<_>>());
            self.legend(top + 14.0 + 18.0 * count(number), line);
        }
    }

    /// Grid lines, each with its number.
    fn grid(&mut self, top: f64, most: f64) {
        for quarter in 0..=4 {
            let share = f64::from(quarter) / 4.0;
            let y = top + PANEL * (1.0 - share);
            self.svg.put(format_args!(
                "<line x1='{LEFT}' x2='{RIGHT}' y1='{y:.1}' y2='{y:.1}' stroke='#dcdcd8'/>"
            ));
            self.text(MARGIN, y + 4.0, "note", &format!("{:.1}", most * share));
        }
    }

    fn line(&mut self, line: (Candidate, Task), points: &[(f64, f64)]) {
        let (color, dashes) = look(line);
        let path: Vec<_> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
        self.svg.put(format_args!(
            "<polyline fill='none' stroke='{color}' stroke-width='2' stroke-dasharray='{dashes}' \
             points='{}'/>",
            path.join(" ")
        ));
        for (x, y) in points {
            self.svg.put(format_args!("<circle cx='{x:.1}' cy='{y:.1}' r='3' fill='{color}'/>"));
        }
    }

    fn legend(&mut self, y: f64, line: (Candidate, Task)) {
        let (color, dashes) = look(line);
        let (start, end) = (RIGHT + 16.0, RIGHT + 46.0);
        self.svg.put(format_args!(
            "<line x1='{start}' x2='{end}' y1='{y:.1}' y2='{y:.1}' stroke='{color}' \
             stroke-width='2' stroke-dasharray='{dashes}'/>"
        ));
        let (candidate, task) = line;
        let name = match task {
            Task::Plain => candidate.name().to_owned(),
            task => format!("{}, {}", candidate.name(), task.name()),
        };
        self.text(end + 6.0, y + 4.0, "note", &name);
    }

    fn text(&mut self, x: f64, y: f64, class: &str, text: &str) {
        self.svg.text(format_args!("{x:.1}"), format_args!("{y:.1}"), class, text);
    }
}

/// Horizontal position of the size with this index, of this number of sizes.
fn x(index: usize, sizes: usize) -> f64 {
    LEFT + 20.0 + (RIGHT - LEFT - 40.0) * count(index) / count(sizes.saturating_sub(1).max(1))
}

#[expect(clippy::cast_precision_loss, reason = "a few")]
fn count(number: usize) -> f64 {
    number as f64
}

/// Colour and dashes of a line.
fn look((candidate, task): (Candidate, Task)) -> (&'static str, &'static str) {
    let color = match candidate {
        Candidate::Bare => "#8f8f8a",
        Candidate::OpenVswitch => "#c9772b",
        Candidate::Tapswitch => "#2f6fb3",
    };
    (color, if task == Task::Mirror { "5 4" } else { "none" })
}

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = PANEL_TOP + 2.0 * PANEL + PANEL_GAP + 40.0;
const MARGIN: f64 = 20.0;
/// Edges of the diagram; the legend is to the right.
const LEFT: f64 = 60.0;
const RIGHT: f64 = 500.0;
const PANEL_TOP: f64 = 100.0;
const PANEL: f64 = 200.0;
const PANEL_GAP: f64 = 70.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::vhost::loader::Rings;
    use crate::bench::vhost::results::Judged;
    use crate::bench::vhost::stage::Ledger;

    #[test]
    fn a_point_is_as_high_as_its_number_is_large() {
        let svg = draw(&[row(64, 10.0), row(512, 5.0)], "a machine");
        let heights: Vec<_> = attributes(&svg, "<circle", "cy");
        assert_eq!(heights, [PANEL_TOP, PANEL_TOP + PANEL / 2.0]);
        let places = attributes(&svg, "<circle", "cx");
        assert!(places[0] < places[1] && places[1] < RIGHT, "{places:?}");
    }

    #[test]
    fn what_is_shown_is_told() {
        let svg = draw(&[row(64, 10.0)], "5 < 6 cores");
        for part in ["5 &lt; 6 cores; split rings, one flow", ">64<", ">tapswitch<", ">10.0<"] {
            assert!(svg.contains(part), "'{part}' is not in {svg}");
        }
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
    }

    #[test]
    fn nothing_measured_is_a_picture_without_lines() {
        assert!(!draw(&[], "a machine").contains("<polyline"));
    }

    fn row(size: usize, mpps: f64) -> Row {
        let judged = Judged { ratio: None, goal: None, verdict: None };
        Row {
            rings: Rings::Split,
            flows: 1,
            load: Load::Frames,
            size,
            task: Task::Plain,
            candidate: Candidate::Tapswitch,
            mpps,
            gbps: 0.0,
            to_bare: None,
            to_ovs: judged,
            to_mirror: None,
            to_plain: judged,
            switch_core: 1.0,
            guests_core: 1.0,
            ledger: Ledger::default(),
            adds_up: Some(true),
        }
    }

    fn attributes(svg: &str, element: &str, name: &str) -> Vec<f64> {
        let start = format!(" {name}='");
        let value = |line: &str| line.split(&start).nth(1)?.split('\'').next()?.parse().ok();
        svg.lines().filter(|line| line.starts_with(element)).filter_map(value).collect()
    }
}
