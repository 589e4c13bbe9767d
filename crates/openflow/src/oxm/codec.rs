//! Wire format of match fields (OpenFlow 1.3.5 §7.2.3.2).

use super::{Oxm, OxmField};
use crate::codec::{Codec, Reader, Writer};
use crate::fault::{Fault, Within};
use crate::{EncodeError, ErrorKind};

impl Codec for Oxm {
    fn encode(&self, w: &mut Writer<'_>) {
        match self {
            Self::Unknown { class, field, has_mask, payload } => {
                encode_unknown((*class, *field, *has_mask), payload, w);
            }
            known => {
                if let Some((field, value, mask)) = known.parts() {
                    encode_known(field, value, mask, w);
                }
            }
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, Fault> {
        let start = r.clone();
        let class = r.take()?;
        let [number, len] = r.array()?;
        let (number, has_mask) = (number >> 1, number & 1 == 1);
        let mut payload = r.sub(len.into()).within("oxm")?;
        let field = OxmField::from_number(number).filter(|_| class == CLASS_OPENFLOW_BASIC);
        let Some(field) = field else {
            return Ok(Self::Unknown {
                class,
                field: number,
                has_mask,
                payload: payload.rest().to_vec(),
            });
        };
        decode_known(field, has_mask, &start, &mut payload).within(field.info().place)
    }
}

fn encode_known(field: OxmField, value: u128, mask: Option<u128>, w: &mut Writer<'_>) {
    let info = field.info();
    w.put(&CLASS_OPENFLOW_BASIC);
    w.put(&((field as u8) << 1 | u8::from(mask.is_some())));
    let len = info.len * if mask.is_some() { 2 } else { 1 };
    w.put(&u8::try_from(len).unwrap_or(u8::MAX));
    encode_number(field, value, w);
    if let Some(mask) = mask {
        encode_number(field, mask, w);
    }
}

/// Appends the low bytes of `number`, as many as the field has.
fn encode_number(field: OxmField, number: u128, w: &mut Writer<'_>) {
    let info = field.info();
    let bytes = number.to_be_bytes();
    let (cut, kept) = bytes.split_at(bytes.len() - info.len);
    if cut.iter().any(|&byte| byte != 0) {
        w.fail(EncodeError::TooLarge { what: info.place, value: number, bits: info.bits });
    }
    w.bytes(kept);
}

fn encode_unknown((class, field, has_mask): (u16, u8, bool), payload: &[u8], w: &mut Writer<'_>) {
    if field > MAX_FIELD {
        w.fail(EncodeError::TooLarge { what: "oxm field", value: field.into(), bits: 7 });
    }
    let Ok(len) = u8::try_from(payload.len()) else {
        return w.fail(EncodeError::TooLarge {
            what: "length of an oxm",
            value: payload.len() as u128,
            bits: 8,
        });
    };
    w.put(&class);
    w.bytes(&[field << 1 | u8::from(has_mask), len]);
    w.bytes(payload);
}

fn decode_known(
    field: OxmField,
    has_mask: bool,
    start: &Reader<'_>,
    payload: &mut Reader<'_>,
) -> Result<Oxm, Fault> {
    let info = field.info();
    if has_mask && !info.maskable {
        return Err(start.fault(ErrorKind::OFPBMC_BAD_MASK, "the field cannot have a mask"));
    }
    let expected = info.len * if has_mask { 2 } else { 1 };
    if payload.len() != expected {
        let len = payload.len();
        return Err(start.bad_len(format!("length {len}, expected {expected}")));
    }
    let value = decode_number(info.len, payload)?;
    let mask = match has_mask {
        true => Some(decode_number(info.len, payload)?),
        false => None,
    };
    Ok(Oxm::from_parts(field, value, mask))
}

fn decode_number(len: usize, payload: &mut Reader<'_>) -> Result<u128, Fault> {
    let bytes = payload.bytes(len)?;
    Ok(bytes.iter().fold(0, |number, &byte| number << 8 | u128::from(byte)))
}

/// Class of the fields in the spec (`OFPXMC_OPENFLOW_BASIC`).
pub(crate) const CLASS_OPENFLOW_BASIC: u16 = 0x8000;
/// Class of experimenter fields (`OFPXMC_EXPERIMENTER`).
pub(crate) const CLASS_EXPERIMENTER: u16 = 0xffff;
/// Largest value of the 7 bits of `oxm_field`.
const MAX_FIELD: u8 = 0x7f;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Masked, PortNo};

    fn decode(bytes: &[u8]) -> Result<Oxm, Fault> {
        Reader::new(bytes, 0, ErrorKind::OFPBMC_BAD_LEN).take()
    }

    fn encode(oxm: &Oxm) -> Result<Vec<u8>, EncodeError> {
        let mut out = Vec::new();
        let mut w = Writer::new(&mut out);
        w.put(oxm);
        w.finish().map(|()| out)
    }

    fn check(oxm: &Oxm, bytes: &[u8]) {
        assert_eq!(encode(oxm).unwrap(), bytes, "{oxm:?}");
        assert_eq!(decode(bytes).unwrap(), *oxm);
    }

    #[test]
    fn fields_are_as_wide_as_the_spec_says() {
        check(&Oxm::InPort(PortNo(1)), &[0x80, 0, 0, 4, 0, 0, 0, 1]);
        check(&Oxm::VlanPcp(5), &[0x80, 0, 14, 1, 5]);
        check(
            &Oxm::VlanVid(Masked::with_mask(0x1000, 0x1000)),
            &[0x80, 0, 13, 4, 0x10, 0, 0x10, 0],
        );
        check(
            &Oxm::PbbIsid(Masked::with_mask(0x01_0203, 0xff_ffff)),
            &[0x80, 0, 75, 6, 1, 2, 3, 0xff, 0xff, 0xff],
        );
        check(&Oxm::Ipv6Flabel(Masked::exact(0xf_ffff)), &[0x80, 0, 56, 4, 0, 0xf, 0xff, 0xff]);
    }

    #[test]
    fn unknown_fields_are_kept() {
        let experimenter = Oxm::Unknown {
            class: CLASS_EXPERIMENTER,
            field: 127,
            has_mask: true,
            payload: vec![0, 0, 0x23, 0x20, 1, 0xff],
        };
        check(&experimenter, &[0xff, 0xff, 0xff, 6, 0, 0, 0x23, 0x20, 1, 0xff]);
    }

    #[test]
    fn wrong_lengths_and_masks_are_refused() {
        let short = decode(&[0x80, 0, 22, 3, 10, 0, 0]).unwrap_err();
        assert_eq!(short.to_string(), "oxm ipv4_src at byte 0: length 3, expected 4");
        let masked = decode(&[0x80, 0, 1, 8, 0, 0, 0, 1, 0, 0, 0, 1]).unwrap_err();
        assert_eq!(masked.into_error(0).kind, ErrorKind::OFPBMC_BAD_MASK);
    }

    #[test]
    fn what_does_not_fit_cannot_be_written() {
        let wide = Oxm::PbbIsid(Masked::exact(0x0100_0000));
        assert!(encode(&wide).is_err());
        let unknown =
            |field, len| Oxm::Unknown { class: 1, field, has_mask: false, payload: vec![0; len] };
        assert!(encode(&unknown(127, 255)).is_ok());
        assert!(encode(&unknown(128, 0)).is_err());
        assert!(encode(&unknown(0, 256)).is_err());
    }
}
