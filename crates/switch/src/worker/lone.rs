//! A worker without its thread, for a test that limits the instructions per frame. It covers all of
//! a worker's processing, from epoll to the counters of sent frames.

use std::fmt;
use std::io;
use std::sync::Arc;

use rustix::event::{EventfdFlags, epoll, eventfd};
use tapswitch_datapath::{MacTable, Snapshot, WorkerIndex};

use super::{Worker, WorkerSetup};
use crate::PortSpec;
use crate::device::Device;
use crate::open_error::OpenPortError;
use crate::shared::Shared;

/// One worker with its ports.
pub struct LoneWorker {
    worker: Worker,
    events: Vec<epoll::Event>,
    _devices: Vec<Device>,
}

impl LoneWorker {
    /// A worker that uses these tables and opens these ports, all of which the tables contain.
    ///
    /// # Errors
    /// Why a port cannot be opened, or what the kernel refused.
    pub fn open(tables: Arc<Snapshot>, ports: &[PortSpec]) -> Result<Self, OpenPortError> {
        let mut worker = worker(tables)
            .map_err(|source| OpenPortError::Eventfd { port: String::new(), source })?;
        let devices = ports.iter().map(Device::open).collect::<Result<Vec<_>, _>>()?;
        for device in &devices {
            if let Some(tx) = device.tx_port(0, 1) {
                worker.add_port(device.spec.number, tx, device.rx_queues());
            }
        }
        Ok(Self { worker, events: Vec::new(), _devices: devices })
    }

    /// Waits until there is something to read, and does one round of a worker's work.
    pub fn round(&mut self) {
        self.worker.round(&mut self.events);
    }
}

fn worker(tables: Arc<Snapshot>) -> io::Result<Worker> {
    let (shared, _) = Shared::new(tables, Arc::<MacTable>::default(), 1);
    let (_, inbox) = crossbeam_channel::unbounded();
    let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
    let poll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let setup = WorkerSetup { index: WorkerIndex(0), core: None, shared };
    Ok(Worker::new(setup, poll, wake, inbox))
}

impl fmt::Debug for LoneWorker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoneWorker").finish_non_exhaustive()
    }
}
