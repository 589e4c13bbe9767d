//! iperf3 between two machines, with a third one as the monitor of their TAP.

use serde_json::Value;

use super::lab::{Lab, Seen};
use super::machine::Machine;
use super::talk::TRAIN_LEN;
use crate::support::*;

/// One end of a measurement: the number of its switch port, which is also in its address.
pub(super) struct End<'a> {
    pub(super) number: u8,
    pub(super) machine: &'a mut Machine,
}

/// TCP both ways and datagrams, with the driver's default offloads: TCP's frames are trains, and
/// each datagram that did not arrive was counted as dropped somewhere.
pub(super) fn measure(lab: &Lab, client: End<'_>, server: End<'_>) {
    if !is_installed("iperf3") {
        skip("iperf3 is not installed: machines do not measure what is between them");
        return;
    }
    let (mut client, mut server) = (client, server);
    for end in [&mut client, &mut server] {
        end.check_offloads();
    }
    server.machine.run(&format!("iperf3 -s -D -p {PORT} </dev/null"));
    send_streams(lab, &mut client, &server, "");
    send_streams(lab, &mut client, &server, "--reverse");
    send_datagrams(lab, &mut client, &mut server);
}

impl End<'_> {
    /// Checks that the driver has negotiated checksums and trains.
    fn check_offloads(&mut self) {
        if !is_installed("ethtool") {
            skip("ethtool is not installed: nobody says which offloads are on");
            return;
        }
        let said = self.machine.run("ethtool -k eth0");
        for what in ["rx-checksumming", "tx-checksumming", "tcp-segmentation-offload"] {
            assert!(said.contains(&format!("{what}: on")), "machine {}: {said}", self.number);
        }
    }

    /// iperf3's report on traffic to `there`.
    fn iperf3(&mut self, there: &str, options: &str) -> Value {
        let command = format!("timeout 60 iperf3 -J -p {PORT} -c {there} {options}");
        let said = self.machine.run(&command);
        serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"))
    }

    fn ip(&self) -> String {
        format!("10.0.0.{}", self.number)
    }

    /// Datagrams that the machine's own kernel dropped.
    fn shed(&mut self) -> u64 {
        let dropped = self.machine.counter("eth0", "rx_dropped");
        let field = "awk '/^Udp: [0-9]/ { print $6 + 0 }' /proc/net/snmp";
        dropped + self.machine.number(field)
    }

    /// Frames that the port dropped, for any reason.
    fn drops(&self, lab: &Lab) -> u64 {
        let port = lab.port(self.number);
        port["drops"].as_object().unwrap().values().map(number).sum()
    }
}

/// Two streams at a time.
fn send_streams(lab: &Lab, client: &mut End<'_>, server: &End<'_>, options: &str) {
    let sender = if options.is_empty() { client.number } else { server.number };
    let before = Seen::of(&lab.port(sender), "rx");
    let end = client.iperf3(&server.ip(), &format!("-n {BYTES} -P 2 {options}"))["end"].take();
    let mean = Seen::of(&lab.port(sender), "rx").mean_len_since(before);
    let [sent, received] = ["sum_sent", "sum_received"].map(|sum| number(&end[sum]["bytes"]));
    // It ends when the last byte is written, so what is in flight then is never received.
    assert!(sent >= BYTES && (1..=sent).contains(&received), "{sent} {received}");
    assert!(mean > TRAIN_LEN, "frames of port {sender} have {mean} bytes");
}

fn send_datagrams(lab: &Lab, client: &mut End<'_>, server: &mut End<'_>) {
    let (drops, shed) = (server.drops(lab), server.shed());
    let sum = client.iperf3(&server.ip(), "-u -b 8M -l 1400 -t 2")["end"]["sum"].take();
    let (sent, lost) = (number(&sum["packets"]), number(&sum["lost_packets"]));
    let (drops, shed) = (server.drops(lab) - drops, server.shed() - shed);
    assert!(sent > 0 && lost < sent, "{sum}");
    assert!(lost <= drops + shed, "{lost} of {sent} did not arrive; {drops} and {shed} are named");
}

/// Not the port of a machine's sink, which is iperf3's default.
const PORT: u16 = 5301;
/// Bytes of two streams together.
const BYTES: u64 = 4_000_000;
