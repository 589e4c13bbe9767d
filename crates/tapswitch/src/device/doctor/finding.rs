//! Findings, and the subject of a rule.

use std::fmt;

use serde::Serialize;
use tapswitch_tap::Flags;
use tapswitch_tap::inspect::{Holder, Inspected, Unread};

use super::switches::SwitchPort;
use crate::device::machine::Machine;
use crate::text::quoted;

/// A finding about a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) severity: Severity,
    pub(super) device: String,
    pub(super) namespace: String,
    /// Name of the rule, for scripts.
    pub(super) rule: &'static str,
    /// The problem and its consequence.
    pub(super) text: String,
    /// The command that fixes it. `None` if only the program that holds the device can.
    pub(super) mend: Option<String>,
    /// True if the command certainly fixes it. False if it does in only one of several
    /// indistinguishable cases; it is harmless in the others.
    pub(super) is_sure: bool,
}

/// Severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Severity {
    /// It works, and may work better. Not counted as a problem.
    Hint,
    /// It works badly, or breaks some programs.
    Warning,
    /// Frames are lost or corrupted.
    Error,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Hint => "hint",
            Self::Warning => "warning",
            Self::Error => "error",
        })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { severity, device, namespace, rule, text, mend, is_sure } = self;
        write!(f, "{severity:<7}  {device}")?;
        if ![HERE, NOTHING].contains(&namespace.as_str()) {
            write!(f, " in namespace {namespace}")?;
        }
        write!(f, "  {rule}: {text}")?;
        match mend {
            Some(command) if *is_sure => write!(f, "; fix: {command}"),
            Some(command) => write!(f, "; try: {command}"),
            None => Ok(()),
        }
    }
}

impl Finding {
    /// A finding about something that could not be inspected.
    pub(super) fn gap(severity: Severity, rule: &'static str, text: String) -> Self {
        let (device, namespace) = (NOTHING.to_owned(), NOTHING.to_owned());
        Self { severity, device, namespace, rule, text, mend: None, is_sure: true }
    }

    pub(super) fn unread_namespace(place: &Unread) -> Self {
        let text = format!("{}: findings about devices there may be missing", place.reason);
        let found = Self::gap(Severity::Warning, "unread-namespace", text);
        Self { namespace: place.namespace.clone(), ..found }
    }
}

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

/// Device and namespace of a finding about neither.
const NOTHING: &str = "-";
/// Label of the namespace that the command runs in.
pub(super) const HERE: &str = "(current)";

/// Names and IDs of programs.
pub(in crate::device) fn names(holders: &[&Holder]) -> String {
    if holders.is_empty() {
        return "a program that cannot be seen".to_owned();
    }
    let texts: Vec<_> = holders.iter().map(|it| format!("{} ({})", it.command, it.pid)).collect();
    texts.join(", ")
}
