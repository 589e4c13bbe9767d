//! Small frames from one tap device to another by the switch's own worker: its work per frame, plus
//! what this program does to make it read one.

use std::error::Error;
use std::io::IoSlice;

use tapswitch_datapath::Pipeline;
use tapswitch_netdev::{Config, PacketPort};
use tapswitch_openflow::{Action, PortNo};
use tapswitch_switch::{LoneWorker, PortSpec};
use tapswitch_wire::NetHeader;

use crate::forward;

/// Frames per burst.
pub(crate) const BURST: u32 = 32;

/// Moves bursts of 60-byte frames from one device to the other, both of which are created in the
/// network namespace of this process.
pub(crate) fn relay(turns: u32) {
    if let Err(error) = try_relay(turns) {
        eprintln!("no frames from tap to tap: {error}");
        std::process::exit(1);
    }
}

fn try_relay(turns: u32) -> Result<(), Box<dyn Error>> {
    let tables = forward::pipeline(&[Action::output(PortNo(2))]);
    // Without coalescing, which has cases of its own.
    let ports = ["1=tap:in,gro=off", "2=tap:out,gro=off"].into_iter().map(str::parse);
    let ports = ports.collect::<Result<Vec<PortSpec>, _>>()?;
    let mut worker = LoneWorker::open(tables.snapshot().clone(), &ports)?;
    let sender = PacketPort::open("in", &Config::default())?;
    let frame = forward::udp_ipv4(0);
    for _ in 0..turns {
        for _ in 0..BURST {
            sender.send(&NetHeader::PLAIN, &[IoSlice::new(&frame)])?;
        }
        worker.round();
    }
    match sent_by(&tables) {
        sent if sent == u64::from(turns * BURST) => Ok(()),
        sent => Err(format!("{sent} in {turns} turns").into()),
    }
}

/// Frames that port 2 has sent.
fn sent_by(tables: &Pipeline) -> u64 {
    let port = tables.snapshot().ports.find(PortNo(2));
    port.map_or(0, |port| port.counters.tx().frames)
}
