//! Statistics and features of tables (OpenFlow 1.3.5 §7.3.5.4, §7.3.5.5).

use crate::codec::{Codec, Reader, Writer, layout_codec, padding};
use crate::fault::Fault;
use crate::oxm::{CLASS_EXPERIMENTER, CLASS_OPENFLOW_BASIC};
use crate::{CheckError, ErrorKind, OxmField, TableId, Text};

/// Counters of a table (`ofp_table_stats`, §7.3.5.4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TableStats {
    /// The table.
    pub table_id: TableId,
    /// Entries in it.
    pub active_count: u32,
    /// Packets looked up.
    pub lookup_count: u64,
    /// Packets that hit an entry.
    pub matched_count: u64,
}

layout_codec!(TableStats {
    table_id,
    pad 3,
    active_count,
    lookup_count,
    matched_count,
});

/// Capabilities of a table (`ofp_table_features`, §7.3.5.5).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableFeatures {
    /// The table.
    pub table_id: TableId,
    /// Its name.
    pub name: Text<32>,
    /// Metadata bits that it can match.
    pub metadata_match: u64,
    /// Metadata bits that it can write.
    pub metadata_write: u64,
    /// Bits of `ofp_table_config`.
    pub config: u32,
    /// Maximum number of entries.
    pub max_entries: u32,
    /// Allowed content of its entries.
    pub properties: Vec<TableFeaturesProperty>,
}

impl TableFeatures {
    /// Validates the requested properties.
    pub fn check(&self) -> Result<(), CheckError> {
        match self.properties.iter().find(|property| property.is_unknown()) {
            Some(property) => {
                let text = format!("table_features: unknown property {}", property.kind());
                Err(CheckError::new(ErrorKind::OFPTFFC_BAD_TYPE, text))
            }
            None => Ok(()),
        }
    }
}

layout_codec!(TableFeatures sized {
    table_id,
    pad 5,
    name,
    metadata_match,
    metadata_write,
    config,
    max_entries,
    properties,
});

/// Allowed content of a table's entries (`ofp_table_feature_prop_type`, §7.3.5.5.2). The "miss"
/// variants apply to the table-miss entry and may be omitted where they equal the others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableFeaturesProperty {
    /// `OFPTFPT_INSTRUCTIONS`.
    Instructions(Vec<InstructionId>),
    /// `OFPTFPT_INSTRUCTIONS_MISS`.
    InstructionsMiss(Vec<InstructionId>),
    /// `OFPTFPT_NEXT_TABLES`: tables that goto-table may name.
    NextTables(Vec<TableId>),
    /// `OFPTFPT_NEXT_TABLES_MISS`.
    NextTablesMiss(Vec<TableId>),
    /// `OFPTFPT_WRITE_ACTIONS`.
    WriteActions(Vec<ActionId>),
    /// `OFPTFPT_WRITE_ACTIONS_MISS`.
    WriteActionsMiss(Vec<ActionId>),
    /// `OFPTFPT_APPLY_ACTIONS`.
    ApplyActions(Vec<ActionId>),
    /// `OFPTFPT_APPLY_ACTIONS_MISS`.
    ApplyActionsMiss(Vec<ActionId>),
    /// `OFPTFPT_MATCH`: fields that entries may match.
    Match(Vec<OxmId>),
    /// `OFPTFPT_WILDCARDS`: fields of those that entries may omit.
    Wildcards(Vec<OxmId>),
    /// `OFPTFPT_WRITE_SETFIELD`.
    WriteSetField(Vec<OxmId>),
    /// `OFPTFPT_WRITE_SETFIELD_MISS`.
    WriteSetFieldMiss(Vec<OxmId>),
    /// `OFPTFPT_APPLY_SETFIELD`.
    ApplySetField(Vec<OxmId>),
    /// `OFPTFPT_APPLY_SETFIELD_MISS`.
    ApplySetFieldMiss(Vec<OxmId>),
    /// An experimenter's property, or one that OpenFlow 1.3 does not define.
    Unknown {
        /// `type` of the property.
        kind: u16,
        /// Data after the property's header, without padding.
        data: Vec<u8>,
    },
}

/// Maps the properties to their numbers (`ofp_table_feature_prop_type`).
macro_rules! property_codec {
    ($($variant:ident = $kind:literal),*) => {
        impl TableFeaturesProperty {
            /// `type` of the property.
            pub const fn kind(&self) -> u16 {
                match self {
                    $(Self::$variant(_) => $kind,)*
                    Self::Unknown { kind, .. } => *kind,
                }
            }

            /// Appends the body after the property's header.
            fn encode_body(&self, w: &mut Writer<'_>) {
                match self {
                    $(Self::$variant(list) => w.put(list),)*
                    Self::Unknown { data, .. } => w.put(data),
                }
            }

            /// Decodes the body after the header of a property of this type.
            fn decode_body(kind: u16, body: &mut Reader<'_>) -> Result<Self, Fault> {
                Ok(match kind {
                    $($kind => Self::$variant(body.take()?),)*
                    kind => Self::Unknown {
                        kind,
                        data: body.take()?,
                    },
                })
            }
        }
    };
}

property_codec!(
    Instructions = 0,
    InstructionsMiss = 1,
    NextTables = 2,
    NextTablesMiss = 3,
    WriteActions = 4,
    WriteActionsMiss = 5,
    ApplyActions = 6,
    ApplyActionsMiss = 7,
    Match = 8,
    Wildcards = 10,
    WriteSetField = 12,
    WriteSetFieldMiss = 13,
    ApplySetField = 14,
    ApplySetFieldMiss = 15
);

impl TableFeaturesProperty {
    const fn is_unknown(&self) -> bool {
        matches!(self, Self::Unknown { .. })
    }
}

impl Codec for TableFeaturesProperty {
    fn encode(&self, w: &mut Writer<'_>) {
        w.tlv_then_pad(self.kind(), |w| self.encode_body(w));
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, Fault> {
        r.within("property", ErrorKind::OFPTFFC_BAD_LEN, |r| {
            let (kind, mut body) = r.tlv()?;
            r.skip(padding(body.len() + PROPERTY_HEADER_LEN))?;
            Self::decode_body(kind, &mut body)
        })
    }
}

/// Id of an instruction (`ofp_instruction` without a body).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InstructionId {
    /// `type` of the instruction.
    pub kind: u16,
    /// Experimenter id, for an experimenter's instruction.
    pub experimenter: Option<u32>,
}

impl Codec for InstructionId {
    fn encode(&self, w: &mut Writer<'_>) {
        encode_id(self.kind, self.experimenter, w);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, Fault> {
        let (kind, experimenter) = decode_id(r)?;
        Ok(Self { kind, experimenter })
    }
}

/// Id of an action (`ofp_action_header` without padding).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ActionId {
    /// `type` of the action.
    pub kind: u16,
    /// Experimenter id, for an experimenter's action.
    pub experimenter: Option<u32>,
}

impl Codec for ActionId {
    fn encode(&self, w: &mut Writer<'_>) {
        encode_id(self.kind, self.experimenter, w);
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, Fault> {
        let (kind, experimenter) = decode_id(r)?;
        Ok(Self { kind, experimenter })
    }
}

/// Id of a match field (an OXM header without a payload).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OxmId {
    /// `oxm_class`.
    pub class: u16,
    /// `oxm_field`, 7 bits.
    pub field: u8,
    /// `oxm_hasmask`: the field can be masked.
    pub has_mask: bool,
    /// `oxm_length`: bytes of the omitted payload.
    pub len: u8,
    /// Experimenter id, for an experimenter's field.
    pub experimenter: Option<u32>,
}

impl OxmId {
    /// The id of the field without a mask, for set-field and wildcards.
    pub fn exact(field: OxmField) -> Self {
        Self::new(field, false)
    }

    /// The id of the field, with a mask if it is maskable, for matches.
    pub fn maskable(field: OxmField) -> Self {
        Self::new(field, field.is_maskable())
    }

    fn new(field: OxmField, has_mask: bool) -> Self {
        let len = field.info().len * if has_mask { 2 } else { 1 };
        Self {
            class: CLASS_OPENFLOW_BASIC,
            field: field as u8,
            has_mask,
            len: u8::try_from(len).unwrap_or(u8::MAX),
            experimenter: None,
        }
    }

    /// The field, if OpenFlow 1.3 defines it.
    pub fn field(&self) -> Option<OxmField> {
        match self.class {
            CLASS_OPENFLOW_BASIC => OxmField::from_number(self.field),
            _ => None,
        }
    }
}

impl Codec for OxmId {
    fn encode(&self, w: &mut Writer<'_>) {
        w.put(&self.class);
        w.put(&(self.field << 1 | u8::from(self.has_mask)));
        w.put(&self.len);
        if self.class == CLASS_EXPERIMENTER {
            w.put(&self.experimenter.unwrap_or_default());
        }
    }

    fn decode(r: &mut Reader<'_>) -> Result<Self, Fault> {
        let class = r.take()?;
        let [field, len] = r.array()?;
        let experimenter = match class {
            CLASS_EXPERIMENTER => Some(r.take()?),
            _ => None,
        };
        Ok(Self { class, field: field >> 1, has_mask: field & 1 == 1, len, experimenter })
    }
}

fn encode_id(kind: u16, experimenter: Option<u32>, w: &mut Writer<'_>) {
    w.tlv(kind, |w| {
        if let Some(experimenter) = experimenter {
            w.put(&experimenter);
        }
    });
}

fn decode_id(r: &mut Reader<'_>) -> Result<(u16, Option<u32>), Fault> {
    let (kind, mut body) = r.tlv()?;
    let experimenter = match body.is_empty() {
        true => None,
        false => Some(body.take()?),
    };
    body.finish()?;
    Ok((kind, experimenter))
}

/// `type` and `length` of a property.
const PROPERTY_HEADER_LEN: usize = 4;
