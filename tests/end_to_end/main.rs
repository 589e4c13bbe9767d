//! End-to-end tests of the binary: what a user does at a shell, with real peers around it.
//!
//! Every test has a namespace of its own for the programs (its *room*: ports such as 6653 are free
//! in each) and one for each host, so that tests run in parallel. Timing decides nothing: a test
//! waits until a deadline for what must happen, and senders wait for the receiver.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a panic fails a test")]

mod support;

mod access;
mod bench;
mod capture;
mod churn;
mod cluster;
mod controller;
mod demo;
mod device;
mod errors;
mod fabric;
mod faucet;
mod faults;
mod hostile;
mod kernel_datapath;
mod ledger;
mod mininet;
mod points;
mod relay;
mod run;
mod store;
mod taps;
mod testpmd;
mod tls;
mod vhost;
mod virtual_machine;
mod vlan;
mod vlan_devices;
mod vlan_links;
mod ways;
