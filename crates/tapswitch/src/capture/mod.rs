//! Captures the frames that an interface receives as they would be on the wire: trains are
//! segmented and checksums completed before writing.

mod pcapng;

use std::fs::File;
use std::io::{self, BufWriter};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

use clap::Args;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde::{Deserialize, Serialize};
use tapswitch_netdev::{BIG_RECV_BUF_LEN, Config, HEADROOM_MIN, OpenError, PacketPort, RecvError};
use tapswitch_netlink::{Namespace, NamespaceError, Netlink};
use tapswitch_offload::{Segments, complete_checksum};
use tapswitch_switch::{ip_command, no_interface, shell_word};
use tapswitch_wire::{NetHeader, parse};

use crate::runtime::{StopSignals, block_on};
use crate::table::counted;

use pcapng::PcapngWriter;

#[derive(Args, Clone, Debug)]
pub(crate) struct CaptureArgs {
    /// Interface whose received frames are written.
    #[arg(short, long, value_name = "NAME")]
    pub(crate) interface: String,
    /// Namespace of the interface: a name of `ip netns`, or a path such as /proc/PID/ns/net.
    #[arg(long, value_name = "NS")]
    pub(crate) netns: Option<String>,
    /// Output file, overwritten if it exists; - for standard output, as in `| tshark -r -`.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) write: PathBuf,
    /// Bytes of each packet to keep; 0 for all.
    #[arg(short, long, value_name = "LEN", default_value_t = WHOLE_PACKET)]
    pub(crate) snaplen: usize,
    /// Stop after N packets.
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// Stop after N seconds.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) seconds: Option<u64>,
}

/// `tapswitch capture`: runs until a signal or a limit.
pub(crate) fn main(args: CaptureArgs) -> Result<(), Box<dyn std::error::Error>> {
    let is_over = stop_flag();
    let seconds = args.seconds;
    let config = config(args);
    let interface = config.interface.clone();
    let capture = Capture::open(config)?;
    let deadline = seconds.and_then(after);
    let ends =
        || is_over.load(Ordering::Relaxed) || deadline.is_some_and(|at| Instant::now() >= at);
    let summary = match capture.run(ends) {
        // The reader closed the pipe.
        Err(CaptureError::File { source, .. }) if is_unread(&source) => return Ok(()),
        outcome => outcome?,
    };
    tell!("{}", described(&summary));
    if summary.is_gone { Err(CaptureError::Gone { interface }.into()) } else { Ok(()) }
}

/// What was captured, as text.
fn described(summary: &CaptureSummary) -> String {
    let CaptureSummary { frames, packets, longest, dropped, malformed, .. } = *summary;
    let were = |count| if count == 1 { "was" } else { "were" };
    format!(
        "{} of {}, the longest {}; {} {} lost, {} could not be split",
        counted(packets, "packet"),
        counted(frames, "frame"),
        counted(longest as u64, "byte"),
        counted(dropped, "frame"),
        were(dropped),
        counted(malformed, "train")
    )
}

fn config(args: CaptureArgs) -> CaptureConfig {
    let CaptureArgs { interface, netns, write, snaplen, count, .. } = args;
    // As in tcpdump, 0 means no limit; it must not produce packets without data.
    let snaplen = if snaplen == 0 { WHOLE_PACKET } else { snaplen };
    CaptureConfig { interface, netns, file: write, snaplen, count_max: count, ip_proto: None }
}

fn is_unread(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::BrokenPipe
}

/// The time after `seconds`; `None` if no clock reaches it.
fn after(seconds: u64) -> Option<Instant> {
    Instant::now().checked_add(Duration::from_secs(seconds))
}

/// Returns a flag that becomes true on a stop signal. Another thread waits for the signal, so that
/// the file is always finished.
fn stop_flag() -> Arc<AtomicBool> {
    let is_over = Arc::new(AtomicBool::new(false));
    let (stopped, (listening, listens)) = (is_over.clone(), std::sync::mpsc::channel());
    std::thread::spawn(move || {
        let ended = block_on(async {
            let mut signals = StopSignals::listen()?;
            // The caller waits for this.
            let _ = listening.send(());
            Ok(signals.next().await)
        });
        tracing::debug!("stopping: {ended:?}");
        stopped.store(true, Ordering::Relaxed);
    });
    // An error means that the thread has ended, which also ends the capture.
    let _ = listens.recv();
    is_over
}

/// Configuration of a capture.
#[derive(Clone, Debug)]
pub(crate) struct CaptureConfig {
    /// Interface whose received frames are captured.
    pub(crate) interface: String,
    /// Its namespace.
    pub(crate) netns: Option<String>,
    /// Output file, overwritten; `-` for standard output.
    pub(crate) file: PathBuf,
    /// Bytes of each packet to keep.
    pub(crate) snaplen: usize,
    /// Stop after this many packets.
    pub(crate) count_max: Option<u64>,
    /// Only packets with this IP protocol.
    pub(crate) ip_proto: Option<u8>,
}

/// Result of a capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CaptureSummary {
    /// Received frames; a train counts as one.
    pub(crate) frames: u64,
    /// Packets written, as on the wire.
    pub(crate) packets: u64,
    /// Length of the longest packet in bytes.
    pub(crate) longest: usize,
    /// Frames that the kernel dropped because the capture was too slow.
    pub(crate) dropped: u64,
    /// Frames that could not be split into packets.
    pub(crate) malformed: u64,
    /// The interface was deleted before the end.
    pub(crate) is_gone: bool,
}

/// An open capture: from now on no frame is missed.
#[derive(Debug)]
pub(crate) struct Capture {
    port: PacketPort,
    writer: PcapngWriter<BufWriter<File>>,
    config: CaptureConfig,
    summary: CaptureSummary,
    headers: Vec<u8>,
}

impl Capture {
    /// Opens the interface and the file.
    pub(crate) fn open(config: CaptureConfig) -> Result<Self, CaptureError> {
        let namespace = match &config.netns {
            Some(place) => Namespace::find(place)?,
            None => Namespace::current()?,
        };
        let (interface, netns) = (&config.interface, config.netns.as_deref());
        let options = Config::default().receive_buffer_len(BUFFER_LEN);
        let port = namespace.enter(|| PacketPort::open(interface, &options))?;
        let port = port.map_err(|error| CaptureError::of_interface(error, netns))?;
        let link = Netlink::open(&namespace).and_then(|mut netlink| netlink.link(interface));
        if link.is_ok_and(|link| !link.up) {
            tell_down(&config);
        }
        let failed = |source| CaptureError::File { path: config.file.clone(), source };
        let file = create(&config.file).map_err(failed)?;
        let writer =
            PcapngWriter::new(BufWriter::new(file), interface, config.snaplen).map_err(failed)?;
        Ok(Self { port, writer, config, summary: CaptureSummary::default(), headers: Vec::new() })
    }

    /// Captures until `is_over` returns true or a limit is reached, and closes the file. Calls
    /// `is_over` at least every 100 ms; frames received by then are still written.
    pub(crate) fn run(
        mut self,
        mut is_over: impl FnMut() -> bool,
    ) -> Result<CaptureSummary, CaptureError> {
        let mut buf = vec![0; BIG_RECV_BUF_LEN];
        while !self.is_full() {
            let ends = is_over();
            self.summary.is_gone = !self.drain(&mut buf)?;
            if ends || self.summary.is_gone {
                break;
            }
            self.flush()?;
            // The kernel reports no error if a deleted interface was already down.
            if !self.wait()? && self.port.name().is_err() {
                self.summary.is_gone = true;
                break;
            }
        }
        self.finish()
    }

    /// Flushes the captured packets before waiting.
    fn flush(&mut self) -> Result<(), CaptureError> {
        let flushed = self.writer.flush();
        flushed.map_err(|source| CaptureError::File { path: self.config.file.clone(), source })
    }

    fn is_full(&self) -> bool {
        self.config.count_max.is_some_and(|max| self.summary.packets >= max)
    }

    /// Reads all queued frames. Returns `false` if the interface is gone.
    fn drain(&mut self, buf: &mut [u8]) -> Result<bool, CaptureError> {
        // A flood must not keep `run` from checking whether it is over.
        let deadline = Instant::now() + ASK_AFTER;
        while !self.is_full() && Instant::now() < deadline {
            match self.port.recv(buf, HEADROOM_MIN) {
                Ok(Some(received)) => self.frame(&received.header, &buf[received.frame])?,
                Ok(None) => return Ok(true),
                // Reported once, when it goes down.
                Err(RecvError::Down) => {
                    tell_down(&self.config);
                    return Ok(true);
                }
                Err(RecvError::Gone) => return Ok(false),
                Err(_) => self.summary.malformed += 1,
            }
        }
        Ok(true)
    }

    fn frame(&mut self, meta: &NetHeader, frame: &[u8]) -> Result<(), CaptureError> {
        if !self.is_wanted(frame) {
            return Ok(());
        }
        self.summary.frames += 1;
        let written =
            if meta.is_train() { self.train(meta, frame) } else { self.packet(meta, frame) };
        written.map_err(|source| CaptureError::File { path: self.config.file.clone(), source })
    }

    fn is_wanted(&self, frame: &[u8]) -> bool {
        let wanted = |proto| parse(frame).is_ok_and(|parsed| parsed.key.ip_proto == proto);
        self.config.ip_proto.is_none_or(wanted)
    }

    fn packet(&mut self, meta: &NetHeader, frame: &[u8]) -> io::Result<()> {
        let mut meta = *meta;
        let mut whole = std::mem::take(&mut self.headers);
        whole.clear();
        whole.extend_from_slice(frame);
        if complete_checksum(&mut meta, &mut whole, &[]).is_err() {
            self.summary.malformed += 1;
        }
        let written = self.write(&[&whole]);
        self.headers = whole;
        written
    }

    fn train(&mut self, meta: &NetHeader, frame: &[u8]) -> io::Result<()> {
        let Ok(mut packets) = Segments::new(meta, frame, &[]) else {
            self.summary.malformed += 1;
            return Ok(());
        };
        let mut headers = std::mem::take(&mut self.headers);
        headers.resize(packets.headers_len(), 0);
        while let Some(packet) = packets.next(&mut headers) {
            let [first, second] = packet.payload;
            self.write(&[&headers[..packet.headers_len], first, second])?;
        }
        self.headers = headers;
        Ok(())
    }

    fn write(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        if self.is_full() {
            return Ok(());
        }
        self.summary.packets += 1;
        let len = parts.iter().map(|part| part.len()).sum();
        self.summary.longest = self.summary.longest.max(len);
        self.writer.packet(SystemTime::now(), parts)
    }

    /// Waits briefly for frames. Returns whether there are any.
    fn wait(&self) -> Result<bool, CaptureError> {
        let mut fds = [PollFd::from_borrowed_fd(self.port.as_fd(), PollFlags::IN)];
        let timeout = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        match poll(&mut fds, Some(&timeout)) {
            Ok(count) => Ok(count > 0),
            Err(rustix::io::Errno::INTR) => Ok(true),
            Err(errno) => Err(CaptureError::Wait(errno.into())),
        }
    }

    fn finish(mut self) -> Result<CaptureSummary, CaptureError> {
        let statistics = self.port.statistics().map_err(CaptureError::Wait)?;
        self.summary.dropped = statistics.dropped;
        let path = self.config.file.clone();
        self.writer
            .end(self.summary.dropped)
            .map_err(|source| CaptureError::File { path, source })?;
        Ok(self.summary)
    }
}

fn tell_down(CaptureConfig { interface, netns, .. }: &CaptureConfig) {
    let command = ip_command(netns.as_deref(), &format!("link set {} up", shell_word(interface)));
    tell!("tapswitch: {interface} is down: nothing is received until it is up (`{command}`)");
}

fn create(path: &Path) -> io::Result<File> {
    if path == Path::new("-") {
        return Ok(io::stdout().as_fd().try_clone_to_owned()?.into());
    }
    File::create(path)
}

/// Error of a capture.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CaptureError {
    /// The namespace cannot be opened.
    #[error(transparent)]
    Namespace(#[from] NamespaceError),
    /// The interface cannot be opened.
    #[error(transparent)]
    Interface(OpenError),
    /// There is no such interface.
    #[error("{0}")]
    NoInterface(String),
    /// The interface does not carry Ethernet frames.
    #[error(
        "interface {name}: has no Ethernet frames (type {kind} instead of 1), and only those can \
         be captured; `tcpdump -ni {name} -w FILE` captures others"
    )]
    NotEthernet {
        /// Name of the interface.
        name: String,
        /// Its type, `ARPHRD_*`.
        kind: u16,
    },
    /// The file cannot be written.
    #[error("{}: {source}", path.display())]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The error.
        source: io::Error,
    },
    /// The interface was deleted or moved during the capture.
    #[error(
        "interface {interface}: was deleted, or moved to another namespace; the file has the \
         packets up to then"
    )]
    Gone {
        /// Name of the interface.
        interface: String,
    },
    /// Waiting for frames failed.
    #[error("cannot wait for frames: {0}")]
    Wait(io::Error),
}

impl CaptureError {
    /// Replaces the port's messages for other link types, which is about switching, and for other
    /// namespaces.
    fn of_interface(error: OpenError, netns: Option<&str>) -> Self {
        match error {
            OpenError::NotFound { name } => Self::NoInterface(no_interface(netns, &name)),
            OpenError::NotEthernet { name, kind } => Self::NotEthernet { name, kind },
            other => Self::Interface(other),
        }
    }
}

/// More bytes than any packet has.
pub(crate) const WHOLE_PACKET: usize = 262_144;
/// Bytes of frames that may wait for the disk: a quarter of a second at 10 Gb/s.
const BUFFER_LEN: usize = 256 << 20;
/// Maximum time that a flood may keep a capture busy.
const ASK_AFTER: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: CaptureArgs,
    }

    /// The configuration that `tapswitch capture` derives from these arguments.
    fn told(words: &[&str]) -> CaptureConfig {
        config(Line::parse_from([&["capture", "-i", "eth0", "-w", "-"], words].concat()).args)
    }

    #[test]
    fn what_there_is_one_of_is_not_told_as_several() {
        let (packets, frames) = (1, 1);
        let one = CaptureSummary {
            frames,
            packets,
            longest: 60,
            dropped: 1,
            malformed: 1,
            is_gone: false,
        };
        assert_eq!(
            described(&one),
            "1 packet of 1 frame, the longest 60 bytes; 1 frame was lost, 1 train could not be \
             split"
        );
        let several = CaptureSummary { packets: 2000, frames: 2, dropped: 0, malformed: 0, ..one };
        assert_eq!(
            described(&several),
            "2_000 packets of 2 frames, the longest 60 bytes; 0 frames were lost, 0 trains could \
             not be split"
        );
    }

    #[test]
    fn no_bound_is_no_empty_packet() {
        assert_eq!(told(&["-s", "0"]).snaplen, told(&[]).snaplen);
        assert_eq!(told(&["-s", "60"]).snaplen, 60);
    }

    #[test]
    fn who_captures_is_told_nothing_of_ports() {
        let error = OpenError::NotEthernet { name: "lo".to_owned(), kind: 772 };
        let text = CaptureError::of_interface(error, None).to_string();
        assert!(text.contains("tcpdump -ni lo") && !text.contains("port"), "{text}");
        let error = OpenError::NotFound { name: "eth9".to_owned() };
        let text = CaptureError::of_interface(error, Some("blue")).to_string();
        assert!(text.contains("`ip -n blue link`"), "{text}");
    }

    #[test]
    fn a_capture_may_be_as_long_as_anybody_says() {
        assert!(after(1).is_some());
        assert_eq!(after(u64::MAX), None, "it has no end");
    }
}
