//! Tests of file monitors: their content as read by tshark, rotation, and full disks.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic fails a test")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::*;
use tapswitch_openflow::{
    Action, Body, Delivery, GroupModCommand, MultipartReplyBody, MultipartRequestBody, PortNo,
    PortState, Shape,
};
use tapswitch_switch::FailMode;
use tapswitch_switch::report::{BucketReport, CountReport, FileReport};
use tapswitch_wire::{EtherType, MacAddr, NetHeader, Tag};

/// The port of the file.
const FILE: u32 = 3;

/// Two hosts, whose traffic is copied to a file.
struct Recorded {
    switch: Running,
    hosts: Vec<Host>,
    folder: tempfile::TempDir,
}

impl Recorded {
    fn new(options: &str) -> Self {
        Self::with(options, &[Delivery::Lossless { stall_ms: 0 }.action()])
    }

    /// A lab with the actions `shape` for the copies.
    fn with(options: &str, shape: &[Action]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self::within(folder, options, shape)
    }

    fn within(folder: tempfile::TempDir, options: &str, shape: &[Action]) -> Self {
        let mut hosts: Vec<_> = (1..=2).map(Host::new).collect();
        let tap = |host: &Host, number: u32| format!("{number}=tap:eth0,netns={}", host.name());
        let file = format!("{FILE}=pcapng:{}{options}", folder.path().join("web.pcapng").display());
        let ports = [tap(&hosts[0], 1), tap(&hosts[1], 2), file];
        let switch = Running::start(config(&ports));
        hosts.iter_mut().for_each(Host::add_address);
        introduce(&mut hosts);
        let copy = [shape, &[output(FILE)]].concat();
        let group =
            |id, to| group_all(GroupModCommand::Add, id, vec![vec![output(to)], copy.clone()]);
        let rule = |from, id| Body::FlowMod(rule(100, in_port(from), vec![to_group(id)]));
        switch.controller().apply(vec![group(1, 2), group(2, 1), rule(1, 1), rule(2, 2)]);
        Self { switch, hosts, folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("web.pcapng")
    }

    fn report(&self) -> FileReport {
        self.switch.port(FILE).file.unwrap()
    }

    /// The file's report, when all copies are written.
    fn written(&self) -> FileReport {
        until("all copies are written", || {
            let port = self.switch.port(FILE);
            let in_file = port.file.unwrap().packets;
            port.pressure.queued == CountReport::default() && in_file == port.tx.packets
        });
        self.report()
    }

    /// The outcome of the copies, when all are accounted for: packets copied, delivered, dropped by
    /// name, and queued.
    fn ledger(&self) -> (u64, u64, BTreeMap<String, u64>, u64) {
        let taps = eventually("a ledger that adds up", || {
            let taps = self.switch.taps();
            taps.iter().all(|tap| tap.copies.iter().all(is_exact)).then_some(taps)
        });
        let (mut sums, mut drops) = ([0; 3], BTreeMap::new());
        for copy in taps.iter().flat_map(|tap| &tap.copies) {
            let counts = [copy.count, copy.delivered, copy.queued];
            sums.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count.packets);
            for (reason, count) in &copy.packet_drops {
                *drops.entry(reason.clone()).or_default() += count;
            }
        }
        (sums[0], sums[1], drops, sums[2])
    }

    /// The file's report, when no packet is in flight between the hosts any more: the end of a
    /// connection is acknowledged after its processes are gone, and before a datagram sent now.
    fn settled(&self) -> FileReport {
        ping(&self.hosts[0], &self.hosts[1]);
        let known: Vec<_> = self.hosts.iter().map(Host::frames).collect();
        until("the switch has counted what the hosts have", || {
            let ports = [1, 2].map(|port| self.switch.port(port));
            ports.iter().map(|port| [port.tx.frames, port.rx.frames]).eq(known.iter().copied())
        });
        self.written()
    }

    /// Sends datagrams of 1,000 bytes from one host to the other.
    fn send(&self, count: usize) {
        let [a, b] = &self.hosts[..] else { unreachable!() };
        let (from, to) = (udp(a, a.ip(), 0), udp(b, b.ip(), 0));
        for _ in 0..count {
            from.send_to(&[7; 1000], to.local_addr().unwrap()).unwrap();
            to.recv_from(&mut [0; 2000]).unwrap();
        }
    }

    /// Names of the files; finished ones by their numbers.
    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.folder.path()).unwrap();
        let name = |name: &str| match name.rsplit_once('_') {
            Some((numbered, _)) => numbered.to_owned(),
            None => name.to_owned(),
        };
        let mut names: Vec<_> =
            entries.map(|it| name(it.unwrap().file_name().to_str().unwrap())).collect();
        names.sort();
        names
    }

    fn close(&mut self) {
        self.switch.stop();
    }
}

/// Whether all copies are accounted for, in frames and in packets.
fn is_exact(copy: &BucketReport) -> bool {
    let sum = |drops: &BTreeMap<String, u64>| drops.values().sum::<u64>();
    let BucketReport { count, delivered, queued, drops, packet_drops, .. } = copy;
    count.frames == delivered.frames + queued.frames + sum(drops)
        && count.packets == delivered.packets + queued.packets + sum(packet_drops)
}

/// The packets of a file as read by tshark without errors: one line per packet with these fields.
fn tshark(file: &Path, fields: &[&str]) -> Vec<Vec<String>> {
    let checks = ["ip.check_checksum:TRUE", "tcp.check_checksum:TRUE", "udp.check_checksum:TRUE"];
    let mut command = Command::new("tshark");
    command.args(["-n", "-T", "fields", "-r"]).arg(file);
    command.args(checks.iter().flat_map(|check| ["-o", check]));
    command.args(fields.iter().flat_map(|field| ["-e", field]));
    let output = command.output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let lines = String::from_utf8(output.stdout).unwrap();
    lines.lines().map(|line| line.split('\t').map(str::to_owned).collect()).collect()
}

fn number(text: &str) -> usize {
    text.parse().unwrap_or_else(|_| panic!("'{text}' is no number"))
}

fn has_tshark() -> bool {
    Command::new("tshark").arg("--version").output().is_ok() || skip("needs tshark")
}

/// The numbers of the statistics block at the end of a file: received, dropped, delivered.
fn statistics(file: &Path) -> [u64; 3] {
    let bytes = fs::read(file).unwrap();
    let (mut at, mut last) = (0, 0..0);
    while let Some(len) = tapswitch_pcapng::next_block(&bytes[at..]) {
        (last, at) = (at..at + len, at + len);
    }
    assert_eq!(at, bytes.len(), "whole blocks");
    let block = &bytes[last];
    assert_eq!(block[..4], 5u32.to_ne_bytes(), "the last block");
    let (mut options, mut numbers) = (&block[20..block.len() - 4], [None; 3]);
    while let [a, b, c, d, rest @ ..] = options {
        let (code, len) = (u16::from_ne_bytes([*a, *b]), usize::from(u16::from_ne_bytes([*c, *d])));
        let place = [4, 5, 8].iter().position(|known| *known == code);
        if let Some(place) = place {
            numbers[place] = Some(u64::from_ne_bytes(rest[..8].try_into().unwrap()));
        }
        options = &rest[len.next_multiple_of(4)..];
    }
    numbers.map(Option::unwrap)
}

#[test]
fn a_file_has_the_packets_as_on_a_wire_in_order_and_what_was_lost() {
    if !can_run() || !has_tshark() {
        return;
    }
    let mut lab = Recorded::new("");
    ping(&lab.hosts[0], &lab.hosts[1]);
    tcp(&lab.hosts[0], &lab.hosts[1], 5_000_000);
    tcp(&lab.hosts[1], &lab.hosts[0], 2_000_000);
    let report = lab.settled();
    assert_eq!((report.state.as_str(), report.lost), ("writing", 0));
    let port = lab.switch.port(FILE);
    assert!(port.kind == "pcapng" && port.name == "web" && port.drops.is_empty(), "{port:?}");
    assert_eq!((port.rx.frames, port.offloads.as_str()), (0, "none"));
    let of_hosts = lab.switch.port(1).tx.packets + lab.switch.port(2).tx.packets;
    assert_eq!(report.packets, of_hosts, "a packet for each of the originals'");
    lab.close();
    let fields = [
        "frame.len",
        "frame.cap_len",
        "ip.checksum.status",
        "tcp.checksum.status",
        "frame.time_delta",
    ];
    let packets = tshark(&lab.path(), &fields);
    assert_eq!(packets.len() as u64, report.packets);
    for packet in &packets {
        let [len, cap_len, ip, tcp, delta] = &packet[..] else { panic!("{packet:?}") };
        assert!(number(len) <= 1514 && len == cap_len, "{packet:?}");
        assert!(ip != "0" && tcp != "0", "a wrong checksum: {packet:?}");
        assert!(!delta.starts_with('-'), "out of order: {packet:?}");
    }
    assert!(packets.iter().filter(|packet| packet[0] == "1514").count() > 3_000, "full packets");
    let wrong =
        tshark_filtered(&lab.path(), "tcp.analysis.lost_segment || tcp.analysis.ack_lost_segment");
    assert_eq!(wrong, 0, "the flow is whole and in order");
    let [received, dropped, delivered] = statistics(&lab.path());
    assert_eq!([received, dropped, delivered], [report.packets, 0, report.packets]);
    assert_eq!(lab.names(), ["web.pcapng"]);
}

fn tshark_filtered(file: &Path, filter: &str) -> usize {
    let mut command = Command::new("tshark");
    let output = command.args(["-n", "-r"]).arg(file).args(["-Y", filter]).output().unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().count()
}

#[test]
fn trains_stay_whole_where_that_is_asked_for() {
    if !can_run() || !has_tshark() {
        return;
    }
    let mut lab = Recorded::new(",wire-size=off");
    ping(&lab.hosts[0], &lab.hosts[1]);
    tcp(&lab.hosts[0], &lab.hosts[1], 5_000_000);
    until("all copies are written", || lab.report().packets == lab.switch.port(FILE).tx.frames);
    lab.close();
    let lens = tshark(&lab.path(), &["frame.len"]);
    assert!(lens.iter().any(|len| number(&len[0]) > 10_000), "{} frames", lens.len());
}

#[test]
fn packets_are_cut_to_the_snaplen_of_the_port_or_of_the_policy_and_keep_their_length() {
    if !can_run() || !has_tshark() {
        return;
    }
    let truncate = Shape::Truncate { len: 80 }.action();
    for (options, shape) in [(",snaplen=80", &[][..]), ("", std::slice::from_ref(&truncate))] {
        let mut lab = Recorded::with(options, shape);
        ping(&lab.hosts[0], &lab.hosts[1]);
        tcp(&lab.hosts[0], &lab.hosts[1], 300_000);
        lab.written();
        lab.close();
        let lens = tshark(&lab.path(), &["frame.len", "frame.cap_len"]);
        assert!(lens.iter().any(|len| len[0] == "1514"), "{options}");
        assert!(lens.iter().all(|len| number(&len[1]) == number(&len[0]).min(80)), "{options}");
    }
}

#[test]
fn one_file_follows_the_other_and_the_oldest_go() {
    if !can_run() || !has_tshark() {
        return;
    }
    let mut lab = Recorded::new(",rotate-size=64K,keep=2");
    lab.send(600);
    let report = lab.written();
    assert!(report.files >= 9, "{report:?}");
    let last = report.files;
    let expected =
        ["web.pcapng".to_owned(), format!("web_{:05}", last - 1), format!("web_{last:05}")];
    assert_eq!(lab.names(), expected);
    lab.close();
    let mut packets = 0;
    for entry in fs::read_dir(lab.folder.path()).unwrap() {
        let path = entry.unwrap().path();
        assert!(fs::metadata(&path).unwrap().len() <= 64 << 10, "{}", path.display());
        let [_, dropped, delivered] = statistics(&path);
        assert_eq!(tshark(&path, &["frame.len"]).len() as u64, delivered);
        assert_eq!(dropped, 0);
        packets += delivered;
    }
    assert!(packets < report.packets, "the oldest are gone");
    // The rest becomes a finished file of the next run, and counts.
    let folder = std::mem::replace(&mut lab.folder, tempfile::tempdir().unwrap());
    let again = Recorded::within(folder, ",rotate-size=64K,keep=2", &[]);
    let expected =
        ["web.pcapng".to_owned(), format!("web_{last:05}"), format!("web_{:05}", last + 1)];
    assert_eq!(again.names(), expected);
}

#[test]
fn files_follow_each_other_by_time_when_there_is_something_in_them() {
    if !can_run() {
        return;
    }
    let lab = Recorded::new(",rotate-time=1s");
    lab.send(1);
    until("a file is finished", || lab.report().files == 1);
    lab.send(1);
    until("another one is", || lab.report().files == 2);
    assert_eq!(lab.names(), ["web.pcapng", "web_00001", "web_00002"]);
}

#[test]
fn a_limit_ends_the_recording_and_closes_the_port() {
    if !can_run() {
        return;
    }
    let lab = Recorded::new(",max-size=64K");
    lab.send(200);
    until("the port is closed", || lab.switch.port(FILE).state == "no-link");
    let report = lab.report();
    assert!(report.state == "finished" && report.bytes <= 64 << 10, "{report:?}");
    assert!(report.packets >= 55, "{report:?}");
    assert!(report.reason.as_ref().unwrap().contains("max-size"));
    assert!(fs::metadata(lab.path()).unwrap().len() <= (64 << 10) + 200);
    let before = lab.switch.drops(FILE, "port_down");
    lab.send(10);
    until("copies are dropped by name", || lab.switch.drops(FILE, "port_down") >= before + 10);
    assert_eq!(statistics(&lab.path())[2], report.packets);
    // Packets that workers held are settled a moment later.
    until("nothing waits", || lab.ledger().3 == 0);
    let (copied, written, drops, _) = lab.ledger();
    assert_eq!(written, report.packets);
    assert_eq!(drops, BTreeMap::from([("port_down".to_owned(), copied - written)]));
}

#[test]
fn a_file_that_ends_anywhere_is_good_up_to_there() {
    if !can_run() || !has_tshark() {
        return;
    }
    let lab = Recorded::new("");
    lab.send(20);
    let report = lab.written();
    // The worst case of a switch that was killed.
    let mut bytes = fs::read(lab.path()).unwrap();
    bytes.truncate(bytes.len() - 7);
    let cut = lab.folder.path().join("cut.pcapng");
    fs::write(&cut, &bytes).unwrap();
    let output = Command::new("tshark").args(["-n", "-r"]).arg(&cut).output().unwrap();
    let lines = String::from_utf8(output.stdout).unwrap().lines().count() as u64;
    assert_eq!(lines, report.packets - 1, "{}", String::from_utf8_lossy(&output.stderr));
    fs::write(&cut, fs::read(lab.path()).unwrap()).unwrap();
    assert_eq!(tshark(&cut, &["frame.len"]).len() as u64, report.packets, "without an end");
}

#[test]
fn a_file_that_was_removed_is_followed_by_another_one() {
    if !can_run() {
        return;
    }
    let lab = Recorded::new("");
    lab.send(5);
    lab.written();
    fs::remove_file(lab.path()).unwrap();
    until("another file begins", || {
        lab.send(1);
        lab.path().exists()
    });
    lab.send(1);
    let len = fs::metadata(lab.path()).unwrap().len();
    until("it is written to", || fs::metadata(lab.path()).unwrap().len() > len);
}

#[test]
fn a_port_without_a_folder_or_with_anothers_file_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = |path: &Path| vec![format!("1=pcapng:{}", path.display())];
    let nowhere = start_here(config(&file(&folder.path().join("not/there.pcapng"))));
    let error = nowhere.unwrap_err().to_string();
    assert!(error.contains("its directory must exist and be writable"), "{error}");
    let path = folder.path().join("a.pcapng");
    let first = Running::start(config(&file(&path)));
    let error = start_here(config(&file(&path))).unwrap_err().to_string();
    assert!(error.contains("another port or program writes to it"), "{error}");
    drop(first);
    drop(Running::start(config(&file(&path))));
    let both = ["1=pcapng:/tmp/a", "2=pcapng:/tmp/a"].map(str::to_owned);
    let error = start_here(config(&both)).unwrap_err().to_string();
    assert!(error.contains("are the same interface"), "{error}");
}

/// Runs the test with this name in a mount namespace of its own, with a tmpfs of 1 MiB at the
/// directory that it is given.
fn on_a_small_disk(test: &str, action: impl FnOnce(&Path)) {
    if let Ok(folder) = std::env::var("TAPSWITCH_SMALL_DISK") {
        return action(Path::new(&folder));
    }
    if !can_run() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mount = "mount -t tmpfs -o size=1m tmpfs \"$TAPSWITCH_SMALL_DISK\" && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", mount, "sh"]);
    command.arg(std::env::current_exe().unwrap()).args([
        "--exact",
        &format!("files::{test}"),
        "--nocapture",
    ]);
    let Ok(output) = command.env("TAPSWITCH_SMALL_DISK", folder.path()).output() else {
        skip("needs unshare(1)");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    if text.contains("unshare failed") || text.contains("mount: ") {
        skip(&format!("no mount namespace: {text}"));
        return;
    }
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
fn a_full_disk_closes_the_port_until_there_is_room() {
    on_a_small_disk("a_full_disk_closes_the_port_until_there_is_room", |disk| {
        let filler = disk.join("filler");
        fs::write(&filler, vec![0; 600 << 10]).unwrap();
        let mut lab = Recorded::within(tempfile::tempdir_in(disk).unwrap(), "", &[]);
        until("the disk is full", || {
            lab.send(50);
            lab.switch.port(FILE).state == "no-link"
        });
        let report = lab.report();
        assert_eq!(report.state, "stopped");
        assert!(report.reason.unwrap().contains("the disk is full"));
        let before = lab.switch.drops(FILE, "port_down");
        lab.send(20);
        until("copies are dropped by name", || lab.switch.drops(FILE, "port_down") >= before + 20);
        let on_disk = tapswitch_blocks(&fs::read(lab.path()).unwrap());
        assert_eq!(on_disk as u64, report.packets + 2, "whole blocks: a head of two, and packets");
        let (copied, written, drops, queued) = lab.ledger();
        assert!(queued > 0 && written == report.packets, "what waits for room is not written");
        assert_eq!(drops, BTreeMap::from([("port_down".to_owned(), copied - written - queued)]));
        assert_eq!(lab.switch.port(FILE).pressure.queued.packets, queued);
        fs::remove_file(&filler).unwrap();
        until("it goes on", || lab.switch.port(FILE).state == "up");
        lab.send(20);
        let report = lab.written();
        assert_eq!((report.lost, report.state.as_str()), (0, "writing"), "nothing taken is lost");
        let (copied, written, drops, queued) = lab.ledger();
        assert_eq!((written, queued), (report.packets, 0));
        assert_eq!(drops, BTreeMap::from([("port_down".to_owned(), copied - written)]));
        lab.close();
        let [received, dropped, delivered] = statistics(&lab.path());
        assert!(dropped >= 20 && received == dropped + delivered && delivered == report.packets);
    });
}

#[test]
fn what_waits_for_a_full_disk_when_its_port_goes_is_dropped_by_name() {
    on_a_small_disk("what_waits_for_a_full_disk_when_its_port_goes_is_dropped_by_name", |disk| {
        let lab = Recorded::within(tempfile::tempdir_in(disk).unwrap(), "", &[]);
        until("the disk is full", || {
            lab.send(50);
            lab.switch.port(FILE).state == "no-link"
        });
        let (_, written, _, queued) = lab.ledger();
        assert!(queued > 0);
        runtime().block_on(lab.switch.handle().remove_port(PortNo(FILE))).unwrap();
        let (copied, written_since, drops, still_queued) = lab.ledger();
        assert_eq!((written_since, still_queued), (written, 0));
        assert_eq!(drops["port_removed"], queued);
        assert_eq!(drops.values().sum::<u64>(), copied - written, "{drops:?}");
        let on_disk = tapswitch_blocks(&fs::read(lab.path()).unwrap()) as u64;
        assert!((written + 2..=written + 3).contains(&on_disk), "its end may not fit either");
    });
}

#[test]
fn on_a_full_disk_the_oldest_files_go_first_where_that_is_allowed() {
    on_a_small_disk("on_a_full_disk_the_oldest_files_go_first_where_that_is_allowed", |disk| {
        let options = ",rotate-size=128K,keep=100";
        let lab = Recorded::within(tempfile::tempdir_in(disk).unwrap(), options, &[]);
        lab.send(3000);
        let report = lab.written();
        assert_eq!((report.state.as_str(), report.lost), ("writing", 0), "{report:?}");
        assert!(report.files > 20 && lab.names().len() < 10, "{:?}", lab.names());
        assert!(lab.names().contains(&format!("web_{:05}", report.files)), "the newest is there");
        assert!(!lab.switch.port(FILE).drops.contains_key("port_down"));
    });
}

#[test]
fn what_does_not_fit_from_the_start_is_tried_again() {
    on_a_small_disk("what_does_not_fit_from_the_start_is_tried_again", |disk| {
        let folder = tempfile::tempdir_in(disk).unwrap();
        let filler = disk.join("filler");
        // Up to the last byte.
        let _ = fs::write(&filler, vec![0; 2 << 20]);
        let lab = Recorded::within(folder, "", &[]);
        assert_eq!(lab.switch.port(FILE).state, "no-link");
        fs::remove_file(&filler).unwrap();
        until("it begins", || lab.switch.port(FILE).state == "up");
        lab.send(5);
        assert_eq!(lab.written().lost, 0);
    });
}

/// Number of blocks, all of them complete.
fn tapswitch_blocks(bytes: &[u8]) -> usize {
    let (mut at, mut count) = (0, 0);
    while let Some(len) = tapswitch_pcapng::next_block(&bytes[at..]) {
        (at, count) = (at + len, count + 1);
    }
    assert_eq!(at, bytes.len(), "whole blocks only");
    count
}

#[test]
fn a_learning_switch_writes_nothing_that_nobody_asked_for() {
    if !can_run() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = |number, options| {
        let path = folder.path().join(format!("{number}.pcapng"));
        format!("{number}=pcapng:{}{options}", path.display()).parse().unwrap()
    };
    let lab = Lab::with(2, |config| {
        config.fail_mode = FailMode::Standalone;
        config.ports.extend([file(FILE, ""), file(FILE + 1, ",flood=on")]);
    });
    ping(lab.host(1), lab.host(2));
    until("what is flooded goes where it is wanted", || lab.switch.port(FILE + 1).tx.frames > 0);
    assert_eq!(lab.switch.port(FILE).tx.frames, 0);
    let reply = lab.switch.controller().statistics(MultipartRequestBody::PortDesc);
    let MultipartReplyBody::PortDesc(ports) = reply else { panic!("{reply:?}") };
    let state = |number| ports.iter().find(|port| port.port_no.0 == number).unwrap().state;
    let states = [PortState::LIVE | PortState::BLOCKED, PortState::LIVE];
    assert_eq!([state(FILE), state(FILE + 1)], states);
}

/// No option could make room for these tags.
#[test]
fn a_file_takes_frames_with_any_number_of_tags() {
    if !can_run() {
        return;
    }
    let lab = Lab::new(2);
    let folder = tempfile::tempdir().unwrap();
    let port = format!("{FILE}=pcapng:{}", folder.path().join("tags.pcapng").display());
    let handle = lab.switch.handle();
    runtime().block_on(handle.add_port(port.parse().unwrap())).unwrap();
    lab.switch.controller().apply(vec![wire(1, FILE)]);
    let sender = Capture::open(lab.host(1));
    let [from, to] = [7, 8].map(|last| MacAddr([2, 0, 0, 0, 0, last]));
    let before = lab.switch.port(FILE).tx.frames;
    for depth in [3, 200] {
        let tags = vec![Tag::new(EtherType::VLAN, 5); depth];
        sender.send(&NetHeader::PLAIN, &frame(to, from, &tags, 1000));
    }
    until("both are somewhere", || {
        let port = lab.switch.port(FILE);
        port.tx.frames - before + port.drops.values().sum::<u64>() >= 2
    });
    assert!(lab.switch.port(FILE).drops.is_empty(), "{:?}", lab.switch.port(FILE).drops);
}

#[test]
fn files_come_and_go_while_the_switch_runs_and_nothing_comes_from_them() {
    if !can_run() {
        return;
    }
    let lab = Lab::new(2);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("late.pcapng");
    let port = format!("{FILE}=pcapng:{}", path.display());
    let handle = lab.switch.handle();
    runtime().block_on(handle.add_port(port.parse().unwrap())).unwrap();
    lab.switch.controller().apply(vec![wire(1, FILE)]);
    let sender = Capture::open(lab.host(1));
    let [from, to] = [7, 8].map(|last| MacAddr([2, 0, 0, 0, 0, last]));
    (0..10).for_each(|_| sender.send(&NetHeader::PLAIN, &frame(to, from, &[], 300)));
    until("all are written", || {
        let port = lab.switch.port(FILE);
        port.tx.frames >= 10 && port.pressure.queued.frames == 0
    });
    let taken = lab.switch.port(FILE).tx.frames;
    runtime().block_on(handle.remove_port(PortNo(FILE))).unwrap();
    assert_eq!(statistics(&path)[2], taken, "finished when the answer comes");
}
