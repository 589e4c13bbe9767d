//! Why the device of a port could not be opened, in terms of port options: the library's errors
//! name its own options, and no namespace.

use std::fmt;

use tapswitch_tap::{CreateError, Kind, Mismatch, Taken};

use crate::command::{ip_command, shell_word};

/// An error of the library, with the namespace it occurred in.
#[derive(Debug)]
pub struct Unopened {
    /// The library's error.
    pub source: CreateError,
    /// The namespace of the device; `None` for the switch's own.
    pub netns: Option<String>,
}

impl fmt::Display for Unopened {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ip = |arguments: &str| ip_command(self.netns.as_deref(), arguments);
        let remove = |name: &str| ip(&format!("link del {}", shell_word(name)));
        match &self.source {
            CreateError::Unsupported {
                name, feature: feature @ "IFF_BACKPRESSURE", since, ..
            } => {
                write!(
                    f,
                    "{name}: this kernel has no {feature}, which needs Linux {since}; say \
                     backpressure=auto, or use a newer kernel"
                )
            }
            // The switch opens prepared devices without further options.
            CreateError::NotPermitted { name, kind, command } => write!(
                f,
                "{name}: not permitted; creating a {kind} device needs CAP_NET_ADMIN (run as \
                 root), or let root prepare it (`{}; {}`) for this user",
                ip(command.strip_prefix("ip ").unwrap_or(command)),
                ip(&format!("link set {} up", shell_word(name)))
            ),
            CreateError::NameTaken { name, by } => {
                write!(f, "{name}: {by}; choose another name")?;
                match by {
                    // Hardware cannot be removed.
                    Taken::OtherDriver { kind: None } if name == "lo" => Ok(()),
                    Taken::OtherDriver { kind: None } => {
                        write!(f, ", or attach the interface as netdev:{name}")
                    }
                    _ => write!(f, ", or remove it with `{}`", remove(name)),
                }
            }
            CreateError::Mismatch { name, what: Mismatch::IsSingleQueue } => write!(
                f,
                "{name}: exists, but was created with a single queue; leave queues= out, or remove \
                 it with `{}`",
                remove(name)
            ),
            CreateError::Mismatch { name, what: Mismatch::OtherKind { is } } => {
                let word = if *is == Kind::Tun { "tun" } else { "tap" };
                write!(
                    f,
                    "{name}: exists, but is a {word} device; attach it as {word}:{name}, or remove \
                     it with `{}`",
                    remove(name)
                )
            }
            CreateError::Mismatch { name, what } => {
                write!(f, "{name}: exists, but {what}, or remove it with `{}`", remove(name))
            }
            other => other.fmt(f),
        }
    }
}

impl std::error::Error for Unopened {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remedies_are_options_of_ports_and_commands_for_their_namespace() {
        let said = |source| Unopened { source, netns: Some("blue".to_owned()) }.to_string();
        let name = || "vm0".to_owned();
        let lacking = said(CreateError::Unsupported {
            name: name(),
            feature: "IFF_BACKPRESSURE",
            since: "7.3",
            remedy: "ask for Wish::IfAvailable",
        });
        assert!(lacking.contains("backpressure=auto") && !lacking.contains("Wish"), "{lacking}");
        let taken = || CreateError::NameTaken { name: name(), by: Taken::Unheld };
        let here = Unopened { source: taken(), netns: None };
        let taken = said(taken());
        assert!(taken.contains("`ip -n blue link del vm0`"), "{taken}");
        let (kind, command) = (Kind::Tap, "ip tuntap add vm0 mode tap user USER".to_owned());
        let denied = said(CreateError::NotPermitted { name: name(), kind, command });
        assert!(
            denied.contains("(`ip -n blue tuntap add vm0 mode tap user USER; ip -n blue link set"),
            "{denied}"
        );
        assert!(!denied.contains("exclusive"), "{denied}");
        let mismatch = |what| said(CreateError::Mismatch { name: name(), what });
        assert!(mismatch(Mismatch::IsSingleQueue).contains("leave queues= out"));
        let other = mismatch(Mismatch::OtherKind { is: Kind::Tun });
        assert!(other.contains("tun:vm0") && other.contains("ip -n blue link del"), "{other}");
        assert!(here.to_string().contains("`ip link del vm0`"), "{here}");
        let by = || Taken::OtherDriver { kind: None };
        let hardware = said(CreateError::NameTaken { name: name(), by: by() });
        assert!(
            hardware.ends_with("another name, or attach the interface as netdev:vm0"),
            "{hardware}"
        );
        let loopback = said(CreateError::NameTaken { name: "lo".to_owned(), by: by() });
        assert!(loopback.ends_with("choose another name"), "{loopback}");
    }
}
