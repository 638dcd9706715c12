//! Descriptors that block in close.

attacks! {
    /// A lingering TCP socket in place of an eventfd or a memory file.
    alone: "linger";
    /// As many as a message can carry.
    many: "linger-many";
    /// Queued in a socket that is passed.
    nested: "linger-nested";
    /// With a request that is not received before the connection ends.
    unread: "linger-unread";
}
