//! How a port is attached.

/// How a port is attached to its interface. The default suits a switch.
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
    /// Receives frames for any address, not only for the interface's own
    /// (`PACKET_MR_PROMISC`). On by default, ends with the port.
    #[must_use]
    pub const fn promiscuous(mut self, promiscuous: bool) -> Self {
        self.promiscuous = promiscuous;
        self
    }

    /// Sends past the interface's queueing discipline (`PACKET_QDISC_BYPASS`, Linux 3.14): faster
    /// on a NIC with one, without its buffer, shaping and packet taps. Off by default.
    #[must_use]
    pub const fn qdisc_bypass(mut self, bypass: bool) -> Self {
        self.qdisc_bypass = bypass;
        self
    }

    /// Bytes of frames that may wait to be received; the kernel doubles the number to allow for
    /// its own overhead. 16 MiB by default: that is a worker's pause of some 10 ms at 25 Gbit/s of
    /// trains, or some 20,000 small frames. Memory is taken only by frames that do wait. Without
    /// `CAP_NET_ADMIN` the kernel silently caps it at `net.core.rmem_max`.
    #[must_use]
    pub const fn receive_buffer_len(mut self, len: usize) -> Self {
        self.receive_buffer_len = len;
        self
    }

    /// Bytes of frames that may be on their way out; the kernel doubles the number, and gives
    /// [`crate::SendError::Full`] beyond. 4 MiB by default, some hundred trains: enough to keep a
    /// NIC busy, little enough to notice that it is. Without `CAP_NET_ADMIN` the kernel silently
    /// caps it at `net.core.wmem_max`, which is usually three trains.
    #[must_use]
    pub const fn send_buffer_len(mut self, len: usize) -> Self {
        self.send_buffer_len = len;
        self
    }
}

/// Bytes of frames that may be on their way out, unless told otherwise.
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
