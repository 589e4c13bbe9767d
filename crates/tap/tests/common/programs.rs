//! Whether this machine lets a test load eBPF programs.

use tapswitch_tap::steering::SteeringError;
use tapswitch_tap::{BpfError, FlowHash, Steering};

use crate::common::{can_tap, skip};

/// True when the test may load programs; otherwise says loudly that it is skipped.
pub(crate) fn can_load() -> bool {
    match Steering::load(FlowHash::ETHERNET, std::num::NonZeroU16::MIN) {
        Err(SteeringError::Bpf(
            error @ (BpfError::NotPermitted { .. }
            | BpfError::NoBpf { .. }
            | BpfError::TooOld { .. }),
        )) => skip(&error.to_string()),
        // What else may be wrong, the test shall show.
        _ => true,
    }
}

/// True when the test may make devices, too.
pub(crate) fn can_attach() -> bool {
    can_tap() && can_load()
}
