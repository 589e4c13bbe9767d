//! Packet-ins with the start of each packet: our experimenter message (OpenFlow 1.3.5 §7.5.4).
//!
//! A tapswitch ([`MANUFACTURER`](crate::MANUFACTURER)) buffers no packets, so by §7.4.1 its
//! packet-ins contain whole packets. A controller that only looks at them says so by this message,
//! and then gets as much as `max_len` or `miss_send_len` says. The layout is in
//! `docs/openflow.md`.

use crate::{CheckError, EXPERIMENTER, ErrorKind, Experimenter};

/// The start of a packet suffices on this connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StartsSuffice;

impl StartsSuffice {
    /// The body of the message.
    pub const fn experimenter(self) -> Experimenter {
        Experimenter { experimenter: EXPERIMENTER, exp_type: STARTS_SUFFICE, data: Vec::new() }
    }

    /// Decodes the body of a message.
    ///
    /// # Errors
    /// Another experimenter (`OFPBRC_BAD_EXPERIMENTER`), another type (`OFPBRC_BAD_EXP_TYPE`), or
    /// data, of which it has none (`OFPBRC_BAD_LEN`).
    pub fn of(body: &Experimenter) -> Result<Self, CheckError> {
        let refuse = |kind, text: String| Err(CheckError::new(kind, text));
        let Experimenter { experimenter, exp_type, data } = body;
        match (*experimenter, *exp_type, data.len()) {
            (EXPERIMENTER, STARTS_SUFFICE, 0) => Ok(Self),
            (EXPERIMENTER, STARTS_SUFFICE, len) => {
                refuse(ErrorKind::OFPBRC_BAD_LEN, format!("experimenter: {len} bytes left over"))
            }
            (EXPERIMENTER, other, _) => {
                let text = format!("experimenter {EXPERIMENTER:#x}: no type {other}");
                refuse(ErrorKind::OFPBRC_BAD_EXP_TYPE, text)
            }
            (other, ..) => {
                let text = format!("experimenter: unknown experimenter {other:#x}");
                refuse(ErrorKind::OFPBRC_BAD_EXPERIMENTER, text)
            }
        }
    }
}

/// `exp_type` of the message.
const STARTS_SUFFICE: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood_and_nothing_else() {
        let said = StartsSuffice.experimenter();
        assert_eq!(StartsSuffice::of(&said), Ok(StartsSuffice));
        let kind = |body: Experimenter| StartsSuffice::of(&body).unwrap_err().kind;
        let other = Experimenter { experimenter: 1, ..said.clone() };
        assert_eq!(kind(other), ErrorKind::OFPBRC_BAD_EXPERIMENTER);
        let other = Experimenter { exp_type: 2, ..said.clone() };
        assert_eq!(kind(other), ErrorKind::OFPBRC_BAD_EXP_TYPE);
        let other = Experimenter { data: vec![0], ..said };
        assert_eq!(kind(other), ErrorKind::OFPBRC_BAD_LEN);
    }
}
