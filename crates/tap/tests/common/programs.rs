//! Whether this machine permits a test to load eBPF programs.

use tapswitch_tap::steering::SteeringError;
use tapswitch_tap::{BpfError, FlowHash, Steering};

use crate::common::{can_tap, skip};

/// True if the test may load programs; otherwise reports that it is skipped.
pub(crate) fn can_load() -> bool {
    match Steering::load(FlowHash::ETHERNET, std::num::NonZeroU16::MIN) {
        Err(SteeringError::Bpf(
            error @ (BpfError::NotPermitted { .. }
            | BpfError::NoBpf { .. }
            | BpfError::TooOld { .. }),
        )) => skip(&error.to_string()),
        // Other errors must be reported by the test.
        _ => true,
    }
}

/// True if the test may create devices as well.
pub(crate) fn can_attach() -> bool {
    can_tap() && can_load()
}
