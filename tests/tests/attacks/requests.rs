//! Endless control messages.

attacks! {
    /// Requests whose answers are not read.
    unread: "flood";
    /// Single bytes of requests.
    bytes: "flood-bytes";
    /// Headers that announce more bytes than follow.
    promises: "flood-promises";
    /// Random bytes.
    noise: "flood-noise";
}
