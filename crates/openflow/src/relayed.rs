//! A connection that another controller relays: our experimenter message (OpenFlow 1.3.5 §7.5.4).
//!
//! A controller that has a switch which the leader has not passes the bytes of their connection on.
//! It says so first, after the hello, and the switch knows nothing of it. The layout is in
//! `docs/openflow.md`.

use crate::{EXPERIMENTER, Experimenter};

/// The connection is relayed by another controller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Relayed {
    /// Name of that controller among those that share its store.
    pub by: String,
}

impl Relayed {
    /// The body of the message.
    pub fn experimenter(&self) -> Experimenter {
        let data = self.by.as_bytes().to_vec();
        Experimenter { experimenter: EXPERIMENTER, exp_type: RELAYED, data }
    }

    /// The meaning of a message's body, if it is such a message, with a name of at most 64 letters
    /// and digits of ASCII: it is logged, and anyone may connect.
    pub fn of(body: &Experimenter) -> Option<Self> {
        let Experimenter { experimenter: EXPERIMENTER, exp_type: RELAYED, data } = body else {
            return None;
        };
        let is_name = data.len() <= MAX_NAME_LEN && data.iter().all(u8::is_ascii_alphanumeric);
        let by = String::from_utf8(data.clone()).ok().filter(|_| is_name)?;
        Some(Self { by })
    }
}

/// `exp_type` of the message.
const RELAYED: u32 = 2;
const MAX_NAME_LEN: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_understood_and_nothing_else() {
        let relayed = Relayed { by: "a1b2".to_owned() };
        let said = relayed.experimenter();
        assert_eq!(Relayed::of(&said), Some(relayed));
        let others = [
            Experimenter { experimenter: 1, ..said.clone() },
            Experimenter { exp_type: 1, ..said.clone() },
            Experimenter { data: vec![0xff], ..said.clone() },
            Experimenter { data: b"a\nb".to_vec(), ..said.clone() },
            Experimenter { data: vec![b'a'; MAX_NAME_LEN + 1], ..said },
        ];
        assert!(others.iter().all(|other| Relayed::of(other).is_none()));
    }
}
