//! Messages of experimenters (OpenFlow 1.3.5 §7.5.4).

use crate::codec::layout_codec;

/// `OFPT_EXPERIMENTER` (`ofp_experimenter_header`), also the body of an experimenter's multipart
/// (`ofp_experimenter_multipart_header`, §7.3.5.15).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Experimenter {
    /// Who defines the message: an OUI, or a number from the ONF.
    pub experimenter: u32,
    /// What it is, by the experimenter's own count.
    pub exp_type: u32,
    /// The rest.
    pub data: Vec<u8>,
}

layout_codec!(Experimenter { experimenter, exp_type, data });
