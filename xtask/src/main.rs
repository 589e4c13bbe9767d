//! The project's own checks: `cargo xtask check` runs all of them, `cargo xtask tidy` those of
//! style, `cargo xtask soak` those that find more with more time.

mod check;
mod tidy;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args().skip(1).collect();
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["check"] => check::run(workspace()),
        ["tidy"] => run_tidy(),
        ["soak"] => run_soak(SOAK_MINUTES),
        ["soak", "--minutes", minutes] => minutes.parse().map_or_else(|_| usage(), run_soak),
        _ => usage(),
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: cargo xtask check   runs all checks and tests, with one summary");
    eprintln!("       cargo xtask tidy    checks the rules of CONTRIBUTING.md");
    eprintln!("       cargo xtask soak    searches for defects with random seeds, for");
    eprintln!("                           {SOAK_MINUTES} minutes or for --minutes N");
    ExitCode::from(2)
}

fn run_soak(minutes: u32) -> ExitCode {
    check::soak(workspace(), Duration::from_secs(60 * u64::from(minutes)))
}

fn run_tidy() -> ExitCode {
    let root = workspace();
    match tidy::check(root) {
        Ok(report) => {
            print!("{report}");
            ExitCode::from(u8::from(!report.violations.is_empty()))
        }
        Err(error) => {
            eprintln!("tidy: {}: {error}", root.display());
            ExitCode::from(2)
        }
    }
}

/// The folder of the workspace.
fn workspace() -> &'static Path {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().unwrap_or(package)
}

/// How long defects are searched for.
const SOAK_MINUTES: u32 = 30;
