//! Memory and descriptors that could be kept when a client has gone.

attacks! {
    /// As many rings as possible, as large as possible.
    rings: "keep-rings";
    /// Clients that come and go.
    reconnect: "reconnect";
    /// As much memory as the switch takes.
    regions: "keep-regions";
    /// Connections that say nothing, or half of something.
    silent: "keep-silent";
}
