//! Analyses a capture file with tshark, an independent implementation.

use std::path::Path;
use std::time::Duration;

use tapswitch_netlink::Namespace;

use crate::iperf;
use crate::process;

/// Results of tshark for a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Dissected {
    /// Packets.
    pub(crate) packets: u64,
    /// Bytes of the longest packet.
    pub(crate) longest: usize,
    /// Packets longer than the given limit.
    pub(crate) oversize: u64,
    /// Packets with a wrong IP, TCP or UDP checksum.
    pub(crate) bad_checksums: u64,
}

/// Analyses `file`; packets longer than `len_max` bytes are oversize.
pub(crate) async fn dissect(
    file: &Path,
    len_max: usize,
) -> Result<Dissected, Box<dyn std::error::Error>> {
    let here = Namespace::current()?;
    let file = file.to_string_lossy();
    // The payload is random; tshark's heuristics for it may take minutes.
    let payload = format!("tcp.port=={},data", iperf::PORT);
    let options = [
        "-d",
        &payload,
        "-o",
        "tcp.desegment_tcp_streams:FALSE",
        "-o",
        "ip.check_checksum:TRUE",
        "-o",
        "tcp.check_checksum:TRUE",
        "-o",
        "udp.check_checksum:TRUE",
    ];
    let fields = FIELDS.map(|field| ["-e", field]);
    let args = [&["-n", "-T", "fields"], &options[..], fields.as_flattened(), &["-r", &file]];
    let output = process::run(&here, "tshark", &args.concat(), LIMIT).await?;
    Ok(summary(&output, len_max))
}

/// Sums up lines of [`FIELDS`], separated by tabs.
fn summary(output: &str, len_max: usize) -> Dissected {
    let mut sum = Dissected::default();
    for line in output.lines().filter(|line| !line.is_empty()) {
        let mut fields = line.split('\t');
        let len = fields.next().and_then(|len| len.parse().ok()).unwrap_or(usize::MAX);
        // Each field may have several values, for nested headers.
        let is_bad = fields.any(|field| field.split(',').any(|status| status == BAD));
        sum.packets += 1;
        sum.longest = sum.longest.max(len);
        sum.oversize += u64::from(len > len_max);
        sum.bad_checksums += u64::from(is_bad);
    }
    sum
}

const FIELDS: [&str; 4] =
    ["frame.len", "ip.checksum.status", "tcp.checksum.status", "udp.checksum.status"];
/// tshark's status of a wrong checksum; 1 is right, 2 is not verified.
const BAD: &str = "0";
/// tshark reads some tens of thousands of packets per second.
const LIMIT: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_add_up() {
        let output = "1514\t1\t1\t\n66\t1\t0\t\n2000\t1,0\t1\t\n";
        let expected = Dissected { packets: 3, longest: 2000, oversize: 1, bad_checksums: 2 };
        assert_eq!(summary(output, 1514), expected);
    }
}
