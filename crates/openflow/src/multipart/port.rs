//! Statistics of ports and queues (OpenFlow 1.3.5 §7.3.5.6, §7.3.5.8).

use crate::PortNo;
use crate::codec::layout_codec;

/// Counters of a port (`ofp_port_stats`, §7.3.5.6). All ones stands for "not counted".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortStats {
    /// The port.
    pub port_no: PortNo,
    /// Packets received.
    pub rx_packets: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Bytes received.
    pub rx_bytes: u64,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets dropped on the way in.
    pub rx_dropped: u64,
    /// Packets dropped on the way out.
    pub tx_dropped: u64,
    /// Errors when receiving, the three below included.
    pub rx_errors: u64,
    /// Errors when sending.
    pub tx_errors: u64,
    /// Frame alignment errors.
    pub rx_frame_err: u64,
    /// Packets that overran the receiver.
    pub rx_over_err: u64,
    /// CRC errors.
    pub rx_crc_err: u64,
    /// Collisions.
    pub collisions: u64,
    /// Age of the port, whole seconds.
    pub duration_sec: u32,
    /// Age of the port, nanoseconds beyond the seconds.
    pub duration_nsec: u32,
}

layout_codec!(PortStats {
    port_no,
    pad 4,
    rx_packets,
    tx_packets,
    rx_bytes,
    tx_bytes,
    rx_dropped,
    tx_dropped,
    rx_errors,
    tx_errors,
    rx_frame_err,
    rx_over_err,
    rx_crc_err,
    collisions,
    duration_sec,
    duration_nsec,
});

/// Filter for queues (`ofp_queue_stats_request`, §7.3.5.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueStatsRequest {
    /// The port; [`PortNo::ANY`] for all.
    pub port_no: PortNo,
    /// The queue; [`crate::QUEUE_ALL`] for all.
    pub queue_id: u32,
}

layout_codec!(QueueStatsRequest { port_no, queue_id });

/// Counters of a queue (`ofp_queue_stats`, §7.3.5.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueStats {
    /// The port.
    pub port_no: PortNo,
    /// The queue on it.
    pub queue_id: u32,
    /// Bytes sent.
    pub tx_bytes: u64,
    /// Packets sent.
    pub tx_packets: u64,
    /// Packets dropped because the queue overran.
    pub tx_errors: u64,
    /// Age of the queue, whole seconds.
    pub duration_sec: u32,
    /// Age of the queue, nanoseconds beyond the seconds.
    pub duration_nsec: u32,
}

layout_codec!(QueueStats {
    port_no,
    queue_id,
    tx_bytes,
    tx_packets,
    tx_errors,
    duration_sec,
    duration_nsec,
});
