//! Attaching and detaching queues, and counting those of other programs.

use super::Device;
use crate::{Flags, SettingError, ioctl};

impl Device {
    /// Detaches a queue (`TUNSETQUEUE`, Linux 3.8): the kernel stops sending to it, and frames
    /// already queued there are lost. The file stays open and may still send, unless the device
    /// uses NAPI ([`SendError::Detached`](crate::SendError)).
    ///
    /// The kernel numbers queues without gaps: the queue with the highest index takes the index of
    /// the detached one. [`Self::queue_order`] returns the new order; a table that a steering
    /// program uses to select queues must be rewritten.
    ///
    /// # Errors
    /// [`SettingError::NoSuchQueue`]; [`SettingError::QueueState`] if it is already detached or the
    /// device has a single queue.
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

    /// Attaches a detached queue again, at the kernel's next free index.
    ///
    /// # Errors
    /// [`SettingError::NoSuchQueue`]; [`SettingError::QueueState`] if it is already attached, or if
    /// a classic filter of another program prevents it.
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

    /// True if the kernel sends to that queue.
    ///
    /// # Errors
    /// [`SettingError::NoSuchQueue`], or if the device was deleted.
    pub fn is_attached(&self, queue: usize) -> Result<bool, SettingError> {
        let Some(found) = self.queues.get(queue) else {
            let (name, count) = (self.name.to_string(), self.queues.len());
            return Err(SettingError::NoSuchQueue { name, queue, count });
        };
        let (_, flags) = ioctl::interface(found).map_err(self.failed("TUNGETIFF"))?;
        Ok(!flags.contains(Flags::DETACH_QUEUE))
    }

    /// The attached queues, as positions in [`Self::queues`], ordered by kernel index: a steering
    /// program that returns *n* selects the *n*th of these. `None` if queues of other programs may
    /// be among them ([`Self::join`], [`Self::from_fds`]).
    ///
    /// Valid as long as no other program opens or closes queues: see [`Self::foreign_queues`].
    pub fn queue_order(&self) -> Option<&[usize]> {
        self.order.as_deref()
    }

    /// Number of queues, attached or not, of other programs or other [`Device`] values. They
    /// receive a share of the frames, and may misread them. Should be zero unless sharing is
    /// intended.
    ///
    /// Queries rtnetlink (Linux 4.17): not for every packet.
    ///
    /// # Errors
    /// [`SettingError::Gone`]; [`SettingError::Link`].
    pub fn foreign_queues(&self) -> Result<u32, SettingError> {
        let info = self.link()?.tun.unwrap_or_default();
        // Reported for multi-queue devices only; others have one queue.
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
