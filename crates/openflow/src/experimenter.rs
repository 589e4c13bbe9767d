//! Experimenter messages (OpenFlow 1.3.5 §7.5.4).

use crate::codec::layout_codec;

/// `OFPT_EXPERIMENTER` (`ofp_experimenter_header`), also the body of an experimenter's multipart
/// (`ofp_experimenter_multipart_header`, §7.3.5.15).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Experimenter {
    /// Experimenter id: an OUI, or a number assigned by the ONF.
    pub experimenter: u32,
    /// Type, defined by the experimenter.
    pub exp_type: u32,
    /// Data after the header.
    pub data: Vec<u8>,
}

layout_codec!(Experimenter { experimenter, exp_type, data });
