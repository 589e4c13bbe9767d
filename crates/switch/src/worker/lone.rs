//! A worker without its thread, for a test that guards how many instructions it takes to move a
//! frame: all that a worker does for one, from asking the kernel what is ready to counting what has
//! left.

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

/// One worker, its ports, and nobody else.
pub struct LoneWorker {
    worker: Worker,
    events: Vec<epoll::Event>,
    _devices: Vec<Device>,
}

impl LoneWorker {
    /// A worker that goes by these tables, and opens these ports, each of which the tables have.
    ///
    /// # Errors
    /// Why a port cannot be opened, or what the kernel does not give.
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

    /// Waits until there is something to read, and does all that a worker does then.
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
