//! Truncated frames in ERSPAN headers, over the loopback interface of a separate namespace.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic fails a test")]

use std::io::IoSlice;
use std::net::IpAddr;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tapswitch_helpers::{is_root, unique};
use tapswitch_netlink::{Netlink, OwnedNamespace};
use tapswitch_tunnel::{Carrier, Cut, GreConfig, GrePort, RECV_BUF_LEN, Session};

#[test]
fn of_a_train_that_was_cut_short_a_segment_that_just_fits_is_whole() {
    let Some((near, far)) = ports() else { return };
    let frame = [7; 154];
    let packet = [IoSlice::new(&frame[..60]), IoSlice::new(&frame[60..]), IoSlice::new(&[])];
    near.send_packets(&[packet; 3], Cut::Each(&[1514, 1514, 154])).unwrap();
    near.send_packets(&[packet; 2], Cut::Each(&[1514, 155])).unwrap();
    near.send(&[IoSlice::new(&frame)], Some(154)).unwrap();
    near.send(&[IoSlice::new(&frame)], None).unwrap();
    let told: Vec<_> = (0..7).map(|_| is_told_as_cut(&far)).collect();
    assert_eq!(told, [true, true, false, true, true, true, false]);
}

/// Both ends of a tunnel; `None`, with a message, if they cannot be created here.
fn ports() -> Option<(GrePort, GrePort)> {
    if !is_root() {
        return None;
    }
    let namespace = OwnedNamespace::create(&unique("cut")).unwrap();
    Netlink::open(&namespace).unwrap().set_up("lo").unwrap();
    let carrier = Carrier::ErspanII(Session::new(5).unwrap());
    let open = |local: u8, remote: u8| {
        let [local, remote] = [local, remote].map(|last| IpAddr::from([127, 0, 0, last]));
        let config = GreConfig::new(remote, carrier).local(Some(local));
        namespace.enter(|| GrePort::open(&config).unwrap()).unwrap()
    };
    Some((open(1, 2), open(2, 1)))
}

/// Bit T of the next packet: bit 10 of the word that begins 8 bytes before the frame.
fn is_told_as_cut(port: &GrePort) -> bool {
    let mut buf = vec![0; 64 + RECV_BUF_LEN];
    loop {
        if let Some(frame) = port.recv(&mut buf, 64).unwrap() {
            assert_eq!(frame.len(), 154);
            return buf[frame.start - 6] & 4 != 0;
        }
        let patience = Timespec { tv_sec: 30, tv_nsec: 0 };
        let ready = poll(&mut [PollFd::new(port, PollFlags::IN)], Some(&patience)).unwrap();
        assert_eq!(ready, 1, "a packet got lost");
    }
}
