//! Identifiers: ports, groups, tables, buffers, datapaths (OpenFlow 1.3.5 §7.2).

use std::fmt;

/// A port of the switch, or a reserved port (`ofp_port_no`, §7.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct PortNo(pub u32);

impl PortNo {
    /// Highest number of a real port (`OFPP_MAX`).
    pub const MAX: Self = Self(0xffff_ff00);
    /// The port of arrival.
    pub const IN_PORT: Self = Self(0xffff_fff8);
    /// The flow tables; for packet-out only.
    pub const TABLE: Self = Self(0xffff_fff9);
    /// Non-OpenFlow forwarding.
    pub const NORMAL: Self = Self(0xffff_fffa);
    /// Every port of the VLAN except the port of arrival.
    pub const FLOOD: Self = Self(0xffff_fffb);
    /// Every port except the port of arrival.
    pub const ALL: Self = Self(0xffff_fffc);
    /// To the controller.
    pub const CONTROLLER: Self = Self(0xffff_fffd);
    /// The switch's own network stack.
    pub const LOCAL: Self = Self(0xffff_fffe);
    /// No port: a wildcard in requests, "none" elsewhere.
    pub const ANY: Self = Self(0xffff_ffff);

    /// True for a number that a real port may have: `1..=OFPP_MAX`.
    #[inline]
    pub const fn is_real(self) -> bool {
        self.0 != 0 && self.0 <= Self::MAX.0
    }
}

impl fmt::Display for PortNo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::IN_PORT => "IN_PORT",
            Self::TABLE => "TABLE",
            Self::NORMAL => "NORMAL",
            Self::FLOOD => "FLOOD",
            Self::ALL => "ALL",
            Self::CONTROLLER => "CONTROLLER",
            Self::LOCAL => "LOCAL",
            Self::ANY => "ANY",
            Self(number) => return write!(f, "{number}"),
        })
    }
}

/// A group of the group table (`ofp_group`, §7.3.4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct GroupId(pub u32);

impl GroupId {
    /// Highest number of a real group (`OFPG_MAX`).
    pub const MAX: Self = Self(0xffff_ff00);
    /// Every group, in a deletion.
    pub const ALL: Self = Self(0xffff_fffc);
    /// No group: a wildcard in requests, "none" elsewhere.
    pub const ANY: Self = Self(0xffff_ffff);
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Self::ALL => "ALL",
            Self::ANY => "ANY",
            Self(number) => return write!(f, "{number}"),
        })
    }
}

/// A flow table (`ofp_table`, §7.3.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct TableId(pub u8);

impl TableId {
    /// Highest number of a real table (`OFPTT_MAX`).
    pub const MAX: Self = Self(254);
    /// Every table, in requests that delete, configure or count.
    pub const ALL: Self = Self(255);
}

impl fmt::Display for TableId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::ALL => f.write_str("ALL"),
            Self(number) => write!(f, "{number}"),
        }
    }
}

/// A packet buffered by the switch for the controller (§7.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct BufferId(pub u32);

impl BufferId {
    /// The packet is not buffered (`OFP_NO_BUFFER`).
    pub const NO_BUFFER: Self = Self(0xffff_ffff);
}

/// Unique id of a datapath: by convention with a MAC address in the low 48 bits (§7.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct DatapathId(pub u64);

impl fmt::Display for DatapathId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// A text field of `N` bytes, terminated by a zero byte if shorter.
///
/// All `N` bytes are kept, so that decoding and encoding changes nothing.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Text<const N: usize>([u8; N]);

impl<const N: usize> Text<N> {
    /// The longest prefix of `text` that leaves room for the terminating zero byte and cuts no
    /// character.
    pub fn new(text: &str) -> Self {
        let mut bytes = [0; N];
        let room = text.len().min(N.saturating_sub(1));
        let len = (0..=room).rev().find(|&len| text.is_char_boundary(len)).unwrap_or(0);
        for (to, from) in bytes.iter_mut().zip(&text.as_bytes()[..len]) {
            *to = *from;
        }
        Self(bytes)
    }

    /// The field from its bytes on the wire.
    pub const fn from_bytes(bytes: [u8; N]) -> Self {
        Self(bytes)
    }

    /// The bytes on the wire, including those after the terminating zero.
    pub const fn as_bytes(&self) -> &[u8; N] {
        &self.0
    }

    /// The bytes before the terminating zero.
    pub fn content(&self) -> &[u8] {
        self.0.split(|&byte| byte == 0).next().unwrap_or_default()
    }
}

impl<const N: usize> Default for Text<N> {
    fn default() -> Self {
        Self([0; N])
    }
}

impl<const N: usize> From<&str> for Text<N> {
    fn from(text: &str) -> Self {
        Self::new(text)
    }
}

/// Escaped into one line, as a peer chose the text and it goes to terminals and logs.
impl<const N: usize> fmt::Display for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&in_one_line(&String::from_utf8_lossy(self.content())))
    }
}

impl<const N: usize> fmt::Debug for Text<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&String::from_utf8_lossy(self.content()), f)
    }
}

/// Escapes a peer's text for a log or a terminal: a line break would forge a line, and other
/// control characters would act on the terminal. They are shown by number.
pub fn in_one_line(text: &str) -> String {
    let mut line = String::new();
    for char in text.chars() {
        let is_harmless = !char.is_control()
            && !matches!(char, '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}');
        match is_harmless {
            true => line.push(char),
            false => line.extend(char.escape_unicode()),
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_numbers_have_names() {
        assert_eq!(PortNo(7).to_string(), "7");
        assert_eq!(PortNo::CONTROLLER.to_string(), "CONTROLLER");
        assert_eq!(GroupId::ALL.to_string(), "ALL");
        assert_eq!(TableId::ALL.to_string(), "ALL");
        assert!(PortNo::MAX.is_real() && !PortNo::IN_PORT.is_real() && !PortNo(0).is_real());
    }

    #[test]
    fn a_long_name_is_cut_between_characters() {
        assert_eq!(Text::<16>::new("a\n\u{1b}\u{202e}").to_string(), "a\\u{a}\\u{1b}\\u{202e}");
        assert_eq!(Text::<16>::new("tap0").to_string(), "tap0");
        assert_eq!(Text::<8>::new("12345678").to_string(), "1234567");
        assert_eq!(Text::<4>::new("aäöü").to_string(), "aä");
        assert_eq!(Text::<0>::new("x").to_string(), "");
    }

    #[test]
    fn bytes_behind_the_final_zero_are_kept() {
        let text = Text::from_bytes(*b"a\0b\xff");
        assert_eq!(text.to_string(), "a");
        assert_eq!(text.as_bytes(), b"a\0b\xff");
    }
}
