//! Tables of capture file ports.

use tapswitch_switch::report::{FileReport, PortReport};

use crate::table::{grouped, print, table};

/// Prints the capture files, if there are any.
pub(super) fn files(reports: &[PortReport]) {
    let of_file = |port: &PortReport| Some((port.port.clone(), port.file.clone()?));
    let files: Vec<_> = reports.iter().filter_map(of_file).collect();
    if files.is_empty() {
        return;
    }
    let mut rows = table(&[
        "PORT ",
        "FILE",
        "STATE",
        "PACKETS ",
        "BYTES ",
        "FINISHED ",
        "LOST ",
        "BUFFERED ",
        "OF ",
    ]);
    for (port, file) in &files {
        rows.add_row(row(port, file));
    }
    say!();
    print(&rows, "");
    for (port, FileReport { reason, .. }) in &files {
        if let Some(reason) = reason {
            say!("port {port}: {reason}");
        }
    }
}

fn row(port: &str, file: &FileReport) -> [String; 9] {
    [
        port.to_owned(),
        file.path.clone(),
        file.state.clone(),
        grouped(file.packets),
        grouped(file.bytes),
        grouped(file.files),
        grouped(file.lost),
        grouped(file.buffered as u64),
        grouped(file.buffer as u64),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_shown_with_what_is_in_it_and_what_waits() {
        let file = FileReport {
            path: "/var/log/web.pcapng".into(),
            state: "stopped".into(),
            packets: 1234,
            bytes: 5_000_000,
            files: 2,
            buffered: 262_144,
            buffer: 1 << 26,
            ..FileReport::default()
        };
        let path = "/var/log/web.pcapng";
        let expected =
            ["4", path, "stopped", "1_234", "5_000_000", "2", "0", "262_144", "67_108_864"];
        assert_eq!(row("4", &file), expected);
    }
}
