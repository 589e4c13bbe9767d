//! Signed LLDP frames (IEEE 802.1AB-2016) that prove links between switches.
//!
//! The mandatory TLVs name the sending port and switch for other tools and people. A TLV of our own
//! holds switch and port again with a number and a signature (HMAC-SHA-256, truncated to 16 bytes):
//! without the key nobody can forge a link. Only the latest numbers are accepted, so a replayed
//! frame proves nothing. What remains possible is to relay a fresh frame between two ports: such a
//! relay is the link.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use tapswitch_openflow::{DatapathId, PortNo};
use tapswitch_wire::{EtherType, MacAddr};

use crate::place::Place;

/// Signs and verifies probes.
#[derive(Clone)]
pub(super) struct Signer {
    mac: Hmac<Sha256>,
}

/// Content of a probe: its source port and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Probe {
    pub(super) from: Place,
    /// Increases with each probe of a port.
    pub(super) number: u64,
}

/// Why a frame proves no link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unproved {
    /// LLDP of another system, which is legitimate.
    Foreign,
    /// Has our TLV with an invalid signature: forged, or of another controller.
    Forged,
    /// Our own, but in transit for so long that its sending is no longer remembered.
    Late,
}

impl std::fmt::Debug for Signer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Signer")
    }
}

impl Signer {
    /// A signer with this key.
    pub(super) fn new(key: &[u8; 32]) -> Self {
        // The block of SHA-256 is longer than the key, which HMAC pads with zeros.
        let mut block = [0; 64];
        block[..32].copy_from_slice(key);
        Self { mac: Hmac::new(&block.into()) }
    }

    /// Encodes a signed probe.
    pub(super) fn frame(&self, probe: Probe) -> Vec<u8> {
        let Place { switch, port } = probe.from;
        let mut frame = [NEAREST_BRIDGE.0, source(probe.from).0].concat();
        frame.extend(EtherType::LLDP.0.to_be_bytes());
        put(&mut frame, CHASSIS_ID, &[&[LOCAL], format!("{:#x}", switch.0).as_bytes()]);
        put(&mut frame, PORT_ID, &[&[LOCAL], port.0.to_string().as_bytes()]);
        put(&mut frame, TIME_TO_LIVE, &[&TTL.to_be_bytes()]);
        let said = said(probe);
        put(&mut frame, ORGANIZATION, &[&OUI, &[SUBTYPE], &said, &self.signature(&said)]);
        put(&mut frame, END, &[]);
        frame.resize(frame.len().max(MIN_LEN), 0);
        frame
    }

    /// Decodes a probe and verifies its signature.
    pub(super) fn read(&self, frame: &[u8]) -> Result<Probe, Unproved> {
        let own = own_tlv(frame).ok_or(Unproved::Foreign)?;
        let (said, signature) = own.split_at_checked(SAID_LEN).ok_or(Unproved::Forged)?;
        let mac = self.mac.clone().chain_update(said);
        let is_signed = signature.len() == SIGNATURE_LEN;
        mac.verify_truncated_left(signature).map_err(|_| Unproved::Forged)?;
        match (is_signed, said.first_chunk(), said.get(8..12), said.last_chunk()) {
            (true, Some(switch), Some(&[a, b, c, d]), Some(number)) => Ok(Probe {
                from: Place {
                    switch: DatapathId(u64::from_be_bytes(*switch)),
                    port: PortNo(u32::from_be_bytes([a, b, c, d])),
                },
                number: u64::from_be_bytes(*number),
            }),
            _ => Err(Unproved::Forged),
        }
    }

    fn signature(&self, said: &[u8]) -> [u8; SIGNATURE_LEN] {
        let whole = self.mac.clone().chain_update(said).finalize().into_bytes();
        let mut cut = [0; SIGNATURE_LEN];
        cut.copy_from_slice(&whole[..SIGNATURE_LEN]);
        cut
    }
}

/// Switch, port and number: the signed bytes.
fn said(probe: Probe) -> [u8; SAID_LEN] {
    let mut said = [0; SAID_LEN];
    said[..8].copy_from_slice(&probe.from.switch.0.to_be_bytes());
    said[8..12].copy_from_slice(&probe.from.port.0.to_be_bytes());
    said[12..].copy_from_slice(&probe.number.to_be_bytes());
    said
}

/// A locally administered source address for the port, as the port's own may be unknown.
fn source(from: Place) -> MacAddr {
    let [.., a, b, c] = from.switch.0.to_be_bytes();
    let [.., d, e] = from.port.0.to_be_bytes();
    MacAddr([0x02, a, b, c, d, e])
}

/// Appends a TLV; type and length share 16 bits (§8.4). Our values always fit the nine bits of the
/// length.
fn put(frame: &mut Vec<u8>, kind: u8, parts: &[&[u8]]) {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let head = u16::from(kind) << 9 | u16::try_from(len).unwrap_or(MAX_TLV_LEN) & MAX_TLV_LEN;
    frame.extend(head.to_be_bytes());
    parts.iter().for_each(|part| frame.extend_from_slice(part));
}

/// Content of our own TLV after its subtype.
fn own_tlv(frame: &[u8]) -> Option<&[u8]> {
    let mut rest = frame.get(HEADER_LEN..)?;
    loop {
        let (head, behind) = rest.split_first_chunk()?;
        let head = u16::from_be_bytes(*head);
        let (value, next) = behind.split_at_checked(usize::from(head & MAX_TLV_LEN))?;
        match (head >> 9, value) {
            (ORGANIZATION_TYPE, [a, b, c, SUBTYPE, own @ ..]) if [*a, *b, *c] == OUI => {
                return Some(own);
            }
            (0, _) => return None,
            _ => rest = next,
        }
    }
}

/// Bridges do not forward frames to this address (IEEE 802.1AB-2016 §7.1).
pub(crate) const NEAREST_BRIDGE: MacAddr = MacAddr([0x01, 0x80, 0xc2, 0, 0, 0x0e]);
const HEADER_LEN: usize = 14;
/// Minimum Ethernet frame without its FCS.
const MIN_LEN: usize = 60;
const END: u8 = 0;
const CHASSIS_ID: u8 = 1;
const PORT_ID: u8 = 2;
const TIME_TO_LIVE: u8 = 3;
const ORGANIZATION: u8 = 127;
const ORGANIZATION_TYPE: u16 = 127;
const MAX_TLV_LEN: u16 = (1 << 9) - 1;
/// Subtype of chassis and port id: locally assigned.
const LOCAL: u8 = 7;
/// Time to live in seconds.
const TTL: u16 = 10;
/// Unregistered OUI in ASCII.
const OUI: [u8; 3] = *b"tap";
const SUBTYPE: u8 = 1;
const SAID_LEN: usize = 20;
const SIGNATURE_LEN: usize = 16;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn probe() -> Probe {
        let from = Place { switch: DatapathId(0x0102_0304_0506_0708), port: PortNo(9) };
        Probe { from, number: 77 }
    }

    #[test]
    fn who_has_the_key_reads_what_was_said() {
        let signer = Signer::new(&[7; 32]);
        let frame = signer.frame(probe());
        assert_eq!(signer.read(&frame), Ok(probe()));
        assert!(frame.len() >= MIN_LEN && frame.len() < 200, "{}", frame.len());
        assert_eq!(Signer::new(&[8; 32]).read(&frame), Err(Unproved::Forged));
    }

    #[test]
    fn every_changed_bit_of_ours_is_noticed() {
        let signer = Signer::new(&[7; 32]);
        let frame = signer.frame(probe());
        let own = own_tlv(&frame).unwrap();
        let start = own.as_ptr() as usize - frame.as_ptr() as usize;
        for bit in start * 8..(start + own.len()) * 8 {
            let mut changed = frame.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(signer.read(&changed), Err(Unproved::Forged), "bit {bit}");
        }
    }

    #[test]
    fn lldp_of_others_is_not_taken_for_forged() {
        let signer = Signer::new(&[7; 32]);
        let mut frame = signer.frame(probe());
        let at = frame.windows(3).position(|bytes| bytes == OUI).unwrap();
        frame[at] = 0;
        assert_eq!(signer.read(&frame), Err(Unproved::Foreign));
        assert_eq!(signer.read(&frame[..14]), Err(Unproved::Foreign));
    }

    #[test]
    fn a_shorter_signature_is_none() {
        let signer = Signer::new(&[7; 32]);
        let said = said(probe());
        let mut frame = vec![0; HEADER_LEN];
        let signature = signer.signature(&said);
        put(&mut frame, ORGANIZATION, &[&OUI, &[SUBTYPE], &said, &signature[..8]]);
        assert_eq!(signer.read(&frame), Err(Unproved::Forged));
    }

    proptest! {
        #[test]
        fn whatever_comes_does_no_harm(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let signer = Signer::new(&[7; 32]);
            prop_assert!(signer.read(&bytes).is_err());
        }
    }
}
