//! Rules for Rust files.

use super::Violation;
use super::layers::{Layer, layer_of};
use super::source::Source;

/// What production code of crates without I/O must not use, and what to do instead.
const IMPURE: [(&str, &str); 14] = [
    ("Instant::now", "take `now` as an argument"),
    ("SystemTime::now", "take `now` as an argument"),
    ("TcpStream", "leave I/O to the shell around it"),
    ("TcpListener", "leave I/O to the shell around it"),
    ("UdpSocket", "leave I/O to the shell around it"),
    ("UnixStream", "leave I/O to the shell around it"),
    ("UnixListener", "leave I/O to the shell around it"),
    ("UnixDatagram", "leave I/O to the shell around it"),
    ("std::fs", "leave I/O to the shell around it"),
    ("std::thread", "leave threads to the shell around it"),
    ("println!", "return what there is to say"),
    ("eprintln!", "return what there is to say"),
    ("print!", "return what there is to say"),
    ("eprint!", "return what there is to say"),
];

/// Words in comments that mark unfinished work.
const MARKERS: [&str; 4] = ["FIXME", "TODO", "XXX", "HACK"];
/// Macros that mark unfinished or debugging code.
const UNFINISHED: [&str; 3] = ["todo!", "unimplemented!", "dbg!"];

/// Exceptions to the rule against `unsafe` in crates without I/O: module, why.
const UNSAFE_IN_LOGIC: [(&str, &str); 1] =
    [("crates/wire/src/checksum/simd", "vectors are loaded through pointers")];

/// Maximum columns of a line, so that two files fit side by side on a screen.
const COLUMNS_MAX: usize = 100;
/// Maximum lines of a file; longer files have more than one concern.
const FILE_LINES_MAX: usize = 800;
/// Maximum lines of a function: one screen.
const FUNCTION_LINES_MAX: usize = 70;
/// Maximum lines between a SAFETY comment and its `unsafe`: the start of the statement.
const STATEMENT_LINES_MAX: usize = 3;

/// Checks one file.
pub(crate) fn check(source: &Source, violations: &mut Vec<Violation>) {
    head(source, violations);
    size(source, violations);
    unfinished(source, violations);
    unsafety(source, violations);
    if layer_of(&source.path).is_some_and(Layer::is_pure) {
        purity(source, violations);
    }
}

fn head(source: &Source, violations: &mut Vec<Violation>) {
    let is_module = source.is_production(1) && !source.lines.is_empty();
    if is_module && !source.lines[0].starts_with("//!") {
        let message = "no `//!` in the first line; say what this is";
        violations.push(source.violation(1, message));
    }
}

fn size(source: &Source, violations: &mut Vec<Violation>) {
    let count = source.lines.len();
    if count > FILE_LINES_MAX {
        let message =
            format!("file of {count} lines, {FILE_LINES_MAX} at most; split it by concern");
        violations.push(source.violation(count, message));
    }
    for (line, text) in (1..).zip(&source.lines) {
        let columns = text.chars().count();
        if columns > COLUMNS_MAX {
            let message = format!("line of {columns} columns, {COLUMNS_MAX} at most; break it");
            violations.push(source.violation(line, message));
        }
    }
    for function in source.functions.iter().filter(|f| f.len > FUNCTION_LINES_MAX) {
        let (name, len) = (&function.name, function.len);
        let message = format!("`{name}` has {len} lines, {FUNCTION_LINES_MAX} at most; split it");
        violations.push(source.violation(function.line, message));
    }
}

fn unfinished(source: &Source, violations: &mut Vec<Violation>) {
    for comment in &source.comments {
        let mut words = comment.text.split(|c: char| !c.is_alphanumeric());
        if let Some(marker) = words.find(|word| MARKERS.contains(word)) {
            let message = format!("comment says {marker}; do it or file an issue");
            violations.push(source.violation(comment.line, message));
        }
    }
    for pattern in UNFINISHED {
        for line in source.find(pattern) {
            violations
                .push(source.violation(line, format!("`{pattern}`; finish it or take it out")));
        }
    }
}

fn unsafety(source: &Source, violations: &mut Vec<Violation>) {
    let is_edge = layer_of(&source.path).is_some_and(|layer| layer == Layer::Edges);
    let may_be_unsafe = is_edge || is_unsafe_module(&source.path);
    for line in source.find("unsafe") {
        if !may_be_unsafe && source.is_production(line) {
            let message =
                "`unsafe` outside the edge crates; move it into one, behind a safe function";
            violations.push(source.violation(line, message));
        }
    }
    let blocks = ["unsafe {", "unsafe impl"].iter().flat_map(|pattern| find_start(source, pattern));
    for line in blocks {
        if !is_justified(source, line) {
            let message =
                "`unsafe` without a SAFETY comment above; name the invariant and why it holds";
            violations.push(source.violation(line, message));
        }
    }
}

/// True for the files of a module in [`UNSAFE_IN_LOGIC`].
fn is_unsafe_module(path: &str) -> bool {
    let is_in = |module: &str| {
        path.strip_prefix(module).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
    };
    UNSAFE_IN_LOGIC.iter().any(|(module, _)| is_in(module))
}

/// Like [`Source::find`], for a pattern that ends with an opening brace and so is not valid Rust
/// alone.
fn find_start(source: &Source, pattern: &str) -> Vec<usize> {
    let words: Vec<_> = pattern.split(' ').collect();
    let windows = source.tokens.windows(words.len());
    let found = windows.filter(|window| window.iter().map(|token| &*token.text).eq(words.clone()));
    found.map(|window| window[0].line).collect()
}

/// True if the comment above `line`, or above the statement that contains it, is a SAFETY comment.
fn is_justified(source: &Source, line: usize) -> bool {
    let above = source.lines.iter().take(line).rev().map(|text| text.trim());
    let is_comment = |text: &&str| text.starts_with("//");
    let code = above.clone().take_while(|text| !is_comment(text)).count();
    if code > STATEMENT_LINES_MAX {
        return false;
    }
    let mut comment = above.skip(code).take_while(is_comment);
    comment.any(|text| text.contains("SAFETY:"))
}

fn purity(source: &Source, violations: &mut Vec<Violation>) {
    for (pattern, remedy) in IMPURE {
        let mut lines = source.find(pattern);
        let used = source.uses.iter().filter(|path| is_below(&path.text, pattern));
        lines.extend(used.map(|path| path.line));
        lines.sort_unstable();
        lines.dedup();
        for line in lines.into_iter().filter(|line| source.is_production(*line)) {
            let message = format!("`{pattern}` in a crate without I/O; {remedy}");
            violations.push(source.violation(line, message));
        }
    }
    if let Some(folder) = source.path.strip_suffix("lib.rs") {
        // An inner `allow` cannot override `forbid`: crates with an exception use `deny`.
        let has_exception = UNSAFE_IN_LOGIC.iter().any(|(module, _)| module.starts_with(folder));
        let lint = if has_exception { "#![deny(unsafe_code)]" } else { "#![forbid(unsafe_code)]" };
        if source.find(lint).is_empty() {
            let message = format!("a crate without I/O needs no `unsafe`; add `{lint}`");
            violations.push(source.violation(1, message));
        }
    }
}

/// True for `pattern` itself and for everything inside it.
fn is_below(path: &str, pattern: &str) -> bool {
    path.strip_prefix(pattern).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOGIC: &str = "crates/offload/src/a.rs";
    const EDGE: &str = "crates/tap/src/a.rs";
    const SHELL: &str = "crates/switch/src/a.rs";

    #[test]
    fn what_does_io_is_found_in_logic_only() {
        let code = "use std::{thread, time::Instant};\n\
                    use std::net::{TcpStream as S};\n\
                    fn f() {\n    \
                        let a = Instant\n        ::now();\n    \
                        let b = std::time::SystemTime::now();\n    \
                        println!(\"std::net::UdpSocket in a string\");\n\
                    }\n";
        let expected = [
            (1, "`std::thread` in a crate without I/O; leave threads to the shell around it"),
            (2, "`TcpStream` in a crate without I/O; leave I/O to the shell around it"),
            (4, "`Instant::now` in a crate without I/O; take `now` as an argument"),
            (6, "`SystemTime::now` in a crate without I/O; take `now` as an argument"),
            (7, "`println!` in a crate without I/O; return what there is to say"),
        ];
        expect(LOGIC, code, &expected);
        expect("crates/wire/src/a.rs", code, &expected);
        expect(SHELL, code, &[]);
        expect("crates/offload/tests/a.rs", code, &[]);
        expect(LOGIC, &format!("#[cfg(test)]\nmod tests {{\n{code}}}\n"), &[]);
    }

    #[test]
    fn logic_forbids_unsafe_in_its_root() {
        let message = "a crate without I/O needs no `unsafe`; add `#![forbid(unsafe_code)]`";
        expect("crates/control/src/lib.rs", "fn f() {}\n", &[(0, message)]);
        expect("crates/control/src/lib.rs", "#![forbid(unsafe_code)]\n", &[]);
        expect("crates/tap/src/lib.rs", "fn f() {}\n", &[]);
    }

    #[test]
    fn the_exception_is_one_module_and_its_crate_denies_the_rest() {
        let code = "// SAFETY: g has no demands.\nfn f() { unsafe { g() } }\n";
        let message = "`unsafe` outside the edge crates; move it into one, behind a safe function";
        expect("crates/wire/src/checksum/simd.rs", code, &[]);
        expect("crates/wire/src/checksum/simd/x86.rs", code, &[]);
        expect("crates/wire/src/checksum/scalar.rs", code, &[(2, message)]);
        expect("crates/wire/src/checksum/simd_too.rs", code, &[(2, message)]);
        let message = "a crate without I/O needs no `unsafe`; add `#![deny(unsafe_code)]`";
        expect("crates/wire/src/lib.rs", "fn f() {}\n", &[(0, message)]);
        expect("crates/wire/src/lib.rs", "#![deny(unsafe_code)]\n", &[]);
    }

    #[test]
    fn unsafe_stays_in_edges() {
        let code = "// SAFETY: g has no demands.\nfn f() { unsafe { g() } }\n";
        let message = "`unsafe` outside the edge crates; move it into one, behind a safe function";
        expect(SHELL, code, &[(2, message)]);
        expect("crates/channel/src/a.rs", code, &[(2, message)]);
        expect(EDGE, code, &[]);
        expect("crates/offload/tests/a.rs", code, &[]);
    }

    #[test]
    fn unsafe_says_why_it_is_safe() {
        let message =
            "`unsafe` without a SAFETY comment above; name the invariant and why it holds";
        expect(EDGE, "fn f() {\n    unsafe { g() }\n}\n", &[(2, message)]);
        expect(EDGE, "// Fine.\nunsafe impl Send for A {}\n", &[(2, message)]);
        expect(EDGE, "// SAFETY: no pointers.\nunsafe impl Send for A {}\n", &[]);
        let far = "fn f() {\n    // SAFETY: of another one.\n    a();\n    b();\n    c();\n    \
                   unsafe { g() }\n}\n";
        expect(EDGE, far, &[(6, message)]);
        let head = "fn f() {\n    // SAFETY: the first line\n    // of two.\n    let a =\n        \
                    unsafe { g() };\n}\n";
        expect(EDGE, head, &[]);
        expect(EDGE, "unsafe fn f() {}\n", &[]);
    }

    #[test]
    fn unfinished_work_is_found_in_comments_and_code() {
        let code = "// TODO: more\n/// A HACK.\nfn f() { todo!() }\nconst A: &str = \"FIXME\";\n";
        let expected = [
            (1, "comment says TODO; do it or file an issue"),
            (2, "comment says HACK; do it or file an issue"),
            (3, "`todo!`; finish it or take it out"),
        ];
        expect(SHELL, code, &expected);
        expect(SHELL, "// XXXVII is a number, todo a word.\nfn f() {}\n", &[]);
    }

    #[test]
    fn sizes_have_limits() {
        let long = format!("fn f() {{\n{}}}\n", "    g();\n".repeat(69));
        expect(SHELL, &long, &[(1, "`f` has 71 lines, 70 at most; split it")]);
        expect(SHELL, &long.replacen("    g();\n", "", 1), &[]);
        let tests = format!("#[cfg(test)]\nmod tests {{\n{long}}}\n");
        expect(SHELL, &tests, &[(3, "`f` has 71 lines, 70 at most; split it")]);
        let message = "file of 801 lines, 800 at most; split it by concern";
        expect(SHELL, &"\n".repeat(800), &[(800, message)]);
        expect(SHELL, &"\n".repeat(799), &[]);
        let wide = format!("// {}\n", "é".repeat(98));
        expect(SHELL, &wide, &[(1, "line of 101 columns, 100 at most; break it")]);
        expect(SHELL, &wide.replacen('é', "", 1), &[]);
    }

    #[test]
    fn a_module_opens_with_what_it_is() {
        let headless = Source::parse(SHELL, "use std::fmt;\n").unwrap();
        let mut violations = Vec::new();
        check(&headless, &mut violations);
        let [violation] = &violations[..] else {
            panic!("{violations:?}");
        };
        assert_eq!(violation.message, "no `//!` in the first line; say what this is");
    }

    /// Checks `code` after a module head, which counts as line 0.
    fn expect(path: &str, code: &str, expected: &[(usize, &str)]) {
        let mut violations = Vec::new();
        let code = format!("//! Head.\n{code}");
        check(&Source::parse(path, &code).unwrap(), &mut violations);
        violations.sort();
        let found: Vec<_> = violations.iter().map(|v| (v.line - 1, &*v.message)).collect();
        assert_eq!(found, expected, "{path}:\n{code}");
    }
}
