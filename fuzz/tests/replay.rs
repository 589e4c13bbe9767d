//! Runs each target over its committed seeds and crashes.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::path::{Path, PathBuf};

use tapswitch_fuzz::TARGETS;

#[test]
fn every_seed_and_every_crash() {
    for (name, body) in TARGETS {
        let seeds = files("corpus", name);
        assert!(!seeds.is_empty(), "{name} has no seed; run the example `seeds`");
        for file in seeds.into_iter().chain(files("crashes", name)) {
            let data = fs::read(&file).unwrap();
            println!("{}", file.display());
            body(&data);
        }
    }
}

#[test]
fn seeds_are_small() {
    for (name, _) in TARGETS {
        for file in files("corpus", name) {
            let len = fs::metadata(&file).unwrap().len();
            assert!(len <= SEED_LEN_MAX, "{}: {len} bytes", file.display());
        }
    }
}

#[test]
fn every_target_has_a_wrapper() {
    let manifest = fs::read_to_string(folder("libfuzzer").join("Cargo.toml")).unwrap();
    for (name, _) in TARGETS {
        let wrapper = format!("fuzz_targets/{name}.rs");
        let text = fs::read_to_string(folder("libfuzzer").join(&wrapper)).unwrap();
        assert!(text.contains(&format!("tapswitch_fuzz::{name}(data)")), "{wrapper}");
        assert!(manifest.contains(&format!("path = \"{wrapper}\"")), "{wrapper}");
    }
}

fn files(kind: &str, name: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder(kind).join(name)) else {
        return Vec::new();
    };
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// Limit of a seed: enough for any header, and the repository stays small.
const SEED_LEN_MAX: u64 = 2048;
