//! Tables for people: columns under headings, numbers to the right.

use std::fmt;
use std::io::{self, Write};
use std::sync::OnceLock;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

/// A table with these headings. A heading that ends in a space is that of a column of numbers.
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

/// What `say!` does.
pub(crate) fn say(line: fmt::Arguments<'_>) {
    if let Err(error) = writeln!(io::stdout(), "{line}") {
        // The first one says why.
        let _ = UNSAID.set(error);
    }
}

/// Whether nothing more will arrive: who goes on for ever ends then.
pub(crate) fn is_in_vain() -> bool {
    UNSAID.get().is_some()
}

/// What `tell!` does.
pub(crate) fn tell(line: fmt::Arguments<'_>) {
    // There is nobody to be told.
    let _ = writeln!(io::stderr(), "{line}");
}

/// Whether all that was said arrived, as far as somebody wanted to read it; if not, why: a full
/// disk, say.
pub(crate) fn all_said() -> Result<(), String> {
    match UNSAID.get() {
        None => Ok(()),
        Some(why) if why.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Some(why) => Err(format!("cannot write to standard output: {why}")),
    }
}

/// Why something that was said did not arrive.
static UNSAID: OnceLock<io::Error> = OnceLock::new();

/// Prints a table, or that it has no rows.
pub(crate) fn print(table: &Table, nothing: &str) {
    if table.is_empty() {
        say!("{nothing}");
    } else {
        say!("{}", table.trim_fmt());
    }
}

/// A number with a mark after each three digits.
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
