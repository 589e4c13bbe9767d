//! `tapswitch audit`: the audit log of a controller.

use std::fs::File;
use std::io::{BufRead, BufReader, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use serde_json::Value;
use tapswitch_controller::Verifier;

use crate::management::{AskArgs, Request, ask};
use crate::table::{is_in_vain, print, table};

type Failure = Box<dyn std::error::Error>;

#[derive(Args, Clone, Debug)]
pub(crate) struct AuditArgs {
    /// Wait for new records and print them.
    #[arg(long, conflicts_with_all = ["export", "verify"])]
    pub(crate) follow: bool,
    /// Write all records to this file as lines of JSON; - for standard output.
    #[arg(long, value_name = "FILE")]
    pub(crate) export: Option<PathBuf>,
    /// Verify that no record was changed, removed or inserted.
    #[arg(long)]
    pub(crate) verify: bool,
    /// Read the records from an export instead of a running controller.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["export", "follow"])]
    pub(crate) file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) ask: AskArgs,
}

/// Reads the log as the arguments say.
pub(crate) fn main(args: &AuditArgs) -> Result<(), Failure> {
    if let Some(path) = &args.export {
        export(args, path)?;
    }
    match (args.verify, args.follow, &args.export) {
        (true, ..) => verify(args),
        (_, true, _) => follow(args),
        (_, _, Some(_)) => Ok(()),
        _ => list(args),
    }
}

fn list(args: &AuditArgs) -> Result<(), Failure> {
    let mut rows = table(&["RECORD ", "TIME", "WHO", "FROM", "WHAT", "POLICY", "RESULT"]);
    for_each(args, |line| {
        if args.ask.json {
            say!("{line}");
        } else {
            rows.add_row(cells(line));
        }
        Ok(())
    })?;
    if !args.ask.json {
        print(&rows, "no records");
    }
    Ok(())
}

/// Prints new records until the reader closes.
fn follow(args: &AuditArgs) -> Result<(), Failure> {
    let mut after = 0;
    loop {
        after = for_each_after(args, after, &mut |line| {
            match args.ask.json {
                true => say!("{line}"),
                false => say!("{}", cells(line).join("  ")),
            }
            Ok(())
        })?;
        if is_in_vain() {
            return Ok(());
        }
        std::thread::sleep(POLL);
    }
}

fn export(args: &AuditArgs, path: &Path) -> Result<(), Failure> {
    if path == Path::new("-") {
        return for_each(args, |line| {
            say!("{line}");
            Ok(())
        });
    }
    let mut out = create(path)?;
    for_each(args, |line| Ok(writeln!(out, "{line}")?))?;
    out.flush()?;
    Ok(())
}

/// Records of TAPs are confidential: readable by the owner alone.
fn create(path: &Path) -> Result<BufWriter<File>, Failure> {
    use std::os::unix::fs::OpenOptionsExt;
    let mut options = std::fs::OpenOptions::new();
    let opened = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    Ok(BufWriter::new(opened.map_err(|error| format!("{}: {error}", path.display()))?))
}

fn verify(args: &AuditArgs) -> Result<(), Failure> {
    let mut verifier = Verifier::default();
    for_each(args, |line| Ok(verifier.check(line)?))?;
    match (verifier.head(), &args.file) {
        (Some((seq, hash)), _) => say!("intact up to record {seq}, whose hash is {hash}"),
        (None, None) => say!("no records"),
        // An empty export may be a truncated one, which must not pass verification.
        (None, Some(path)) => return Err(format!("{}: {NO_RECORDS}", path.display()).into()),
    }
    Ok(())
}

/// Reads all records of a file or of a controller.
fn for_each(
    args: &AuditArgs,
    mut take: impl FnMut(&str) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let Some(path) = &args.file else {
        for_each_after(args, 0, &mut take)?;
        return Ok(());
    };
    let file = File::open(path).map_err(|error| format!("{}: {error}", path.display()))?;
    for line in BufReader::new(file).lines() {
        take(&line?)?;
    }
    Ok(())
}

/// Reads the records after a given one from a controller; returns the number of the last.
fn for_each_after(
    args: &AuditArgs,
    mut after: u64,
    take: &mut impl FnMut(&str) -> Result<(), Failure>,
) -> Result<u64, Failure> {
    loop {
        let lines: Vec<String> = ask(args.ask.socket.as_deref(), &Request::Audit { after })?;
        let Some(last) = lines.last() else { return Ok(after) };
        let record: Value = serde_json::from_str(last)?;
        after = record["seq"].as_u64().ok_or("a record has no number (`seq`)")?;
        lines.iter().try_for_each(|line| take(line))?;
    }
}

fn cells(line: &str) -> Vec<String> {
    let record: Value = serde_json::from_str(line).unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or("-").to_owned();
    let mut cells = vec![record["seq"].to_string()];
    cells.extend(["at", "who", "from", "what"].map(|key| text(&record[key])));
    cells.push(text(&record["policy"]["name"]));
    cells.push(text(&record["result"]));
    cells
}

const NO_RECORDS: &str =
    "it has no records, so nothing was verified: check that it is a complete export";
/// Interval for polling new records.
const POLL: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: AuditArgs,
    }

    #[test]
    fn a_file_without_records_is_not_whole() {
        let empty = tempfile::NamedTempFile::new().unwrap();
        let file = empty.path().to_str().unwrap();
        let verified = main(&Line::parse_from(["audit", "--verify", "--file", file]).args);
        assert!(verified.unwrap_err().to_string().contains("nothing was verified"));
    }
}
