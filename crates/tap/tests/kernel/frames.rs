//! Frames and their metadata pass unchanged between the kernel and a queue.

use std::io::{IoSlice, IoSliceMut};
use std::num::NonZeroU16;
use std::os::fd::AsRawFd;
use std::time::Instant;

use tapswitch_tap::{
    Device, GsoType, Kind, NET_HEADER_LEN, NetHeader, NetHeaderFlags, Offloads, Queue,
    RECV_BUF_LEN, RecvError, SendError,
};

use crate::common::{
    Host, PATIENCE, PEER, can_tap, config, is_udp_to, knows_udp_trains, pattern, receive,
    set_udp_segment, skip, tcp_transfer, udp_datagram, wait_readable, with_cable,
};

#[test]
fn what_the_kernel_sends_arrives_with_its_metadata() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    let tap = host.create_up(&config("tap0"));
    host.udp(7000).send_to(b"hello", "10.0.0.2:7").unwrap();
    let (header, frame) = receive(&tap.queues()[0], |_, frame| is_udp_to(frame, 7));
    assert_eq!(header.flags, NetHeaderFlags::NEEDS_CSUM);
    assert_eq!((header.csum_start, header.csum_offset), (34, 6));
    assert!(!header.is_train());
    assert_eq!(frame[..6], PEER.0);
    assert_eq!(frame[6..12], tap.mac().unwrap().0);
    assert_eq!(&frame[42..], b"hello");
    assert_eq!(tap.queues()[0].recv(&mut [0; 64]), Ok(None));
}

#[test]
fn without_offloads_nothing_is_left_undone() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    let tap = host.create_up(&config("tap0").offloads(Offloads::empty()));
    host.udp(7000).send_to(b"hello", "10.0.0.2:7").unwrap();
    let (header, frame) = receive(&tap.queues()[0], |_, frame| is_udp_to(frame, 7));
    assert_eq!(header, NetHeader::PLAIN);
    assert_ne!(frame[40..42], [0, 0], "the checksum is complete");
}

#[test]
fn a_udp_train_arrives_as_one() {
    if !can_tap() || !knows_udp_trains() {
        return;
    }
    let mut host = Host::new();
    let tap = host.create_up(&config("tap0"));
    let socket = host.udp(7000);
    set_udp_segment(&socket, 1000);
    let sent = pattern(10_500);
    socket.send_to(&sent, "10.0.0.2:7").unwrap();
    let (header, frame) = receive(&tap.queues()[0], |_, frame| is_udp_to(frame, 7));
    assert_eq!((header.gso_type, header.gso_size), (GsoType::UDP_L4, 1000));
    assert_eq!(&frame[42..], sent);
    assert_eq!(header.wire_packets(frame.len() - 42), 11);
}

#[test]
fn without_offloads_the_kernel_cuts_udp_trains() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    let tap = host.create_up(&config("tap0").offloads(Offloads::empty()));
    let socket = host.udp(7000);
    set_udp_segment(&socket, 1000);
    match socket.send_to(&pattern(2500), "10.0.0.2:7") {
        Err(error) if error.raw_os_error() == Some(libc::EIO) => {
            skip("before Linux 6.11 such a send fails");
        }
        sent => {
            sent.unwrap();
            for payload_len in [1000, 1000, 500] {
                let (header, frame) = receive(&tap.queues()[0], |_, frame| is_udp_to(frame, 7));
                assert_eq!((header, frame.len()), (NetHeader::PLAIN, 42 + payload_len));
            }
        }
    }
}

#[test]
fn what_is_sent_is_received_by_the_kernel_and_its_checksum_completed() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    let tap = host.create_up(&config("tap0"));
    let socket = host.udp(7);
    let (header, frame) = udp_frame(&tap, 7, b"contiguous");
    tap.queues()[0].send(&[&header.encode(), &frame[..]].concat()).unwrap();
    assert_eq!(next(&socket), b"contiguous");

    let (header, frame) = udp_frame(&tap, 7, b"in three pieces");
    let header = header.encode();
    let parts = [&header[..], &frame[..20], &frame[20..]].map(IoSlice::new);
    tap.queues()[0].send_vectored(&parts).unwrap();
    assert_eq!(next(&socket), b"in three pieces");
    assert_eq!(host.netlink.link("tap0").unwrap().stats.rx_packets, 2);
}

#[test]
fn a_udp_train_that_is_sent_is_cut_by_the_kernel() {
    if !can_tap() || !knows_udp_trains() {
        return;
    }
    let mut host = Host::new();
    // Sending does not depend on the offloads for received frames.
    let tap = host.create_up(&config("tap0").offloads(Offloads::empty()));
    let socket = host.udp(7);
    let payload = pattern(2500);
    let (mut header, frame) = udp_frame(&tap, 7, &payload);
    header.gso_type = GsoType::UDP_L4;
    header.gso_size = 1000;
    tap.queues()[0].send(&[&header.encode(), &frame[..]].concat()).unwrap();
    let lens = [(); 3].map(|()| next(&socket).len());
    assert_eq!(lens, [1000, 1000, 500]);
    assert_eq!(host.netlink.link("tap0").unwrap().stats.rx_packets, 1, "one train");
}

#[test]
fn tcp_trains_pass_whole_from_one_device_to_another() {
    if !can_tap() {
        return;
    }
    let (mut left, mut right) = (Host::new(), Host::new());
    let (a, b) = (left.create(&config("tap0")), right.create(&config("tap0")));
    for (host, address) in [(&mut left, "10.0.0.1"), (&mut right, "10.0.0.2")] {
        host.netlink.add_address("tap0", address.parse().unwrap(), 24).unwrap();
        host.netlink.set_up("tap0").unwrap();
    }
    let sent = pattern(4 << 20);
    let (received, trains) = with_cable(&a.queues()[0], &b.queues()[0], carry, || {
        let to = "10.0.0.2".parse().unwrap();
        tcp_transfer(&left.namespace, &right.namespace, to, &sent)
    });
    assert!(received == sent, "{} of {} bytes", received.len(), sent.len());
    assert!(trains > 10, "{trains} trains");
    let packets = right.netlink.link("tap0").unwrap().stats.rx_packets;
    assert!(packets < 2000, "{packets} packets instead of some 2900 of 1448 bytes");
}

#[test]
fn scattered_reads_give_the_same_bytes() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    let tap = host.create_up(&config("tap0"));
    let queue = &tap.queues()[0];
    let socket = host.udp(7000);
    socket.send_to(b"hello", "10.0.0.2:7").unwrap();
    let (_, whole) = receive(queue, |_, frame| is_udp_to(frame, 7));
    socket.send_to(b"hello", "10.0.0.2:7").unwrap();
    let (mut header, mut start, mut rest) = ([0; NET_HEADER_LEN], [0; 14], [0; 2000]);
    let len = loop {
        wait_readable(&[queue]);
        let mut bufs = [&mut header[..], &mut start, &mut rest].map(IoSliceMut::new);
        let len = queue.recv_vectored(&mut bufs).unwrap().unwrap();
        if start[12..] == [8, 0] {
            break len;
        }
    };
    assert_eq!(len, NET_HEADER_LEN + whole.len());
    assert_eq!(start, whole[..14]);
    // Everything except the IP identification and the checksum that depends on it.
    assert_eq!(rest[12..whole.len() - 14], whole[26..]);
    assert!(NetHeader::decode(&header).needs_checksum());
}

#[test]
fn a_short_buffer_cuts_silently() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    let tap = host.create_up(&config("tap0"));
    let queue = &tap.queues()[0];
    host.udp(7000).send_to(&pattern(500), "10.0.0.2:7").unwrap();
    let mut buf = [0; NET_HEADER_LEN + 42];
    let cut = loop {
        wait_readable(&[queue]);
        let len = queue.recv(&mut buf).unwrap().unwrap();
        if is_udp_to(&buf[NET_HEADER_LEN..len], 7) {
            break len;
        }
    };
    assert_eq!(cut, buf.len());
    host.udp(7001).send_to(b"x", "10.0.0.2:7").unwrap();
    wait_readable(&[queue]);
    let too_short = queue.recv(&mut buf[..NET_HEADER_LEN - 1]);
    assert_eq!(too_short, Err(RecvError::Lost { errno: libc::EINVAL }));
    assert_eq!(queue.recv(&mut buf), Ok(None), "it is lost");
}

#[test]
fn an_interface_that_is_down_neither_gives_nor_takes() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    let tap = host.create(&config("tap0"));
    let queue = &tap.queues()[0];
    let packet = [&NetHeader::PLAIN.encode(), &[0; 60][..]].concat();
    assert_eq!(queue.send(&packet), Err(SendError::Down));
    assert_eq!(queue.recv(&mut [0; 100]), Ok(None));
    assert_eq!(host.netlink.link("tap0").unwrap().stats.rx_dropped, 1);
}

#[test]
fn wrong_metadata_is_told_apart() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    let tap = host.create_up(&config("tap0"));
    let (good, frame) = udp_frame(&tap, 7, &pattern(100));
    let train = NetHeader { gso_type: GsoType::UDP_L4, gso_size: 50, ..good };
    for bad in [
        NetHeader { gso_type: GsoType(2), gso_size: 50, ..good },
        NetHeader { gso_size: 0, ..train },
        NetHeader { csum_start: 2000, ..good },
        NetHeader { hdr_len: 2000, ..good },
    ] {
        let packet = [&bad.encode(), &frame[..]].concat();
        assert_eq!(tap.queues()[0].send(&packet), Err(SendError::Rejected), "{bad:?}");
    }
    // Whether the missing bytes are metadata or frame.
    for len in [1, 5, NET_HEADER_LEN - 1, NET_HEADER_LEN, NET_HEADER_LEN + 13] {
        let bytes = vec![0; len];
        let too_short = SendError::TooShort { len, least: NET_HEADER_LEN + 14 };
        assert_eq!(tap.queues()[0].send(&bytes), Err(too_short));
        assert_eq!(tap.queues()[0].send_vectored(&[IoSlice::new(&bytes)]), Err(too_short));
    }
    let tun = host.create_up(&config("tun0").kind(Kind::Tun));
    for first in [0x00, 0x50, 0x80] {
        let packet = [&NetHeader::PLAIN.encode()[..], &[first; 40]].concat();
        assert_eq!(tun.queues()[0].send(&packet), Err(SendError::NotIp), "{first:#x}");
    }
    assert_eq!(tun.queues()[0].send(&[0; NET_HEADER_LEN]), Err(SendError::NotIp), "no packet");
}

/// Quirk 21.
#[test]
fn a_piece_that_is_too_long_is_not_the_fault_of_the_metadata_alone() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    let Ok(tap) = host.try_create(&config("tap0").napi(true).napi_fragments(true)) else {
        skip("IFF_NAPI_FRAGS needs CAP_NET_ADMIN of the whole machine");
        return;
    };
    host.netlink.set_up("tap0").unwrap();
    let (header, page) = (NetHeader::PLAIN.encode(), [0; 4097]);
    let parts = [&header[..], &[0; 64], &page].map(IoSlice::new);
    let error = tap.queues()[0].send_vectored(&parts).unwrap_err();
    assert_eq!(error, SendError::Rejected);
    assert!(error.to_string().contains("the frame or its metadata"), "{error}");
}

#[test]
fn a_deleted_device_is_gone_for_good() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    let tap = host.create_up(&config("tap0"));
    let clone = tap.queues()[0].try_clone().unwrap();
    host.netlink.delete("tap0").unwrap();
    let packet = [&NetHeader::PLAIN.encode(), &[0; 60][..]].concat();
    for queue in [&tap.queues()[0], &clone] {
        assert_eq!(queue.recv(&mut [0; 100]), Err(RecvError::Gone));
        assert_eq!(queue.send(&packet), Err(SendError::Gone));
    }
    assert!(tap.mac().is_err());
}

#[test]
fn a_cloned_handle_is_the_same_queue() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    let tap = host.create_up(&config("tap0"));
    let clone = tap.queues()[0].try_clone().unwrap();
    assert_ne!(clone.as_raw_fd(), tap.queues()[0].as_raw_fd());
    let socket = host.udp(7);
    let (header, frame) = udp_frame(&tap, 7, b"by the clone");
    clone.send(&[&header.encode(), &frame[..]].concat()).unwrap();
    assert_eq!(next(&socket), b"by the clone");
    socket.send_to(b"hello", "10.0.0.2:9").unwrap();
    receive(&clone, |_, frame| is_udp_to(frame, 9));
}

#[test]
fn the_kernel_spreads_flows_over_the_queues_and_each_flow_stays_on_one() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    let tap = host.create_up(&config("tap0").queues(NonZeroU16::new(4).unwrap()));
    const FLOWS: u16 = 64;
    for port in 0..FLOWS {
        let socket = host.udp(7000 + port);
        for _ in 0..3 {
            socket.send_to(b"x", "10.0.0.2:7").unwrap();
        }
    }
    let queues = tap.queues().iter().collect::<Vec<_>>();
    let mut queue_of = vec![Vec::new(); usize::from(FLOWS)];
    let deadline = Instant::now() + PATIENCE;
    while queue_of.iter().flatten().count() < 3 * usize::from(FLOWS) {
        assert!(Instant::now() < deadline, "not all frames in time");
        wait_readable(&queues);
        for (index, queue) in queues.iter().enumerate() {
            for frame in drain(queue).filter(|frame| is_udp_to(frame, 7)) {
                let port = u16::from_be_bytes([frame[34], frame[35]]);
                queue_of[usize::from(port - 7000)].push(index);
            }
        }
    }
    for (flow, queues) in queue_of.iter().enumerate() {
        assert_eq!(queues[..], [queues[0]; 3], "flow {flow}");
    }
    let used = (0..4).filter(|index| queue_of.iter().any(|queues| queues[0] == *index)).count();
    assert!(used > 1, "64 flows on one queue");
}

/// A datagram from port 9 of the peer to `port` of the kernel side of `tap`.
fn udp_frame(tap: &Device, port: u16, payload: &[u8]) -> (NetHeader, Vec<u8>) {
    udp_datagram([tap.mac().unwrap(), PEER], [9, port], payload)
}

fn next(socket: &std::net::UdpSocket) -> Vec<u8> {
    let mut buf = [0; 4096];
    let (len, _) = socket.recv_from(&mut buf).unwrap();
    buf[..len].to_vec()
}

/// The queued frames.
fn drain(queue: &Queue) -> impl Iterator<Item = Vec<u8>> {
    let mut buf = vec![0; RECV_BUF_LEN];
    std::iter::from_fn(move || {
        let len = queue.recv(&mut buf).unwrap()?;
        Some(buf[NET_HEADER_LEN..len].to_vec())
    })
}

fn carry(from: &Queue, to: &Queue) -> usize {
    let mut buf = vec![0; RECV_BUF_LEN];
    let mut trains = 0;
    while let Some(len) = from.recv(&mut buf).unwrap() {
        let header = buf.first_chunk::<NET_HEADER_LEN>().map(NetHeader::decode).unwrap();
        trains += usize::from(header.is_train());
        let outcome = to.send(&buf[..len]);
        // The other end may not be up yet when the first one sends unsolicited frames.
        assert!(matches!(outcome, Ok(()) | Err(SendError::Down)), "{outcome:?}");
    }
    trains
}
