//! Descriptors whose close waits.

attacks! {
    /// A TCP socket that lingers in place of an eventfd or a memory file.
    alone: "linger";
    /// As many as a message can carry.
    many: "linger-many";
    /// In the queue of a socket that is passed.
    nested: "linger-nested";
    /// With a request that nobody has received when the connection ends.
    unread: "linger-unread";
}
