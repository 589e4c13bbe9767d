//! Rules for Markdown files: links that lead somewhere, a map that fits on a few pages.

use std::path::Path;

use super::Violation;

/// Lines of ARCHITECTURE.md: more is no map.
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
        let file = target.split('#').next().unwrap_or_default();
        let is_elsewhere = target.contains("://") || target.starts_with("mailto:");
        if !file.is_empty() && !is_elsewhere && !folder.join(file).exists() {
            let message = format!("link to `{target}`, which is not there; mend it");
            violations.push(Violation::new(path, line, message));
        }
    }
}

/// Targets of inline links and images with their lines, code left out.
fn links(text: &str) -> Vec<(usize, &str)> {
    let mut links = Vec::new();
    let mut in_fence = false;
    for (line, text) in (1..).zip(text.lines()) {
        if text.trim_start().starts_with("```") {
            in_fence = !in_fence;
        } else if !in_fence {
            // Every second piece between backticks is code.
            let prose = text.split('`').step_by(2);
            links.extend(prose.flat_map(targets).map(|target| (line, target)));
        }
    }
    links
}

/// What stands in parentheses right behind brackets, without a title.
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
                    [gone](src/gone.rs) ![picture](none.png) [here](#anchor)\n\
                    [web](https://example.org/a) `[code](no.rs)`\n\
                    ```\n[code](no.rs)\n```\n\
                    [after](code.rs)\n";
        let expected = [
            (2, "link to `src/gone.rs`, which is not there; mend it"),
            (2, "link to `none.png`, which is not there; mend it"),
            (7, "link to `code.rs`, which is not there; mend it"),
        ];
        assert_eq!(found("xtask/README.md", text), expected.map(owned));
    }

    #[test]
    fn links_behind_code_on_the_same_line_are_followed() {
        let expected = [(1, "link to `gone.md`, which is not there; mend it")];
        assert_eq!(found("README.md", "`a` [b](gone.md)\n"), expected.map(owned));
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
