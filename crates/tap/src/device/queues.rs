//! Attaching and detaching queues, and who else has some.

use super::Device;
use crate::{Flags, SettingError, ioctl};

impl Device {
    /// Takes a queue out of service for a while (`TUNSETQUEUE`, Linux 3.8): the kernel sends
    /// nothing to it, and the frames that it holds are lost. It stays open; it may still send,
    /// unless the device uses NAPI ([`SendError::Detached`](crate::SendError)).
    ///
    /// The kernel numbers queues without gaps. So the one with the highest index takes the index of
    /// the one that goes: [`Self::queue_order`] tells the order from then on, and a table by which
    /// a steering program picks queues must be rewritten.
    ///
    /// # Errors
    /// [`SettingError::NoSuchQueue`]; [`SettingError::QueueState`] when it is detached already or
    /// the device has a single queue.
    pub fn detach_queue(&mut self, queue: usize) -> Result<(), SettingError> {
        self.must_be_multi_queue(queue)?;
        if !self.is_attached(queue)? {
            return Err(self.queue_state(queue, "it is already detached"));
        }
        let outcome = ioctl::set_queue(&self.queues[queue], Flags::DETACH_QUEUE);
        outcome.map_err(self.failed("TUNSETQUEUE"))?;
        if let Some(order) = &mut self.order
            && let Some(index) = order.iter().position(|&position| position == queue)
        {
            order.swap_remove(index);
        }
        Ok(())
    }

    /// Puts a queue that was detached back into service, with the next free index of the kernel.
    ///
    /// # Errors
    /// [`SettingError::NoSuchQueue`]; [`SettingError::QueueState`] when it is attached already, or
    /// when a classic filter by another program keeps it out.
    pub fn attach_queue(&mut self, queue: usize) -> Result<(), SettingError> {
        self.must_be_multi_queue(queue)?;
        if self.is_attached(queue)? {
            return Err(self.queue_state(queue, "it is already attached"));
        }
        let outcome = ioctl::set_queue(&self.queues[queue], Flags::ATTACH_QUEUE);
        outcome.map_err(self.failed("TUNSETQUEUE"))?;
        // With a classic filter on the device, Linux reports success and does nothing.
        if !self.is_attached(queue)? {
            let what = "a classic filter on the device prevents it; remove the filter first";
            return Err(self.queue_state(queue, what));
        }
        if let Some(order) = &mut self.order {
            order.push(queue);
        }
        Ok(())
    }

    /// True when the kernel sends to that queue.
    ///
    /// # Errors
    /// [`SettingError::NoSuchQueue`], or when the device is gone.
    pub fn is_attached(&self, queue: usize) -> Result<bool, SettingError> {
        let Some(found) = self.queues.get(queue) else {
            let (name, count) = (self.name.to_string(), self.queues.len());
            return Err(SettingError::NoSuchQueue { name, queue, count });
        };
        let (_, flags) = ioctl::interface(found).map_err(self.failed("TUNGETIFF"))?;
        Ok(!flags.contains(Flags::DETACH_QUEUE))
    }

    /// The queues that are attached, by position in [`Self::queues`], in the order of the kernel's
    /// own numbers: a steering program that answers *n* picks the *n*th of these. `None` when
    /// queues of others may be among them ([`Self::join`], [`Self::from_fds`]).
    ///
    /// Holds as long as nobody else opens or closes queues: see [`Self::foreign_queues`].
    pub fn queue_order(&self) -> Option<&[usize]> {
        self.order.as_deref()
    }

    /// Number of queues that others have, attached or not: another program, or another [`Device`].
    /// They take their share of the frames, and may understand them wrongly. Zero is as it should
    /// be, unless sharing is meant.
    ///
    /// Asks rtnetlink (Linux 4.17), so it is for now and then.
    ///
    /// # Errors
    /// [`SettingError::Gone`]; [`SettingError::Link`].
    pub fn foreign_queues(&self) -> Result<u32, SettingError> {
        let info = self.link()?.tun.unwrap_or_default();
        // Told of multi-queue devices only; others have one.
        let Some(attached) = info.queues else { return Ok(0) };
        let all = attached.saturating_add(info.disabled_queues.unwrap_or(0));
        let ours = u32::try_from(self.queues.len()).unwrap_or(u32::MAX);
        Ok(all.saturating_sub(ours))
    }

    fn must_be_multi_queue(&self, queue: usize) -> Result<(), SettingError> {
        if self.multi_queue {
            return Ok(());
        }
        let what = "the device has a single queue; create it with multi_queue(true)";
        Err(self.queue_state(queue, what))
    }

    fn queue_state(&self, queue: usize, what: &'static str) -> SettingError {
        SettingError::QueueState { name: self.name.to_string(), queue, what }
    }
}
