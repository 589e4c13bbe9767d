//! The subject of a rule: a device, its machine, and the switch port that it is.

use tapswitch_tap::Flags;
use tapswitch_tap::inspect::{Holder, Inspected};

use super::finding::{Finding, HERE, Severity};
use super::switches::SwitchPort;
use crate::device::machine::Machine;
use crate::text::quoted;

/// The input of a rule.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subject<'a> {
    pub(super) device: &'a Inspected,
    pub(super) machine: &'a Machine,
    /// The switch port that it is, if any.
    pub(super) port: Option<&'a SwitchPort>,
}

/// A rule: returns a finding or nothing.
pub(super) type Rule = fn(&Subject<'_>) -> Option<Finding>;

impl Subject<'_> {
    /// Creates a finding, with the command that fixes it.
    pub(super) fn finding(
        &self,
        severity: Severity,
        rule: &'static str,
        text: impl Into<String>,
        mend: Option<String>,
    ) -> Finding {
        Finding {
            severity,
            device: self.device.link.name.clone(),
            namespace: self.device.namespace.clone(),
            rule,
            text: text.into(),
            mend,
            is_sure: true,
        }
    }

    /// `tapswitch device set NAME` with these arguments. `None` for a device in a namespace without
    /// a name or path, and for names that a terminal cannot display.
    pub(super) fn set(&self, arguments: &str) -> Option<String> {
        let name = quoted(&self.device.link.name)?;
        let place = self.place()?;
        // A name that looks like an option must come last.
        Some(if name.starts_with('-') {
            format!("tapswitch device set{place} {arguments} -- {name}")
        } else {
            format!("tapswitch device set {name}{place} {arguments}")
        })
    }

    /// The option that selects the device's namespace.
    fn place(&self) -> Option<String> {
        match self.device.namespace.as_str() {
            HERE => Some(String::new()),
            label if label.contains(' ') => None,
            label if label.starts_with('-') => Some(format!(" --netns={}", quoted(label)?)),
            label => Some(format!(" --netns {}", quoted(label)?)),
        }
    }

    /// True while a program holds the device.
    pub(super) fn is_held(&self) -> bool {
        self.device.is_held()
    }

    /// True if certainly no program holds it.
    pub(super) fn is_free(&self) -> bool {
        self.device.is_free()
    }

    /// True if the device is known to have `flag`.
    pub(super) fn has_flag(&self, flag: Flags) -> bool {
        self.device.has_flag(flag)
    }

    /// The programs that hold it, in words.
    pub(super) fn holders(&self) -> String {
        names(&self.device.owners())
    }
}

/// Names and IDs of programs.
pub(in crate::device) fn names(holders: &[&Holder]) -> String {
    if holders.is_empty() {
        return "a program that cannot be seen".to_owned();
    }
    let texts: Vec<_> = holders.iter().map(|it| format!("{} ({})", it.command, it.pid)).collect();
    texts.join(", ")
}
