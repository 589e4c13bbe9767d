//! What the kernel drops before it reaches a queue, and to which queue it gives the rest.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;

use super::Device;
use crate::{ClassicInstruction, Flags, SettingError, TxFilter, ioctl};

impl Device {
    /// Sets the eBPF program that picks the queue of each frame that the kernel sends, or none
    /// (`TUNSETSTEERINGEBPF`, Linux 4.16). It is of type socket filter and sees the frame from its
    /// link-layer header on; the queue is the lower 16 bits of its answer, modulo the number of
    /// attached queues ([`Self::queue_order`]).
    ///
    /// With a program, sending is cheaper on a multi-queue device: the kernel no longer notes which
    /// flow came by which queue. It stays with the device, also when this process is gone, and
    /// cannot be read back; [`Self::create`] takes it off a persistent device. Frames that an XDP
    /// program redirects here are not asked about: they come by the queue of the number of the
    /// processor that they are on, and [`Steering::queue_of`](crate::Steering::queue_of) tells
    /// where they belong.
    ///
    /// # Errors
    /// [`SettingError::Refused`] when the descriptor is no such program.
    pub fn set_steering(&self, program: Option<BorrowedFd<'_>>) -> Result<(), SettingError> {
        let outcome = ioctl::set_steering(&self.queues[0], program);
        outcome.map_err(|errno| self.program_error("the steering program", errno))
    }

    /// Sets the eBPF program that drops and shortens frames that the kernel sends, or none
    /// (`TUNSETFILTEREBPF`, Linux 4.16). It is of type socket filter; its answer is the number of
    /// bytes to keep, and zero drops the frame. It stays as [that for
    /// steering](Self::set_steering) does.
    ///
    /// # Errors
    /// [`SettingError::Refused`] when the descriptor is no such program.
    pub fn set_filter(&self, program: Option<BorrowedFd<'_>>) -> Result<(), SettingError> {
        let outcome = ioctl::set_filter(&self.queues[0], program);
        outcome.map_err(|errno| self.program_error("the filter program", errno))
    }

    /// Lets only frames through that are for these addresses, or all (`TUNSETTXFILTER`, Linux
    /// 2.6.27, tap devices).
    ///
    /// # Errors
    /// [`SettingError::TooManyAddresses`]; [`SettingError::Refused`] when there is none, or more
    /// than [`TxFilter::COUNT_MAX`]; [`SettingError::NotATap`].
    pub fn set_tx_filter(&self, filter: Option<&TxFilter>) -> Result<(), SettingError> {
        let what = "the address filter";
        self.must_be_tap(what)?;
        let (addresses, all_multicast) = filter.map(TxFilter::arranged).unwrap_or_default();
        if filter.is_some() && addresses.is_empty() {
            return Err(
                self.refused(what, "name at least one address: an empty list would mean no filter")
            );
        }
        let hashed = addresses.get(TxFilter::EXACT_COUNT..).unwrap_or_default();
        if let Some(&address) = hashed.iter().find(|address| !address.is_multicast()) {
            return Err(SettingError::TooManyAddresses { name: self.name.to_string(), address });
        }
        if addresses.len() > TxFilter::COUNT_MAX {
            let remedy =
                "name at most 65535 addresses, or accept all groups with all_multicast(true)";
            return Err(self.refused(what, remedy));
        }
        let outcome = ioctl::set_tx_filter(&self.queues[0], &addresses, all_multicast);
        match outcome.map_err(self.failed("TUNSETTXFILTER"))? {
            // Linux answers zero when it switched the filter off instead of setting it.
            0 if filter.is_some() => Err(self.refused(what, "name fewer addresses")),
            _ => Ok(()),
        }
    }

    /// Attaches a classic filter to the queue (`TUNATTACHFILTER`, Linux 2.6.34, tap devices).
    ///
    /// Better use [`Self::set_filter`]. This one is for devices with a single queue that are not
    /// persistent, because Linux confuses `IFF_NOFILTER` with `IFF_NO_PI`: a queue that attaches
    /// later to a device with a classic filter is reported as attached and is not.
    ///
    /// # Errors
    /// [`SettingError::FilterUnsafe`] on other devices; [`SettingError::Refused`] when the program
    /// is not valid; [`SettingError::NotATap`].
    pub fn attach_classic_filter(
        &mut self,
        program: &[ClassicInstruction],
    ) -> Result<(), SettingError> {
        let what = "the classic filter";
        self.must_be_tap(what)?;
        let unsafe_on = |what| SettingError::FilterUnsafe { name: self.name.to_string(), what };
        if self.multi_queue {
            return Err(unsafe_on("multi-queue"));
        }
        if self.flags()?.contains(Flags::PERSIST) {
            return Err(unsafe_on("persistent"));
        }
        let outcome = ioctl::attach_classic_filter(&self.queues[0], program);
        outcome.map_err(|errno| match errno {
            Errno::INVAL => self.refused(what, "it must end with BPF_RET and jump only forwards"),
            _ => self.failed("TUNATTACHFILTER")(errno),
        })?;
        self.classic_filter = true;
        Ok(())
    }

    /// Takes the classic filter off (`TUNDETACHFILTER`, Linux 2.6.34, tap devices). No error when
    /// there is none.
    ///
    /// # Errors
    /// [`SettingError::NotATap`].
    pub fn detach_classic_filter(&mut self) -> Result<(), SettingError> {
        self.must_be_tap("the classic filter")?;
        let outcome = ioctl::detach_classic_filter(&self.queues[0]);
        outcome.map_err(self.failed("TUNDETACHFILTER"))?;
        self.classic_filter = false;
        Ok(())
    }

    /// Number of instructions of the classic filter that was attached to the device last, by
    /// anyone, and may have been detached since; zero when there was none (`TUNGETFILTER`, Linux
    /// 3.12, tap devices). The kernel does not hand the program back, only the address where its
    /// maker once had it.
    ///
    /// # Errors
    /// [`SettingError::NotATap`].
    pub fn classic_filter_len(&self) -> Result<u16, SettingError> {
        self.must_be_tap("the classic filter")?;
        ioctl::classic_filter_len(&self.queues[0]).map_err(self.failed("TUNGETFILTER"))
    }

    fn program_error(&self, what: &'static str, errno: Errno) -> SettingError {
        match errno {
            Errno::INVAL | Errno::BADF => {
                self.refused(what, "pass an eBPF program of type socket filter (Linux 4.16)")
            }
            _ => self.failed(what)(errno),
        }
    }
}
