//! Why a vhost-net engine could not be had, or stopped.

use std::io;

use rustix::io::Errno;
use thiserror::Error;

use super::VhostConfig;
use super::ioctl::PATH;
use super::ring::Broken;
use crate::{Prefix, RecvError, SendError};

/// Why there is no vhost-net engine on a queue.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum VhostError {
    /// There is no such device (`ENOENT`, `ENODEV`, `ENXIO`).
    #[error(
        "{PATH}: {source}; load the module with `modprobe vhost_net` (the kernel needs \
         CONFIG_VHOST_NET), give a container access to the device, or use another engine"
    )]
    Missing {
        /// What open(2) said.
        source: io::Error,
    },
    /// The device cannot be opened.
    #[error(
        "{PATH}: {source}; it must be readable and writable by this user (many systems give it to \
         the group kvm) and permitted by the container's device rules, or use another engine"
    )]
    Open {
        /// What open(2) said.
        source: io::Error,
    },
    /// The kernel does not have what is needed.
    #[error(
        "{PATH}: feature bits {missing:#x} are missing, which need Linux 4.0; use another engine"
    )]
    Features {
        /// Feature bits of virtio 1.2 §6 and §5.1.3.
        missing: u64,
    },
    /// The queue has protocol information, or not a header of 12 bytes.
    #[error(
        "the queue has {prefix} in front of each frame, but vhost-net supports only a header of 12 \
         bytes: create the device with that, or use another engine"
    )]
    Layout {
        /// What the queue has.
        prefix: Prefix,
    },
    /// Sizes that cannot be.
    #[error(
        "{config:?}: receive_buffers must be a power of two from 64 to 32768, send_frames a power \
         of two up to 32768, and send_bytes a power of two from 128 KiB to 512 MiB"
    )]
    Config {
        /// As asked for.
        config: VhostConfig,
    },
    /// No memory for the rings.
    #[error(
        "memory for the rings of vhost-net: {source}; ask for smaller ones, or use another engine"
    )]
    Memory {
        /// What mmap(2) or memfd_create(2) said.
        source: io::Error,
    },
    /// Any other refusal.
    #[error("{PATH}: {call}: {source}")]
    Call {
        /// Name of the ioctl(2) or other call.
        call: &'static str,
        /// What it said.
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
