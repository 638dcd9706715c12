//! Configurations of daemons under test.

/// A bridge, without ports.
pub fn bridge(name: &str, logic: &str) -> String {
    format!("[[bridge]]\nname = \"{name}\"\nlogic = \"{logic}\"\n")
}

/// A memif port: interface `id` of the socket `memif` in the daemon's folder. `more` has further keys, one a line.
pub fn memif(name: &str, id: u32, more: &str) -> String {
    port(name, "memif", &format!("path = \"{{dir}}/memif\"\nid = {id}\n{more}"))
}

/// A vhost-user port with a socket of its name in the daemon's folder. `more` has further keys, one a line.
pub fn vhost_user(name: &str, more: &str) -> String {
    port(name, "vhost-user", &format!("path = \"{{dir}}/{name}.sock\"\n{more}"))
}

/// A TAP port. `more` has further keys, one a line.
pub fn tap(name: &str, interface: &str, netns: &str, addresses: &[&str], more: &str) -> String {
    let addresses: Vec<_> = addresses.iter().map(|address| format!("\"{address}\"")).collect();
    let addresses = addresses.join(", ");
    let keys = format!("interface = \"{interface}\"\nnetns = \"{netns}\"\naddresses = [{addresses}]\n{more}");
    port(name, "tap", &keys)
}

/// A netdev port: an existing interface in a namespace. `more` has further keys, one a line.
pub fn netdev(name: &str, interface: &str, netns: &str, more: &str) -> String {
    port(name, "netdev", &format!("interface = \"{interface}\"\nnetns = \"{netns}\"\n{more}"))
}

/// A port of any type.
pub fn port(name: &str, kind: &str, keys: &str) -> String {
    format!("[[bridge.port]]\nname = \"{name}\"\ntype = \"{kind}\"\n{keys}\n")
}
