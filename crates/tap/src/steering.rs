//! Steering: an eBPF program that picks the queue of each frame that the kernel sends.
//!
//! **What it is for.** Left alone, the kernel picks the queue by a hash of its own, and moves a
//! flow to the queue on which its frames were last written. For that it computes a hash also for
//! each frame that is *written*, and may take a lock of the whole device. A [`Steering`] program
//! makes the choice plain: bucket = [`FlowHash`] of the frame, queue = table\[bucket\]. Both
//! directions of a flow give one bucket, so whoever reads a flow's frames from two devices with the
//! same table meets both directions on one worker, and can say beforehand on which. Writing a
//! frame, on whatever queue, then costs no hash and moves nothing (`tun_get_user` in
//! `drivers/net/tun.c` looks for a program before it asks for the hash).
//!
//! **How a queue is found.** `ndo_select_queue` runs the program, cuts the result to 16 bits and
//! takes it modulo the number of attached queues. So a table made for too many queues loses no
//! frame, but spreads badly until it is rewritten: [`Steering::queue_detached`] and
//! [`Steering::queue_attached`] do that and move as few flows as can be. With a single attached
//! queue the kernel asks nobody, and nothing is counted.
//!
//! **The hash** is of the innermost addresses and ports: through tags, IP options and extension
//! headers, and through VXLAN; see [`FlowHash`] for all rules and bounds. Fragments are hashed by
//! addresses alone, so that those of a datagram meet.
//!
//! **Counters** are kept for each queue, summed without atomic operations. What is counted was
//! steered; a filter or a full ring may drop it afterwards.
//!
//! **Cost**, measured on Linux 6.18 with an AMD EPYC. About 70 instructions for an untagged TCP or
//! UDP packet over IPv4, with two calls: one copies 38 bytes of headers to the stack, one finds the
//! counters. [`Steering::dry_run`] says 20 ns, the 25 ns of an empty program taken off; 36 ns with
//! one to six tags or IPv6, 53 ns through VXLAN, 69 ns when there is a tag inside. Writing a small
//! frame to a device with four queues took 720 ns without a program and 625 ns with one, as much as
//! with a single queue.
//!
//! **Read first:** `tun_ebpf_select_queue` in Linux `drivers/net/tun.c`; RFC 7348 (VXLAN).
//!
//! **Limits.** Frames that XDP redirects to the device never see the program: the kernel picks
//! their queue by CPU. Who receives such frames asks [`Steering::queue_of`] for each. A program
//! stays with its device, also a persistent one, until another is set; it cannot be read back, nor
//! can its counters once the [`Steering`] is gone.

mod hash;
mod program;
mod table;

use std::num::NonZeroU16;
use std::os::fd::{AsFd, BorrowedFd};

use crate::bpf::{AttachError, BpfError, CounterMap, Program, Setter, TableMap};
use crate::ioctl;

pub use hash::FlowHash;
pub use table::{MAX_QUEUES, TABLE_LEN, TableError};

use table::Table;

/// An eBPF program that picks the queue of each frame the kernel sends to a tun or tap device with
/// several queues. See the [module](self) for what it does.
///
/// ```no_run
/// use std::num::NonZeroU16;
/// use std::os::fd::AsFd;
/// use tapswitch_tap::{Config, Device, FlowHash, Steering};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let queues = NonZeroU16::new(4).ok_or("no queue")?;
/// let tap = Device::create(&Config::new("tap0".parse()?).queues(queues))?;
/// let steering = Steering::load(FlowHash::ETHERNET, queues)?;
/// tap.set_steering(Some(steering.as_fd()))?;
/// // Frames of both directions of a flow now come from one queue, the same on each such device.
/// println!("{:?}", steering.counters(0)?);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Steering {
    flow_hash: FlowHash,
    table: Table,
    program: Program,
    table_map: TableMap<TABLE_LEN>,
    counters: CounterMap<2>,
}

impl Steering {
    /// Loads a program that spreads flows evenly over `queues` queues. Needs Linux 5.3 and
    /// `CAP_BPF` (before 5.8 `CAP_SYS_ADMIN`).
    ///
    /// # Errors
    /// [`SteeringError`]: more than [`MAX_QUEUES`] queues, or the kernel does not take the program.
    pub fn load(flow_hash: FlowHash, queues: NonZeroU16) -> Result<Self, SteeringError> {
        let table = Table::even(queues)?;
        let table_map = TableMap::create(NAME)?;
        let counters = CounterMap::create(NAME, usize::from(MAX_QUEUES))?;
        let code = program::assemble(flow_hash, table_map.as_fd(), counters.as_fd())
            .map_err(BpfError::assemble(NAME))?;
        table_map.write(table.entries())?;
        let program = Program::load(NAME, &code, NEEDED)?;
        Ok(Self { flow_hash, table, program, table_map, counters })
    }

    /// Leads flows evenly to kernel queues 0 to `queues - 1`, at once and while traffic flows. Many
    /// flows change their queue.
    ///
    /// # Errors
    /// As [`Self::load`]; the table stays as it was.
    pub fn set_queues(&mut self, queues: NonZeroU16) -> Result<(), SteeringError> {
        self.replace(Table::even(queues)?)
    }

    /// Leads the flows of bucket `i` to kernel queue `table[i]`, at once and while traffic flows. A
    /// table shorter than [`TABLE_LEN`] is repeated until it is as long.
    ///
    /// # Errors
    /// [`SteeringError::Table`]: an empty table, one longer than [`TABLE_LEN`], or a queue beyond
    /// [`MAX_QUEUES`]. The table stays as it was.
    pub fn set_table(&mut self, table: &[u16]) -> Result<(), SteeringError> {
        self.replace(Table::repeat(table)?)
    }

    /// To be called when the queue with the kernel's `index` (its place in
    /// [`Device::queue_order`](crate::Device::queue_order)) was detached or closed, and `left`
    /// queues are attached now. Its flows are shared out among the others. The kernel has given
    /// the last queue its index: that queue's flows follow it and so stay with their worker.
    ///
    /// # Errors
    /// As [`Self::set_table`]; an `index` that was not in use is no error.
    pub fn queue_detached(&mut self, index: u16, left: u16) -> Result<(), SteeringError> {
        self.replace(self.table.without_queue(index, left))
    }

    /// To be called when a queue was attached, and `total` are attached now; the kernel has given
    /// it the index `total - 1`. It gets an even share of the flows, the others keep the rest.
    ///
    /// # Errors
    /// As [`Self::load`].
    pub fn queue_attached(&mut self, total: NonZeroU16) -> Result<(), SteeringError> {
        self.replace(self.table.with_queue(total)?)
    }

    /// Makes the program the one of the device that `queue` belongs to, instead of any other. For
    /// those who have no [`Device`](crate::Device), and so no
    /// [`set_steering`](crate::Device::set_steering).
    ///
    /// # Errors
    /// [`AttachError`]: `queue` is none, its device is of the other kind than the program is for,
    /// or the kernel is older than Linux 4.16.
    pub fn attach(&self, queue: impl AsFd) -> Result<(), AttachError> {
        SETTER.attach(queue.as_fd(), self.as_fd(), self.flow_hash.link)
    }

    /// Leaves the device that `queue` belongs to without any steering program: the kernel picks
    /// queues again.
    ///
    /// # Errors
    /// As [`Self::attach`].
    pub fn detach(queue: impl AsFd) -> Result<(), AttachError> {
        SETTER.detach(queue)
    }

    /// What the program hashes.
    pub fn flow_hash(&self) -> FlowHash {
        self.flow_hash
    }

    /// The kernel queue of each bucket.
    pub fn table(&self) -> &[u16; TABLE_LEN] {
        self.table.entries()
    }

    /// The kernel queue that `frame` belongs on. Both directions of a flow give the same.
    pub fn queue_of(&self, frame: &[u8]) -> u16 {
        self.table.entries()[self.flow_hash.bucket(frame)]
    }

    /// What was steered to the queue with the kernel's `index` since the program was loaded.
    ///
    /// # Errors
    /// [`BpfError`]; [`BpfError::NoSuchQueue`] for an `index` of [`MAX_QUEUES`] or more.
    pub fn counters(&self, index: u16) -> Result<QueueCounters, BpfError> {
        if index >= MAX_QUEUES {
            return Err(BpfError::NoSuchQueue { name: NAME, index, count: MAX_QUEUES });
        }
        let [frames, bytes] = self.counters.read(u32::from(index))?;
        Ok(QueueCounters { frames, bytes })
    }

    /// Lets the kernel run the program on `frame`, `repeat` times, without any device: what it
    /// answers, and how long that takes. The runs are counted as frames. `frame` has no header of
    /// metadata in front, and at most 3 KiB.
    ///
    /// # Errors
    /// [`BpfError`]: a frame that is too long, or no privilege.
    pub fn dry_run(&self, frame: &[u8], repeat: u32) -> Result<SteeringRun, BpfError> {
        let run = self.program.test_run(frame, 0, repeat)?;
        Ok(SteeringRun { queue: run.value, run_ns: run.run_ns })
    }

    fn replace(&mut self, table: Table) -> Result<(), SteeringError> {
        self.table_map.write(table.entries())?;
        self.table = table;
        Ok(())
    }
}

/// The program, for [`Device::set_steering`](crate::Device::set_steering).
impl AsFd for Steering {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.program.as_fd()
    }
}

/// What was steered to one queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QueueCounters {
    /// Frames; a train is one.
    pub frames: u64,
    /// Their bytes as they are read, without the header of metadata.
    pub bytes: u64,
}

/// What a dry run of the program tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SteeringRun {
    /// The entry of the table.
    pub queue: u32,
    /// Mean time of a run in ns.
    pub run_ns: u32,
}

/// Why steering was not set up or changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SteeringError {
    /// A table that cannot be.
    #[error(transparent)]
    Table(#[from] TableError),
    /// The kernel does not take the program or its table.
    #[error(transparent)]
    Bpf(#[from] BpfError),
}

/// A verifier that follows which values matter.
const NEEDED: (u32, u32) = (5, 3);
/// How a device gets the program.
const SETTER: Setter = Setter {
    name: "TUNSETSTEERINGEBPF",
    call: |queue, program| ioctl::set_steering(queue, program),
};
/// Of the program and its maps, for people who list them.
const NAME: &str = "tap_steering";
