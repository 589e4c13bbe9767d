//! Devices that are misconfigured, each in one way.

use std::num::{NonZeroU16, NonZeroU32};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::Value;
use tapswitch_guest::{Error, Guest, Kernel, Outcome, Series};
use tapswitch_netlink::die_with_parent;
use tapswitch_tap::inspect::Handle;
use tapswitch_tap::{ClassicInstruction, Config, Device, Flags, HeaderLen, Offloads};

use super::{Room, offload};
use crate::support::*;

#[test]
fn a_sound_device_has_nothing_wrong() {
    let Some(room) = room() else { return };
    let _held = room.hold(&t0());
    room.device("set t0 --up").well();
    let said = room.device("doctor t0");
    assert_eq!(said.code, Some(0), "{}", said.out);
    assert!(said.out.contains("1 device: 0 errors, 0 warnings"), "{}", said.out);
    for args in ["doctor nosuch0", "doctor nosuch0 --json"] {
        let said = room.device(args);
        assert_eq!((said.code, said.out.as_str()), (Some(2), ""), "a failure is no finding");
        assert!(said.err.contains("nosuch0") && said.err.contains("not found"), "{}", said.err);
    }
}

#[test]
fn findings_are_lines_with_commands_and_data() {
    let Some(room) = room() else { return };
    let _held = room.hold(&t0());
    let said = room.device("doctor t0");
    assert_eq!(said.code, Some(1));
    let line = said.out.lines().find(|line| line.contains(" down: ")).unwrap();
    assert!(line.starts_with("warning  t0 "), "{line}");
    assert!(line.ends_with("; fix: tapswitch device set t0 --up"), "{line}");
    // Run from another namespace, the command names the device's namespace.
    let elsewhere = Room::new();
    let netns = room.namespace().label();
    let said = elsewhere.device(&format!("doctor --netns {netns} --json"));
    let findings: Value = serde_json::from_str(&said.out).unwrap();
    let down = finding(&findings, "down").unwrap();
    let command = format!("tapswitch device set t0 --netns {netns} --up");
    assert_eq!(
        (down["mend"].as_str(), down["severity"].as_str()),
        (Some(&*command), Some("warning"))
    );
    elsewhere.shell(&command).well();
    assert!(room.netlink().link("t0").unwrap().up);
}

#[test]
fn offloads_that_were_not_asked_for() {
    let Some(room) = room() else { return };
    let most = Offloads::CSUM | Offloads::TSO | Offloads::TSO_ECN;
    for (offloads, rule, severity) in [
        (Offloads::empty(), "no-checksum", "warning"),
        (Offloads::CSUM, "no-trains", "warning"),
        (most, "no-udp-trains", "hint"),
    ] {
        let held = room.hold(&t0().offloads(offloads));
        room.device("set t0 --up").well();
        if rule == "no-udp-trains" && offload(&room, "uso") == "unavailable" {
            skip("UDP trains need Linux 6.2");
            continue;
        }
        let found = finding(&examine(&room), rule).unwrap();
        assert_eq!(found["severity"], severity);
        // ethtool may have switched it off: the attempt to undo that gives the program nothing that
        // it did not request, and afterwards that is known.
        let before = room.show("t0")["offloads"].clone();
        room.shell(found["mend"].as_str().unwrap()).refused(&["t0", "has not requested"]);
        let is_on = |it: &Value| it["state"] == "on";
        for (before, now) in
            before.as_array().unwrap().iter().zip(room.show("t0")["offloads"].as_array().unwrap())
        {
            assert_eq!(is_on(before), is_on(now), "{now}");
        }
        let found = finding(&examine(&room), rule).unwrap();
        assert_eq!(found["mend"], Value::Null, "{found}");
        assert!(found["text"].as_str().unwrap().contains("only the program itself can"), "{found}");
        drop(held);
    }
}

#[test]
fn offloads_that_were_switched_off() {
    let Some(room) = room() else { return };
    let _held = room.hold(&t0());
    room.device("set t0 --up --feature tx-checksum-ip-generic=off").well();
    mends(&room, "no-checksum", "warning");
    assert_eq!(offload(&room, "tso4"), "on", "what builds on it is back too");
}

#[test]
fn a_program_without_a_network_header() {
    let Some(room) = room() else { return };
    let _held = room.hold(&t0().net_header(HeaderLen::None));
    room.device("set t0 --up").well();
    let findings = examine(&room);
    let found = finding(&findings, "no-checksum").unwrap();
    // Before Linux 6.11 other programs get EIO; since then it is only slow.
    let text = found["text"].as_str().unwrap();
    let severity = if text.contains("EIO") { "warning" } else { "hint" };
    assert_eq!((&found["severity"], &found["mend"]), (&severity.into(), &Value::Null));
    assert!(text.contains("IFF_VNET_HDR"));
}

#[test]
fn offloads_of_a_former_program() {
    let Some(room) = room() else { return };
    drop(room.hold(&t0().persistent(true)));
    mends(&room, "stale-offloads", "hint");
    drop(room.hold(&t0().exclusive(false)));
    // A program without support for the header opens the device as before.
    let plain = Flags::TAP | Flags::NO_PI;
    drop(room.namespace().enter(|| Handle::open("t0", plain)).unwrap().unwrap());
    mends(&room, "stale-offloads", "warning");
    room.device("set t0 --vnet-hdr on --offloads all").well();
    room.device("set t0 --vnet-hdr off").well();
    assert!(finding(&examine(&room), "stale-offloads").is_none(), "they go with the header");
    room.device("set t0 --vnet-hdr on --offloads all").well();
    let _held = room.namespace().enter(|| Handle::open("t0", plain)).unwrap().unwrap();
    mends(&room, "stale-offloads", "error");
}

#[test]
fn trains_in_tunnels_behind_a_short_header() {
    let Some(room) = room() else { return };
    let device = room.hold(&t0());
    let handle = borrow(&room);
    handle.set_offloads(Offloads::DEFAULT).unwrap();
    if offload(&room, "tunnel") != "on" {
        skip("trains in tunnels need Linux 6.17");
        return;
    }
    mends(&room, "short-tunnel-header", "error");
    assert_eq!(offload(&room, "uso"), "on", "the others are still on");
    drop(device);
}

#[test]
fn a_header_of_an_odd_length() {
    if !can_run(&["python3"]) {
        return;
    }
    let room = Room::new();
    let mut command: Command = room.namespace().command("python3");
    command.args(["-c", ODD_HEADER]).stdin(Stdio::piped());
    let mut holder = die_with_parent(&mut command).spawn().unwrap();
    let _stdin = holder.stdin.take();
    let mut found = None;
    until("the header is found", || {
        let is_there = room.netlink().link("t0").is_ok() || holder.try_wait().unwrap().is_some();
        found = is_there.then(|| finding(&examine(&room), "odd-header")).flatten();
        found.is_some()
    });
    let found = found.unwrap();
    assert_eq!((&found["severity"], &found["mend"]), (&"error".into(), &Value::Null));
    assert!(found["text"].as_str().unwrap().contains("set to 100000 bytes"), "{found}");
    holder.kill().unwrap();
    holder.wait().unwrap();
}

#[test]
fn a_classic_filter_on_a_device_that_stays() {
    let Some(room) = room() else { return };
    let mut held = room.hold(&t0().packet_info(true));
    held.attach_classic_filter(&[ClassicInstruction::keep(u32::MAX)]).unwrap();
    assert!(finding(&examine(&room), "classic-filter").is_none(), "it goes with the device");
    borrow(&room).set_persistent(true).unwrap();
    let found = finding(&examine(&room), "classic-filter").unwrap();
    assert_eq!((&found["severity"], &found["mend"]), (&"warning".into(), &Value::Null));
    held.detach_classic_filter().unwrap();
    assert!(finding(&examine(&room), "classic-filter").is_none());
    borrow(&room).set_persistent(false).unwrap();
}

#[test]
fn identifiers_and_joined_datagrams() {
    let Some(room) = room() else { return };
    let _held = room.hold(&t0().napi(true));
    room.device("set t0 --up --feature rx-udp-gro-forwarding=on").well();
    mends(&room, "mangle-id-off", "hint");
    mends(&room, "udp-gro-forwarding", "warning");
    mends(&room, "napi-without-gro", "warning");
}

#[test]
fn an_interface_that_is_down_or_without_a_carrier() {
    let Some(room) = room() else { return };
    let _held = room.hold(&t0());
    mends(&room, "down", "warning");
    room.device("set t0 --carrier off").well();
    mends(&room, "no-carrier", "warning");
}

#[test]
fn a_device_that_nobody_reads_and_everybody_may_open() {
    let Some(room) = room() else { return };
    room.device("create t0 --up").well();
    mends(&room, "unread", "hint");
    if has_backpressure(&room) {
        // Linux 7.3 requires privilege if no owner was set.
        assert!(finding(&examine(&room), "open-to-all").is_none());
    } else {
        mends(&room, "open-to-all", "hint");
    }
    room.device("set t0 --offloads all").well();
    mends(&room, "stale-offloads", "hint");
    let findings = examine(&room);
    assert!(finding(&findings, "no-checksum").is_none(), "the mend is no defect: {findings}");
}

#[test]
fn a_ring_that_is_too_short() {
    let Some(room) = room() else { return };
    let device = room.hold(&t0());
    room.device("set t0 --up --txqueuelen 0").well();
    mends(&room, "no-queue-length", "error");
    room.device("set t0 --txqueuelen 2").well();
    assert!(finding(&examine(&room), "short-queue").is_none(), "nothing was lost yet");
    room.flood();
    mends(&room, "short-queue", "warning");
    // Frames that were lost are still reported.
    let findings = examine(&room);
    assert_eq!(finding(&findings, "frames-dropped").unwrap()["severity"], "hint");
    drop(device);
}

#[test]
fn one_queue_and_several() {
    let Some(room) = room() else { return };
    let held = room.hold(&t0());
    if std::thread::available_parallelism().unwrap().get() > 1 {
        let found = finding(&examine(&room), "one-queue").unwrap();
        assert_eq!((&found["severity"], &found["mend"]), (&"hint".into(), &Value::Null));
        assert!(found["text"].as_str().unwrap().contains("created as multi-queue"), "{found}");
    } else {
        skip("one queue is enough for one core");
    }
    room.device("delete t0 --force").well();
    room.device("create t0 --multi-queue").well();
    drop(held);
    let two = NonZeroU16::new(2).unwrap();
    let mut device = room.hold(&t0().exclusive(false).queues(two));
    let findings = examine(&room);
    assert_eq!(finding(&findings, "default-steering").unwrap()["severity"], "hint");
    assert!(finding(&findings, "detached-queues").is_none());
    device.detach_queue(1).unwrap();
    assert_eq!(finding(&examine(&room), "detached-queues").unwrap()["severity"], "hint");
    device.detach_queue(0).unwrap();
    assert_eq!(finding(&examine(&room), "detached-queues").unwrap()["severity"], "warning");
    room.device("set t0 --carrier on").refused(&["all its queues are detached"]);
}

#[test]
fn a_limited_send_buffer() {
    let Some(room) = room() else { return };
    let _held = room.hold(&t0().send_buffer_len(NonZeroU32::new(65_536).unwrap()));
    let findings = examine(&room);
    assert_eq!(finding(&findings, "send-buffer").unwrap()["severity"], "hint");
}

#[test]
fn a_foreign_program_on_our_queues() {
    if !can_run(&["python3"]) {
        return;
    }
    let room = Room::new();
    let two = NonZeroU16::new(2).unwrap();
    let _held: Device = room.hold(&t0().queues(two));
    assert!(finding(&examine(&room), "foreign-queue").is_none(), "two of ours are no stranger's");
    let mut command: Command = room.namespace().command("python3");
    command.args(["-c", JOIN]).stdout(Stdio::piped()).stdin(Stdio::piped());
    let mut stranger = die_with_parent(&mut command).spawn().unwrap();
    // Waiting for it would close this, and it would end by itself.
    let _stdin = stranger.stdin.take();
    until("the stranger has joined", || {
        room.show("t0")["queues"] == 3 || stranger.try_wait().unwrap().is_some()
    });
    // Both programs are reported, with what tells them apart; which one is the stranger cannot be
    // known. That this process has started it may mean that it belongs there.
    let found = finding(&examine(&room), "foreign-queue").unwrap();
    assert_eq!((&found["severity"], &found["mend"]), (&"hint".into(), &Value::Null));
    let text = found["text"].as_str().unwrap();
    for program in [std::process::id(), stranger.id()] {
        assert!(text.contains(&format!("{program} of user 0")), "{text}");
    }
    assert!(text.contains("python3 -c"), "{text}");
    stranger.kill().unwrap();
    stranger.wait().unwrap();
    until("it is alone", || finding(&examine(&room), "foreign-queue").is_none());
}

#[test]
fn a_switch_is_known_by_its_name_and_not_waited_for_long() {
    let Some(room) = room() else { return };
    let directory = directory();
    let socket = directory.path().join("other.sock").display().to_string();
    let port = "1=tap:t0,offload=off";
    let args = ["switch", "--name", "lab", "--socket", &socket, "--port", port];
    let mut switch = Daemon::tapswitch(room.namespace(), directory.path(), &args);
    let text = |rule: &str| {
        let said = room.device(&format!("doctor t0 --socket {socket} --json"));
        let findings: Value = serde_json::from_str(&said.out).unwrap_or_default();
        findings.as_array().and_then(|_| finding(&findings, rule)).map(|it| it["text"].clone())
    };
    let said = eventually("the switch answers", || {
        text("no-checksum").filter(|text| text.as_str().unwrap().contains("port 1 of switch lab"))
    });
    assert!(said.as_str().unwrap().contains("has offload=off: remove that option"), "{said}");
    switch.signal(Signal::STOP);
    let began = Instant::now();
    let said = text("unseen");
    switch.signal(Signal::CONT);
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    let said = said.unwrap();
    assert!(said.as_str().unwrap().contains("no answer within 1 s"), "{said}");
    switch.stop();
}

/// Anybody with a user namespace can choose names of devices; root runs what the doctor prints.
#[test]
fn names_that_a_shell_or_a_terminal_would_obey() {
    let Some(room) = room() else { return };
    let tap = Flags::TAP | Flags::NO_PI | Flags::VNET_HDR;
    for name in [";reboot;#", "-x", "a'$(id)\"", "t\u{1b}[2J"] {
        let handle = room.namespace().enter(|| Handle::open(name, tap)).unwrap().unwrap();
        for command in ["doctor", "list"] {
            let said = room.device(command);
            assert!(!said.out.contains('\u{1b}'), "{:?}", said.out);
        }
        let said = room.device("doctor --json");
        let findings: Value = serde_json::from_str(&said.out).unwrap();
        let findings = findings.as_array().unwrap().iter();
        let mut of_it = findings.filter(|it| it["device"] == name && it["rule"] == "down");
        let mend = of_it.next().unwrap()["mend"].clone();
        match mend.as_str() {
            Some(command) => {
                room.shell(command).well();
                assert!(room.netlink().link(name).unwrap().up, "{command}");
            }
            None => assert!(name.contains('\u{1b}'), "{name}"),
        }
        drop(handle);
    }
}

/// Linux accepts nearly any bytes as a name.
#[test]
fn a_name_that_is_no_text_hides_nothing_but_itself() {
    if !can_run(&["python3"]) {
        return;
    }
    let room = Room::new();
    room.device("create t0 --owner 0").well();
    let netns = room.namespace().label().to_owned();
    assert_eq!(room.device(&format!("doctor --netns {netns}")).code, Some(0));
    let script = JOIN.replace("b\"t0\"", "b\"t\\xffp\"");
    let mut command: Command = room.namespace().command("python3");
    command.args(["-c", &script]).stdin(Stdio::piped());
    let mut holder = die_with_parent(&mut command).spawn().unwrap();
    let mut netlink = room.netlink();
    until("it is there", || netlink.links().is_ok() && netlink.unread_count() == 1);
    assert_eq!(room.show("t0")["name"], "t0");
    let listed = room.device(&format!("list --netns {netns}"));
    assert!(listed.out.contains("t0") && listed.err.contains("not UTF-8"), "{}", listed.err);
    let said = room.device(&format!("doctor --netns {netns} --json"));
    assert_eq!(said.code, Some(1), "not all of it was seen");
    let findings: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(finding(&findings, "unread-namespace").unwrap()["severity"], "warning");
    holder.kill().unwrap();
    holder.wait().unwrap();
}

#[test]
fn an_mtu_without_room_for_the_tags() {
    let Some(room) = room() else { return };
    room.device("create t0").well();
    let mut netlink = room.netlink();
    netlink.create_bridge("br0").unwrap();
    netlink.set_bridge("t0", "br0").unwrap();
    if let Err(error) = netlink.create_vlan("outer", "br0", 5) {
        skip(&format!("no VLANs here: {error}"));
        return;
    }
    netlink.create_vlan("inner", "outer", 6).unwrap();
    mends(&room, "tag-mtu", "warning");
}

#[test]
fn back_pressure_that_has_no_effect_or_is_not_used() {
    let Some(room) = room() else { return };
    if room.device("create t0 --up").code != Some(0) || !has_backpressure(&room) {
        skip("backpressure needs Linux 7.3");
        return;
    }
    mends(&room, "no-backpressure", "hint");
    assert_eq!(room.show("t0")["backpressure"], "in-force");
    room.device("set t0 --qdisc noqueue").well();
    mends(&room, "no-qdisc", "warning");
    assert_eq!(room.show("t0")["backpressure"], "in-force");
}

/// The same on a kernel that has backpressure, VLANs and trains in tunnels.
#[test]
fn devices_on_linux_7_3() {
    if tapswitch_guest::inside().is_some() {
        return;
    }
    let outcome = match in_guest() {
        Ok(outcome) => outcome,
        Err(Error::Unavailable { what, remedy }) => {
            skip(&format!("{what}; {remedy}"));
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let needed = ["back_pressure_that_has_no_effect", "an_mtu_without_room", "trains_in_tunnels"];
    for line in outcome.output.lines().filter(|line| line.starts_with("SKIP:")) {
        println!("{line}");
    }
    assert_eq!(outcome.status, 0, "{}", outcome.output);
    for test in needed {
        assert!(outcome.output.contains(test), "{test} did not run: {}", outcome.output);
    }
    for word in ["Linux 7.3", "Linux 6.17", "no VLANs"] {
        assert!(!outcome.output.contains(word), "{}", outcome.output);
    }
}

fn in_guest() -> Result<Outcome, Error> {
    let kernel = Kernel::of(Series::V7_3)?;
    let tests = std::env::current_exe().unwrap();
    Guest::new(&kernel, tests)
        .file(BINARY, BINARY)
        .modules(["tun", "veth", "bridge", "8021q"])
        .args(["device::doctor", "device::back_pressure", "--skip", "on_linux_7_3"])
        .args(["--test-threads", "1", "--nocapture"])
        .memory_mib(1024)
        .cpus(2)
        .run()
}

fn has_backpressure(room: &Room) -> bool {
    room.show("t0")["backpressure"] != "unavailable"
}

fn room() -> Option<Room> {
    can_run(&[]).then(Room::new)
}

fn t0() -> Config {
    Config::new("t0".parse().unwrap())
}

/// A handle of the device that this process holds.
fn borrow(room: &Room) -> Handle {
    let view = room.show("t0");
    let fd = view["holders"][0]["fd"].as_i64().unwrap();
    Handle::borrow(std::process::id(), i32::try_from(fd).unwrap()).unwrap()
}

/// The doctor's findings about `t0`.
fn examine(room: &Room) -> Value {
    let said = room.device("doctor t0 --json");
    let findings: Value = serde_json::from_str(&said.out).unwrap();
    let is_wrong = findings.as_array().unwrap().iter().any(|it| it["severity"] != "hint");
    assert_eq!(said.code, Some(is_wrong.into()), "{findings}");
    findings
}

fn finding(findings: &Value, rule: &str) -> Option<Value> {
    findings.as_array().unwrap().iter().find(|it| it["rule"] == rule).cloned()
}

/// Checks that the finding is there, and that its command removes it.
fn mends(room: &Room, rule: &str, severity: &str) -> Value {
    let before = examine(room);
    let found = finding(&before, rule).unwrap_or_else(|| panic!("no {rule}: {before}"));
    assert_eq!(found["severity"], severity, "{found}");
    room.shell(found["mend"].as_str().unwrap()).well();
    until(&format!("{rule} is mended"), || finding(&examine(room), rule).is_none());
    found
}

/// Creates the device `t0` with a header of 100,000 bytes and waits until its input ends.
const ODD_HEADER: &str = r#"
import fcntl, os, struct, sys
tun = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(tun, 0x400454ca, struct.pack("16sH22x", b"t0", 0x5002))
fcntl.ioctl(tun, 0x400454d8, struct.pack("i", 100000))
sys.stdin.read()
"#;

/// Joins the multi-queue device `t0` and waits until its input ends.
const JOIN: &str = r#"
import fcntl, os, struct, sys
tun = os.open("/dev/net/tun", os.O_RDWR)
fcntl.ioctl(tun, 0x400454ca, struct.pack("16sH22x", b"t0", 0x5102))
sys.stdin.read()
"#;
