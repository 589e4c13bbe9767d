//! A file as the workers see it.

use std::path::Path;

use tapswitch_datapath::HEADROOM;
use tapswitch_wire::{NetHeader, parse};

use super::*;
use crate::test_frames::tcp_train;

/// A file that nobody writes to, as when the disk hangs.
fn hung(folder: &Path, options: &str) -> Recorder {
    let path = folder.join("a.pcapng");
    let spec: PortSpec = format!("1=pcapng:{}{options}", path.display()).parse().unwrap();
    let crate::PortKind::Pcapng(file) = &spec.kind else { unreachable!() };
    Recorder::open(&spec, file).unwrap()
}

fn tx(recorder: &Recorder, worker: usize) -> RecorderTx {
    let (buffer, snaplen) = (recorder.buffer.clone(), usize::MAX);
    RecorderTx { buffer, worker, snaplen, cut: None, held: None }
}

fn send(tx: &mut RecorderTx, (meta, bytes): &(NetHeader, Vec<u8>)) -> Result<(), Full> {
    let mut buf = [vec![0; HEADROOM], bytes.clone()].concat();
    let layout = parse(bytes).unwrap().layout;
    tx.send(&Frame::new(*meta, layout, &mut buf, HEADROOM, 0), Beyond::NONE)
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
