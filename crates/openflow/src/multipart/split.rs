//! Splits multiparts that exceed one message, and joins the parts (OpenFlow 1.3.5 §7.3.5).
//!
//! A list is cut between its items only; an experimenter's data, whose format is unknown, is cut
//! anywhere. Everything else must fit one message.

use super::{MultipartReply, MultipartReplyBody, MultipartRequest, MultipartRequestBody};
use crate::Experimenter;
use crate::codec::{Codec, Writer};
use crate::header::{Header, MAX_MESSAGE_LEN};

/// Why a part does not continue the earlier parts. The peer is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AppendError {
    /// The part has another type than the earlier ones.
    #[error("the part has another type than the earlier ones")]
    OtherType,
    /// Multiparts of this type have a single part.
    #[error("multiparts of type {kind} have one part only")]
    Single {
        /// `type` of the multipart.
        kind: u16,
    },
}

impl MultipartReply {
    /// Splits the reply into parts that fit one message each, all but the last with the flag
    /// "more".
    pub fn split(self) -> Vec<Self> {
        parts(self.body.split(), self.more, |more, body| Self { more, body })
    }

    /// Appends the next part.
    pub fn append(&mut self, next: Self) -> Result<(), AppendError> {
        self.more = next.more;
        self.body.append(next.body)
    }
}

impl MultipartRequest {
    /// Splits the request into parts that fit one message each, all but the last with the flag
    /// "more".
    pub fn split(self) -> Vec<Self> {
        parts(self.body.split(), self.more, |more, body| Self { more, body })
    }

    /// Appends the next part.
    pub fn append(&mut self, next: Self) -> Result<(), AppendError> {
        self.more = next.more;
        self.body.append(next.body)
    }
}

impl MultipartReplyBody {
    fn split(self) -> Vec<Self> {
        match self {
            Self::Flow(items) => chunks(items, Self::Flow),
            Self::Table(items) => chunks(items, Self::Table),
            Self::PortStats(items) => chunks(items, Self::PortStats),
            Self::Queue(items) => chunks(items, Self::Queue),
            Self::Group(items) => chunks(items, Self::Group),
            Self::GroupDesc(items) => chunks(items, Self::GroupDesc),
            Self::Meter(items) => chunks(items, Self::Meter),
            Self::MeterConfig(items) => chunks(items, Self::MeterConfig),
            Self::TableFeatures(items) => chunks(items, Self::TableFeatures),
            Self::PortDesc(items) => chunks(items, Self::PortDesc),
            Self::Experimenter(body) => experimenter_chunks(body, Self::Experimenter),
            Self::Desc(_)
            | Self::Aggregate(_)
            | Self::GroupFeatures(_)
            | Self::MeterFeatures(_) => vec![self],
        }
    }

    fn append(&mut self, next: Self) -> Result<(), AppendError> {
        if self.kind() != next.kind() {
            return Err(AppendError::OtherType);
        }
        match (&mut *self, next) {
            (Self::Flow(items), Self::Flow(more)) => items.extend(more),
            (Self::Table(items), Self::Table(more)) => items.extend(more),
            (Self::PortStats(items), Self::PortStats(more)) => items.extend(more),
            (Self::Queue(items), Self::Queue(more)) => items.extend(more),
            (Self::Group(items), Self::Group(more)) => items.extend(more),
            (Self::GroupDesc(items), Self::GroupDesc(more)) => items.extend(more),
            (Self::Meter(items), Self::Meter(more)) => items.extend(more),
            (Self::MeterConfig(items), Self::MeterConfig(more)) => items.extend(more),
            (Self::TableFeatures(items), Self::TableFeatures(more)) => items.extend(more),
            (Self::PortDesc(items), Self::PortDesc(more)) => items.extend(more),
            (Self::Experimenter(body), Self::Experimenter(more)) => join(body, &more)?,
            (body, _) => return Err(AppendError::Single { kind: body.kind() }),
        }
        Ok(())
    }
}

impl MultipartRequestBody {
    fn split(self) -> Vec<Self> {
        match self {
            Self::TableFeatures(items) => chunks(items, Self::TableFeatures),
            Self::Experimenter(body) => experimenter_chunks(body, Self::Experimenter),
            other => vec![other],
        }
    }

    fn append(&mut self, next: Self) -> Result<(), AppendError> {
        if self.kind() != next.kind() {
            return Err(AppendError::OtherType);
        }
        match (&mut *self, next) {
            (Self::TableFeatures(items), Self::TableFeatures(more)) => items.extend(more),
            (Self::Experimenter(body), Self::Experimenter(more)) => join(body, &more)?,
            (body, _) => return Err(AppendError::Single { kind: body.kind() }),
        }
        Ok(())
    }
}

/// Messages with these bodies: all but the last have the flag "more"; the last keeps its own.
fn parts<B, M>(bodies: Vec<B>, more: bool, message: impl Fn(bool, B) -> M) -> Vec<M> {
    let last = bodies.len() - 1;
    let bodies = bodies.into_iter().enumerate();
    bodies.map(|(index, body)| message(index < last || more, body)).collect()
}

/// Bodies with as many items as fit; at least one body, and at least one item in each if there are
/// any.
fn chunks<T: Codec, B>(items: Vec<T>, body: impl Fn(Vec<T>) -> B) -> Vec<B> {
    let mut bodies = Vec::new();
    let mut chunk = Vec::new();
    let mut chunk_len = 0;
    let mut scratch = Vec::new();
    for item in items {
        scratch.clear();
        item.encode(&mut Writer::new(&mut scratch));
        if !chunk.is_empty() && chunk_len + scratch.len() > MAX_BODY_LEN {
            bodies.push(body(std::mem::take(&mut chunk)));
            chunk_len = 0;
        }
        chunk_len += scratch.len();
        chunk.push(item);
    }
    bodies.push(body(chunk));
    bodies
}

/// Encoded length of the values in bytes.
pub(super) fn encoded_len<T: Codec>(items: &[T]) -> usize {
    let mut bytes = Vec::new();
    T::encode_all(items, &mut Writer::new(&mut bytes));
    bytes.len()
}

fn experimenter_chunks<B>(whole: Experimenter, body: impl Fn(Experimenter) -> B) -> Vec<B> {
    if whole.data.is_empty() {
        return vec![body(whole)];
    }
    let parts = whole.data.chunks(MAX_BODY_LEN - EXPERIMENTER_HEADER_LEN);
    parts.map(|data| body(Experimenter { data: data.to_vec(), ..whole })).collect()
}

fn join(body: &mut Experimenter, more: &Experimenter) -> Result<(), AppendError> {
    if (body.experimenter, body.exp_type) != (more.experimenter, more.exp_type) {
        return Err(AppendError::OtherType);
    }
    body.data.extend_from_slice(&more.data);
    Ok(())
}

/// `type`, `flags` and padding of a multipart.
const MULTIPART_HEADER_LEN: usize = 8;
/// Maximum length of a multipart's body in one message.
pub(super) const MAX_BODY_LEN: usize = MAX_MESSAGE_LEN - Header::LEN - MULTIPART_HEADER_LEN;
/// `experimenter` and `exp_type`.
const EXPERIMENTER_HEADER_LEN: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::multipart::TableStats;
    use crate::{Body, Message};

    fn message_len(body: &Body) -> usize {
        let mut out = Vec::new();
        let message = Message { xid: 1, body: body.clone() };
        message.encode(&mut out).unwrap();
        out.len()
    }

    fn check_split(body: MultipartReplyBody, part_count: usize) {
        let reply = MultipartReply::new(body);
        let parts = reply.clone().split();
        assert_eq!(parts.len(), part_count);
        for (index, part) in parts.iter().enumerate() {
            assert_eq!(part.more, index + 1 < parts.len());
            assert!(message_len(&Body::MultipartReply(part.clone())) <= MAX_MESSAGE_LEN);
        }
        let joined = parts.into_iter().reduce(|mut joined, part| {
            joined.append(part).unwrap();
            joined
        });
        assert_eq!(joined, Some(reply));
    }

    fn experimenter(len: usize) -> Experimenter {
        Experimenter { experimenter: 1, exp_type: 2, data: vec![7; len] }
    }

    #[test]
    fn lists_are_cut_between_items() {
        let tables = |count| MultipartReplyBody::Table(vec![TableStats::default(); count]);
        let fit = MAX_BODY_LEN / 24;
        check_split(tables(0), 1);
        check_split(tables(fit), 1);
        check_split(tables(fit + 1), 2);
        check_split(tables(fit * 2 + 1), 3);
    }

    #[test]
    fn data_of_experimenters_is_cut_anywhere() {
        let fit = MAX_BODY_LEN - EXPERIMENTER_HEADER_LEN;
        check_split(MultipartReplyBody::Experimenter(experimenter(0)), 1);
        check_split(MultipartReplyBody::Experimenter(experimenter(fit)), 1);
        check_split(MultipartReplyBody::Experimenter(experimenter(fit + 1)), 2);
    }

    #[test]
    fn parts_that_do_not_belong_together_are_refused() {
        let mut request = MultipartRequest::new(MultipartRequestBody::TableFeatures(vec![]));
        let desc = MultipartRequest::new(MultipartRequestBody::Desc);
        assert_eq!(request.append(desc.clone()), Err(AppendError::OtherType));
        let mut first = desc.clone();
        assert_eq!(first.append(desc), Err(AppendError::Single { kind: 0 }));
        let mut reply = MultipartReply::new(MultipartReplyBody::Experimenter(experimenter(1)));
        let other = Experimenter { exp_type: 9, ..experimenter(1) };
        let other = MultipartReply::new(MultipartReplyBody::Experimenter(other));
        assert_eq!(reply.append(other), Err(AppendError::OtherType));
    }
}
