//! What Linux does that its manual does not say (`drivers/net/tun.c`), and the test that shows that
//! it is handled or refused. The numbers are those that comments at tests name.
//!
//! - 1: `TUNSETOFFLOAD` refuses a set as a whole:
//!   - `offloads.rs: the_kernel_refuses_what_the_ladder_leaves_out`
//!   - `offloads.rs: every_cap_ends_in_a_set_that_the_kernel_takes`
//! - 2: an old kernel has fewer kinds of trains, not none:
//!   - `../src/offloads.rs: the_ladder_goes_down_to_nothing`
//! - 3: offloads are the device's, not the queue's:
//!   - `offloads.rs: offloads_concern_the_queues_of_others_too`
//! - 4: they concern what is received; what may be sent is told by no call:
//!   - `create.rs: the_probe_leaves_no_trace`
//!   - `offloads.rs: the_probe_tells_what_the_kernel_understands`
//!   - `offloads.rs: a_tun_device_takes_trains_too`
//! - 5: trains in tunnels behind a short header lose every frame:
//!   - `offloads.rs: trains_in_tunnels_need_the_long_header`
//!   - `offloads.rs: a_train_in_a_tunnel_arrives_as_one`
//! - 6: a persistent device keeps header length and offloads:
//!   - `persistent.rs: what_the_former_user_set_is_forgotten`
//!   - `persistent.rs: offloads_end_where_there_is_no_header`
//!   - `persistent.rs: a_header_of_an_odd_length_is_not_joined`
//! - 7: some releases refuse valid trains:
//!   - `offloads.rs: a_train_that_the_kernel_refuses_costs_its_type_alone_and_not_for_ever`
//!   - `../src/fallback.rs: a_refused_type_is_withdrawn_alone`
//! - 8: metadata is checked, and `hdr_len` of what is received is a hint:
//!   - `offloads.rs: metadata_must_fit_the_frame`
//!   - `frames.rs: wrong_metadata_is_told_apart`
//! - 9: without checksum offload, others get `EIO` for UDP trains:
//!   - `offloads.rs: others_may_send_udp_trains_through_a_device_with_default_offloads`
//!   - `frames.rs: without_offloads_the_kernel_cuts_udp_trains`
//! - 10: trains forwarded to a poor interface are slow: each device has its switch:
//!   - `create.rs: offloads_follow_the_callers_cap`
//! - 12: no frame is longer than 65535 bytes behind its tags:
//!   - `shapes.rs: the_longest_packet_fits_the_buffer`
//! - 13: `IFF_NOFILTER` is `IFF_NO_PI`:
//!   - `filters.rs: the_flag_of_protocol_information_is_not_believed`
//!   - `filters.rs: classic_filters_are_refused_where_they_break_things`
//!   - `persistent.rs: a_classic_filter_that_was_left_does_not_give_a_dead_file`
//!   - `queues.rs: a_queue_that_a_classic_filter_keeps_out_is_not_called_attached`
//! - 14: `EINVAL` says nothing of what the device is:
//!   - `persistent.rs: a_mismatch_is_named_with_what_to_write_instead`
//!   - `persistent.rs: a_device_that_is_there_can_be_followed`
//! - 15: anyone may join a multi-queue device:
//!   - `queues.rs: a_foreign_queue_is_seen`
//!   - `create.rs: a_multi_queue_device_can_be_joined_unless_exclusively`
//! - 16: flags of further files are ignored:
//!   - `queues.rs: a_device_in_use_is_not_opened_with_another_prefix`
//!   - `persistent.rs: joining_leaves_the_carrier_alone`
//! - 17: detaching moves another queue, and loses frames:
//!   - `queues.rs: the_order_follows_every_attach_and_detach`
//!   - `queues.rs: a_detached_queue_loses_its_frames_and_may_still_send`
//!   - `queues.rs: a_detached_queue_with_napi_says_that_it_is_detached`
//! - 18: programs stay with the device:
//!   - `filters.rs: an_ebpf_filter_drops_until_it_is_taken_off`
//!   - `persistent.rs: what_the_former_user_let_through_and_where_is_forgotten`
//! - 21: `IFF_NAPI_FRAGS` is for the privileged:
//!   - `shapes.rs: napi_fragments_are_had_with_privilege_and_refused_without`
//! - 22: short frames have a fast path under conditions:
//!   - `settings.rs: the_send_buffer_is_unlimited_unless_told_otherwise`
//!   - `queues.rs: queues_that_were_handed_over_are_understood`
//! - 23: `EIO`, `EINVAL` and `EBADFD` mean three things:
//!   - `frames.rs: an_interface_that_is_down_neither_gives_nor_takes`
//!   - `frames.rs: a_deleted_device_is_gone_for_good`
//!   - `settings.rs: every_setting_of_a_deleted_device_says_so`
//! - 24: a short buffer cuts silently:
//!   - `frames.rs: a_short_buffer_cuts_silently`
//!   - `shapes.rs: protocol_information_tells_that_a_buffer_was_too_short`
//! - 25: a queue is always writable, and no call moves several frames:
//!   - `quirks.rs: a_queue_is_writable_as_long_as_the_interface_is_up`
//! - 26: a full ring drops silently:
//!   - `queues.rs: a_full_ring_drops_and_counts`
//! - 28: some settings have their time and their limits:
//!   - `shapes.rs: an_index_can_be_chosen`
//!   - `settings.rs: the_link_type_changes_while_the_interface_is_down`
//!   - `settings.rs: a_carrier_needs_a_queue`
//!   - `filters.rs: a_filter_that_linux_cannot_have_is_refused`
//!   - `create.rs: there_are_as_many_queues_as_asked_for_up_to_the_kernels_limit`
//! - 29: trains come with tags:
//!   - `offloads.rs: a_train_with_a_tag_says_where_its_checksum_is`
//! - 31: unknown flags are ignored, never refused:
//!   - `shapes.rs: back_pressure_is_had_or_refused_but_never_silently_missing`
//!
//! Elsewhere: 11 (`tx-tcp-mangleid-segmentation`) is a setting of the interface, for the doctor;
//! 19 is of other programs' steering; 20 (frames that XDP redirects come by the queue of their
//! processor's number) is told at `Device::set_steering`; 27 is of the io_uring engine; 30 is of
//! other libraries.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tapswitch_tap::{NetHeader, SendError};

mod common;
use common::{Host, LINUX_7_3, can_tap, config};

/// Quirk 25: so there is nothing to wait for, and what is lost is lost behind the queue.
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

#[test]
fn all_this_holds_on_linux_7_3() {
    LINUX_7_3.test_all();
}

const SOURCES: [(&str, &str); 11] = [
    ("create", include_str!("create.rs")),
    ("filters", include_str!("filters.rs")),
    ("frames", include_str!("frames.rs")),
    ("offloads", include_str!("offloads.rs")),
    ("persistent", include_str!("persistent.rs")),
    ("queues", include_str!("queues.rs")),
    ("quirks", include_str!("quirks.rs")),
    ("settings", include_str!("settings.rs")),
    ("shapes", include_str!("shapes.rs")),
    ("../src/offloads", include_str!("../src/offloads.rs")),
    ("../src/fallback", include_str!("../src/fallback.rs")),
];
