//! Filters, and the selection of queues by a program.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;

use super::Device;
use crate::{ClassicInstruction, Flags, SettingError, TxFilter, ioctl};

impl Device {
    /// Sets or removes the eBPF program that selects the queue for each frame that the kernel
    /// transmits (`TUNSETSTEERINGEBPF`, Linux 4.16). It is a socket filter and sees the frame from
    /// the link-layer header on. The queue is the lower 16 bits of its result, modulo the number of
    /// attached queues ([`Self::queue_order`]).
    ///
    /// A program makes sending on a multi-queue device cheaper: the kernel no longer records on
    /// which queue a flow was written. The program stays attached to the device even after this
    /// process ends, and cannot be read back; [`Self::create`] removes it from a persistent device.
    /// It is not called for frames that an XDP program redirects here: these arrive on the queue
    /// numbered like their processor, and [`Steering::queue_of`](crate::Steering::queue_of)
    /// computes the right one.
    ///
    /// # Errors
    /// [`SettingError::Refused`] if the descriptor is not such a program.
    pub fn set_steering(&self, program: Option<BorrowedFd<'_>>) -> Result<(), SettingError> {
        let outcome = ioctl::set_steering(&self.queues[0], program);
        outcome.map_err(|errno| self.program_error("the steering program", errno))
    }

    /// Sets or removes the eBPF program that drops or truncates frames that the kernel transmits
    /// (`TUNSETFILTEREBPF`, Linux 4.16). It is a socket filter whose result is the number of bytes
    /// to keep; zero drops the frame. It stays attached like [the steering
    /// program](Self::set_steering).
    ///
    /// # Errors
    /// [`SettingError::Refused`] if the descriptor is not such a program.
    pub fn set_filter(&self, program: Option<BorrowedFd<'_>>) -> Result<(), SettingError> {
        let outcome = ioctl::set_filter(&self.queues[0], program);
        outcome.map_err(|errno| self.program_error("the filter program", errno))
    }

    /// Passes only frames to these destination addresses, or all frames (`TUNSETTXFILTER`, Linux
    /// 2.6.27, tap devices).
    ///
    /// # Errors
    /// [`SettingError::TooManyAddresses`]; [`SettingError::Refused`] if there is none, or more than
    /// [`TxFilter::COUNT_MAX`]; [`SettingError::NotATap`].
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
            // Linux returns zero if it disabled the filter instead of setting it.
            0 if filter.is_some() => Err(self.refused(what, "name fewer addresses")),
            _ => Ok(()),
        }
    }

    /// Attaches a classic filter to the queue (`TUNATTACHFILTER`, Linux 2.6.34, tap devices).
    ///
    /// Prefer [`Self::set_filter`]. This call is restricted to non-persistent devices with a single
    /// queue, because Linux confuses `IFF_NOFILTER` with `IFF_NO_PI`: on a device with a classic
    /// filter, a queue that attaches later is reported as attached and is not.
    ///
    /// # Errors
    /// [`SettingError::FilterUnsafe`] on other devices; [`SettingError::Refused`] if the program is
    /// not valid; [`SettingError::NotATap`].
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

    /// Detaches the classic filter (`TUNDETACHFILTER`, Linux 2.6.34, tap devices). Succeeds if
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

    /// Number of instructions of the classic filter that any program attached to the device last,
    /// even if it was detached since; zero if there was none (`TUNGETFILTER`, Linux 3.12, tap
    /// devices). The kernel does not return the program itself, only its former address in the
    /// memory of that program.
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
