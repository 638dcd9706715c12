//! Rings that start again and again.

attacks! {
    /// Rings stop and go on; of memif, with the client.
    restart: "restart";
}

front_ends! {
    /// Rings are turned off and on.
    toggle: "toggle";
    /// Migrations begin and end.
    log: "log";
    /// The memory is announced again.
    memory: "memory";
}
