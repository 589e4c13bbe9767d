//! A test with an independent controller: os-ken's `simple_switch_13` from PyPI.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic fails a test")]

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::common::*;
use tapswitch_netlink::die_with_parent;
use tapswitch_openflow::multipart::FlowStatsRequest;
use tapswitch_openflow::{MultipartReplyBody, MultipartRequestBody};
use tapswitch_switch::Endpoint;

/// The last release with a command that starts applications.
const OS_KEN: &str = "os-ken==2.8.1";
/// The last release that includes the application.
const WITH_APPLICATION: &str = "os-ken==1.4.0";

#[test]
fn simple_switch_13_joins_two_hosts() {
    if !can_run() {
        return;
    }
    let os_ken = match OsKen::start() {
        Ok(os_ken) => os_ken,
        Err(reason) => {
            skip(&reason);
            return;
        }
    };
    let lab = Lab::with(2, |config| config.controllers = vec![Endpoint::tcp(os_ken.address)]);
    ping(lab.host(1), lab.host(2));
    // It adds a rule for each direction, by which further frames are forwarded without it.
    let mut controller = lab.switch.controller();
    until("it has added its rules", || {
        ping(lab.host(1), lab.host(2));
        rules(&mut controller) >= 3
    });
    tcp(lab.host(1), lab.host(2), 3_000_000);
    tcp(lab.host(2), lab.host(1), 3_000_000);
    assert!(lab.switch.report().controllers[0].connected);
}

fn rules(controller: &mut Controller) -> usize {
    match controller.statistics(MultipartRequestBody::Flow(FlowStatsRequest::default())) {
        MultipartReplyBody::Flow(flows) => flows.len(),
        other => panic!("{other:?}"),
    }
}

/// A running os-ken, stopped on drop.
struct OsKen {
    address: SocketAddr,
    child: Child,
}

impl OsKen {
    fn start() -> Result<Self, String> {
        let home = install()?;
        let application = home.join("os_ken/app/simple_switch_13.py");
        // It cannot choose a free port itself, and another process may take the one found.
        for _ in 0..5 {
            let address = free_address();
            let mut command = Command::new(home.join("venv/bin/osken-manager"));
            command.arg("--ofp-listen-host=127.0.0.1");
            command.arg(format!("--ofp-tcp-listen-port={}", address.port()));
            command.arg(&application).stdin(Stdio::null());
            command.stdout(Stdio::null()).stderr(Stdio::null());
            let child = die_with_parent(&mut command).spawn();
            let mut os_ken = Self { address, child: child.map_err(|error| error.to_string())? };
            if os_ken.listens() {
                return Ok(os_ken);
            }
        }
        Err("os-ken does not start here".to_owned())
    }

    /// Waits until it listens or has ended.
    fn listens(&mut self) -> bool {
        eventually("os-ken listens", || match self.child.try_wait().unwrap() {
            Some(_) => Some(false),
            None => TcpStream::connect(self.address).ok().map(|_| true),
        })
    }
}

impl Drop for OsKen {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_address() -> SocketAddr {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap()
}

/// Installs os-ken once for all runs. Returns its path.
fn install() -> Result<PathBuf, String> {
    let home = Path::new(env!("CARGO_TARGET_TMPDIR")).join("os-ken");
    let lock = fs::create_dir_all(&home).and_then(|()| fs::File::open(&home));
    let lock = lock.map_err(|error| error.to_string())?;
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let done = home.join("done");
    if done.exists() {
        return Ok(home);
    }
    let python = home.join("venv/bin/python");
    let python = python.to_str().ok_or("an odd path")?;
    let pip = [python, "-m", "pip", "--quiet", "--timeout=20", "--retries=2"];
    run(&home, &["python3", "-m", "venv", "--clear", "venv"])?;
    run(&home, &[&pip[..], &["install", OS_KEN]].concat())?;
    run(&home, &[&pip[..], &["download", "--no-deps", WITH_APPLICATION]].concat())?;
    let wheel = fs::read_dir(&home).unwrap().find_map(|entry| {
        let name = entry.unwrap().file_name().into_string().unwrap();
        name.ends_with(".whl").then_some(name)
    });
    let wheel = wheel.ok_or("os-ken came without a wheel")?;
    run(&home, &[python, "-m", "zipfile", "-e", &wheel, "."])?;
    fs::write(&done, "").unwrap();
    Ok(home)
}

fn run(home: &Path, command: &[&str]) -> Result<(), String> {
    let failed =
        |reason: &str| format!("os-ken cannot be installed: {}: {reason}", command.join(" "));
    let output = Command::new(command[0]).args(&command[1..]).current_dir(home).output();
    let output = output.map_err(|error| failed(&error.to_string()))?;
    let why = String::from_utf8_lossy(&output.stderr).into_owned();
    output.status.success().then_some(()).ok_or_else(|| failed(why.trim()))
}
