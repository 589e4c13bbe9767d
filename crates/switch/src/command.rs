//! Commands for messages, which users paste into a shell of the namespace that they work in.
//!
//! Names of interfaces and namespaces may contain anything but white space and '/', and paths of
//! files anything: in a command each is one word.

use std::borrow::Cow;

/// `ip` with these arguments, in a namespace with this name or path; `None` is the caller's own.
#[must_use]
pub fn ip_command(netns: Option<&str>, arguments: &str) -> String {
    match netns {
        Some(path) if path.contains('/') => {
            format!("nsenter --net={} ip {arguments}", shell_word(path))
        }
        Some(name) => format!("ip -n {} {arguments}", shell_word(name)),
        None => format!("ip {arguments}"),
    }
}

/// `word` as one word of a POSIX shell.
#[must_use]
pub fn shell_word(word: &str) -> Cow<'_, str> {
    let is_plain = |char: char| char.is_ascii_alphanumeric() || "-_./,=:@%+".contains(char);
    if !word.is_empty() && word.chars().all(is_plain) {
        return Cow::Borrowed(word);
    }
    Cow::Owned(format!("'{}'", word.replace('\'', r"'\''")))
}

/// That a namespace has no interface of this name, and the command that lists those it has.
#[must_use]
pub fn no_interface(netns: Option<&str>, name: &str) -> String {
    let place = netns.map_or(Cow::Borrowed("this network namespace"), |netns| {
        Cow::Owned(format!("namespace {netns}"))
    });
    let command = ip_command(netns, "link");
    format!("interface {name}: not found in {place}; `{command}` lists its interfaces")
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn a_command_is_for_the_namespace_of_its_port() {
        let command = |netns| ip_command(netns, "link set eth0 up");
        assert_eq!(command(None), "ip link set eth0 up");
        assert_eq!(command(Some("blue")), "ip -n blue link set eth0 up");
        let by_path = "nsenter --net=/proc/7/ns/net ip link set eth0 up";
        assert_eq!(command(Some("/proc/7/ns/net")), by_path);
        assert_eq!(command(Some("a&b")), "ip -n 'a&b' link set eth0 up");
        assert_eq!(command(Some("/run/a b")), "nsenter --net='/run/a b' ip link set eth0 up");
    }

    #[test]
    fn a_missing_interface_is_looked_for_in_its_namespace() {
        let here = no_interface(None, "eth9");
        assert!(
            here.ends_with("in this network namespace; `ip link` lists its interfaces"),
            "{here}"
        );
        let there = no_interface(Some("blue"), "eth9");
        assert_eq!(
            there,
            "interface eth9: not found in namespace blue; `ip -n blue link` lists its interfaces"
        );
    }

    #[test]
    fn a_shell_takes_a_word_for_one_word() {
        let _forking = tapswitch_guest::forking();
        for word in ["tap0", "/proc/7/ns/net", "vm-1.2_3", "4=tap:vm0,netns=a"] {
            assert_eq!(shell_word(word), word);
        }
        for word in [";reboot;#", "$(id)", "it's", "a\"b", "*", "~", "", "\u{e4}rger"] {
            let script = format!("printf %s {}", shell_word(word));
            let said = Command::new("sh").args(["-c", &script]).output().unwrap();
            assert_eq!(String::from_utf8(said.stdout).unwrap(), word);
        }
    }
}
