//! Dependencies allowed between crates.
//!
//! Every crate is in a layer and depends only on crates of lower layers. The tables here list the
//! exceptions, each with its reason. Dev-dependencies are not restricted: tests may use anything.

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::{Violation, relative};

/// A layer, lowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Layer {
    /// Wire formats: bytes to values and back.
    Words,
    /// Decisions: state in, result out.
    Logic,
    /// Syscalls and `unsafe`.
    Edges,
    /// Threads, async runtimes, configuration.
    Shells,
}

impl Layer {
    /// True for layers without I/O, clock or threads.
    pub(crate) fn is_pure(self) -> bool {
        self <= Self::Logic
    }
}

/// Layer of each crate in `crates/`.
const LAYERS: [(Layer, &[&str]); 4] = [
    (Layer::Words, &["wire", "openflow", "pcapng"]),
    (Layer::Logic, &["offload", "datapath", "control", "channel"]),
    (Layer::Edges, &["tap", "netdev", "netlink", "tls", "tunnel", "vhost"]),
    (Layer::Shells, &["switch", "controller", "tapswitch"]),
];

/// Allowed dependencies within a layer: from, to, why.
const SIDEWAYS: [(&str, &str, &str); 4] = [
    ("openflow", "wire", "its messages carry MAC addresses"),
    ("tap", "netlink", "what a device is, rtnetlink alone tells"),
    ("tapswitch", "switch", "the one program runs it"),
    ("tapswitch", "controller", "the one program runs it"),
];

/// Forbidden dependencies on a lower layer: from, to, why.
const FORBIDDEN: [(&str, &str, &str); 3] = [
    ("tap", "openflow", "a stranger must be able to use it alone"),
    ("netdev", "openflow", "a device has no rules"),
    ("netlink", "openflow", "a device has no rules"),
];

/// External packages with I/O, threads or a clock, which pure layers must not use.
const IMPURE_PACKAGES: [&str; 7] =
    ["arc-swap", "crossbeam-channel", "libc", "rustix", "tokio", "tracing", "tracing-subscriber"];

/// One package, from its `Cargo.toml`.
#[derive(Clone, Debug, Default)]
struct Package {
    name: String,
    /// Path of the `Cargo.toml`, relative to the workspace.
    manifest: String,
    /// Text of the `Cargo.toml`, to find line numbers in.
    text: String,
    /// Names of dependencies, without dev-dependencies.
    dependencies: Vec<String>,
}

impl Package {
    /// The name without the project's prefix.
    fn short_name(&self) -> &str {
        short(&self.name)
    }

    /// The folder in `crates/`, or `None` for a package outside it.
    fn folder(&self) -> Option<&str> {
        folder_of(&self.manifest)
    }

    /// The line that starts with `word`, or line 1.
    fn line_of(&self, word: &str) -> usize {
        let mut lines = (1..).zip(self.text.lines());
        let found = lines.find(|(_, text)| text.starts_with(word));
        found.map_or(1, |(line, _)| line)
    }
}

/// The layer of the crate that the file at `path` belongs to.
pub(crate) fn layer_of(path: &str) -> Option<Layer> {
    layer(folder_of(path)?)
}

/// Checks all packages of the workspace at `root`.
pub(crate) fn check(root: &Path) -> io::Result<Vec<Violation>> {
    let mut violations = Vec::new();
    for package in packages(root)? {
        check_package(&package, &mut violations);
    }
    Ok(violations)
}

fn check_package(package: &Package, violations: &mut Vec<Violation>) {
    let Some(folder) = package.folder() else {
        return;
    };
    let mut push = |word: &str, message: String| {
        let line = package.line_of(word);
        violations.push(Violation::new(&package.manifest, line, message));
    };
    let name = package.short_name();
    if name != folder {
        push("name", format!("package `{name}` in folder `{folder}`; give them one name"));
    }
    let Some(layer) = layer(name) else {
        push("name", format!("`{name}` has no layer; give it one in xtask/src/tidy/layers.rs"));
        return;
    };
    for dependency in &package.dependencies {
        if let Some(why) = objection(name, layer, dependency) {
            push(dependency, format!("`{name}` depends on `{}`: {why}", short(dependency)));
        }
    }
}

/// The violation, if any, that a dependency of `name` makes, and what to do.
fn objection(name: &str, layer: Layer, dependency: &str) -> Option<String> {
    let other = short(dependency);
    let is_listed = |table: &[(&str, &str, &str)]| {
        let mut rows = table.iter();
        rows.find(|(from, to, _)| (*from, *to) == (name, other)).map(|(_, _, why)| why.to_string())
    };
    if layer.is_pure() && IMPURE_PACKAGES.contains(&dependency) {
        return Some("it brings I/O or threads; leave both to the shell around it".to_owned());
    }
    if TOOLS.contains(&other) {
        return Some("it is a tool beside the crates; nothing may depend on it".to_owned());
    }
    if let Some(why) = is_listed(&FORBIDDEN) {
        return Some(format!("{why}; do without"));
    }
    if !is_ours(dependency) {
        return None;
    }
    let below = self::layer(other)?;
    let is_allowed = match (layer, below) {
        (Layer::Edges, Layer::Logic) => false,
        _ => below < layer || is_listed(&SIDEWAYS).is_some(),
    };
    let message = format!("{layer:?} must not know {below:?} crates; let a layer above join them");
    (!is_allowed).then_some(message)
}

fn layer(name: &str) -> Option<Layer> {
    let mut layers = LAYERS.iter();
    layers.find(|(_, crates)| crates.contains(&name)).map(|(layer, _)| *layer)
}

fn folder_of(path: &str) -> Option<&str> {
    path.strip_prefix("crates/")?.split('/').next()
}

/// Other packages may have our names without the prefix, such as the `vhost` crate.
fn is_ours(name: &str) -> bool {
    name == "tapswitch" || name.starts_with("tapswitch-")
}

fn short(name: &str) -> &str {
    name.strip_prefix("tapswitch-").unwrap_or(name)
}

fn packages(root: &Path) -> io::Result<Vec<Package>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--no-deps", "--format-version", "1"])
        .current_dir(root)
        .output()?;
    if !output.status.success() {
        return Err(io::Error::other(String::from_utf8_lossy(&output.stderr)));
    }
    let metadata: Value = serde_json::from_slice(&output.stdout)?;
    let packages = metadata["packages"].as_array().into_iter().flatten();
    packages.map(|package| read_package(root, package)).collect()
}

fn read_package(root: &Path, package: &Value) -> io::Result<Package> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let manifest = text(&package["manifest_path"]);
    let dependencies = package["dependencies"].as_array().into_iter().flatten();
    Ok(Package {
        name: text(&package["name"]),
        text: fs::read_to_string(&manifest)?,
        manifest: relative(root, Path::new(&manifest)),
        dependencies: dependencies
            .filter(|dependency| dependency["kind"] != "dev")
            .map(|dependency| text(&dependency["name"]))
            .collect(),
    })
}

/// Packages outside `crates/`.
const TOOLS: [&str; 5] = ["xtask", "fuzz", "guest", "helpers", "instructions"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dependencies_point_down() {
        let allowed = [
            ("openflow", "wire"),
            ("datapath", "openflow"),
            ("tap", "wire"),
            ("switch", "datapath"),
            ("switch", "tap"),
            ("tapswitch", "switch"),
            ("control", "thiserror"),
            ("switch", "tokio"),
        ];
        for (from, to) in allowed {
            assert_eq!(found(from, to), [""; 0], "{from} -> {to}");
        }
        let refused = [
            ("wire", "openflow", "Words must not know Words crates"),
            ("wire", "tap", "Words must not know Edges crates"),
            ("control", "datapath", "Logic must not know Logic crates"),
            ("datapath", "control", "Logic must not know Logic crates"),
            ("tap", "netdev", "Edges must not know Edges crates"),
            ("netdev", "offload", "Edges must not know Logic crates"),
            ("channel", "switch", "Logic must not know Shells crates"),
            ("switch", "controller", "Shells must not know Shells crates"),
            ("tap", "openflow", "a stranger must be able to use it alone"),
            ("switch", "fuzz", "it is a tool beside the crates"),
            ("channel", "tokio", "it brings I/O or threads"),
        ];
        for (from, to, why) in refused {
            let [message] = &found(from, to)[..] else {
                panic!("{from} -> {to} is let through");
            };
            assert!(message.contains(&format!("`{from}` depends on `{to}`: {why}")), "{message}");
        }
    }

    #[test]
    fn a_crate_has_one_name_and_a_layer() {
        let mut package = package("tap", "wire");
        package.manifest = "crates/taps/Cargo.toml".to_owned();
        let mut violations = Vec::new();
        check_package(&package, &mut violations);
        let expected = "crates/taps/Cargo.toml:2: package `tap` in folder `taps`; \
                        give them one name";
        assert_eq!(violations[0].to_string(), expected);
        assert!(found("magic", "wire")[0].starts_with("`magic` has no layer"));
    }

    #[test]
    fn the_line_is_the_dependency_s() {
        let mut violations = Vec::new();
        check_package(&package("wire", "tap"), &mut violations);
        assert_eq!((&*violations[0].path, violations[0].line), ("crates/wire/Cargo.toml", 5));
    }

    #[test]
    fn dev_dependencies_are_free_and_this_workspace_is_seen() {
        let packages = packages(crate::workspace()).unwrap();
        let offload = packages.iter().find(|p| p.name == "tapswitch-offload").unwrap();
        assert!(offload.dependencies.contains(&"tapswitch-wire".to_owned()));
        assert!(!offload.dependencies.contains(&"etherparse".to_owned()));
    }

    fn found(from: &str, to: &str) -> Vec<String> {
        let mut violations = Vec::new();
        check_package(&package(from, to), &mut violations);
        violations.into_iter().map(|v| v.message).collect()
    }

    fn package(from: &str, to: &str) -> Package {
        let is_ours = layer(to).is_some() || TOOLS.contains(&to);
        let to = if is_ours { format!("tapswitch-{to}") } else { to.to_owned() };
        Package {
            name: format!("tapswitch-{from}"),
            manifest: format!("crates/{from}/Cargo.toml"),
            text: format!("[package]\nname = \"a\"\n\n[dependencies]\n{to}.workspace = true\n"),
            dependencies: vec![to],
        }
    }
}
