//! Control messages without end.

attacks! {
    /// Requests whose answers nobody reads.
    unread: "flood";
    /// Requests byte by byte.
    bytes: "flood-bytes";
    /// Headers that promise more than comes.
    promises: "flood-promises";
    /// Noise.
    noise: "flood-noise";
}
