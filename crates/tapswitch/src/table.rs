//! Output of commands: text tables, with numbers right-aligned, or JSON.

use std::fmt;
use std::io::{self, Write};
use std::sync::OnceLock;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};
use serde::Serialize;
use tapswitch_switch::report::DropsReport;

/// Creates a table with these headings. A trailing space marks a column of numbers.
pub(crate) fn table(headings: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(headings.iter().map(|heading| heading.trim_end()));
    for (index, heading) in headings.iter().enumerate() {
        if heading.ends_with(' ')
            && let Some(column) = table.column_mut(index)
        {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// Implementation of `say!`.
pub(crate) fn say(line: fmt::Arguments<'_>) {
    if let Err(error) = writeln!(io::stdout(), "{line}") {
        // Only the first error is kept.
        let _ = UNSAID.set(error);
    }
}

/// Whether output is no longer possible: endless commands then stop.
pub(crate) fn is_in_vain() -> bool {
    UNSAID.get().is_some()
}

/// Implementation of `tell!`.
pub(crate) fn tell(line: fmt::Arguments<'_>) {
    // Nothing is left to report the error to.
    let _ = writeln!(io::stderr(), "{line}");
}

/// Whether all output was written, or discarded by the reader; otherwise the error, such as a full
/// disk.
pub(crate) fn all_said() -> Result<(), String> {
    match UNSAID.get() {
        None => Ok(()),
        Some(why) if why.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Some(why) => Err(format!("cannot write to standard output: {why}")),
    }
}

/// The first error of writing output.
static UNSAID: OnceLock<io::Error> = OnceLock::new();

/// Prints a table, or `nothing` if it has no rows.
pub(crate) fn print(table: &Table, nothing: &str) {
    if table.is_empty() {
        say!("{nothing}");
    } else {
        say!("{}", table.trim_fmt());
    }
}

/// Prints indented JSON.
pub(crate) fn print_json(data: &impl Serialize) {
    match serde_json::to_string_pretty(data) {
        Ok(text) => say!("{text}"),
        Err(error) => tell!("tapswitch: cannot write JSON: {error}"),
    }
}

/// Formats a number with a separator after each three digits.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('_');
        }
        text.push(digit);
    }
    text
}

/// A number of things, of which one is called `one`: `1 packet`, `2_000 packets`.
pub(crate) fn counted(count: u64, one: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{} {one}s", grouped(count)) }
}

/// Formats drops for a table cell: `oversize=3 port_down=1`, or a dash.
pub(crate) fn drops_text(drops: &DropsReport) -> String {
    if drops.is_empty() {
        return "-".to_owned();
    }
    let texts: Vec<_> = drops.iter().map(|(reason, count)| format!("{reason}={count}")).collect();
    texts.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_grouped() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(1_234_567), "1_234_567");
    }
}
