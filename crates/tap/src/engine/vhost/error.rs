//! Errors of the vhost-net engine.

use std::io;

use rustix::io::Errno;
use thiserror::Error;

use super::VhostConfig;
use super::ioctl::PATH;
use super::ring::Broken;
use crate::{Prefix, RecvError, SendError};

/// Why a vhost-net engine cannot be opened on a queue.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum VhostError {
    /// The device does not exist (`ENOENT`, `ENODEV`, `ENXIO`).
    #[error(
        "{PATH}: {source}; load the module with `modprobe vhost_net` (the kernel needs \
         CONFIG_VHOST_NET), give a container access to the device, or use another engine"
    )]
    Missing {
        /// Error of open(2).
        source: io::Error,
    },
    /// The device cannot be opened.
    #[error(
        "{PATH}: {source}; it must be readable and writable by this user (many systems give it to \
         the group kvm) and permitted by the container's device rules, or use another engine"
    )]
    Open {
        /// Error of open(2).
        source: io::Error,
    },
    /// The kernel lacks required features.
    #[error(
        "{PATH}: feature bits {missing:#x} are missing, which need Linux 4.0; use another engine"
    )]
    Features {
        /// Feature bits of virtio 1.2 §6 and §5.1.3.
        missing: u64,
    },
    /// The queue has protocol information, or a header length other than 12.
    #[error(
        "the queue has {prefix} in front of each frame, but vhost-net supports only a header of 12 \
         bytes: create the device with that, or use another engine"
    )]
    Layout {
        /// Layout of the queue.
        prefix: Prefix,
    },
    /// Invalid sizes.
    #[error(
        "{config:?}: receive_buffers must be a power of two from 64 to 32768, send_frames a power \
         of two up to 32768, and send_bytes a power of two from 128 KiB to 512 MiB"
    )]
    Config {
        /// The requested configuration.
        config: VhostConfig,
    },
    /// No memory for the rings.
    #[error(
        "memory for the rings of vhost-net: {source}; ask for smaller ones, or use another engine"
    )]
    Memory {
        /// Error of mmap(2) or memfd_create(2).
        source: io::Error,
    },
    /// Any other error.
    #[error("{PATH}: {call}: {source}")]
    Call {
        /// Name of the ioctl(2) or other call.
        call: &'static str,
        /// Its error.
        source: io::Error,
    },
}

impl VhostError {
    pub(super) fn open(errno: Errno) -> Self {
        let source = errno.into();
        match errno {
            Errno::NOENT | Errno::NODEV | Errno::NXIO => Self::Missing { source },
            _ => Self::Open { source },
        }
    }

    pub(super) fn call(call: &'static str) -> impl FnOnce(Errno) -> Self {
        move |errno| Self::Call { call, source: errno.into() }
    }
}

impl From<Broken> for RecvError {
    #[cold]
    fn from(broken: Broken) -> Self {
        Self::Broken { what: broken.what() }
    }
}

impl From<Broken> for SendError {
    #[cold]
    fn from(broken: Broken) -> Self {
        Self::Broken { what: broken.what() }
    }
}
