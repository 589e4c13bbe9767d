//! Our switch and our controller in Mininet, by the shipped file.
//!
//! Mininet is not isolated: it uses names in `/tmp`, and when something goes wrong it kills
//! programs by name. So it gets its own processes, mounts and network.

use std::path::Path;

use tapswitch_netlink::Namespace;

use crate::support::*;

#[test]
fn hosts_of_mininet_reach_each_other_and_a_tap_copies() {
    let Some(said) = run(
        "--controller tapswitch --topo linear,3",
        "pingall
         sh tapswitch policy add echo --src-ip 10.0.0.1 --ip-proto icmp \
           --direction forward --monitor s3-eth1
         h3 tcpdump -lc 3 -ni h3-eth0 icmp and host 10.0.0.2 > /tmp/copies 2> /tmp/said &
         h3 until grep -q listening /tmp/said; do sleep 0.05; done
         h1 ping -c 3 10.0.0.2
         h3 wait
         sh cat /tmp/copies
         sh tapswitch policy show echo
         s1 echo the node is there
         dpctl ports",
    ) else {
        return;
    };
    let copies =
        said.lines().filter(|line| line.contains("10.0.0.1 > 10.0.0.2: ICMP echo request"));
    assert_eq!(copies.count(), 3, "the monitor is another host: {said}");
    let words =
        ["0% dropped (6/6 received)", "0000000000000003     1  s3-eth1  delivered", "s2-eth2"];
    for word in words {
        assert!(said.contains(word), "'{word}' is not in:\n{said}");
    }
}

#[test]
fn a_switch_of_mininet_learns_by_itself() {
    let Some(said) = run(",fail_mode=standalone --controller none --topo single,3", "pingall")
    else {
        return;
    };
    assert!(said.contains("0% dropped (6/6 received)"), "{said}");
}

/// The output of Mininet, started with these options (the first of which may have further options
/// of the switch) and given these commands. Nothing of ours may be left when it has ended.
fn run(options: &str, commands: &str) -> Option<String> {
    if !can_run(&["mn", "unshare", "mount", "tcpdump", "ping"]) {
        return None;
    }
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/mininet/tapswitch.py");
    let separator = if options.starts_with(',') { "" } else { " " };
    let script = format!(
        "set -e
         ip link set lo up
         mount -t tmpfs none /mnt
         touch /mnt/tapswitch /mnt/tapswitch.py
         mount --bind '{BINARY}' /mnt/tapswitch
         mount --bind '{example}' /mnt/tapswitch.py
         mount -t tmpfs none /tmp
         mount -t tmpfs none /run
         mount --bind /proc/sys /proc/sys
         mount -o remount,bind,ro /proc/sys
         export PATH=/mnt:$PATH:/usr/sbin:/sbin
         cd /
         cat > /tmp/commands
         mn --custom /mnt/tapswitch.py --switch tapswitch{separator}{options} \
             --test none --post /tmp/commands
         ! ls /run/tapswitch | grep .
         ! pgrep tapswitch
         ! ip link | grep eth
         echo nothing is left",
        example = example.display()
    );
    let namespaces = ["--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let mut command = Namespace::current().unwrap().command("unshare");
    command.args(namespaces).args(["--propagation", "private", "sh", "-c", &script]);
    let said = Said::by_telling(&mut command, commands);
    let text = format!("{}{}", said.out, said.err);
    assert!(said.code == Some(0) && said.out.ends_with("nothing is left\n"), "{text}");
    Some(text)
}
