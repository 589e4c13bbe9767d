//! Encoding and decoding of message fields.
//!
//! [`Codec`] encodes and decodes one value. A [`Reader`] is bounded: after reading a length, the
//! caller creates a sub-reader of exactly that many bytes with [`Reader::sub`], so nested
//! structures cannot read beyond it, and [`Reader::finish`] rejects trailing bytes. A [`Writer`]
//! only appends; lengths are filled in after their content. A value that cannot be encoded is
//! recorded in the writer and reported once, at the end, so encoding functions return no errors.

use std::borrow::Cow;
use std::net::{Ipv4Addr, Ipv6Addr};

use tapswitch_wire::{EtherType, MacAddr};

use crate::fault::{Fault, Within};
use crate::{BufferId, DatapathId, EncodeError, ErrorKind, GroupId, PortNo, TableId, Text};

/// A value that can be encoded and decoded.
pub(crate) trait Codec: Sized {
    /// Appends the value.
    fn encode(&self, w: &mut Writer<'_>);

    /// Decodes a value from the front.
    fn decode(r: &mut Reader<'_>) -> Result<Self, Fault>;

    /// Appends all `items`, one after the other.
    fn encode_all(items: &[Self], w: &mut Writer<'_>) {
        for item in items {
            item.encode(w);
        }
    }

    /// Decodes values until nothing is left.
    fn decode_all(r: &mut Reader<'_>) -> Result<Vec<Self>, Fault> {
        let mut items = Vec::new();
        while !r.is_empty() {
            items.push(Self::decode(r)?);
        }
        Ok(items)
    }
}

/// Bytes still to be decoded, and their position in the message.
#[derive(Clone, Debug)]
pub(crate) struct Reader<'a> {
    bytes: &'a [u8],
    /// Position of the first of `bytes`, counted from the start of the message.
    at: usize,
    /// Error kind for a length that does not fit here.
    bad_len: ErrorKind,
}

impl<'a> Reader<'a> {
    /// A reader of `bytes`, which start at position `at` of the message.
    pub(crate) const fn new(bytes: &'a [u8], at: usize, bad_len: ErrorKind) -> Self {
        Self { bytes, at, bad_len }
    }

    /// Decodes a value from the front.
    pub(crate) fn take<T: Codec>(&mut self) -> Result<T, Fault> {
        T::decode(self)
    }

    /// Takes `len` bytes off the front.
    pub(crate) fn bytes(&mut self, len: usize) -> Result<&'a [u8], Fault> {
        let Some((front, rest)) = self.bytes.split_at_checked(len) else {
            return Err(self.too_short(len));
        };
        self.bytes = rest;
        self.at += len;
        Ok(front)
    }

    /// Takes `N` bytes off the front.
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let Some((front, rest)) = self.bytes.split_first_chunk() else {
            return Err(self.too_short(N));
        };
        self.bytes = rest;
        self.at += N;
        Ok(*front)
    }

    /// Takes all that is left.
    pub(crate) fn rest(&mut self) -> &'a [u8] {
        self.at += self.bytes.len();
        std::mem::take(&mut self.bytes)
    }

    /// Skips `len` bytes of padding without checking them (§7.1.2).
    pub(crate) fn skip(&mut self, len: usize) -> Result<(), Fault> {
        self.bytes(len).map(|_| ())
    }

    /// A reader of the next `len` bytes alone.
    pub(crate) fn sub(&mut self, len: usize) -> Result<Self, Fault> {
        let at = self.at;
        let bytes = self.bytes(len)?;
        Ok(Self::new(bytes, at, self.bad_len))
    }

    /// A reader of a structure that starts with its own 16-bit length.
    pub(crate) fn sized(&mut self) -> Result<Self, Fault> {
        let len: u16 = self.take()?;
        self.sub_after(len, 2)
    }

    /// The type of a structure that starts with type and length (16 bits each), and a reader of the
    /// rest.
    pub(crate) fn tlv(&mut self) -> Result<(u16, Self), Fault> {
        let kind = self.take()?;
        let len: u16 = self.take()?;
        Ok((kind, self.sub_after(len, 4)?))
    }

    /// Decodes an action or an instruction (named `what` in errors): a structure as for
    /// [`Self::tlv`] whose length is a multiple of eight. `read` decodes the body, given the type.
    pub(crate) fn aligned_tlv<T>(
        &mut self,
        what: &'static str,
        bad_len: ErrorKind,
        read: impl FnOnce(u16, &mut Self) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        self.within(what, bad_len, |r| {
            let start = r.clone();
            let (kind, mut body) = r.tlv()?;
            if body.len() % 8 != 4 {
                return Err(start.bad_len("the length is not a multiple of eight"));
            }
            let value = read(kind, &mut body)?;
            body.finish()?;
            Ok(value)
        })
    }

    /// A reader of the rest of a structure of `len` bytes, of which `read` bytes have been read.
    pub(crate) fn sub_after(&mut self, len: u16, read: usize) -> Result<Self, Fault> {
        match usize::from(len).checked_sub(read) {
            Some(left) => self.sub(left),
            None => Err(self.fault(self.bad_len, format!("length {len} is below {read}"))),
        }
    }

    /// Decodes with another error kind for wrong lengths, and adds `place` to errors.
    pub(crate) fn within<T>(
        &mut self,
        place: &'static str,
        bad_len: ErrorKind,
        read: impl FnOnce(&mut Self) -> Result<T, Fault>,
    ) -> Result<T, Fault> {
        let outer = std::mem::replace(&mut self.bad_len, bad_len);
        let result = read(self).within(place);
        self.bad_len = outer;
        result
    }

    /// True when nothing is left.
    pub(crate) const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Bytes that are left.
    pub(crate) const fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Fails if bytes are left over.
    pub(crate) fn finish(self) -> Result<(), Fault> {
        match self.bytes.len() {
            0 => Ok(()),
            len => Err(self.fault(self.bad_len, format!("{len} bytes left over"))),
        }
    }

    /// A fault at the current position.
    pub(crate) fn fault(&self, kind: ErrorKind, what: impl Into<Cow<'static, str>>) -> Fault {
        Fault::new(kind, self.at, what)
    }

    /// A fault for a wrong length at the current position.
    pub(crate) fn bad_len(&self, what: impl Into<Cow<'static, str>>) -> Fault {
        self.fault(self.bad_len, what)
    }

    #[cold]
    fn too_short(&self, len: usize) -> Fault {
        let left = self.bytes.len();
        self.bad_len(format!("{len} bytes expected, {left} left"))
    }
}

/// The encoded bytes of a message under construction.
#[derive(Debug)]
pub(crate) struct Writer<'a> {
    out: &'a mut Vec<u8>,
    /// The first value that could not be encoded.
    error: Option<EncodeError>,
}

impl<'a> Writer<'a> {
    /// Appends to `out`.
    pub(crate) const fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out, error: None }
    }

    /// Appends a value.
    pub(crate) fn put<T: Codec>(&mut self, value: &T) {
        value.encode(self);
    }

    /// Appends bytes as they are.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.out.extend_from_slice(bytes);
    }

    /// Appends `len` bytes of padding.
    pub(crate) fn pad(&mut self, len: usize) {
        self.out.resize(self.out.len() + len, 0);
    }

    /// Appends a structure that starts with its own 16-bit length.
    pub(crate) fn sized(&mut self, write: impl FnOnce(&mut Self)) {
        let start = self.out.len();
        self.measured(start, write);
    }

    /// Appends a structure that starts with type and length, 16 bits each.
    pub(crate) fn tlv(&mut self, kind: u16, write: impl FnOnce(&mut Self)) {
        let start = self.out.len();
        self.put(&kind);
        self.measured(start, write);
    }

    /// Like [`Self::tlv`], followed by padding to a multiple of eight that the length does not
    /// count.
    pub(crate) fn tlv_then_pad(&mut self, kind: u16, write: impl FnOnce(&mut Self)) {
        let start = self.out.len();
        self.tlv(kind, write);
        self.pad(padding(self.out.len() - start));
    }

    /// Like [`Self::tlv`], with padding to a multiple of eight that the length counts.
    pub(crate) fn tlv_with_pad(&mut self, kind: u16, write: impl FnOnce(&mut Self)) {
        let start = self.out.len();
        self.tlv(kind, |w| {
            write(w);
            w.pad(padding(w.out.len() - start));
        });
    }

    /// Appends `what` by `write`, and records an error unless its length is a multiple of eight.
    pub(crate) fn aligned(&mut self, what: &'static str, write: impl FnOnce(&mut Self)) {
        let start = self.out.len();
        write(self);
        let len = self.out.len() - start;
        if !len.is_multiple_of(8) {
            self.fail(EncodeError::Misaligned { what, len });
        }
    }

    /// Appends a 16-bit length, counted from `start` to the end of what `write` appends.
    pub(crate) fn measured(&mut self, start: usize, write: impl FnOnce(&mut Self)) {
        let at = self.out.len();
        self.put(&0u16);
        write(self);
        let len = self.out.len() - start;
        let Ok(len) = u16::try_from(len) else {
            return self.fail(EncodeError::TooLong { len });
        };
        if let Some(field) = self.out.get_mut(at..at + 2) {
            field.copy_from_slice(&len.to_be_bytes());
        }
    }

    /// Bytes written so far, from the start of the buffer.
    pub(crate) const fn position(&self) -> usize {
        self.out.len()
    }

    /// Records that a value cannot be encoded.
    #[cold]
    pub(crate) fn fail(&mut self, error: EncodeError) {
        self.error.get_or_insert(error);
    }

    /// Returns the first error, if any.
    pub(crate) fn finish(self) -> Result<(), EncodeError> {
        self.error.map_or(Ok(()), Err)
    }
}

/// Padding that brings `len` to a multiple of eight.
pub(crate) const fn padding(len: usize) -> usize {
    len.wrapping_neg() % 8
}

impl<T: Codec> Codec for Vec<T> {
    fn encode(&self, w: &mut Writer<'_>) {
        T::encode_all(self, w);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, Fault> {
        T::decode_all(r)
    }
}

impl<T: Codec + Copy + Default, const N: usize> Codec for [T; N] {
    fn encode(&self, w: &mut Writer<'_>) {
        T::encode_all(self, w);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, Fault> {
        let mut items = [T::default(); N];
        for item in &mut items {
            *item = r.take()?;
        }
        Ok(items)
    }
}

impl Codec for u8 {
    fn encode(&self, w: &mut Writer<'_>) {
        w.bytes(&[*self]);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, Fault> {
        r.array().map(|[byte]| byte)
    }

    fn encode_all(items: &[Self], w: &mut Writer<'_>) {
        w.bytes(items);
    }

    fn decode_all(r: &mut Reader<'_>) -> Result<Vec<Self>, Fault> {
        Ok(r.rest().to_vec())
    }
}

impl<const N: usize> Codec for Text<N> {
    fn encode(&self, w: &mut Writer<'_>) {
        w.bytes(self.as_bytes());
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, Fault> {
        r.array().map(Self::from_bytes)
    }
}

impl Codec for MacAddr {
    fn encode(&self, w: &mut Writer<'_>) {
        w.bytes(&self.0);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, Fault> {
        r.array().map(Self)
    }
}

impl Codec for Ipv4Addr {
    fn encode(&self, w: &mut Writer<'_>) {
        w.bytes(&self.octets());
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, Fault> {
        r.array::<4>().map(Self::from)
    }
}

impl Codec for Ipv6Addr {
    fn encode(&self, w: &mut Writer<'_>) {
        w.bytes(&self.octets());
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, Fault> {
        r.array::<16>().map(Self::from)
    }
}

/// Big-endian numbers.
macro_rules! number_codec {
    ($($number:ty),*) => { $(
        impl Codec for $number {
            fn encode(&self, w: &mut Writer<'_>) {
                w.bytes(&self.to_be_bytes());
            }

            fn decode(r: &mut Reader<'_>) -> Result<Self, Fault> {
                r.array().map(Self::from_be_bytes)
            }
        }
    )* };
}

/// Newtypes over numbers.
macro_rules! newtype_codec {
    ($($newtype:ty),*) => { $(
        impl crate::codec::Codec for $newtype {
            fn encode(&self, w: &mut crate::codec::Writer<'_>) {
                w.put(&self.0);
            }

            fn decode(r: &mut crate::codec::Reader<'_>) -> Result<Self, crate::fault::Fault> {
                r.take().map(Self)
            }
        }
    )* };
}

/// Bit flags. Unknown bits are kept.
macro_rules! flags_codec {
    ($($flags:ty),*) => { $(
        impl crate::codec::Codec for $flags {
            fn encode(&self, w: &mut crate::codec::Writer<'_>) {
                w.put(&self.bits());
            }

            fn decode(r: &mut crate::codec::Reader<'_>) -> Result<Self, crate::fault::Fault> {
                r.take().map(Self::from_bits_retain)
            }
        }
    )* };
}

/// Closed enums: any other value is rejected with the given error.
macro_rules! closed_codec {
    ($closed:ident: $number:ty, $error:ident, $what:literal, [$($variant:ident),*]) => {
        impl crate::codec::Codec for $closed {
            fn encode(&self, w: &mut crate::codec::Writer<'_>) {
                w.put(&(*self as $number));
            }

            fn decode(r: &mut crate::codec::Reader<'_>) -> Result<Self, crate::fault::Fault> {
                let here = r.clone();
                let number: $number = r.take()?;
                $(if number == Self::$variant as $number {
                    return Ok(Self::$variant);
                })*
                let text = format!(concat!("unknown ", $what, " {}"), number);
                Err(here.fault(crate::ErrorKind::$error, text))
            }
        }
    };
}

/// Structures with the listed fields in order, separated by `pad` bytes. `sized` adds a leading
/// 16-bit length.
macro_rules! layout_codec {
    ($type:ident { $($items:tt)* }) => {
        impl crate::codec::Codec for $type {
            fn encode(&self, w: &mut crate::codec::Writer<'_>) {
                layout_codec!(@put self w $($items)*);
            }

            fn decode(r: &mut crate::codec::Reader<'_>) -> Result<Self, crate::fault::Fault> {
                layout_codec!(@take r [] $($items)*)
            }
        }
    };
    ($type:ident sized { $($items:tt)* }) => {
        impl crate::codec::Codec for $type {
            fn encode(&self, w: &mut crate::codec::Writer<'_>) {
                w.sized(|w| {
                    layout_codec!(@put self w $($items)*);
                });
            }

            fn decode(outer: &mut crate::codec::Reader<'_>) -> Result<Self, crate::fault::Fault> {
                let mut r = outer.sized()?;
                let r = &mut r;
                let value: Result<Self, crate::fault::Fault> = layout_codec!(@take r [] $($items)*);
                r.clone().finish()?;
                value
            }
        }
    };
    (@put $self:ident $w:ident) => {};
    (@put $self:ident $w:ident pad $len:literal $(, $($rest:tt)*)?) => {
        $w.pad($len);
        layout_codec!(@put $self $w $($($rest)*)?);
    };
    (@put $self:ident $w:ident $field:ident $(, $($rest:tt)*)?) => {
        $w.put(&$self.$field);
        layout_codec!(@put $self $w $($($rest)*)?);
    };
    (@take $r:ident [$($done:ident)*]) => {
        Ok(Self { $($done),* })
    };
    (@take $r:ident [$($done:ident)*] pad $len:literal $(, $($rest:tt)*)?) => {{
        $r.skip($len)?;
        layout_codec!(@take $r [$($done)*] $($($rest)*)?)
    }};
    (@take $r:ident [$($done:ident)*] $field:ident $(, $($rest:tt)*)?) => {{
        let $field = $r.take()?;
        layout_codec!(@take $r [$($done)* $field] $($($rest)*)?)
    }};
}

pub(crate) use {closed_codec, flags_codec, layout_codec, newtype_codec};

number_codec!(u16, u32, u64);
newtype_codec!(PortNo, GroupId, TableId, BufferId, DatapathId, EtherType);

#[cfg(test)]
mod tests {
    use super::*;

    const BAD_LEN: ErrorKind = ErrorKind::OFPBRC_BAD_LEN;

    #[test]
    fn a_sub_reader_cannot_read_beyond_its_bytes() {
        let mut outer = Reader::new(&[0, 4, 1, 2, 3], 8, BAD_LEN);
        let mut inner = outer.sized().unwrap();
        assert_eq!(inner.take::<u16>().unwrap(), 0x0102);
        let fault = inner.take::<u8>().unwrap_err();
        assert_eq!(fault.to_string(), "at byte 12: 1 bytes expected, 0 left");
        assert_eq!(outer.take::<u8>().unwrap(), 3);
        outer.finish().unwrap();
    }

    #[test]
    fn lengths_below_their_own_field_are_refused() {
        for bytes in [[0, 0], [0, 1]] {
            assert!(Reader::new(&bytes, 0, BAD_LEN).sized().is_err());
        }
        assert!(Reader::new(&[0, 1, 0, 3], 0, BAD_LEN).tlv().is_err());
    }

    #[test]
    fn what_is_left_over_is_refused() {
        let fault = Reader::new(&[1, 2], 10, BAD_LEN).finish().unwrap_err();
        assert_eq!(fault.to_string(), "at byte 10: 2 bytes left over");
    }

    #[test]
    fn lengths_are_filled_in_behind() {
        let mut out = vec![0xff];
        let mut w = Writer::new(&mut out);
        w.tlv_then_pad(7, |w| w.bytes(&[1]));
        w.tlv_with_pad(8, |w| w.bytes(&[2]));
        w.finish().unwrap();
        assert_eq!(out, [0xff, 0, 7, 0, 5, 1, 0, 0, 0, 0, 8, 0, 8, 2, 0, 0, 0]);
    }

    #[test]
    fn a_length_that_does_not_fit_is_reported_at_the_end() {
        let mut out = Vec::new();
        let mut w = Writer::new(&mut out);
        w.tlv(7, |w| w.pad(0x1_0000));
        assert_eq!(w.finish(), Err(EncodeError::TooLong { len: 0x1_0004 }));
    }
}
