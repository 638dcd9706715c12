//! Rings that restart over and over.

attacks! {
    /// Rings stop and restart; memif rings do so with their client.
    restart: "restart";
}

front_ends! {
    /// Rings are disabled and enabled.
    toggle: "toggle";
    /// Migrations start and end.
    log: "log";
    /// The memory is announced again.
    memory: "memory";
}
