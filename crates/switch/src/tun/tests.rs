//! Tests of a tun port: received packets, sent frames, and address resolution.

use tapswitch_wire::parse;

use super::*;

const STATION: MacAddr = MacAddr([2, 0, 0, 0, 0, 9]);
const NOW: Millis = Millis(1_000_000);

fn link(options: &str) -> Arc<TunLink> {
    let spec: PortSpec = format!("1=tun:none0{options}").parse().unwrap();
    let crate::PortKind::Tun { peer, .. } = spec.kind else { panic!("{spec}") };
    let link = TunLink::new(&spec, &Namespace::current().unwrap(), peer).unwrap();
    // The device's own addresses have just been queried.
    assert!(link.device.is_due(NOW));
    Arc::new(link)
}

fn v4(src: [u8; 4], dst: [u8; 4]) -> Vec<u8> {
    let start = [0x45, 0, 0, 20, 0, 0, 0, 0, 64, 59, 0, 0];
    [&start[..], &src, &dst].concat()
}

fn framed(dst: MacAddr, src: MacAddr, kind: u16, payload: &[u8]) -> Vec<u8> {
    [&dst.0[..], &src.0, &kind.to_be_bytes(), payload].concat()
}

/// The result for a frame that is sent.
fn admit(link: &Arc<TunLink>, frame: &[u8]) -> Result<bool, DropReason> {
    let layout = parse(frame).unwrap().layout;
    let mut buf = [vec![0; HEADROOM], frame.to_vec()].concat();
    link.admit(&Frame::new(NetHeader::PLAIN, layout, &mut buf, HEADROOM, 0), NOW)
}

/// The header in front of a received packet.
fn header_of(link: &TunLink, packet: &[u8]) -> Option<[u8; ethernet::HEADER_LEN]> {
    link.header(packet, NOW)
}

fn next_said(link: &TunLink) -> Option<Vec<u8>> {
    let mut buf = vec![0; 2000];
    match link.recv_said(&mut buf) {
        Received::Frame { start, end, .. } => Some(buf[start..end].to_vec()),
        _ => None,
    }
}

fn arp(from: [u8; 4], target: [u8; 4]) -> Vec<u8> {
    let start = [&[0, 1, 8, 0, 6, 4, 0, 1][..], &STATION.0, &from, &[0; 6], &target].concat();
    framed(MacAddr::BROADCAST, STATION, 0x0806, &start)
}

#[test]
fn a_packet_is_addressed_to_where_its_destination_was_seen() {
    let there = v4([10, 0, 0, 9], [10, 0, 0, 1]);
    let back = v4([10, 0, 0, 1], [10, 0, 0, 9]);
    for (options, unknown) in
        [("", MacAddr::BROADCAST), (",peer=02:00:00:00:00:77", MacAddr([2, 0, 0, 0, 0, 0x77]))]
    {
        let link = link(options);
        let mac = link.mac();
        assert!(mac.is_unicast());
        assert_eq!(
            header_of(&link, &back),
            Some(*framed(unknown, mac, 0x0800, &[]).first_chunk().unwrap())
        );
        assert_eq!(admit(&link, &framed(mac, STATION, 0x0800, &there)), Ok(true));
        let header = header_of(&link, &back).unwrap();
        assert_eq!(header[..6], STATION.0);
        // The host has moved.
        let moved = MacAddr([2, 0, 0, 0, 0, 10]);
        assert_eq!(admit(&link, &framed(mac, moved, 0x0800, &there)), Ok(true));
        assert_eq!(header_of(&link, &back).unwrap()[..6], moved.0);
    }
}

/// Five minutes, as in the MAC table; answers for a silent host continue.
#[test]
fn a_station_that_says_nothing_is_forgotten() {
    let link = link("");
    let (station, host) = ([10, 0, 0, 9], [10, 0, 0, 1]);
    let (there, back) = (v4(station, host), v4(host, station));
    let to = |now| link.header(&back, Millis(NOW.0 + now)).unwrap()[..6].to_vec();
    assert_eq!(admit(&link, &framed(link.mac(), STATION, 0x0800, &there)), Ok(true));
    assert_eq!(to(299_999), STATION.0);
    assert_eq!(to(300_000), MacAddr::BROADCAST.0);
    let question = arp([10, 0, 0, 8], host);
    let layout = parse(&question).unwrap().layout;
    let mut buf = [vec![0; HEADROOM], question].concat();
    let frame = Frame::new(NetHeader::PLAIN, layout, &mut buf, HEADROOM, 0);
    assert_eq!(link.admit(&frame, Millis(NOW.0 + 100_000_000)), Ok(false));
}

#[test]
fn groups_have_addresses_of_their_own() {
    let link = link("");
    let to = |dst| header_of(&link, &v4([10, 0, 0, 1], dst)).unwrap()[..6].to_vec();
    assert_eq!(to([224, 128, 0, 251]), [1, 0, 0x5e, 0, 0, 251]);
    assert_eq!(to([255; 4]), [0xff; 6]);
    let mut packet = vec![0; 40];
    (packet[0], packet[24], packet[39]) = (0x60, 0xff, 2);
    let header = header_of(&link, &packet).unwrap();
    assert_eq!((&header[..6], &header[12..]), (&[0x33, 0x33, 0, 0, 0, 2][..], &[0x86, 0xdd][..]));
    assert_eq!(header_of(&link, &[0x80; 40]), None);
    assert_eq!(header_of(&link, &[0x45; 19]), None);
    assert_eq!(header_of(&link, &[]), None);
}

#[test]
fn what_goes_out_is_ip_and_for_the_port_or_it_is_dropped_by_name() {
    let link = link("");
    let packet = v4([10, 0, 0, 9], [10, 0, 0, 1]);
    let mac = link.mac();
    assert_eq!(admit(&link, &framed(MacAddr::BROADCAST, STATION, 0x0800, &packet)), Ok(true));
    let other = framed(MacAddr([2; 6]), STATION, 0x0800, &packet);
    assert_eq!(admit(&link, &other), Err(DropReason::NotAddressed));
    let tagged = framed(mac, STATION, 0x8100, &[&[0, 5, 8, 0][..], &packet].concat());
    assert_eq!(admit(&link, &tagged), Err(DropReason::NotIp));
    let lldp = framed(MacAddr([1, 0x80, 0xc2, 0, 0, 0xe]), STATION, 0x88cc, &packet);
    assert_eq!(admit(&link, &lldp), Err(DropReason::NotIp));
    assert_eq!(admit(&link, &framed(mac, STATION, 0x0800, &[0; 20])), Err(DropReason::NotIp));
}

#[test]
fn who_is_behind_the_device_is_found() {
    let link = link("");
    let (station, host) = ([10, 0, 0, 9], [10, 0, 0, 1]);
    assert_eq!(admit(&link, &arp(station, host)), Err(DropReason::NotIp), "not seen yet");
    assert_eq!(next_said(&link), None);
    header_of(&link, &v4(host, station)).unwrap();
    assert_eq!(admit(&link, &arp(station, host)), Ok(false));
    let answer = next_said(&link).unwrap();
    let body = [&[0, 1, 8, 0, 6, 4, 0, 2][..], &link.mac().0, &host, &STATION.0, &station].concat();
    assert_eq!(answer, framed(STATION, link.mac(), 0x0806, &body));
    assert_eq!(next_said(&link), None);
    // The sender of a request is learnt, and a duplicate-address probe gets no answer.
    assert_eq!(header_of(&link, &v4(host, station)).unwrap()[..6], STATION.0);
    assert_eq!(admit(&link, &arp(host, host)), Err(DropReason::NotIp));
}

#[test]
fn so_it_is_found_over_ipv6() {
    let link = link("");
    let address = |last| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last).octets();
    let (station, host) = (address(9), address(1));
    let ipv6 = |src: [u8; 16], dst: [u8; 16], body: &[u8]| {
        let len = u16::try_from(body.len()).unwrap().to_be_bytes();
        [&[0x60, 0, 0, 0, len[0], len[1], 58, 255][..], &src, &dst, body].concat()
    };
    header_of(&link, &ipv6(host, station, &[])).unwrap();
    assert!(next_said(&link).is_some(), "it asks");
    let group = MacAddr([0x33, 0x33, 0xff, 0, 0, 1]);
    let solicited = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, 1).octets();
    let body = [&[135, 0, 0, 0, 0, 0, 0, 0][..], &host, &[1, 1], &STATION.0].concat();
    let question = framed(group, STATION, 0x86dd, &ipv6(station, solicited, &body));
    assert_eq!(admit(&link, &question), Ok(false));
    let answer = next_said(&link).unwrap();
    assert_eq!((&answer[..6], &answer[6..12]), (&STATION.0[..], &link.mac().0[..]));
    assert_eq!((&answer[22..38], &answer[38..54]), (&host[..], &station[..]));
    assert_eq!(answer[54..56], [136, 0]);
    assert_eq!(answer[58..], [&[0x60, 0, 0, 0][..], &host, &[2, 1], &link.mac().0].concat());
    let sum = tapswitch_wire::checksum::pseudo_header_v6(&host, &station, 58, 32);
    assert!(sum.add_bytes(&answer[54..]).is_valid());
    // A solicitation that was forwarded by a router is not from a neighbour.
    let mut far = question;
    far[21] = 254;
    assert_eq!(admit(&link, &far), Ok(true));
}

#[test]
fn who_says_where_he_is_is_heard() {
    let link = link("");
    let (station, host) = ([10, 0, 0, 9], [10, 0, 0, 1]);
    let to = || header_of(&link, &v4(host, station)).unwrap()[..6].to_vec();
    let says = |mac: MacAddr, operation, from: [u8; 4], target: [u8; 4]| {
        let start = [&[0, 1, 8, 0, 6, 4, 0, operation][..], &mac.0, &from, &[0; 6], &target];
        framed(MacAddr::BROADCAST, mac, 0x0806, &start.concat())
    };
    // Gratuitous ARP, as a request and as a reply (RFC 5227 §3).
    for (operation, last) in [(1, 20), (2, 21)] {
        let mac = MacAddr([2, 0, 0, 0, 0, last]);
        let frame = says(mac, operation, station, station);
        assert_eq!(admit(&link, &frame), Err(DropReason::NotIp));
        assert_eq!(to(), mac.0, "{operation}");
    }
    // A reply to another host's request.
    let answer = says(STATION, 2, station, host);
    assert_eq!(admit(&link, &answer), Err(DropReason::NotIp));
    assert_eq!(to(), STATION.0);
    // A reply to the port's own request.
    let mac = MacAddr([2, 0, 0, 0, 0, 23]);
    let mut answer = says(mac, 2, station, host);
    answer[..6].copy_from_slice(&link.mac().0);
    assert_eq!(admit(&link, &answer), Ok(false));
    assert_eq!(to(), mac.0);
    // A probe claims nothing.
    let probe = says(MacAddr([2, 0, 0, 0, 0, 22]), 1, [0; 4], station);
    assert_eq!(admit(&link, &probe), Err(DropReason::NotIp));
    assert_eq!(to(), mac.0);
}

#[test]
fn who_is_unknown_is_asked_for() {
    let link = link("");
    let (host, station) = ([10, 0, 0, 1], [10, 0, 0, 9]);
    let sent = |src, dst, after| link.header(&v4(src, dst), Millis(NOW.0 + after)).unwrap();
    assert_eq!(sent(host, station, 0)[..6], [0xff; 6]);
    let body = [&[0, 1, 8, 0, 6, 4, 0, 1][..], &link.mac().0, &host, &[0; 6], &station].concat();
    let question = framed(MacAddr::BROADCAST, link.mac(), 0x0806, &body);
    assert_eq!(next_said(&link), Some(question));
    // Not again at once, and one request at a time for any address.
    sent(host, station, 500);
    sent(host, [10, 0, 0, 8], 500);
    sent(host, [10, 0, 0, 7], 500);
    assert_eq!(next_said(&link).map(|frame| frame[38..].to_vec()), Some(vec![10, 0, 0, 8]));
    sent(host, station, 1000);
    assert_eq!(next_said(&link).map(|frame| frame[38..].to_vec()), Some(station.to_vec()));
    // A packet without a source address triggers no request, and with `peer=` there is no need for
    // one.
    sent([0; 4], [10, 0, 0, 6], 2000);
    assert_eq!(next_said(&link), None);
    let link = self::link(",peer=02:00:00:00:00:77");
    header_of(&link, &v4(host, station)).unwrap();
    assert_eq!(next_said(&link), None);
}

#[test]
fn who_is_unknown_is_asked_for_over_ipv6() {
    let link = link("");
    let address = |last| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0x0a0b, last);
    let (host, station) = (address(1).octets(), address(0x0c09));
    let packet = [&[0x60, 0, 0, 0, 0, 0, 59, 64][..], &host, &station.octets()].concat();
    assert_eq!(header_of(&link, &packet).unwrap()[..6], [0xff; 6]);
    let asked = next_said(&link).unwrap();
    assert_eq!(asked[..6], [0x33, 0x33, 0xff, 0x0b, 0x0c, 0x09]);
    let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff0b, 0x0c09).octets();
    assert_eq!((&asked[22..38], &asked[38..54]), (&host[..], &group[..]));
    assert_eq!((asked[21], asked[54]), (255, 135));
    let told = [&station.octets()[..], &[1, 1], &link.mac().0].concat();
    assert_eq!(asked[62..], told);
    let sum = tapswitch_wire::checksum::pseudo_header_v6(&host, &group, 58, 32);
    assert!(sum.add_bytes(&asked[54..]).is_valid());
}

#[test]
fn who_advertises_is_heard() {
    let link = link("");
    let address = |last| Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, last).octets();
    let (station, host) = (address(9), address(1));
    let link_local = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 9).octets();
    let all_nodes = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1).octets();
    let ipv6 = |limit, src: [u8; 16], dst: [u8; 16], body: &[u8]| {
        let len = u16::try_from(body.len()).unwrap().to_be_bytes();
        [&[0x60, 0, 0, 0, len[0], len[1], 58, limit][..], &src, &dst, body].concat()
    };
    let to = || header_of(&link, &ipv6(255, host, station, &[])).unwrap()[..6].to_vec();
    let advertises = |limit, option: &[u8]| {
        let body = [&[136, 0, 0, 0, 0x20, 0, 0, 0][..], &station, option].concat();
        let group = MacAddr([0x33, 0x33, 0, 0, 0, 1]);
        framed(group, STATION, 0x86dd, &ipv6(limit, link_local, all_nodes, &body))
    };
    let other = [&[2, 1][..], &[2, 0, 0, 0, 0, 30]].concat();
    assert_eq!(admit(&link, &advertises(254, &other)), Ok(true));
    assert_eq!(to(), MacAddr::BROADCAST.0, "no neighbour's");
    assert_eq!(admit(&link, &advertises(255, &other)), Ok(true));
    assert_eq!(to(), other[2..]);
    assert_eq!(admit(&link, &advertises(255, &[])), Ok(true));
    assert_eq!(to(), STATION.0);
}

#[test]
fn what_is_claimed_in_front_is_not_behind() {
    let link = link("");
    let (station, host) = ([10, 0, 0, 9], [10, 0, 0, 1]);
    header_of(&link, &v4(host, station)).unwrap();
    assert!(next_said(&link).is_some(), "it asks");
    assert_eq!(admit(&link, &arp(station, host)), Ok(false));
    assert!(next_said(&link).is_some());
    // The host is in front now, and claims its address.
    assert_eq!(admit(&link, &arp(host, host)), Err(DropReason::NotIp));
    assert_eq!(admit(&link, &arp(station, host)), Err(DropReason::NotIp));
    assert_eq!(next_said(&link), None);
    assert_eq!(header_of(&link, &v4([10, 0, 0, 2], host)).unwrap()[..6], STATION.0);
    // It has moved back.
    header_of(&link, &v4(host, station)).unwrap();
    assert_eq!(admit(&link, &arp(station, host)), Ok(false));
    assert_eq!(header_of(&link, &v4([10, 0, 0, 2], host)).unwrap()[..6], MacAddr::BROADCAST.0);
}

#[test]
fn what_a_port_says_takes_none_of_what_is_read_ahead() {
    let device = crate::rx::RxDevice::TunSaid(link(""));
    assert!(!device.reads_ahead());
    let queue =
        crate::rx::RxQueue::new(tapswitch_openflow::PortNo(1), None, 1, device).with_ahead(1 << 20);
    assert!(queue.intake.ahead.is_none());
}

#[test]
fn tables_and_answers_are_bounded() {
    let link = link("");
    let mut answered = 0;
    for number in 0..10_000u32 {
        let [_, _, c, d] = number.to_be_bytes();
        header_of(&link, &v4([10, 1, c, d], [224, 0, 0, 9])).unwrap();
        match admit(&link, &arp([10, 0, c, d], [10, 1, c, d])) {
            Ok(false) => answered += 1,
            other => assert_eq!(other, Err(DropReason::EgressFull), "it is IP that is asked for"),
        }
    }
    assert_eq!(answered, ANSWERS_MAX);
    assert!(link.behind.len() <= table::ENTRIES_MAX);
    assert!(link.stations.len() <= table::ENTRIES_MAX);
    assert_eq!(std::iter::from_fn(|| next_said(&link)).count(), ANSWERS_MAX);
}
