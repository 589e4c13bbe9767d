//! The steps of the demonstration, and what it measures.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tapswitch_control::{Counts, PolicyReport, TapPolicy};
use tapswitch_controller::Caller;
use tapswitch_switch::report::{PortReport, TapReport};

use crate::capture::{Capture, CaptureConfig, CaptureError, CaptureSummary, WHOLE_PACKET};
use crate::hosts::{Host, INTERFACE};
use crate::iperf::{self, Iperf};
use crate::process;
use crate::table::drops_text;
use crate::tshark::{self, Dissected};

use super::lab::Lab;
use super::report::{Check, DemoReport, LedgerReport, PcapngReport, Window};

type Failure = Box<dyn std::error::Error>;

/// Runs all steps.
pub(super) async fn all(lab: &Lab, seconds: u64) -> Result<DemoReport, Failure> {
    let mut checks = Vec::new();
    say("switch and controller speak OpenFlow 1.3 over TCP; three hosts on tap ports");
    ping(lab, &mut checks).await?;
    let drops_before = lab.port(lab.receiver.number).await?.drops;
    let server = iperf::serve(&lab.receiver.namespace).await?;
    let tapped = tapped_flow(lab, seconds, &mut checks).await?;
    untapped_flow(lab, &mut checks).await?;
    let length = Duration::from_secs(seconds);
    say(&format!("TCP back, {seconds} s"));
    let back =
        iperf::tcp(&lab.sender.namespace, lab.receiver.ipv4().into(), length, &["-R"]).await?;
    say(&format!("UDP, {seconds} s"));
    let udp = iperf::udp(&lab.sender.namespace, lab.receiver.ipv4().into(), length).await?;
    drop(server);
    checks
        .push(Check::new("TCP flows in both directions", tapped.tcp.is_alive() && back.is_alive()));
    checks.push(Check::new("UDP datagrams arrive", udp.is_alive()));
    let drops = lab.port(lab.receiver.number).await?.drops;
    let text = format!("the switch dropped nothing of these flows ({})", drops_text(&drops));
    checks.push(Check::new(text, drops == drops_before));
    Ok(DemoReport {
        seconds,
        without_tap: tapped.without_tap,
        with_tap: tapped.with_tap,
        tcp_retransmits: tapped.tcp.retransmits,
        tcp_back_gbps: back.gbps(),
        udp_gbps: udp.gbps(),
        udp_lost_percent: udp.lost_percent,
        ledger: tapped.ledger,
        pcapng: tapped.pcapng,
        checks,
    })
}

async fn ping(lab: &Lab, checks: &mut Vec<Check>) -> Result<(), Failure> {
    say("ping, IPv4 and IPv6");
    let namespace = &lab.sender.namespace;
    let (v4, v6) = (lab.receiver.ipv4().to_string(), lab.receiver.ipv6().to_string());
    for (family, target) in [("IPv4", v4), ("IPv6", v6)] {
        let args = ["-c", "3", "-i", "0.2", "-W", "2", &target];
        let answered = process::run(namespace, "ping", &args, Duration::from_secs(10)).await;
        if let Err(error) = &answered {
            tracing::warn!("{error}");
        }
        checks.push(Check::new(format!("ping over {family}"), answered.is_ok()));
    }
    Ok(())
}

/// Results of the tapped flow.
struct Tapped {
    without_tap: Window,
    with_tap: Window,
    ledger: LedgerReport,
    pcapng: PcapngReport,
    tcp: Iperf,
}

/// One TCP flow, tapped while it runs.
async fn tapped_flow(lab: &Lab, seconds: u64, checks: &mut Vec<Check>) -> Result<Tapped, Failure> {
    let length = Duration::from_secs(seconds);
    let target = lab.receiver.ipv4().into();
    let whole = WARM_UP * 2 + length * 2 + AFTER;
    let flow = iperf::tcp(&lab.sender.namespace, target, whole, &[]);
    let middle = async {
        tokio::time::sleep(WARM_UP).await;
        say(&format!("TCP from sender to receiver, {seconds} s without a TAP"));
        let without_tap = measure(lab, length).await?;
        let before = Monitor::look(lab).await?;
        let capture = RunningCapture::start(lab, "tapped.pcapng")?;
        say(&format!("TAP added while the flow runs; {seconds} s with every train copied"));
        lab.controller()?.add_policy(&caller(), policy(lab)?).await?;
        tokio::time::sleep(WARM_UP).await;
        let with_tap = measure(lab, length).await?;
        Ok::<_, Failure>((without_tap, with_tap, before, capture))
    };
    let (tcp, middle) = tokio::join!(flow, middle);
    let (tcp, (without_tap, with_tap, before, capture)) = (tcp?, middle?);
    let ledger = ledger_at_rest(lab, before, checks).await?;
    let pcapng = read_capture(capture, checks).await?;
    let deleted = lab.controller()?.delete_policy(&caller(), POLICY, false).await?;
    check_controller_counts(&deleted.report, &ledger, checks);
    Ok(Tapped { without_tap, with_tap, ledger, pcapng, tcp })
}

/// The caller that adds the policy.
fn caller() -> Caller {
    Caller::unix("demo")
}

/// After the TAP is removed, nothing must be copied.
async fn untapped_flow(lab: &Lab, checks: &mut Vec<Check>) -> Result<(), Failure> {
    say("TAP removed; TCP again; no frame may reach the monitor");
    let capture = RunningCapture::start(lab, "untapped.pcapng")?;
    let (namespace, target) = (&lab.sender.namespace, lab.receiver.ipv4().into());
    iperf::tcp(namespace, target, Duration::from_secs(1), &[]).await?;
    let (summary, _) = capture.stop()?;
    let text = format!("no copies after the TAP is removed ({} frames)", summary.frames);
    checks.push(Check::new(text, summary.frames == 0));
    checks.push(Check::new("the group is gone from the switch", lab.taps().await?.is_empty()));
    Ok(())
}

fn policy(lab: &Lab) -> Result<TapPolicy, Failure> {
    let text = format!(
        "name = '{POLICY}'\nsrc-ip = '{}'\ndst-ip = '{}'\nip-proto = 'tcp'\n\
         direction = 'forward'\nmonitor = '{}'\n",
        lab.sender.ipv4(),
        lab.receiver.ipv4(),
        lab.monitor.number,
    );
    Ok(toml::from_str(&text)?)
}

/// Throughput and train length at the switch's ports, over `length`.
async fn measure(lab: &Lab, length: Duration) -> Result<Window, Failure> {
    let number = lab.receiver.number;
    let (start, before) = (Instant::now(), lab.port(number).await?.tx);
    tokio::time::sleep(length).await;
    let (elapsed, after) = (start.elapsed(), lab.port(number).await?.tx);
    let (frames, packets) = (after.frames - before.frames, after.packets - before.packets);
    Ok(Window::new(frames, packets, after.bytes - before.bytes, elapsed))
}

/// Frames at the monitor, counted by the switch and by the monitor's kernel.
struct Monitor {
    port: PortReport,
    kernel_frames: u64,
}

impl Monitor {
    async fn look(lab: &Lab) -> Result<Self, Failure> {
        let port = lab.port(lab.monitor.number).await?;
        Ok(Self { port, kernel_frames: received_frames(&lab.monitor)? })
    }
}

fn received_frames(host: &Host) -> Result<u64, Failure> {
    host.received_frames()
}

/// Waits until both hosts have closed their connections and the last frames have passed the switch.
/// iperf3 exits before its server has closed the connection.
async fn come_to_rest(lab: &Lab) -> Result<(), Failure> {
    let deadline = Instant::now() + REST_LIMIT;
    while lab.sender.has_tcp_connections()? || lab.receiver.has_tcp_connections()? {
        if Instant::now() > deadline {
            return Err("the hosts did not close their TCP connections".into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // The port has one queue: a reply proves that all earlier frames have passed.
    let target = lab.receiver.ipv4().to_string();
    let args = ["-c", "1", "-W", "5", &target];
    process::run(&lab.sender.namespace, "ping", &args, REST_LIMIT).await?;
    Ok(())
}

/// Reads the TAP's ledger when the flow has ended and no frame is in flight.
async fn ledger_at_rest(
    lab: &Lab,
    before: Monitor,
    checks: &mut Vec<Check>,
) -> Result<LedgerReport, Failure> {
    come_to_rest(lab).await?;
    let taps = lab.taps().await?;
    let ledger = LedgerReport::sum(&taps);
    let after = Monitor::look(lab).await?;
    let sent = after.port.tx.frames - before.port.tx.frames;
    let received = after.kernel_frames - before.kernel_frames;
    checks.push(Check::new("the running flow was tapped", ledger.matched > 0));
    let text = format!(
        "the ledger adds up: {} matched = {} copied + {} dropped",
        ledger.matched, ledger.copied, ledger.dropped
    );
    checks
        .push(Check::new(text, ledger.adds_up() && taps.iter().all(|tap: &TapReport| tap.adds_up)));
    let text = format!("the monitor's kernel received what was sent: {received} of {sent} frames");
    checks.push(Check::new(text, received == sent && sent >= ledger.copied));
    Ok(ledger)
}

/// Compares the controller's counters, which come from OpenFlow alone, with the switch's own. The
/// controller counts packets on the wire, so only the bytes are comparable.
fn check_controller_counts(deleted: &PolicyReport, ledger: &LedgerReport, checks: &mut Vec<Check>) {
    let Counts { packets, bytes } = deleted.matched;
    let text =
        format!("the controller counted the same by OpenFlow: {packets} packets, {bytes} bytes");
    checks.push(Check::new(text, bytes == ledger.matched_bytes && packets >= ledger.matched));
}

/// A capture on the monitor, in its own thread.
struct RunningCapture {
    thread: JoinHandle<Result<CaptureSummary, CaptureError>>,
    is_over: Arc<AtomicBool>,
    file: std::path::PathBuf,
}

impl RunningCapture {
    fn start(lab: &Lab, name: &str) -> Result<Self, Failure> {
        let file = lab.directory.path().join(name);
        let capture = Capture::open(CaptureConfig {
            interface: INTERFACE.to_owned(),
            netns: Some(lab.monitor.namespace.label().to_owned()),
            file: file.clone(),
            snaplen: WHOLE_PACKET,
            count_max: Some(CAPTURE_COUNT),
            ip_proto: Some(tapswitch_wire::ip_proto::TCP),
        })?;
        let is_over = Arc::new(AtomicBool::new(false));
        let over = is_over.clone();
        let thread = std::thread::spawn(move || capture.run(|| over.load(Ordering::Relaxed)));
        Ok(Self { thread, is_over, file })
    }

    fn stop(self) -> Result<(CaptureSummary, std::path::PathBuf), Failure> {
        self.is_over.store(true, Ordering::Relaxed);
        let summary = self.thread.join().map_err(|_| "the capture panicked")??;
        Ok((summary, self.file))
    }
}

/// Analyses the capture with an independent program.
async fn read_capture(
    capture: RunningCapture,
    checks: &mut Vec<Check>,
) -> Result<PcapngReport, Failure> {
    say("reading the monitor's pcapng with tshark");
    let (summary, file) = capture.stop()?;
    let Dissected { packets, longest, oversize, bad_checksums } =
        tshark::dissect(&file, LONGEST_PACKET).await?;
    let text = format!("tshark reads {packets} packets of {} written", summary.packets);
    checks.push(Check::new(text, packets == summary.packets && packets > 0));
    let text =
        format!("all packets have wire size ({oversize} longer than {LONGEST_PACKET} bytes)");
    checks.push(Check::new(text, oversize == 0));
    let text = format!("all checksums are correct ({bad_checksums} wrong)");
    checks.push(Check::new(text, bad_checksums == 0));
    let is_limited = summary.packets >= CAPTURE_COUNT;
    Ok(PcapngReport { packets, longest, is_limited, oversize, bad_checksums })
}

/// Prints the current step.
fn say(text: &str) {
    tell!("  {text}");
}

/// Name of the only policy.
const POLICY: &str = "demo";
/// Time for TCP to reach its rate, before each measurement.
const WARM_UP: Duration = Duration::from_millis(800);
/// Time that the flow continues after the last measurement. A busy machine takes it to add the TAP,
/// which must find the flow running.
const AFTER: Duration = Duration::from_millis(2400);
/// Time limit for closing connections, generous for a busy machine.
const REST_LIMIT: Duration = Duration::from_secs(10);
/// Packets in the capture: a fraction of a second of such a flow.
const CAPTURE_COUNT: u64 = 20_000;
/// Maximum packet length on a link with an MTU of 1500, in bytes without the frame check sequence.
const LONGEST_PACKET: usize = 1514;
