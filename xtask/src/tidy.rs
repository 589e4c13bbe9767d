//! The rules of CONTRIBUTING.md and ARCHITECTURE.md that can be checked mechanically.
//!
//! Each submodule checks one kind of file; its rules are tables. A violation is one line,
//! `path:line: what is wrong; what to do`. Rust is read as tokens (so that strings and comments do
//! not count as code) and as a syntax tree (for functions and test code); it is not built.
//!
//! Deliberately absent: what clippy and rustfmt already check, and a way to opt out. An exception
//! to a rule is an entry in its table, with the reason.

mod layers;
mod markdown;
mod rust;
mod source;

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use source::{Function, Source};

/// A violation of a rule in one line of a file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Violation {
    /// Relative to the workspace.
    path: String,
    /// Counted from 1.
    line: usize,
    /// What is wrong; what to do.
    message: String,
}

impl Violation {
    fn new(path: &str, line: usize, message: impl Into<String>) -> Self {
        Self { path: path.to_owned(), line, message: message.into() }
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}", self.path, self.line, self.message)
    }
}

/// Result of all rules.
pub(crate) struct Report {
    /// Sorted by path and line.
    pub(crate) violations: Vec<Violation>,
    /// Functions of production code with their files, shortest first.
    functions: Vec<(String, Function)>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for violation in &self.violations {
            writeln!(f, "{violation}")?;
        }
        let count = self.functions.len();
        let at = |index: usize| self.functions.get(index).map_or(0, |(_, f)| f.len);
        write!(
            f,
            "tidy: {} violations; {count} functions, median {} lines, 90 % within {}",
            self.violations.len(),
            at(count / 2),
            at(count * 9 / 10),
        )?;
        match self.functions.last() {
            Some((path, Function { name, line, len })) => {
                writeln!(f, ", longest {len} ({name}, {path}:{line})")
            }
            None => writeln!(f),
        }
    }
}

/// Checks the workspace at `root`.
pub(crate) fn check(root: &Path) -> io::Result<Report> {
    let mut violations = layers::check(root)?;
    let mut functions = Vec::new();
    let mut files = Vec::new();
    walk(root, &mut files)?;
    for file in files {
        let path = relative(root, &file);
        // Other files may be images or compressed.
        let kind = file.extension().and_then(|extension| extension.to_str());
        let Some(kind @ ("md" | "rs")) = kind else { continue };
        let text = fs::read_to_string(&file)?;
        match kind {
            "md" => markdown::check(root, &path, &text, &mut violations),
            _ => match Source::parse(&path, &text) {
                Ok(source) => {
                    rust::check(&source, &mut violations);
                    functions.extend(source.production_functions());
                }
                Err(error) => violations.push(Violation::new(
                    &path,
                    error.span().start().line,
                    format!("not Rust: {error}; fix it"),
                )),
            },
        }
    }
    violations.sort();
    functions.sort_by_key(|(_, function)| function.len);
    Ok(Report { violations, functions })
}

/// Collects all files below `folder` except generated ones.
pub(crate) fn walk(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if entry.file_type()?.is_dir() {
            if !name.starts_with('.') && !NOT_BY_HAND.contains(&&*name) {
                walk(&entry.path(), files)?;
            }
        } else {
            files.push(entry.path());
        }
    }
    Ok(())
}

fn relative(root: &Path, file: &Path) -> String {
    let path = file.strip_prefix(root).unwrap_or(file);
    path.to_string_lossy().into_owned()
}

/// Folders that no rule applies to.
const NOT_BY_HAND: [&str; 5] = ["target", "corpus", "crashes", "artifacts", "node_modules"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_workspace_is_tidy() {
        let report = check(crate::workspace()).unwrap();
        assert!(report.functions.len() > 100, "it looks at the wrong place");
        assert!(report.violations.is_empty(), "\n{report}");
    }

    #[test]
    fn a_report_is_one_line_for_each_violation_and_one_of_numbers() {
        let function = |len| {
            let name = format!("f{len}");
            ("crates/a/src/b.rs".to_owned(), Function { name, line: 7, len })
        };
        let report = Report {
            violations: vec![Violation::new("a.rs", 3, "wrong; right it")],
            functions: (1..=20).map(function).collect(),
        };
        assert_eq!(
            report.to_string(),
            "a.rs:3: wrong; right it\n\
             tidy: 1 violations; 20 functions, median 11 lines, 90 % within 19, \
             longest 20 (f20, crates/a/src/b.rs:7)\n"
        );
    }
}
