//! What a rule says, and what it says it about.

use std::fmt;

use serde::Serialize;
use tapswitch_tap::Flags;
use tapswitch_tap::inspect::{Holder, Inspected, Unread};

use super::switches::SwitchPort;
use crate::device::machine::Machine;
use crate::device::text::quoted;

/// Something to say about a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Finding {
    pub(super) severity: Severity,
    pub(super) device: String,
    pub(super) namespace: String,
    /// Name of the rule, for scripts.
    pub(super) rule: &'static str,
    /// What is the case, and what comes of it.
    pub(super) text: String,
    /// The command that mends it. None when only the program that holds the device can.
    pub(super) mend: Option<String>,
    /// True when that command surely mends it. False when it does only in one of the cases that
    /// look the same from outside; it does no harm in the others.
    pub(super) is_sure: bool,
}

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Severity {
    /// It works, and may work better. Not counted as wrong.
    Hint,
    /// It works badly, or breaks some programs.
    Warning,
    /// Frames are lost or mangled.
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
    /// What could not be looked at.
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

/// What a rule looks at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Subject<'a> {
    pub(super) device: &'a Inspected,
    pub(super) machine: &'a Machine,
    /// The port of a switch that it is, if it is one.
    pub(super) port: Option<&'a SwitchPort>,
}

/// A rule: says something or nothing.
pub(super) type Rule = fn(&Subject<'_>) -> Option<Finding>;

impl Subject<'_> {
    /// The finding, with the command that mends it.
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

    /// `tapswitch device set NAME` with these arguments. `None` for a device in a namespace that
    /// no name and no path leads to, and for names that a terminal cannot show.
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

    /// The option that says where the device is.
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

    /// True when surely no program holds it.
    pub(super) fn is_free(&self) -> bool {
        self.device.is_free()
    }

    /// True when the device is known to have `flag`.
    pub(super) fn has_flag(&self, flag: Flags) -> bool {
        self.device.has_flag(flag)
    }

    /// Those who hold it, in words.
    pub(super) fn holders(&self) -> String {
        names(&self.device.owners())
    }
}

/// The device, and the namespace, of a finding about neither.
const NOTHING: &str = "-";
/// How the namespace is called that the command runs in.
pub(super) const HERE: &str = "(current)";

/// Programs and their numbers.
pub(in crate::device) fn names(holders: &[&Holder]) -> String {
    if holders.is_empty() {
        return "a program that cannot be seen".to_owned();
    }
    let texts: Vec<_> = holders.iter().map(|it| format!("{} ({})", it.command, it.pid)).collect();
    texts.join(", ")
}
