//! Rules about devices with backpressure.

use super::*;

#[test]
fn with_back_pressure_it_is_the_qdisc_that_drops() {
    let mut device = healthy();
    device.qdiscs.iter_mut().for_each(|qdisc| qdisc.drops = 1234);
    let found = only(&device, &machine());
    assert_eq!((found.rule, found.severity, &found.mend), ("qdisc-sheds", Severity::Hint, &None));
    assert!(found.text.contains("1_234 packets"), "{found}");
    let mut off = without_backpressure();
    off.qdiscs.clone_from(&device.qdiscs);
    assert_eq!(only(&off, &machine()).rule, "no-backpressure");
}

#[test]
fn lengths_that_lose_despite_back_pressure_are_found() {
    let mut device = healthy();
    device.link.txqueuelen = 33;
    let found = only(&device, &machine());
    assert_eq!((found.rule, found.severity), ("lossy-length", Severity::Hint));
    assert_eq!(mend(&found), "tapswitch device set tap0 --txqueuelen 34");
    let mut off = without_backpressure();
    off.link.txqueuelen = 33;
    assert!(findings(&off, &machine()).iter().all(|found| found.rule != "lossy-length"));
}

#[test]
fn a_queue_without_a_qdisc_below_mq_is_found() {
    let mut device = healthy();
    device.link.qdisc = Some("mq".to_owned());
    let below = |kind: &str, queue| {
        let mut qdisc = Qdisc::default();
        (qdisc.kind, qdisc.parent) = (kind.to_owned(), Some((0, queue)));
        qdisc
    };
    device.qdiscs = vec![below("fq_codel", 1), below("fq_codel", 2)];
    assert_eq!(findings(&device, &machine()), []);
    device.qdiscs.push(below("noqueue", 3));
    assert_eq!(only(&device, &machine()).rule, "no-qdisc");
}
