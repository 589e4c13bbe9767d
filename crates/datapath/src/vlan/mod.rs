//! Port modes: which VLANs a port is a member of, and how their frames look outside
//! (IEEE 802.1Q-2022 §6.9 and §8.6 for C-VLANs, §15 and §16 for provider bridges).
//!
//! Inside the switch the outermost tag says the VLAN: 0x8100 for C-VLANs, 0x88a8 for S-VLANs. That
//! is the *inner form*; tables, groups, NORMAL, caches and copies see nothing else. A mode works at
//! the border of its port: [`PortMode::admit`] makes the inner form of what comes in, before the
//! frame is parsed; [`PortMode::emit`] says what leaves. Both look at two tags, and answer with an
//! [`Edit`] of the tags, or with nothing: then the port does not take the frame, or is no member.
//!
//! | mode | outside | inside |
//! |---|---|---|
//! | access | untagged | C-tag |
//! | trunk | C-tag, or untagged for the native VLAN | C-tag |
//! | dot1q-tunnel | anything | the same behind an S-tag |
//! | qinq | C-tag, or untagged | C-tag (perhaps another) behind the S-tag that the map says |
//! | provider | S-tag, with a TPID and identifiers of the neighbour's | S-tag |
//!
//! Priority-tagged frames (identifier 0) count as untagged; their priority is kept. A tag that is
//! pushed around another takes over its priority and its drop eligibility.
//!
//! Untagged frames to the addresses that a bridge keeps to the link (§8.6.3) are below all that:
//! LLDP is in no VLAN. They come in as they are, whatever the mode. The controller's own leave so,
//! too; by a rule they would lead from one VLAN to another.
//!
//! `emit` undoes `admit`: a frame that leaves by a port with the same settings looks as it came in,
//! but for the priority of a priority tag. Nothing here filters or translates within a tunnel, and
//! nothing tunnels the protocols of bridges (IEEE 802.1Q-2022 §8.6.3).

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
