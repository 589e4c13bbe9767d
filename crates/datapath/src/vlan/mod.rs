//! Port modes: which VLANs a port is a member of, and how their frames look outside (IEEE
//! 802.1Q-2022 §6.9 and §8.6 for C-VLANs, §15 and §16 for provider bridges).
//!
//! Inside the switch the outermost tag is the VLAN: 0x8100 for C-VLANs, 0x88a8 for S-VLANs. That is
//! the *inner form*; tables, groups, NORMAL, caches and copies see nothing else. A mode applies at
//! the border of its port: [`PortMode::admit`] converts received frames to the inner form, before
//! they are parsed; [`PortMode::emit`] determines what is sent. Both look at two tags, and return
//! an [`Edit`] of the tags, or `None`: then the port does not accept the frame, or is not a member.
//!
//! | mode | outside | inside |
//! |---|---|---|
//! | access | untagged | C-tag |
//! | trunk | C-tag, or untagged for the native VLAN | C-tag |
//! | dot1q-tunnel | anything | the same behind an S-tag |
//! | qinq | C-tag, or untagged | C-tag (possibly another) behind the S-tag of the map |
//! | provider | S-tag, with the neighbour's TPID and identifiers | S-tag |
//!
//! Priority-tagged frames (identifier 0) count as untagged; their priority is kept. A tag that is
//! pushed around another gets its priority and drop eligibility.
//!
//! Untagged frames to the addresses that a bridge does not forward (§8.6.3) are in no VLAN, LLDP
//! among them. They come in unchanged, whatever the mode. Those of the controller are also sent
//! unchanged; if rules could do that, they would lead from one VLAN to another.
//!
//! `emit` undoes `admit`: a frame that leaves by a port with the same settings looks as it came in,
//! except for the priority of a priority tag. Frames within a tunnel are neither filtered nor
//! translated, and protocols of bridges are not tunnelled (IEEE 802.1Q-2022 §8.6.3).

mod edit;
mod map;
mod modes;
mod set;

pub use edit::Edit;
pub use map::{MapEntry, MapError, ServiceMap};
pub use modes::{
    PortMode, Provider, ProviderError, Selective, TranslationError, Translations, Trunk, Tunnel,
};
pub use set::{NoVid, Vid, VidSet};

pub(crate) use edit::admit;
