//! Tests of ports: descriptions, port-mod, and the effect of their state on stations.

use std::sync::Arc;

use tapswitch_datapath::vlan::{PortMode, Provider, Translations, Vid};
use tapswitch_openflow::{PortConfig, PortFeatures, PortMod, PortReason, PortState, PortStatus};
use tapswitch_wire::EtherType;

use super::*;

fn port_mod(number: u32, config: PortConfig, mask: PortConfig) -> PortMod {
    let (port_no, hw_addr) = (PortNo(number), mac(number));
    PortMod { port_no, hw_addr, config, mask, advertise: PortFeatures::empty() }
}

fn status(body: &Body) -> &PortStatus {
    match body {
        Body::PortStatus(status) => status,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_port_is_added_once_and_then_modified() {
    let mut agent = agent();
    let added = agent.handle_port(port(9));
    assert_eq!(status(&added).reason, PortReason::ADD);
    let desc = status(&added).desc;
    assert_eq!((desc.port_no, desc.hw_addr), (PortNo(9), mac(9)));
    assert_eq!((desc.name.to_string(), desc.state), ("eth9".to_owned(), PortState::LIVE));
    let down = Port { state: PortState::LINK_DOWN, ..port(9) };
    let modified = agent.handle_port(down);
    assert_eq!(status(&modified).reason, PortReason::MODIFY);
    assert_eq!(status(&modified).desc.state, PortState::LINK_DOWN);
}

/// Controllers that send copies with S-tags between switches must know which ports do not pass
/// those.
#[test]
fn a_port_tells_whether_its_mode_lets_s_tags_pass() {
    let (all, tpid) = (Translations::default(), EtherType::SERVICE_VLAN);
    let provider = PortMode::Provider(Provider::new(None, tpid, all).unwrap());
    let access = PortMode::Access(Vid::MIN);
    for (mode, passes) in [(None, true), (Some(provider), true), (Some(access), false)] {
        let told = agent().handle_port(Port { mode: mode.map(Arc::new), ..port(9) });
        let state = status(&told).desc.state;
        assert_eq!(state.contains(PortState::NO_SERVICE_TAGS), !passes);
        assert!(state.contains(PortState::LIVE));
    }
}

#[test]
fn a_port_mod_changes_the_masked_bits_and_tells() {
    let mut agent = agent();
    let (down, no_fwd) = (PortConfig::PORT_DOWN, PortConfig::NO_FWD);
    let change = port_mod(1, down | no_fwd, down);
    let outcome = send(&mut agent, Body::PortMod(change));
    let [event] = &outcome.events[..] else { panic!("{outcome:?}") };
    assert_eq!((status(event).reason, status(event).desc.config), (PortReason::MODIFY, down));
    let outcome = send(&mut agent, Body::PortMod(port_mod(1, no_fwd, no_fwd)));
    assert_eq!(status(&outcome.events[0]).desc.config, down | no_fwd);
    let outcome = send(&mut agent, Body::PortMod(port_mod(1, PortConfig::empty(), down)));
    assert_eq!(status(&outcome.events[0]).desc.config, no_fwd);
    let before = agent.pipeline().snapshot().epoch;
    apply(&mut agent, Body::PortMod(port_mod(1, no_fwd, down | no_fwd)));
    assert_eq!(agent.pipeline().snapshot().epoch, before, "it is so already");
}

/// A port with `OFPPC_PORT_DOWN` does not have the live bit (OpenFlow 1.3.5 §6.5).
#[test]
fn a_port_that_was_told_to_be_down_is_not_live() {
    let mut agent = agent();
    let down = PortConfig::PORT_DOWN;
    for (config, state) in [(down, PortState::empty()), (PortConfig::empty(), PortState::LIVE)] {
        let outcome = send(&mut agent, Body::PortMod(port_mod(1, config, down)));
        assert_eq!(status(&outcome.events[0]).desc.state, state);
    }
}

#[test]
fn port_mods_that_cannot_be_are_refused() {
    let mut agent = agent();
    let none = PortConfig::empty();
    let base = port_mod(1, none, none);
    let unknown = PortConfig::from_bits_retain(1 << 1);
    for (change, kind) in [
        (port_mod(9, none, none), ErrorKind::OFPPMFC_BAD_PORT),
        (PortMod { port_no: PortNo::ANY, ..base }, ErrorKind::OFPPMFC_BAD_PORT),
        (PortMod { hw_addr: mac(2), ..base }, ErrorKind::OFPPMFC_BAD_HW_ADDR),
        (PortMod { config: unknown, mask: unknown, ..base }, ErrorKind::OFPPMFC_BAD_CONFIG),
    ] {
        assert_eq!(refusal(&mut agent, Body::PortMod(change)), kind, "{change:?}");
    }
}

#[test]
fn stations_behind_a_port_without_a_link_are_forgotten() {
    let mut agent = agent();
    for (last, port) in [(1, 1), (2, 2)] {
        let sighting = Sighting { station: station(last), port: PortNo(port) };
        assert!(agent.handle_sighting(sighting, START));
        assert!(!agent.handle_sighting(sighting, START), "known already");
    }
    agent.handle_port(Port { state: PortState::LINK_DOWN, ..port(1) });
    assert_eq!(agent.macs().table().port(station(1)), None);
    assert_eq!(agent.macs().table().port(station(2)), Some(PortNo(2)));
}

/// A worker's report of a station may arrive when its port is gone.
#[test]
fn a_station_is_not_learnt_where_no_port_is_live() {
    let mut agent = agent();
    let sighting = |port| Sighting { station: station(port), port: PortNo(port.into()) };
    agent.handle_port(Port { state: PortState::LINK_DOWN, ..port(1) });
    agent.handle_port_removed(PortNo(2));
    for (number, is_learnt) in [(1, false), (2, false), (3, true)] {
        assert_eq!(agent.handle_sighting(sighting(number), START), is_learnt, "port {number}");
    }
    assert_eq!(agent.macs().table().count(), 1);
}

#[test]
fn stations_behind_a_port_that_is_switched_off_are_forgotten() {
    let mut agent = agent();
    agent.handle_sighting(Sighting { station: station(1), port: PortNo(1) }, START);
    let down = PortConfig::PORT_DOWN;
    send(&mut agent, Body::PortMod(port_mod(1, down, down)));
    assert_eq!(agent.macs().table().port(station(1)), None);
}
