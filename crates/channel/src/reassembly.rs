//! Joins the parts of multipart messages (OpenFlow 1.3.5 §7.3.5).
//!
//! Parts belong together by transaction ID; those of several transactions may be interleaved. A
//! failed transaction is remembered until its last part, so that its remaining parts are not
//! mistaken for a new one.

use std::collections::BTreeMap;

use tapswitch_openflow::multipart::AppendError;
use tapswitch_openflow::{ErrorKind, MultipartReply, MultipartRequest};

/// A multipart message of either direction.
pub(crate) trait Part: Sized {
    /// Whether more parts follow.
    fn has_more(&self) -> bool;

    /// Appends the next part to this one.
    fn append(&mut self, next: Self) -> Result<(), AppendError>;
}

impl Part for MultipartRequest {
    fn has_more(&self) -> bool {
        self.more
    }

    fn append(&mut self, next: Self) -> Result<(), AppendError> {
        self.append(next)
    }
}

impl Part for MultipartReply {
    fn has_more(&self) -> bool {
        self.more
    }

    fn append(&mut self, next: Self) -> Result<(), AppendError> {
        self.append(next)
    }
}

/// Incomplete multipart messages.
#[derive(Debug)]
pub(crate) struct Reassembly<T> {
    max_len: usize,
    max_parts: usize,
    open: BTreeMap<u32, Open<T>>,
    /// Total length of `open` in bytes.
    len: usize,
}

/// An incomplete multipart message.
#[derive(Debug)]
struct Open<T> {
    /// The parts so far; `None` before the first, and after a failure.
    joined: Option<T>,
    /// Whether it failed.
    has_failed: bool,
    /// Length of the parts so far in bytes.
    len: usize,
    /// Number of parts so far.
    part_count: usize,
}

/// Why parts cannot be joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ReassemblyError {
    #[error("the multipart message is longer than {max_len} bytes or {max_parts} parts")]
    TooLong { max_len: usize, max_parts: usize },
    #[error("{MAX_OPEN_MULTIPARTS} other multipart messages are unfinished")]
    TooMany,
    #[error(transparent)]
    Append(#[from] AppendError),
}

impl ReassemblyError {
    /// Whether the remaining parts could not be distinguished from a new multipart.
    pub(crate) const fn is_fatal(&self) -> bool {
        matches!(self, Self::TooMany)
    }

    /// The error for the sender.
    pub(crate) const fn kind(&self) -> ErrorKind {
        match self {
            Self::TooLong { .. } | Self::TooMany => ErrorKind::OFPBRC_MULTIPART_BUFFER_OVERFLOW,
            // More than one request in a sequence (§7.3.5).
            Self::Append(AppendError::Single { .. }) => ErrorKind::OFPBRC_BAD_LEN,
            Self::Append(_) => ErrorKind::OFPBRC_BAD_MULTIPART,
        }
    }
}

impl<T: Part> Reassembly<T> {
    /// Sets the limits: bytes of all incomplete messages, and parts of each.
    pub(crate) const fn new(max_len: usize, max_parts: usize) -> Self {
        Self { max_len, max_parts, open: BTreeMap::new(), len: 0 }
    }

    /// Handles a part of `len` bytes. Returns the whole message after the last part.
    pub(crate) fn handle_part(
        &mut self,
        xid: u32,
        part: T,
        len: usize,
    ) -> Result<Option<T>, ReassemblyError> {
        let has_more = part.has_more();
        let is_new = !self.open.contains_key(&xid);
        if is_new && !has_more {
            return Ok(Some(part));
        }
        if is_new && self.open.len() >= MAX_OPEN_MULTIPARTS {
            return Err(ReassemblyError::TooMany);
        }
        let joined = self.join(xid, part, len);
        match has_more {
            true => joined.map(|()| None),
            false => {
                let whole = self.finish(xid);
                joined.map(|()| whole)
            }
        }
    }

    /// Whether parts of this message are missing.
    pub(crate) fn is_open(&self, xid: u32) -> bool {
        self.open.contains_key(&xid)
    }

    fn join(&mut self, xid: u32, part: T, len: usize) -> Result<(), ReassemblyError> {
        let (max_len, max_parts) = (self.max_len, self.max_parts);
        let open = self.open.entry(xid).or_default();
        if open.has_failed {
            return Ok(()); // The error was reported with the part that caused it.
        }
        open.len += len;
        open.part_count += 1;
        self.len += len;
        let result = if self.len > max_len || open.part_count > max_parts {
            Err(ReassemblyError::TooLong { max_len, max_parts })
        } else {
            open.append(part).map_err(ReassemblyError::from)
        };
        if result.is_err() {
            open.has_failed = true;
            open.joined = None;
            self.len -= std::mem::take(&mut open.len);
        }
        result
    }

    fn finish(&mut self, xid: u32) -> Option<T> {
        let open = self.open.remove(&xid)?;
        self.len -= open.len;
        open.joined
    }
}

impl<T: Part> Open<T> {
    fn append(&mut self, part: T) -> Result<(), AppendError> {
        match &mut self.joined {
            Some(joined) => joined.append(part),
            None => {
                self.joined = Some(part);
                Ok(())
            }
        }
    }
}

impl<T> Default for Open<T> {
    fn default() -> Self {
        Self { joined: None, has_failed: false, len: 0, part_count: 0 }
    }
}

/// Maximum number of incomplete multipart messages of a connection.
pub const MAX_OPEN_MULTIPARTS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;
    use tapswitch_openflow::multipart::TableStats;
    use tapswitch_openflow::{MultipartReplyBody, TableId};

    fn part(table_id: u8, more: bool) -> MultipartReply {
        let stats = TableStats { table_id: TableId(table_id), ..TableStats::default() };
        MultipartReply { more, body: MultipartReplyBody::Table(vec![stats]) }
    }

    fn tables(whole: Option<MultipartReply>) -> Vec<u8> {
        match whole.map(|whole| whole.body) {
            Some(MultipartReplyBody::Table(tables)) => {
                tables.iter().map(|table| table.table_id.0).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn parts_of_several_transactions_may_come_mixed() {
        let mut reassembly = Reassembly::new(1000, 10);
        assert_eq!(reassembly.handle_part(1, part(1, true), 40), Ok(None));
        assert_eq!(reassembly.handle_part(2, part(9, true), 40), Ok(None));
        assert_eq!(reassembly.handle_part(1, part(2, true), 40), Ok(None));
        assert_eq!(tables(reassembly.handle_part(2, part(8, false), 40).unwrap()), [9, 8]);
        assert_eq!(tables(reassembly.handle_part(1, part(3, false), 40).unwrap()), [1, 2, 3]);
        assert!(reassembly.open.is_empty());
        assert_eq!(reassembly.len, 0);
    }

    #[test]
    fn what_is_too_long_is_refused_once_and_forgotten_at_its_end() {
        let mut reassembly = Reassembly::new(100, 10);
        assert_eq!(reassembly.handle_part(1, part(1, true), 60), Ok(None));
        let error = reassembly.handle_part(1, part(2, true), 60).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OFPBRC_MULTIPART_BUFFER_OVERFLOW);
        assert_eq!(reassembly.handle_part(1, part(3, true), 60), Ok(None));
        assert_eq!(reassembly.handle_part(1, part(4, false), 60), Ok(None));
        assert_eq!(tables(reassembly.handle_part(1, part(5, false), 60).unwrap()), [5]);
    }

    #[test]
    fn parts_and_open_multiparts_are_bounded() {
        let mut reassembly = Reassembly::new(usize::MAX, 2);
        assert_eq!(reassembly.handle_part(1, part(1, true), 1), Ok(None));
        assert_eq!(reassembly.handle_part(1, part(1, true), 1), Ok(None));
        assert!(reassembly.handle_part(1, part(1, false), 1).is_err());
        for xid in 0..MAX_OPEN_MULTIPARTS as u32 {
            assert_eq!(reassembly.handle_part(xid, part(1, true), 1), Ok(None));
        }
        let error = reassembly.handle_part(u32::MAX, part(1, true), 1);
        assert_eq!(error, Err(ReassemblyError::TooMany));
    }

    #[test]
    fn parts_of_another_type_are_refused() {
        let mut reassembly = Reassembly::new(1000, 10);
        assert_eq!(reassembly.handle_part(1, part(1, true), 1), Ok(None));
        let other = MultipartReply::new(MultipartReplyBody::Queue(vec![]));
        let error = reassembly.handle_part(1, other, 1).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OFPBRC_BAD_MULTIPART);
    }
}
