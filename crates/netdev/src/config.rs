//! Configuration of a port.

/// Configuration of a port. The default suits a switch.
///
/// ```
/// let quiet = tapswitch_netdev::Config::default().promiscuous(false);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    pub(crate) promiscuous: bool,
    pub(crate) qdisc_bypass: bool,
    pub(crate) receive_buffer_len: usize,
    pub(crate) send_buffer_len: usize,
}

impl Config {
    /// Receives frames to any address, not only to the interface's own (`PACKET_MR_PROMISC`). On by
    /// default; ends with the port.
    #[must_use]
    pub const fn promiscuous(mut self, promiscuous: bool) -> Self {
        self.promiscuous = promiscuous;
        self
    }

    /// Bypasses the interface's queueing discipline when sending (`PACKET_QDISC_BYPASS`, Linux
    /// 3.14): faster on a NIC with one, but without its buffer, shaping and packet taps. Off by
    /// default.
    #[must_use]
    pub const fn qdisc_bypass(mut self, bypass: bool) -> Self {
        self.qdisc_bypass = bypass;
        self
    }

    /// Sets the maximum bytes of frames waiting to be received; the kernel doubles the number for
    /// its own overhead. The default of 16 MiB covers a pause of the worker of some 10 ms at 25
    /// Gbit/s of trains, or some 20,000 small frames. Only waiting frames use memory. Without
    /// `CAP_NET_ADMIN` the kernel silently limits it to `net.core.rmem_max`.
    #[must_use]
    pub const fn receive_buffer_len(mut self, len: usize) -> Self {
        self.receive_buffer_len = len;
        self
    }

    /// Sets the maximum bytes of frames in transmission; the kernel doubles the number, and returns
    /// [`crate::SendError::Full`] beyond it. The default of 4 MiB, some hundred trains, keeps a NIC
    /// busy and is small enough to notice that it is. Without `CAP_NET_ADMIN` the kernel silently
    /// limits it to `net.core.wmem_max`, which is usually three trains.
    #[must_use]
    pub const fn send_buffer_len(mut self, len: usize) -> Self {
        self.send_buffer_len = len;
        self
    }
}

/// Default of [`Config::send_buffer_len`].
pub const SEND_BUFFER_LEN: usize = 4 << 20;

impl Default for Config {
    fn default() -> Self {
        Self {
            promiscuous: true,
            qdisc_bypass: false,
            receive_buffer_len: 16 << 20,
            send_buffer_len: SEND_BUFFER_LEN,
        }
    }
}
