//! Shared by the tests of this crate.
#![allow(dead_code, unused_imports, reason = "each test file uses a part")]
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

pub(crate) use tapswitch_helpers::*;
use tapswitch_netlink::OwnedNamespace;

/// A namespace for one test.
pub(crate) fn namespace() -> OwnedNamespace {
    OwnedNamespace::create(&unique("nltest")).unwrap()
}
