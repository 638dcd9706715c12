//! Rings that start again and again.

attacks! {
    /// Rings stop and go on.
    restart: "restart";
    /// Rings are turned off and on.
    toggle: "toggle";
    /// Migrations begin and end.
    log: "log";
    /// The memory is announced again.
    memory: "memory";
}
