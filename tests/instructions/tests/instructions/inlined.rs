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
use std::path::Path;
use std::process::Command;

use crate::common::{built, successful};

#[test]
fn from_read_to_write_there_is_one_function() {
    for build in BUILDS {
        let Build { source, path, witness, inlined, .. } = build;
        let Some(functions) = build.functions() else {
            println!("SKIP: needs nm; `apt-get install binutils`");
            return;
        };
        assert!(functions.contains(&format!("{path}::{witness}")), "{witness} was not built");
        for (file, function) in inlined {
            let name = function.rsplit("::").next().unwrap();
            let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(source).join(file);
            let text = std::fs::read_to_string(&file).unwrap();
            let is_there =
                [format!("fn {name}("), format!("fn {name}<")].iter().any(|it| text.contains(it));
            let file = file.display();
            assert!(is_there, "{file} has no function {name}: what must be inlined now?");
            let function = function.replace("{crate}", path);
            assert!(!functions.contains(&function), "{function} is not inlined");
        }
    }
}

impl Build {
    /// Names of the functions that have code in a build without optimisation. `None` without nm(1).
    fn functions(&self) -> Option<BTreeSet<String>> {
        Command::new("nm").arg("--version").output().ok()?;
        let unoptimised = format!("profile.dev.package.{}.opt-level=0", self.package);
        let target = self.target.iter().copied();
        let args = ["--package", self.package, "--config", &unoptimised].into_iter().chain(target);
        let (key, name) = self.file;
        let file = built(&args.collect::<Vec<_>>(), key, name);
        let symbols = successful(Command::new("nm").arg("--demangle").arg(&file)).stdout;
        Some(String::from_utf8(symbols).unwrap().lines().filter_map(function).collect())
    }
}

/// The function in a line of nm(1), without closures in it.
fn function(line: &str) -> Option<String> {
    let (_, name) = line.split_once(" t ").or_else(|| line.split_once(" T "))?;
    Some(name.split("::{{closure}}").next()?.to_owned())
}

/// What is built, and which functions must be inlined there.
struct Build {
    package: &'static str,
    target: &'static [&'static str],
    /// Where cargo names the built file, and a part of its name.
    file: (&'static str, &'static str),
    /// The directory of the crate's source.
    source: &'static str,
    /// The crate's name as a path.
    path: &'static str,
    /// A function that has code in any build.
    witness: &'static str,
    /// What must be inlined, by source file.
    inlined: &'static [(&'static str, &'static str)],
}

const BUILDS: [Build; 3] = [
    Build {
        package: "tapswitch-switch",
        target: &["--lib"],
        file: ("\"filenames\":[\"", "libtapswitch_switch"),
        source: "crates/switch/src",
        path: "tapswitch_switch",
        // All of them are inlined into this one.
        witness: "worker::Worker::burst",
        inlined: &[
            ("worker.rs", "{crate}::worker::Worker::fill"),
            ("tx/ports.rs", "{crate}::tx::ports::TxPorts::send"),
            ("tx/ports.rs", "{crate}::tx::ports::TxPorts::ready"),
            ("tx.rs", "{crate}::tx::TxPort::send"),
            ("tx/device.rs", "{crate}::tx::device::TxDevice::send"),
            (
                "tx/device/tap.rs",
                "{crate}::tx::device::tap::<impl {crate}::tx::device::Transmit for \
                 alloc::sync::Arc<tapswitch_tap::queue::Queue>>::transmit",
            ),
        ],
    },
    Build {
        package: "tapswitch-netdev",
        target: &["--lib"],
        file: ("\"filenames\":[\"", "libtapswitch_netdev"),
        source: "crates/netdev/src",
        path: "tapswitch_netdev",
        witness: "port::PacketPort::send_packets",
        // Receiving calls the C library.
        inlined: &[("port.rs", "{crate}::port::PacketPort::send")],
    },
    // A program that uses the crate, since some of these are generic.
    Build {
        package: "tapswitch-tap",
        target: &["--example", "echo"],
        file: ("\"executable\":\"", "examples/echo"),
        source: "crates/tap/src",
        path: "tapswitch_tap",
        witness: "queue::Queue::why_not",
        inlined: &[
            ("queue.rs", "{crate}::queue::Queue::recv"),
            ("queue.rs", "{crate}::queue::Queue::send"),
            ("queue.rs", "{crate}::queue::received"),
            ("engine/drain.rs", "{crate}::engine::drain::Drain::recv"),
            ("engine/drain.rs", "{crate}::engine::drain::Drain::send"),
            ("engine/drain.rs", "{crate}::engine::drain::fill"),
            ("engine/drain.rs", "{crate}::engine::drain::fill_one"),
            ("engine/drain.rs", "{crate}::engine::drain::send_frame"),
            ("engine/uring.rs", "{crate}::engine::uring::Uring::recv"),
            ("engine/uring.rs", "{crate}::engine::uring::Uring::recv_alone"),
            ("engine/uring.rs", "{crate}::engine::uring::Uring::send"),
            ("engine/mod.rs", "{crate}::engine::Engine::recv"),
            ("engine/mod.rs", "{crate}::engine::Engine::send"),
        ],
    },
];
