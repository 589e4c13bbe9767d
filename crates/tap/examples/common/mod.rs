//! Shared by the examples: options, end of the program, and setting up the interface.
#![allow(dead_code, reason = "each example uses a part")]

use std::error::Error;
use std::fmt::Display;
use std::net::IpAddr;
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;
use tapswitch_netlink::{Namespace, Netlink};

/// MAC address of the simulated station.
pub(crate) const STATION: [u8; 6] = [2, 0, 0, 0, 0, 2];

/// Ends an example and prints the error for people: an error returned from `main` would be printed
/// in its debug form.
pub(crate) fn finish(outcome: Result<(), Box<dyn Error>>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The command line: names, and `--seconds N`.
#[derive(Clone)]
pub(crate) struct Options {
    names: Vec<String>,
    deadline: Option<Instant>,
    stopped: Arc<AtomicBool>,
}

impl Options {
    /// Parses the command line, and lets Ctrl-C end the example cleanly.
    pub(crate) fn from_args(usage: &str) -> Result<Self, Box<dyn Error>> {
        let (mut names, mut deadline) = (Vec::new(), None);
        let mut args = std::env::args().skip(1);
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--seconds" => {
                    let seconds = args.next().ok_or("--seconds: a number is missing")?;
                    let seconds = parse("--seconds", &seconds)?;
                    deadline = Instant::now().checked_add(Duration::from_secs(seconds));
                }
                name if !name.starts_with('-') => names.push(name.to_owned()),
                _ => return Err(format!("usage: {usage} [--seconds N]").into()),
            }
        }
        let stopped = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM] {
            flag::register(signal, Arc::clone(&stopped))?;
        }
        Ok(Self { names, deadline, stopped })
    }

    /// The name at `index` of the command line, or `default`.
    pub(crate) fn name<'a>(&'a self, index: usize, default: &'a str) -> &'a str {
        self.names.get(index).map_or(default, String::as_str)
    }

    /// True when the time is over, or Ctrl-C was pressed.
    pub(crate) fn is_over(&self) -> bool {
        self.time_left() == Some(Duration::ZERO) || self.stopped.load(Ordering::Relaxed)
    }

    /// How long to wait before checking [`Self::is_over`] again.
    pub(crate) fn patience(&self) -> Duration {
        let often = Duration::from_millis(200);
        self.time_left().map_or(often, |left| left.min(often))
    }

    /// The remaining time; `None` without `--seconds`.
    pub(crate) fn time_left(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }
}

/// Parses an argument; the error names it.
pub(crate) fn parse<T: FromStr<Err: Display>>(what: &str, text: &str) -> Result<T, String> {
    text.parse().map_err(|error| format!("{what} {text}: {error}"))
}

/// Sets the interface up, with the address `own`/24 and a permanent neighbour entry for `behind` at
/// [`STATION`]. All of it is deleted with the interface.
pub(crate) fn set_up(
    namespace: &Namespace,
    interface: &str,
    own: &str,
    behind: &str,
) -> Result<(), Box<dyn Error>> {
    let mut netlink = Netlink::open(namespace)?;
    netlink.set_up(interface)?;
    netlink.add_address(interface, own.parse::<IpAddr>()?, 24)?;
    netlink.set_neighbour(interface, behind.parse()?, STATION)?;
    Ok(())
}

/// Exchanges source and destination of a frame. Checksums stay correct, as they do not depend on
/// the order of the addresses. Returns `false` for frames that are not IP.
pub(crate) fn turn_round(frame: &mut [u8]) -> bool {
    let mut at = 12;
    while matches!(frame.get(at..at + 2), Some([0x81, 0] | [0x88, 0xa8])) {
        at += 4;
    }
    let (source, len) = match frame.get(at..at + 2) {
        Some([0x08, 0x00]) => (at + 2 + 12, 4),
        Some([0x86, 0xdd]) => (at + 2 + 8, 16),
        _ => return false,
    };
    swap(frame, source, len) && swap(frame, 0, 6)
}

/// Exchanges the `len` bytes at `at` with those after them.
fn swap(frame: &mut [u8], at: usize, len: usize) -> bool {
    let Some(both) = frame.get_mut(at..at + 2 * len) else { return false };
    both.rotate_left(len);
    true
}
