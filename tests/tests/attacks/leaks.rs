//! Memory and descriptors that the switch could fail to release after a client has gone.

attacks! {
    /// The most and largest rings.
    rings: "keep-rings";
    /// Clients that connect and disconnect.
    reconnect: "reconnect";
    /// As much memory as the switch accepts.
    regions: "keep-regions";
    /// Connections that send nothing, or half a message.
    silent: "keep-silent";
}
