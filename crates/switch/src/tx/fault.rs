//! Why a device refused a frame, translated from its own errors, and what that means for the frame.

use tapswitch_datapath::DropReason;
use tapswitch_netdev as netdev;
use tapswitch_tap as tap;
use tapswitch_tunnel as tunnel;

use crate::recorder;

/// Why a device refused a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SendFault {
    Down,
    Oversize,
    Full,
    /// Full, or unable to process this frame: see [`super::doubt`].
    Congested,
    Rejected,
    Failed,
}

impl From<tap::SendError> for SendFault {
    #[cold]
    fn from(error: tap::SendError) -> Self {
        match error {
            tap::SendError::Down => Self::Down,
            tap::SendError::Full | tap::SendError::NoMemory => Self::Full,
            // A frame that is too short, or not an IP packet, is the fault of a rule or a guest.
            tap::SendError::Rejected | tap::SendError::TooShort { .. } | tap::SendError::NotIp => {
                Self::Rejected
            }
            _ => Self::Failed,
        }
    }
}

impl From<netdev::SendError> for SendFault {
    #[cold]
    fn from(error: netdev::SendError) -> Self {
        match error {
            netdev::SendError::Down => Self::Down,
            netdev::SendError::Oversize => Self::Oversize,
            netdev::SendError::Full => Self::Full,
            netdev::SendError::Congested => Self::Congested,
            netdev::SendError::Rejected => Self::Rejected,
            _ => Self::Failed,
        }
    }
}

impl From<tunnel::SendError> for SendFault {
    #[cold]
    fn from(error: tunnel::SendError) -> Self {
        match error {
            tunnel::SendError::Down => Self::Down,
            tunnel::SendError::Oversize => Self::Oversize,
            tunnel::SendError::Full | tunnel::SendError::Congested => Self::Full,
            tunnel::SendError::Unreachable { .. } | tunnel::SendError::Forbidden => Self::Rejected,
            _ => Self::Failed,
        }
    }
}

impl From<recorder::Full> for SendFault {
    #[cold]
    fn from(_: recorder::Full) -> Self {
        Self::Full
    }
}

impl From<SendFault> for DropReason {
    #[cold]
    fn from(fault: SendFault) -> Self {
        match fault {
            SendFault::Down => Self::PortDown,
            SendFault::Oversize => Self::Oversize,
            SendFault::Full | SendFault::Congested => Self::EgressFull,
            SendFault::Rejected => Self::EgressRejected,
            SendFault::Failed => Self::EgressFailed,
        }
    }
}
