//! Tests of a file monitor as the workers see it.

use std::path::Path;

use tapswitch_datapath::{DropReason, HEADROOM, Millis, Port};
use tapswitch_wire::{NetHeader, parse};

use super::*;
use crate::test_frames::tcp_train;
use crate::tx::TxPorts;

/// A file without a writer, as when the disk hangs.
fn hung(folder: &Path, options: &str) -> Recorder {
    let path = folder.join("a.pcapng");
    let spec: PortSpec = format!("1=pcapng:{}{options}", path.display()).parse().unwrap();
    let crate::PortKind::Pcapng(file) = &spec.kind else { unreachable!() };
    Recorder::open(&spec, file).unwrap()
}

fn tx(recorder: &Recorder, worker: usize) -> RecorderTx {
    RecorderTx::new(recorder.buffer.clone(), WorkerIndex(worker), usize::MAX)
}

fn port() -> Arc<Port> {
    Port::new(PortNo(1), "a".to_owned(), MacAddr::ZERO, 1500, 1).into()
}

/// Calls `action` with the frame behind some headroom.
fn with_frame<R>(
    (meta, bytes): &(NetHeader, Vec<u8>),
    action: impl FnOnce(&mut Frame<'_>) -> R,
) -> R {
    let mut buf = [vec![0; HEADROOM], bytes.clone()].concat();
    let layout = parse(bytes).unwrap().layout;
    action(&mut Frame::new(*meta, layout, &mut buf, HEADROOM, 0))
}

fn send(tx: &mut RecorderTx, sent: &(NetHeader, Vec<u8>)) -> Result<(), Full> {
    let port = port();
    let claim = Claim::new(tx.worker, &port);
    with_frame(sent, |frame| {
        tx.begin(&claim)?;
        tx.send(frame, Beyond::NONE)?;
        tx.end(claim.traffic(frame));
        Ok(())
    })
}

/// A file and one worker that sends to it.
struct Trial {
    recorder: Recorder,
    port: Arc<Port>,
    ports: TxPorts,
    sent: Traffic,
    news: (mpsc::Sender<PortNo>, mpsc::Receiver<PortNo>),
}

impl Trial {
    fn new(folder: &Path, options: &str) -> Self {
        let (recorder, mut ports) = (hung(folder, options), TxPorts::default());
        ports.insert(PortNo(1), recorder.tx_port(0));
        let (sent, news) = (Traffic::default(), mpsc::channel(8));
        Self { recorder, port: port(), ports, sent, news }
    }

    /// Sends a burst of one frame.
    fn send(&mut self, sent: &(NetHeader, Vec<u8>)) -> Result<(), DropReason> {
        self.ports.begin_burst(true, Millis(0));
        let claim = Claim::new(WorkerIndex(0), &self.port);
        let ports = &mut self.ports;
        let (outcome, traffic) = with_frame(sent, |frame| {
            (ports.send(PortNo(1), frame, Beyond::NONE, &claim), claim.traffic(frame))
        });
        self.ports.end_burst();
        self.sent += traffic;
        outcome.map(drop)
    }

    /// Retries queued frames.
    fn retry(&mut self) {
        std::thread::sleep(self.ports.time_to_retry().unwrap_or_default());
        self.ports.retry(Millis(0));
        self.ports.end_burst();
    }

    /// Starts the writer.
    fn start(&mut self) {
        self.recorder.start(self.news.0.clone(), self.port.counters.clone()).unwrap();
    }

    /// Removes the port and everything queued for it.
    fn close(self) -> (Arc<Port>, Traffic) {
        let Self { recorder, port, mut ports, sent, .. } = self;
        ports.clear();
        drop(recorder);
        (port, sent)
    }
}

fn queued(port: &Port) -> Traffic {
    let queued = port.counters.queued();
    Traffic { frames: queued.frames(), packets: queued.packets(), bytes: queued.bytes() }
}

#[test]
fn a_disk_that_hangs_fills_the_buffer_and_holds_up_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = hung(folder.path(), ",buffer=1M");
    let mut tx = tx(&recorder, 0);
    let packet = tcp_train(1400, 0);
    let mut taken = 0;
    let outcome = loop {
        tx.hold();
        let outcome = send(&mut tx, &packet);
        tx.end_burst();
        if outcome.is_err() {
            break outcome;
        }
        taken += 1;
    };
    assert_eq!(outcome, Err(Full));
    assert!((650..=721).contains(&taken), "{taken} packets of 1.5 KB in 1 MiB");
    assert_eq!(recorder.report().buffered, 1 << 20);
    assert_eq!(recorder.state(), PortState::LIVE);
}

#[test]
fn the_longest_train_finds_room() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = hung(folder.path(), ",buffer=1M,wire-size=off");
    let mut tx = tx(&recorder, 3);
    tx.hold();
    for _ in 0..12 {
        assert_eq!(send(&mut tx, &tcp_train(65_400, 1400)), Ok(()));
    }
    tx.end_burst();
    assert_eq!(recorder.buffer.collect().chunks.len(), 3);
}

#[test]
fn who_holds_no_chunk_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let recorder = hung(folder.path(), "");
    assert_eq!(send(&mut tx(&recorder, 0), &tcp_train(10, 0)), Err(Full));
}

#[test]
fn what_is_in_memory_is_queued_until_it_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let mut trial = Trial::new(folder.path(), ",buffer=4M");
    for payload_len in [100, 1400, 60_001] {
        assert_eq!(trial.send(&tcp_train(payload_len, 1400)), Ok(()));
    }
    assert_eq!((trial.sent.frames, trial.sent.packets), (3, 45));
    assert_eq!((queued(&trial.port), trial.port.counters.tx()), (trial.sent, Traffic::default()));
    trial.start();
    let (port, sent) = trial.close();
    assert_eq!((queued(&port), port.counters.tx()), (Traffic::default(), sent));
    assert_eq!(port.counters.drops().total(), 0);
}

/// There is no room for the whole train, half of which the writer has already taken.
#[test]
fn a_train_that_finds_no_room_waits_in_part_and_is_counted_once() {
    let folder = tempfile::tempdir().unwrap();
    let mut trial = Trial::new(folder.path(), ",buffer=1M");
    let train = tcp_train(60_001, 1400);
    for _ in 0..30 {
        assert_eq!(trial.send(&train), Ok(()));
        assert_eq!(queued(&trial.port), trial.sent);
    }
    assert!(trial.ports.has_queues(), "not all of it fits into 1 MiB");
    trial.retry();
    assert_eq!(queued(&trial.port), trial.sent, "there is no room yet");
    trial.start();
    while trial.ports.has_queues() {
        trial.retry();
    }
    let (port, sent) = trial.close();
    assert_eq!((queued(&port), port.counters.tx()), (Traffic::default(), sent));
    let bytes = std::fs::read(folder.path().join("a.pcapng")).unwrap();
    assert_eq!(blocks(&bytes), sent.packets + 3, "two at the beginning, one at the end");
}

/// A chunk that waits for long goes to the writer before it is full. Then the last train may find
/// no room at all, and another is tried.
#[test]
fn what_a_train_had_in_the_buffer_is_written_though_the_rest_is_dropped() {
    assert!((0..20).any(|_| is_last_train_written_in_part()), "nothing of the last train");
}

fn is_last_train_written_in_part() -> bool {
    let folder = tempfile::tempdir().unwrap();
    let mut trial = Trial::new(folder.path(), ",buffer=1M");
    while !trial.ports.has_queues() {
        assert_eq!(trial.send(&tcp_train(60_001, 1400)), Ok(()));
    }
    trial.ports.remove(PortNo(1));
    trial.start();
    let (port, sent) = trial.close();
    let (written, dropped) = (port.counters.tx(), port.counters.drops());
    assert_eq!((written.frames, dropped.count(DropReason::PortRemoved)), (sent.frames - 1, 1));
    assert_eq!(queued(&port), Traffic::default());
    let of_whole = written.frames * 43;
    if written.packets == of_whole {
        return false;
    }
    assert!((of_whole + 1..of_whole + 43).contains(&written.packets), "{written:?}");
    let bytes = std::fs::read(folder.path().join("a.pcapng")).unwrap();
    assert_eq!(blocks(&bytes), written.packets + 3);
    assert_eq!(statistics(&bytes), [written.packets + 1, 1, written.packets]);
    true
}

/// As with a slow disk: its time is up, and only the current write is waited for.
#[test]
fn what_is_not_written_in_the_end_is_dropped_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let mut trial = Trial::new(folder.path(), ",buffer=8M");
    (0..4000).for_each(|_| trial.send(&tcp_train(1400, 0)).unwrap());
    trial.recorder.close();
    trial.recorder.buffer.give_up();
    trial.start();
    let (port, sent) = trial.close();
    let (written, dropped) = (port.counters.tx(), port.counters.drops());
    assert!((1..sent.frames).contains(&written.frames), "{written:?}");
    assert_eq!(dropped.count(DropReason::PortRemoved), sent.frames - written.frames);
    assert_eq!(
        (dropped.total(), queued(&port)),
        (sent.frames - written.frames, Traffic::default())
    );
    let bytes = std::fs::read(folder.path().join("a.pcapng")).unwrap();
    assert_eq!(blocks(&bytes), written.packets + 3);
}

#[test]
fn what_is_beyond_a_limit_is_dropped_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let mut trial = Trial::new(folder.path(), ",buffer=8M,max-size=100K");
    (0..1000).for_each(|_| trial.send(&tcp_train(1400, 0)).unwrap());
    trial.start();
    let (port, sent) = trial.close();
    let (written, dropped) = (port.counters.tx(), port.counters.drops());
    assert!((60..70).contains(&written.frames), "{written:?}");
    assert_eq!(dropped.count(DropReason::PortDown), sent.frames - written.frames);
    assert_eq!(queued(&port), Traffic::default());
}

/// The statistics at the end of the file: packets received, dropped, and written.
fn statistics(bytes: &[u8]) -> [u64; 3] {
    // Three options of eight bytes, the end of options, and the block's trailing length.
    [40, 28, 16].map(|before_end| {
        u64::from_ne_bytes(*bytes[bytes.len() - before_end..].first_chunk().unwrap())
    })
}

/// Number of blocks, all of them complete.
fn blocks(bytes: &[u8]) -> u64 {
    let (mut at, mut count) = (0, 0);
    while let Some(len) = tapswitch_pcapng::next_block(&bytes[at..]) {
        (at, count) = (at + len, count + 1);
    }
    assert_eq!(at, bytes.len(), "whole blocks only");
    count
}
