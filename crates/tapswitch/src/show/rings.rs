//! The parts of `tapswitch show ports` about the kernel's rings of tap devices and the queueing
//! disciplines of other interfaces.

use tapswitch_switch::report::{PortReport, QueueingReport, RingReport};

use crate::table::{grouped, print, table};

/// Prints the rings of ports that have them.
pub(super) fn rings(reports: &[PortReport]) {
    let rings: Vec<_> =
        reports.iter().filter_map(|port| Some((&port.port, port.ring.as_ref()?))).collect();
    if rings.is_empty() {
        return;
    }
    let mut rows =
        table(&["PORT ", "RING ", "BACK-PRESSURE", "QDISC", "WAITING ", "SHED ", "RING FULL "]);
    for (port, ring) in &rings {
        rows.add_row(row(port, ring));
    }
    say!();
    print(&rows, "");
    for text in rings.iter().filter_map(|(port, ring)| joined(port, ring)) {
        say!("{text}");
    }
}

/// Message about a device that other programs have opened.
fn joined(port: &str, ring: &RingReport) -> Option<String> {
    let RingReport { foreign_queues, joins, .. } = ring;
    (*joins > 0).then(|| {
        format!(
            "port {port}: opened by other programs, too; times: {joins}, their queues now: \
             {foreign_queues}"
        )
    })
}

fn row(port: &str, ring: &RingReport) -> [String; 7] {
    [
        port.to_owned(),
        grouped(ring.length.into()),
        ring.backpressure.as_str().to_owned(),
        ring.qdisc.clone(),
        grouped(ring.waiting.into()),
        grouped(ring.shed),
        grouped(ring.ring_full),
    ]
}

/// Prints the queueing disciplines of interfaces that the switch did not create.
pub(super) fn queueing(reports: &[PortReport]) {
    let row = |port: &PortReport| {
        let QueueingReport { qdisc, waiting, shed } = port.queueing.as_ref()?;
        Some([port.port.clone(), qdisc.clone(), grouped((*waiting).into()), grouped(*shed)])
    };
    let interfaces: Vec<_> = reports.iter().filter_map(row).collect();
    if interfaces.is_empty() {
        return;
    }
    let mut rows = table(&["PORT ", "QDISC", "WAITING ", "SHED "]);
    rows.add_rows(interfaces);
    say!();
    print(&rows, "");
}

#[cfg(test)]
mod tests {
    use super::*;
    use tapswitch_switch::report::RingBackpressure;

    #[test]
    fn a_ring_is_told_with_what_it_lost() {
        let ring = RingReport {
            length: 1000,
            backpressure: RingBackpressure::InForce,
            qdisc: "mq fq_codel".to_owned(),
            waiting: 7,
            shed: 12,
            ring_full: 3456,
            foreign_queues: 1,
            joins: 3,
        };
        let cells = ["2", "1_000", "in force", "mq fq_codel", "7", "12", "3_456"];
        assert_eq!(row("2", &ring), cells);
        let told = joined("2", &ring).unwrap();
        assert_eq!(told, "port 2: opened by other programs, too; times: 3, their queues now: 1");
        assert_eq!(joined("2", &RingReport { foreign_queues: 0, joins: 0, ..ring }), None);
    }
}
