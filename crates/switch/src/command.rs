//! Commands for messages, which users paste into a shell of the namespace that they work in.

/// `ip` with these arguments, in a namespace with this name or path; `None` is the caller's own.
#[must_use]
pub fn ip_command(netns: Option<&str>, arguments: &str) -> String {
    match netns {
        Some(path) if path.contains('/') => format!("nsenter --net={path} ip {arguments}"),
        Some(name) => format!("ip -n {name} {arguments}"),
        None => format!("ip {arguments}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_for_the_namespace_of_its_port() {
        let command = |netns| ip_command(netns, "link set eth0 up");
        assert_eq!(command(None), "ip link set eth0 up");
        assert_eq!(command(Some("blue")), "ip -n blue link set eth0 up");
        let by_path = "nsenter --net=/proc/7/ns/net ip link set eth0 up";
        assert_eq!(command(Some("/proc/7/ns/net")), by_path);
    }
}
