//! Switch configuration (OpenFlow 1.3.5 §7.3.2).

use crate::codec::{layout_codec, newtype_codec};
use crate::{CONTROLLER_MAX_LEN, CONTROLLER_MAX_LEN_NO_BUFFER, CheckError, ErrorKind};

/// `OFPT_GET_CONFIG_REPLY` and `OFPT_SET_CONFIG` (`ofp_switch_config`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SwitchConfig {
    /// Handling of IP fragments.
    pub flags: ConfigFlags,
    /// Bytes of a packet to send to the controller where no output action says how many, as for an
    /// invalid TTL; [`crate::CONTROLLER_MAX_LEN_NO_BUFFER`] for whole packets, unbuffered.
    pub miss_send_len: u16,
}

impl SwitchConfig {
    /// Validates flags and length.
    pub fn check(&self) -> Result<(), CheckError> {
        if self.flags > ConfigFlags::FRAG_REASM {
            let text = format!("set_config: unknown flags {:#x}", self.flags.0);
            return Err(CheckError::new(ErrorKind::OFPSCFC_BAD_FLAGS, text));
        }
        let len = self.miss_send_len;
        if len > CONTROLLER_MAX_LEN && len != CONTROLLER_MAX_LEN_NO_BUFFER {
            let text = format!("set_config: miss_send_len {len} is reserved");
            return Err(CheckError::new(ErrorKind::OFPSCFC_BAD_LEN, text));
        }
        Ok(())
    }
}

layout_codec!(SwitchConfig { flags, miss_send_len });

impl Default for SwitchConfig {
    /// Initial configuration: no special handling of fragments, 128 bytes by default.
    fn default() -> Self {
        Self { flags: ConfigFlags::FRAG_NORMAL, miss_send_len: DEFAULT_MISS_SEND_LEN }
    }
}

/// Handling of IP fragments (`ofp_config_flags`). Unknown values are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct ConfigFlags(pub u16);

impl ConfigFlags {
    /// No special handling.
    pub const FRAG_NORMAL: Self = Self(0);
    /// Drop fragments.
    pub const FRAG_DROP: Self = Self(1);
    /// Reassemble, if the switch is able to ([`crate::Capabilities::IP_REASM`]).
    pub const FRAG_REASM: Self = Self(2);
}

newtype_codec!(ConfigFlags);

/// `OFP_DEFAULT_MISS_SEND_LEN`.
pub const DEFAULT_MISS_SEND_LEN: u16 = 128;
