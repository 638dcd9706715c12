//! Memory that stalls who touches it: pages that are being punched away make a page fault wait until the last one is gone.

attacks! {
    /// Buffers are punched away while the switch fills them.
    buffers: "punch";
    /// The same by a thread that hardly ever runs.
    starved: "punch-starved";
    /// The same with huge pages.
    huge: "punch-huge";
    /// Rings and buffers: the port goes down, and the client comes back.
    rings: "punch-rings";
    /// Buffers are punched away while the switch reads from them.
    sent: "punch-sent";
    /// Many short punches.
    pieces: "punch-pieces";
}
