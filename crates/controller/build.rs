//! Embeds the page into the library: `ui/dist`, as built by `scripts/build-ui`; if missing, a plain
//! page with instructions.

use std::collections::hash_map::DefaultHasher;
use std::fmt::Write as _;
use std::hash::Hasher;
use std::path::{Path, PathBuf};
use std::{env, fs, io};

fn main() -> io::Result<()> {
    let root = PathBuf::from(env::var_os("CARGO_MANIFEST_DIR").unwrap_or_default());
    let dist = root.join("../../ui/dist");
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=src/page/absent.html");
    println!("cargo::rerun-if-changed={}", dist.display());
    let mut files = String::new();
    if dist.join("index.html").exists() {
        let dist = dist.canonicalize()?;
        for name in NAMES {
            push(&mut files, name, &dist.join(name))?;
        }
    } else {
        push(&mut files, "index.html", &root.join("src/page/absent.html"))?;
    }
    let out = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default());
    fs::write(out.join("page_files.rs"), format!("&[\n{files}]\n"))
}

/// One file as a Rust expression.
fn push(files: &mut String, name: &str, path: &Path) -> io::Result<()> {
    let url = if name == "index.html" { "/".to_owned() } else { format!("/{name}") };
    let kind = match path.extension().and_then(|extension| extension.to_str()) {
        Some("html") => "text/html; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    };
    // Equal content gives an equal hash; it only distinguishes versions.
    let mut hasher = DefaultHasher::new();
    hasher.write(&fs::read(path)?);
    let hash = hasher.finish();
    let compressed = |suffix: &str| {
        let path = PathBuf::from(format!("{}.{suffix}", path.display()));
        match path.exists() {
            true => format!("Some(include_bytes!({path:?}))"),
            false => "None".to_owned(),
        }
    };
    let (gzip, brotli) = (compressed("gz"), compressed("br"));
    writeln!(
        files,
        "    File {{ url: {url:?}, kind: {kind:?}, hash: \"{hash:016x}\", \
         plain: include_bytes!({path:?}), gzip: {gzip}, brotli: {brotli} }},",
    )
    .map_err(io::Error::other)
}

/// Files made by `ui/build.mjs`; each also with `.gz` and `.br`.
const NAMES: [&str; 5] = ["index.html", "page.js", "page.css", "layout.js", "icon.svg"];
