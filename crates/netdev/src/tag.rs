//! The VLAN tag that the kernel removes, and its restoration.
//!
//! On reception Linux moves the outermost 802.1Q or 802.1ad tag from the frame into the buffer's
//! metadata, as hardware would (`skb_vlan_untag`). A packet socket gets it in `PACKET_AUXDATA`
//! (packet(7)). Inner tags stay in the frame.

use tapswitch_wire::ethernet::{ADDRESSES_LEN, TAG_LEN};
use tapswitch_wire::{EtherType, Tag};

/// Metadata that the kernel passes with a frame (`struct tpacket_auxdata`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Auxdata {
    pub(crate) status: u32,
    /// Length of the frame in bytes before it was truncated to the buffer.
    pub(crate) len: u32,
    pub(crate) snaplen: u32,
    pub(crate) mac: u16,
    pub(crate) net: u16,
    pub(crate) vlan_tci: u16,
    pub(crate) vlan_tpid: u16,
}

impl Auxdata {
    /// The tag that the kernel removed, if any. Kernels before 3.14 do not report its TPID; they
    /// only support 802.1Q.
    #[inline]
    pub(crate) fn tag(&self) -> Option<Tag> {
        if self.status & TP_STATUS_VLAN_VALID == 0 {
            return None;
        }
        let tpid = if self.status & TP_STATUS_VLAN_TPID_VALID == 0 {
            EtherType::VLAN
        } else {
            EtherType(self.vlan_tpid)
        };
        Some(Tag::new(tpid, self.vlan_tci))
    }
}

/// Inserts `tag` between the addresses and the type of the frame that starts at `start`, by moving
/// the addresses into the headroom. Returns the new start of the frame, or `None` if there is no
/// room or no frame.
#[inline]
pub(crate) fn insert(buf: &mut [u8], start: usize, tag: Tag) -> Option<usize> {
    let new_start = start.checked_sub(TAG_LEN)?;
    let front = buf.get_mut(new_start..)?.first_chunk_mut::<{ TAG_LEN + ADDRESSES_LEN }>()?;
    front.copy_within(TAG_LEN.., 0);
    let ([p0, p1], [c0, c1]) = (tag.tpid, tag.tci);
    front[ADDRESSES_LEN..].copy_from_slice(&[p0, p1, c0, c1]);
    Some(new_start)
}

/// `vlan_tci` holds a tag (`include/uapi/linux/if_packet.h`).
const TP_STATUS_VLAN_VALID: u32 = 1 << 4;
/// `vlan_tpid` holds its TPID, Linux 3.14.
const TP_STATUS_VLAN_TPID_VALID: u32 = 1 << 6;

#[cfg(test)]
mod tests {
    use super::*;

    const UNTAGGED: &[u8] = b"....DDDDDDSSSSSSTTpayload";

    #[test]
    fn a_tag_goes_between_the_addresses_and_the_type() {
        let mut buf = UNTAGGED.to_vec();
        let start = insert(&mut buf, 4, Tag::new(EtherType::SERVICE_VLAN, 0xe123));
        assert_eq!(start, Some(0));
        assert_eq!(buf, b"DDDDDDSSSSSS\x88\xa8\xe1\x23TTpayload");
    }

    #[test]
    fn without_room_nothing_is_touched() {
        let tag = Tag::new(EtherType::VLAN, 1);
        let mut buf = UNTAGGED.to_vec();
        assert_eq!(insert(&mut buf, 3, tag), None);
        assert_eq!(insert(&mut buf[..15], 4, tag), None);
        assert_eq!(buf, UNTAGGED);
    }

    #[test]
    fn a_tag_is_there_only_when_the_kernel_says_so() {
        let told = Auxdata { vlan_tci: 5, vlan_tpid: 0x88a8, ..Auxdata::default() };
        assert_eq!(told.tag(), None);
        let old = Auxdata { status: TP_STATUS_VLAN_VALID, ..told };
        assert_eq!(old.tag(), Some(Tag::new(EtherType::VLAN, 5)));
        let new = Auxdata { status: old.status | TP_STATUS_VLAN_TPID_VALID, ..told };
        assert_eq!(new.tag(), Some(Tag::new(EtherType::SERVICE_VLAN, 5)));
        // VLAN 0 without priority is a tag as well.
        assert_eq!(
            Auxdata { vlan_tci: 0, ..new }.tag(),
            Some(Tag::new(EtherType::SERVICE_VLAN, 0))
        );
    }
}
