//! Rules for Markdown files: links lead to existing files and headings, and ARCHITECTURE.md stays
//! short.

use std::fs;
use std::path::Path;

use super::Violation;

/// Maximum number of lines of ARCHITECTURE.md, so that it stays a map.
const ARCHITECTURE_LINES_MAX: usize = 200;

/// Checks `text`, the contents of `path` below `root`.
pub(crate) fn check(root: &Path, path: &str, text: &str, violations: &mut Vec<Violation>) {
    let count = text.lines().count();
    if path == "ARCHITECTURE.md" && count > ARCHITECTURE_LINES_MAX {
        let message = format!(
            "{count} lines, {ARCHITECTURE_LINES_MAX} at most; move details beside the code"
        );
        violations.push(Violation::new(path, count, message));
    }
    let folder = root.join(path);
    let folder = folder.parent().unwrap_or(root);
    for (line, target) in links(text) {
        if target.contains("://") || target.starts_with("mailto:") {
            continue;
        }
        let (file, anchor) = target.split_once('#').unwrap_or((target, ""));
        let file = (!file.is_empty()).then(|| folder.join(file));
        let message = match &file {
            Some(file) if !file.exists() => {
                format!("link to `{target}`, which is not there; fix it")
            }
            _ if !has_heading(file.as_deref(), text, anchor) => {
                format!("link to `{target}`: no heading there is called so; fix it")
            }
            _ => continue,
        };
        violations.push(Violation::new(path, line, message));
    }
}

/// Whether `anchor` is a heading of `file`, or of `text` if there is no file. Anchors in files
/// other than Markdown are not checked.
fn has_heading(file: Option<&Path>, text: &str, anchor: &str) -> bool {
    let is_markdown = |file: &Path| file.extension().is_some_and(|it| it == "md");
    if anchor.is_empty() || file.is_some_and(|file| !is_markdown(file)) {
        return true;
    }
    let other = file.map(|file| fs::read_to_string(file).unwrap_or_default());
    let text = other.as_deref().unwrap_or(text);
    prose(text).any(|(_, line)| {
        let heading = line.trim_start_matches('#');
        heading.len() < line.len() && slug(heading) == anchor
    })
}

/// The anchor that GitHub makes from a heading.
fn slug(heading: &str) -> String {
    let letters = heading.trim().chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        _ => letter.is_alphanumeric().then_some(letter),
    });
    letters.flat_map(char::to_lowercase).collect()
}

/// Targets of inline links and images with their line numbers, without code.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut links = Vec::new();
    for (line, text) in prose(text) {
        // Every second piece between backticks is code.
        let uncoded = text.split('`').step_by(2);
        links.extend(uncoded.flat_map(targets).map(|target| (line, target)));
    }
    links
}

/// Lines outside code blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_fence = false;
    (1..).zip(text.lines()).filter(move |(_, text)| {
        let is_fence = text.trim_start().starts_with("```");
        in_fence ^= is_fence;
        !in_fence && !is_fence
    })
}

/// Text in parentheses directly after brackets, without a link title.
fn targets(prose: &str) -> impl Iterator<Item = &str> {
    prose.split("](").skip(1).filter_map(|rest| {
        let (target, _) = rest.split_once(')')?;
        target.split_whitespace().next()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_followed() {
        let text = "[one](src/main.rs) and [two](../xtask/Cargo.toml#lints \"Title\")\n\
                    [gone](src/gone.rs) ![picture](none.png) [there](src/main.rs#L1)\n\
                    [web](https://example.org/a) `[code](no.rs)`\n\
                    ```\n[code](no.rs)\n```\n\
                    [after](code.rs)\n";
        let expected = [
            (2, "link to `src/gone.rs`, which is not there; fix it"),
            (2, "link to `none.png`, which is not there; fix it"),
            (7, "link to `code.rs`, which is not there; fix it"),
        ];
        assert_eq!(found("xtask/README.md", text), expected.map(owned));
    }

    #[test]
    fn links_behind_code_on_the_same_line_are_followed() {
        let expected = [(1, "link to `gone.md`, which is not there; fix it")];
        assert_eq!(found("README.md", "`a` [b](gone.md)\n"), expected.map(owned));
    }

    #[test]
    fn anchors_are_headings() {
        let text = "## `tap` ports, and *others*: 802.1Q\n\
                    [here](#tap-ports-and-others-8021q) [not here](#tap-ports)\n\
                    ```\n# code\n```\n\
                    [code](#code) [there](../README.md#ports) [not there](../README.md#no-such)\n";
        let expected = [
            (2, "link to `#tap-ports`: no heading there is called so; fix it"),
            (6, "link to `#code`: no heading there is called so; fix it"),
            (6, "link to `../README.md#no-such`: no heading there is called so; fix it"),
        ];
        assert_eq!(found("docs/manual.md", text), expected.map(owned));
    }

    #[test]
    fn the_map_stays_short() {
        let message = "201 lines, 200 at most; move details beside the code";
        assert_eq!(found("ARCHITECTURE.md", &"\n".repeat(201)), [owned((201, message))]);
        assert!(found("ARCHITECTURE.md", &"\n".repeat(200)).is_empty());
        assert!(found("docs/manual.md", &"\n".repeat(201)).is_empty());
    }

    fn found(path: &str, text: &str) -> Vec<(usize, String)> {
        let mut violations = Vec::new();
        check(crate::workspace(), path, text, &mut violations);
        violations.into_iter().map(|v| (v.line, v.message)).collect()
    }

    fn owned((line, message): (usize, &str)) -> (usize, String) {
        (line, message.to_owned())
    }
}
