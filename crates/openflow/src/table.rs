//! Flow tables: configuration (OpenFlow 1.3.5 §7.3.3).

use crate::codec::layout_codec;
use crate::{CheckError, ErrorKind, TableId};

/// `OFPT_TABLE_MOD` (`ofp_table_mod`, §7.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableMod {
    /// The table; [`TableId::ALL`] for all.
    pub table_id: TableId,
    /// Bits of `ofp_table_config`; all are deprecated, so there is nothing to set.
    pub config: u32,
}

impl TableMod {
    /// Accepts deprecated bits only.
    pub fn check(&self) -> Result<(), CheckError> {
        if self.config & !TABLE_CONFIG_DEPRECATED != 0 {
            let text = format!("table_mod: unknown config {:#x}", self.config);
            return Err(CheckError::new(ErrorKind::OFPTMFC_BAD_CONFIG, text));
        }
        Ok(())
    }
}

layout_codec!(TableMod {
    table_id,
    pad 3,
    config,
});

/// The deprecated bits of `ofp_table_config` (`OFPTC_DEPRECATED_MASK`), which are ignored.
pub const TABLE_CONFIG_DEPRECATED: u32 = 3;
