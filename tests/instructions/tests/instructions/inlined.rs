//! No function returns between two system calls of the plain path.
//!
//! A mispredicted return leaves the processor in a state in which every return inside the next
//! system call is mispredicted, too; that costs a small frame a fifth of its rate
//! (`docs/adr/0008-one-function-from-read-to-write.md`). So everything from read(2) to write(2) is
//! one function. What the compiler inlines on its own differs between builds, so all of these
//! functions are marked: such functions have no code of their own, even in a build without
//! optimisation, which is what is examined here. A closure in one of them would have code, and
//! cannot be marked.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{built, successful};

#[test]
fn from_read_to_write_there_is_one_function() {
    if Command::new("nm").arg("--version").output().is_err() {
        println!("SKIP: needs nm; `apt-get install binutils`");
        return;
    }
    let functions = functions();
    assert!(functions.contains(WORKER), "{WORKER} is not what was built");
    for (file, path) in INLINED {
        let name = path.rsplit("::").next().unwrap();
        let text = std::fs::read_to_string(source().join(file)).unwrap();
        let is_there =
            [format!("fn {name}("), format!("fn {name}<")].iter().any(|it| text.contains(it));
        assert!(is_there, "{file} has no function {name}: what must be inlined now?");
        assert!(!functions.contains(path), "{path} is not inlined into {WORKER}");
    }
}

/// Names of the functions of the switch's library that have code in a build without optimisation.
fn functions() -> BTreeSet<String> {
    let unoptimised = "profile.dev.package.tapswitch-switch.opt-level=0";
    let args = ["--package", "tapswitch-switch", "--lib", "--config", unoptimised];
    let library = built(&args, "\"filenames\":[\"", "libtapswitch_switch");
    let symbols = successful(Command::new("nm").arg("--demangle").arg(&library)).stdout;
    String::from_utf8(symbols).unwrap().lines().filter_map(function).collect()
}

/// The function in a line of nm(1), without closures in it.
fn function(line: &str) -> Option<String> {
    let (_, name) = line.split_once(" t ").or_else(|| line.split_once(" T "))?;
    Some(name.split("::{{closure}}").next()?.to_owned())
}

/// The path of the switch's source.
fn source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../crates/switch/src")
}

/// The function that everything is inlined into.
const WORKER: &str = "tapswitch_switch::worker::Worker::burst";
/// What must be inlined, and its source file.
const INLINED: [(&str, &str); 6] = [
    ("worker.rs", "tapswitch_switch::worker::Worker::fill"),
    ("tx/ports.rs", "tapswitch_switch::tx::ports::TxPorts::send"),
    ("tx/ports.rs", "tapswitch_switch::tx::ports::TxPorts::ready"),
    ("tx.rs", "tapswitch_switch::tx::TxPort::send"),
    ("tx/device.rs", "tapswitch_switch::tx::device::TxDevice::send"),
    (
        "tx/device/tap.rs",
        "tapswitch_switch::tx::device::tap::<impl tapswitch_switch::tx::device::Transmit for \
         alloc::sync::Arc<tapswitch_tap::queue::Queue>>::transmit",
    ),
];
