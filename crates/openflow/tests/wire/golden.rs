//! Compares every sample with its bytes in `tests/golden/*.hex` and its text in `*.txt`.
//!
//! `UPDATE_GOLDEN=1 cargo test -p tapswitch-openflow` rewrites the files. Changed bytes are a
//! protocol change: Open vSwitch must still decode them (see `ovs.rs`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{env, fs};

use tapswitch_openflow::{Message, MessageType};

use crate::encode;
use crate::samples::{Sample, samples};

#[test]
fn samples_are_the_golden_bytes() {
    let update = env::var_os("UPDATE_GOLDEN").is_some();
    for sample in samples() {
        if update {
            write(&sample);
        }
        check(&sample);
    }
}

#[test]
fn there_is_a_sample_of_every_type() {
    let sampled: BTreeSet<_> =
        samples().iter().map(|sample| sample.message.body.message_type()).collect();
    let all: BTreeSet<_> = MessageType::ALL.iter().copied().collect();
    assert_eq!(sampled, all);
}

#[test]
fn there_is_a_sample_for_every_golden_file() {
    let names: BTreeSet<_> = samples().iter().map(|sample| sample.name).collect();
    for entry in fs::read_dir(directory()).expect("the golden files") {
        let path = entry.expect("a golden file").path();
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name");
        assert!(names.contains(name), "no sample for {name}");
    }
}

fn check(sample: &Sample) {
    let name = sample.name;
    let bytes = from_hex(&read(name, "hex"));
    let decoded = Message::decode(&bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(decoded, sample.message, "{name}: bytes to message");
    assert_eq!(encode(&sample.message), bytes, "{name}: message to bytes");
    assert_eq!(format!("{decoded:#?}\n"), read(name, "txt"), "{name}: message to text");
}

fn write(sample: &Sample) {
    let bytes = encode(&sample.message);
    let text = format!("{:#?}\n", sample.message);
    fs::create_dir_all(directory()).expect("a directory");
    fs::write(path(sample.name, "hex"), to_hex(&bytes)).expect("a hex file");
    fs::write(path(sample.name, "txt"), text).expect("a text file");
}

fn read(name: &str, extension: &str) -> String {
    let path = path(name, extension);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn path(name: &str, extension: &str) -> PathBuf {
    directory().join(name).with_extension(extension)
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// Sixteen bytes a line.
fn to_hex(bytes: &[u8]) -> String {
    let mut text = String::new();
    for line in bytes.chunks(16) {
        let line: Vec<_> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        text.push_str(&line.join(" "));
        text.push('\n');
    }
    text
}

fn from_hex(text: &str) -> Vec<u8> {
    text.split_whitespace()
        .map(|byte| u8::from_str_radix(byte, 16).expect("a hexadecimal byte"))
        .collect()
}
