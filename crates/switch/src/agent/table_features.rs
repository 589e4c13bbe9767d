//! Table features (OpenFlow 1.3.5 §7.3.5.5): the same for all tables, except for their next tables.

use tapswitch_datapath::{
    ACTION_KINDS, INSTRUCTION_KINDS, MATCH_FIELDS, MAX_RULES, SET_FIELDS, TABLE_COUNT,
};
use tapswitch_openflow::multipart::{
    ActionId, InstructionId, OxmId, TableFeatures, TableFeaturesProperty as Property,
};
use tapswitch_openflow::{OxmField, TableId};

/// Type of the goto-table instruction, which the last table does not support.
const GOTO_TABLE: u16 = 1;

/// The features of all tables.
pub(super) fn all() -> Vec<TableFeatures> {
    (0..TABLE_COUNT).map(TableId).map(features).collect()
}

fn features(table_id: TableId) -> TableFeatures {
    TableFeatures {
        table_id,
        name: format!("table{table_id}").as_str().into(),
        metadata_match: u64::MAX,
        metadata_write: u64::MAX,
        config: 0,
        max_entries: u32::try_from(MAX_RULES).unwrap_or(u32::MAX),
        properties: properties(table_id),
    }
}

/// Properties of the table-miss rule equal those of other rules, so the "miss" properties are
/// omitted.
fn properties(table_id: TableId) -> Vec<Property> {
    let is_last = table_id.0 + 1 == TABLE_COUNT;
    let instructions = INSTRUCTION_KINDS.iter().filter(|&&kind| !(is_last && kind == GOTO_TABLE));
    let instructions = instructions.map(|&kind| InstructionId { kind, experimenter: None });
    let actions = || ACTION_KINDS.iter().map(|&kind| ActionId { kind, experimenter: None });
    let fields = |fields: &[OxmField], id: fn(OxmField) -> OxmId| -> Vec<OxmId> {
        fields.iter().map(|&field| id(field)).collect()
    };
    vec![
        Property::Instructions(instructions.collect()),
        Property::NextTables((table_id.0 + 1..TABLE_COUNT).map(TableId).collect()),
        Property::WriteActions(actions().collect()),
        Property::ApplyActions(actions().collect()),
        Property::Match(fields(MATCH_FIELDS, OxmId::maskable)),
        Property::Wildcards(fields(MATCH_FIELDS, OxmId::exact)),
        Property::WriteSetField(fields(SET_FIELDS, OxmId::exact)),
        Property::ApplySetField(fields(SET_FIELDS, OxmId::exact)),
    ]
}
