//! Undocumented behaviour of Linux (`drivers/net/tun.c`), and the test that shows that it is
//! handled or refused. Comments of tests refer to these numbers.
//!
//! - 1: `TUNSETOFFLOAD` refuses a set as a whole:
//!   - `offloads.rs: the_kernel_refuses_what_the_ladder_leaves_out`
//!   - `offloads.rs: every_cap_ends_in_a_set_that_the_kernel_takes`
//! - 2: an old kernel supports fewer types of trains, not none:
//!   - `../../src/offloads.rs: the_ladder_goes_down_to_nothing`
//! - 3: offloads belong to the device, not to the queue:
//!   - `offloads.rs: offloads_concern_the_queues_of_others_too`
//! - 4: they apply to received frames; no call reports which may be sent:
//!   - `create.rs: the_probe_leaves_no_trace`
//!   - `offloads.rs: the_probe_tells_what_the_kernel_understands`
//!   - `offloads.rs: a_tun_device_takes_trains_too`
//! - 5: tunnelled trains with a short header lose every frame:
//!   - `offloads.rs: trains_in_tunnels_need_the_long_header`
//!   - `offloads.rs: a_train_in_a_tunnel_arrives_as_one`
//! - 6: a persistent device keeps header length and offloads:
//!   - `persistent.rs: what_the_former_user_set_is_forgotten`
//!   - `persistent.rs: what_the_former_user_claimed_the_device_to_be_is_forgotten`
//!   - `persistent.rs: offloads_end_where_there_is_no_header`
//!   - `persistent.rs: a_header_of_an_odd_length_is_not_joined`
//! - 7: some releases refuse valid trains:
//!   - `offloads.rs: a_train_that_the_kernel_refuses_costs_its_type_alone_and_not_for_ever`
//!   - `../../src/fallback.rs: a_refused_type_is_withdrawn_alone`
//! - 8: metadata is checked, and `hdr_len` of received frames is a hint:
//!   - `offloads.rs: metadata_must_fit_the_frame`
//!   - `frames.rs: wrong_metadata_is_told_apart`
//! - 9: without checksum offload, others get `EIO` for UDP trains:
//!   - `offloads.rs: others_may_send_udp_trains_through_a_device_with_default_offloads`
//!   - `frames.rs: without_offloads_the_kernel_cuts_udp_trains`
//! - 10: trains forwarded to an interface without offloads are slow: each device can be configured:
//!   - `create.rs: offloads_follow_the_callers_cap`
//! - 11: trains whose packets all have one identification are segmented, unless a feature is on:
//!   - `quirks.rs: trains_of_one_identification_are_cut_until_the_feature_is_on`
//!   - `../../../tapswitch/src/device/doctor/tests.rs: identifiers_that_are_not_mangled_are_a_hint`
//! - 12: no frame is longer than 65535 bytes after its tags:
//!   - `shapes.rs: the_longest_packet_fits_the_buffer`
//!   - `shapes.rs: trains_are_no_longer_than_a_packet`
//! - 13: `IFF_NOFILTER` is `IFF_NO_PI`:
//!   - `filters.rs: the_flag_of_protocol_information_is_not_believed`
//!   - `filters.rs: classic_filters_are_refused_where_they_break_things`
//!   - `persistent.rs: a_classic_filter_that_was_left_does_not_give_a_dead_file`
//!   - `queues.rs: a_queue_that_a_classic_filter_keeps_out_is_not_called_attached`
//! - 14: `EINVAL` does not say what the device is:
//!   - `persistent.rs: a_mismatch_is_named_with_what_to_write_instead`
//!   - `persistent.rs: a_device_that_is_there_can_be_followed`
//! - 15: any permitted program may join a multi-queue device:
//!   - `queues.rs: a_foreign_queue_is_seen`
//!   - `../../../switch/tests/rings.rs: who_joins_a_device_of_the_switch_is_told_of`
//!   - `create.rs: a_multi_queue_device_can_be_joined_unless_exclusively`
//! - 16: flags of additional files are ignored:
//!   - `queues.rs: a_device_in_use_is_not_opened_with_another_prefix`
//!   - `persistent.rs: joining_leaves_the_carrier_alone`
//! - 17: detaching moves another queue, and loses frames:
//!   - `queues.rs: the_order_follows_every_attach_and_detach`
//!   - `queues.rs: a_detached_queue_loses_its_frames_and_may_still_send`
//!   - `queues.rs: a_detached_queue_with_napi_says_that_it_is_detached`
//! - 18: programs stay attached to the device:
//!   - `filters.rs: an_ebpf_filter_drops_until_it_is_taken_off`
//!   - `persistent.rs: what_the_former_user_let_through_and_where_is_forgotten`
//!   - `../steering.rs: a_program_is_not_given_to_what_it_would_misread`
//! - 19: frames have no hash, and a program with a bitwise hash parses only one tag:
//!   - `quirks.rs: no_hash_comes_with_a_frame_and_the_steering_tells_what_it_was`
//!   - `../steering.rs: the_program_computes_the_hash_that_is_documented`
//!   - `../steering.rs: both_directions_of_a_flow_meet_on_one_worker_whatever_they_are_wrapped_in`
//! - 20: frames that XDP redirects arrive on the queue with their processor's number:
//!   - `quirks.rs: frames_that_xdp_redirects_pass_the_steering_by_which_tells_where_they_belong`
//! - 21: `IFF_NAPI_FRAGS` needs privileges:
//!   - `shapes.rs: napi_fragments_are_had_with_privilege_and_refused_without`
//! - 22: short frames have a fast path under certain conditions:
//!   - `settings.rs: the_send_buffer_is_unlimited_unless_told_otherwise`
//!   - `queues.rs: queues_that_were_handed_over_are_understood`
//! - 23: `EIO`, `EINVAL` and `EBADFD` have three meanings:
//!   - `frames.rs: an_interface_that_is_down_neither_gives_nor_takes`
//!   - `frames.rs: a_deleted_device_is_gone_for_good`
//!   - `settings.rs: every_setting_of_a_deleted_device_says_so`
//! - 24: a short buffer truncates silently:
//!   - `frames.rs: a_short_buffer_cuts_silently`
//!   - `shapes.rs: protocol_information_tells_that_a_buffer_was_too_short`
//! - 25: a queue is always writable, and no call moves several frames:
//!   - `quirks.rs: a_queue_is_writable_as_long_as_the_interface_is_up`
//! - 26: a full ring drops silently:
//!   - `queues.rs: a_full_ring_drops_and_counts`
//! - 27: io_uring needs Linux 6.4, and pending reads wait and take the next frames:
//!   - `quirks.rs: io_uring_leaves_no_read_with_the_kernel`
//!   - `engines.rs: before_linux_6_4_io_uring_is_refused_with_the_reason`
//!   - `engines.rs: without_io_uring_the_queue_comes_back_unharmed_with_the_reason`
//! - 28: some settings are restricted in time and values:
//!   - `shapes.rs: an_index_can_be_chosen`
//!   - `settings.rs: the_link_type_changes_while_the_interface_is_down`
//!   - `settings.rs: a_carrier_needs_a_queue`
//!   - `filters.rs: a_filter_that_linux_cannot_have_is_refused`
//!   - `create.rs: there_are_as_many_queues_as_asked_for_up_to_the_kernels_limit`
//! - 29: trains have tags:
//!   - `offloads.rs: a_train_with_a_tag_says_where_its_checksum_is`
//! - 30: mistakes of other libraries: they copy each packet, take a MAC address for an IP header,
//!   receive one packet per call, send UDP without a checksum, join packets of different flows, and
//!   fail if there is too little room:
//!   - `../resources.rs: nothing_is_allocated_per_frame`
//!   - `quirks.rs: one_call_receives_all_that_waits_and_an_address_is_no_ip_version`
//!   - `../../../offload/tests/offload/segments.rs: a_datagram_never_says_that_it_has_no_checksum`
//!   - `../../../offload/tests/offload/coalesce.rs: what_differs_ends_a_train`
//!   - `../../../offload/tests/offload/coalesce.rs: tags_tell_flows_apart`
//!   - `../../../offload/tests/offload/in_place.rs: too_little_room_costs_no_packet`
//! - 31: unknown flags are ignored, never refused:
//!   - `shapes.rs: back_pressure_is_had_or_refused_but_never_silently_missing`

use std::num::NonZeroU16;
use std::os::fd::AsRawFd;
use std::sync::mpsc;
use std::{io, thread};

use io_uring::{IoUring, opcode, types};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::thread::CpuSet;
use tapswitch_netlink::Sysfs;
use tapswitch_tap::{
    Burst, BurstSize, Engine, EngineKind, FlowHash, HeaderLen, NET_HEADER_LEN, NetHeader,
    NetHeaderFlags, Outgoing, Queue, RECV_BUF_LEN, SendError, Steering,
};
use tapswitch_wire::checksum::Sum;

use crate::common::cable::{Cable, assert_same, is_ours, kinds, one_queue, plain_frame, udp};
use crate::common::raw::redirect_by_xdp;
use crate::common::{
    Host, PATIENCE, can_tap, config, eventually, is_udp_to, knows_udp_trains, skip,
};
use crate::packet_socket::PacketSocket;
use crate::programs::can_attach;
use crate::recipe;

/// Quirk 11: the kernel joins packets with the same identification, and segments them again in
/// software before they reach a device without the feature to renumber them.
#[test]
fn trains_of_one_identification_are_cut_until_the_feature_is_on() {
    if !can_tap() {
        return;
    }
    let from = config("from").napi(true);
    let ends = [from, config("to")].map(|config| (config, EngineKind::Drain));
    let mut cable = Cable::with(ends);
    let sysfs = Sysfs::open(&cable.host.namespace).unwrap();
    sysfs.write("from", "gro_flush_timeout", "10000000").unwrap();
    // A tick of the kernel's clock may end a train early, so several attempts are made.
    let is_joined = |cable: &mut Cable, step: u16| {
        (0..20).any(|_| {
            cable.send(&(0..PACKETS).map(|number| tcp_packet(number, step)).collect::<Vec<_>>());
            let mut segments = 0;
            let mut longest = 0;
            eventually("all segments", || {
                let ip = |(_, bytes): &(_, Vec<u8>)| bytes[12..14] == [8, 0];
                for (header, bytes) in cable.receive().into_iter().filter(ip) {
                    let here = (bytes.len() - TCP_HEADERS).div_ceil(SEGMENT);
                    assert_eq!(header.is_train(), here > 1);
                    (segments, longest) = (segments + here, longest.max(here));
                }
                (segments == usize::from(PACKETS)).then_some(())
            });
            longest > 1
        })
    };
    assert!(is_joined(&mut cable, 1), "numbers that go on pass as one train");
    assert!(!is_joined(&mut cable, 0), "one number is cut");
    let feature = "tx-tcp-mangleid-segmentation";
    assert!(cable.host.netlink.set_feature_by_name("to", feature, true).unwrap().active);
    assert!(is_joined(&mut cable, 0), "one number passes, too");
}

/// Quirk 19: there is room for a hash before a frame, which the kernel leaves empty. The hash that
/// selected the queue can be computed from the frame, after any tags.
#[test]
fn no_hash_comes_with_a_frame_and_the_steering_tells_what_it_was() {
    if !can_attach() {
        return;
    }
    let mut host = Host::new();
    host.silence();
    let queues = NonZeroU16::new(4).unwrap();
    let device = host.create(&config("tap0").net_header(HeaderLen::Hash).queues(queues));
    let socket = PacketSocket::open(&host.namespace, device.index());
    host.netlink.set_up("tap0").unwrap();
    let steering = Steering::load(FlowHash::ETHERNET, queues).unwrap();
    steering.attach(&device.queues()[0]).unwrap();
    for depth in 0..4 {
        let mut used = [0; 4];
        for port in 0..32 {
            let tags = vec![0x8100; depth];
            let flow = recipe::tcp([20_000 + port, 443]).with_tags(tags);
            let [there, back] = [false, true].map(|backwards| flow.frame(backwards));
            assert_eq!(steering.queue_of(&there), steering.queue_of(&back));
            for frame in [there, back] {
                socket.send(&frame);
                let (queue, packet) = receive_of(device.queues());
                let (header, bytes) = packet.split_at(HeaderLen::Hash.bytes());
                assert_eq!(header[NET_HEADER_LEN..], [0; 8], "no hash, and the report of none");
                assert_eq!((queue, bytes), (steering.queue_of(&frame).into(), &frame[..]));
                used[queue] += 1;
            }
        }
        assert!(used.iter().all(|count| *count > 0), "behind {depth} tags: {used:?}");
    }
}

/// Quirk 20: frames that XDP redirects arrive on the queue with the number of their processor; the
/// program is not called. So an application that keeps flows apart must call it for each frame.
#[test]
fn frames_that_xdp_redirects_pass_the_steering_by_which_tells_where_they_belong() {
    if !can_attach() {
        return;
    }
    let mut host = Host::new();
    host.silence();
    let outside = one_queue(host.create(&config("outside")));
    let queues = NonZeroU16::new(4).unwrap();
    let device = host.create(&config("tap0").queues(queues));
    for name in ["outside", "tap0"] {
        host.netlink.set_up(name).unwrap();
    }
    let mut steering = Steering::load(FlowHash::ETHERNET, queues).unwrap();
    steering.attach(&device.queues()[0]).unwrap();
    let index = host.netlink.link("outside").unwrap().index;
    let _redirect = match host.inside(|| redirect_by_xdp(index, device.index())) {
        Ok(redirect) => redirect,
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            skip("links of XDP need Linux 5.9");
            return;
        }
        Err(error) => panic!("{error}"),
    };
    let frame = recipe::tcp([20_000, 443]).frame(false);
    let packet = [&NetHeader::PLAIN.encode(), &frame[..]].concat();
    let processors = processors();
    for &processor in &processors {
        let theirs = processor % 4;
        let ours = (theirs + 1) % 4;
        steering.set_table(&[ours.try_into().unwrap()]).unwrap();
        on_processor(processor, || outside.send(&packet).unwrap());
        let (queue, redirected) = receive_of(device.queues());
        assert!(redirected == packet, "on processor {processor}");
        assert_eq!(queue, theirs, "on processor {processor}");
        assert_eq!(usize::from(steering.queue_of(&frame)), ours);
    }
    let counted = (0..4).map(|queue| steering.counters(queue).unwrap().frames).sum::<u64>();
    assert_eq!(counted, 0, "the program was not asked");
    // Frames of the stack are steered meanwhile.
    PacketSocket::open(&host.namespace, device.index()).send(&frame);
    let (queue, _) = receive_of(device.queues());
    assert_eq!(queue, steering.queue_of(&frame).into());
    if processors.len() == 1 {
        skip("that a flow comes by several queues needs several processors");
    }
}

/// Quirk 25: so waiting is never needed, and frames are lost after the queue.
#[test]
fn a_queue_is_writable_as_long_as_the_interface_is_up() {
    if !can_tap() {
        return;
    }
    let mut host = Host::new();
    let device = host.create(&config("tap0"));
    let queue = &device.queues()[0];
    let is_writable = || {
        let mut fds = [PollFd::new(queue, PollFlags::OUT)];
        poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).unwrap();
        fds[0].revents().contains(PollFlags::OUT)
    };
    assert!(!is_writable());
    host.netlink.set_up("tap0").unwrap();
    let packet = [&NetHeader::PLAIN.encode(), &[0; 1500][..]].concat();
    for _ in 0..10_000 {
        assert_eq!(queue.send(&packet), Ok(()));
    }
    assert!(is_writable());
    assert_eq!(host.netlink.link("tap0").unwrap().stats.rx_packets, 10_000);
    host.netlink.set_down("tap0").unwrap();
    assert_eq!(queue.send(&packet), Err(SendError::Down));
}

/// Quirk 27: a pending io_uring read waits although the file is non-blocking, and takes the next
/// frame from other readers. So the engine leaves none.
#[test]
fn io_uring_leaves_no_read_with_the_kernel() {
    if !can_tap() || !kinds().contains(&EngineKind::Uring) {
        return;
    }
    let mut host = Host::new();
    host.silence();
    let queue = one_queue(host.create_up(&config("tap0")));
    let socket = host.udp(7);
    let mut ring = IoUring::new(4).unwrap();
    let mut buf = vec![0; RECV_BUF_LEN];
    let len = buf.len().try_into().unwrap();
    let read = opcode::Read::new(types::Fd(queue.as_raw_fd()), buf.as_mut_ptr(), len).build();
    // SAFETY: the buffer outlives the read, which is complete when it is next touched.
    unsafe { ring.submission().push(&read) }.unwrap();
    ring.submit().unwrap();
    assert!(ring.completion().next().is_none(), "it waits");
    socket.send_to(b"taken", "10.0.0.2:9").unwrap();
    ring.submit_and_wait(1).unwrap();
    let taken = usize::try_from(ring.completion().next().unwrap().result()).unwrap();
    assert!(is_udp_to(&buf[NET_HEADER_LEN..taken], 9));
    assert_eq!(queue.recv(&mut buf), Ok(None), "it is nobody else's");

    // In a separate thread, because a blocked read would never return.
    let (sender, receiver) = mpsc::channel();
    let other = queue.try_clone().unwrap();
    thread::spawn(move || {
        let mut engine = Engine::open(queue, EngineKind::Uring).unwrap();
        let mut burst = Burst::new(engine.burst_size());
        let received = [(); 3].map(|()| engine.recv(&mut burst));
        let _ = sender.send((engine, received));
    });
    let (_engine, received) = receiver.recv_timeout(PATIENCE).expect("it does not wait");
    assert_eq!(received, [Ok(0); 3]);
    for port in 10..20 {
        socket.send_to(b"left", ("10.0.0.2", port)).unwrap();
        let len = other.recv(&mut buf).unwrap().expect("the frame is there for all");
        assert!(is_udp_to(&buf[NET_HEADER_LEN..len], port));
    }
}

/// Quirk 30: bytes of a MAC address are not an IP version, however a frame is sent, and all queued
/// frames are received by one call.
#[test]
fn one_call_receives_all_that_waits_and_an_address_is_no_ip_version() {
    if !can_tap() || !knows_udp_trains() {
        return;
    }
    for kind in kinds() {
        for packet_info in [false, true] {
            let ends = ["from", "to"].map(|name| (config(name).packet_info(packet_info), kind));
            let mut cable = Cable::with(ends);
            cable.receive();
            let sent = (0..20).map(like_an_ip_packet).collect::<Vec<_>>();
            let mut burst = Burst::new(cable.from.burst_size());
            let (whole, in_pieces) = sent.split_at(10);
            for (header, bytes) in whole {
                assert!(burst.push(header, &[bytes]));
            }
            assert!(cable.from.send(&burst).is_complete());
            for (header, bytes) in in_pieces {
                let (first, rest) = bytes.split_at(1);
                let pieces = [first, rest].map(io::IoSlice::new);
                assert!(cable.from.send([Outgoing::new(*header, &pieces)]).is_complete());
            }
            let mut incoming = Burst::new(BurstSize::spread(32));
            cable.to.recv(&mut incoming).unwrap();
            let received = incoming.iter().filter(|frame| is_ours(frame.bytes()));
            let received = received.map(|frame| (frame.header(), frame.bytes().to_vec()));
            let what = format!("{kind:?}, {packet_info}");
            assert_same(&received.collect::<Vec<_>>(), &sent, &what);
        }
    }
}

#[test]
fn every_test_of_the_list_exists() {
    let list = include_str!("quirks.rs").lines().filter_map(|line| line.strip_prefix("//!   - `"));
    let tests = list.filter_map(|code| code.trim_end_matches('`').split_once(".rs: "));
    let mut count = 0;
    for (file, name) in tests {
        let (_, source) = SOURCES.into_iter().find(|(known, _)| *known == file).unwrap();
        let test = format!("#[test]\nfn {name}()");
        let indented = format!("#[test]\n    fn {name}()");
        assert!(source.contains(&test) || source.contains(&indented), "{file}.rs: {name}");
        count += 1;
    }
    assert!(count > 40, "{count} tests: the list is not read");
}

/// A packet of a TCP stream whose identification is `step` more than that of the previous one.
fn tcp_packet(number: u16, step: u16) -> (NetHeader, Vec<u8>) {
    let (_, mut bytes) = udp(0, TCP_HEADERS + SEGMENT - 42, 0);
    let ip_len = u16::try_from(bytes.len() - 14).unwrap();
    bytes[16..18].copy_from_slice(&ip_len.to_be_bytes());
    bytes[18..20].copy_from_slice(&(number * step).to_be_bytes());
    bytes[23] = 6;
    bytes[24..26].fill(0);
    let checksum = Sum::of(&bytes[14..34]).checksum();
    bytes[24..26].copy_from_slice(&checksum.to_be_bytes());
    let sequence = u32::from(number) * u32::try_from(SEGMENT).unwrap();
    bytes[34..TCP_HEADERS].copy_from_slice(&[0; 20]);
    bytes[34..38].copy_from_slice(&[0x9c, 0x40, 1, 0xbb]);
    bytes[38..42].copy_from_slice(&sequence.to_be_bytes());
    bytes[46..50].copy_from_slice(&[0x50, 0x10, 0xff, 0xff]);
    let flags = NetHeaderFlags::NEEDS_CSUM;
    (NetHeader { flags, csum_start: 34, csum_offset: 16, ..NetHeader::PLAIN }, bytes)
}

/// A frame to a station whose MAC address starts like an IPv4 or IPv6 header: plain, or a train.
fn like_an_ip_packet(number: usize) -> (NetHeader, Vec<u8>) {
    let (header, mut bytes) = match number % 3 {
        0 => (NetHeader::PLAIN, plain_frame(100)),
        _ => udp(number, 3000, 1000),
    };
    bytes[..6].copy_from_slice(if number.is_multiple_of(2) { &LIKE_V4 } else { &LIKE_V6 });
    (header, bytes)
}

/// The next packet of any of `queues`, and the position of its queue.
fn receive_of(queues: &[Queue]) -> (usize, Vec<u8>) {
    let mut buf = vec![0; RECV_BUF_LEN];
    eventually("a packet", || {
        queues.iter().enumerate().find_map(|(index, queue)| {
            let len = queue.recv(&mut buf).unwrap()?;
            Some((index, buf[..len].to_vec()))
        })
    })
}

/// The numbers of the processors that this process may use.
fn processors() -> Vec<usize> {
    let set = rustix::thread::sched_getaffinity(None).unwrap();
    (0..CpuSet::MAX_CPU).filter(|&processor| set.is_set(processor)).collect()
}

/// Runs `action` on that processor only.
fn on_processor<R: Send>(processor: usize, action: impl FnOnce() -> R + Send) -> R {
    thread::scope(|scope| {
        let here = scope.spawn(|| {
            let mut set = CpuSet::new();
            set.set(processor);
            rustix::thread::sched_setaffinity(None, &set).unwrap();
            action()
        });
        here.join().unwrap()
    })
}

/// Packets of a stream, and the payload of each in bytes.
const PACKETS: u16 = 10;
const SEGMENT: usize = 1000;
/// Ethernet, IPv4 and TCP without options.
const TCP_HEADERS: usize = 54;
/// MAC addresses without a station.
const LIKE_V4: [u8; 6] = [0x46, 0, 0, 0, 0, 0xee];
const LIKE_V6: [u8; 6] = [0x66, 0, 0, 0, 0, 0xee];

const SOURCES: [(&str, &str); 19] = [
    ("create", include_str!("create.rs")),
    ("engines", include_str!("engines.rs")),
    ("filters", include_str!("filters.rs")),
    ("frames", include_str!("frames.rs")),
    ("offloads", include_str!("offloads.rs")),
    ("persistent", include_str!("persistent.rs")),
    ("queues", include_str!("queues.rs")),
    ("quirks", include_str!("quirks.rs")),
    ("../resources", include_str!("../resources.rs")),
    ("settings", include_str!("settings.rs")),
    ("shapes", include_str!("shapes.rs")),
    ("../steering", include_str!("../steering.rs")),
    ("../../src/offloads", include_str!("../../src/offloads.rs")),
    ("../../src/fallback", include_str!("../../src/fallback.rs")),
    ("../../../switch/tests/rings", include_str!("../../../switch/tests/rings.rs")),
    (
        "../../../offload/tests/offload/coalesce",
        include_str!("../../../offload/tests/offload/coalesce.rs"),
    ),
    (
        "../../../offload/tests/offload/in_place",
        include_str!("../../../offload/tests/offload/in_place.rs"),
    ),
    (
        "../../../offload/tests/offload/segments",
        include_str!("../../../offload/tests/offload/segments.rs"),
    ),
    (DOCTOR, include_str!("../../../tapswitch/src/device/doctor/tests.rs")),
];
const DOCTOR: &str = "../../../tapswitch/src/device/doctor/tests";
