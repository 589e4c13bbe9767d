//! The project's own checks: `cargo xtask check` runs all of them, `cargo xtask tidy` those of
//! style.

mod check;
mod tidy;

use std::path::Path;
use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("check") => check::run(workspace()),
        Some("tidy") => run_tidy(),
        _ => {
            eprintln!("usage: cargo xtask check   runs all checks and tests, with one summary");
            eprintln!("       cargo xtask tidy    checks the rules of CONTRIBUTING.md");
            ExitCode::from(2)
        }
    }
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
