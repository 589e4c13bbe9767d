//! Findings.

use std::fmt;

use serde::Serialize;
use tapswitch_tap::inspect::Unread;

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

/// Device and namespace of a finding about neither.
const NOTHING: &str = "-";
/// Label of the namespace that the command runs in.
pub(super) const HERE: &str = "(current)";
