//! Memory that stalls its users: a page fault in a range being punched waits until the last page is gone.

attacks! {
    /// Buffers are punched out while the switch fills them.
    buffers: "punch";
    /// The same by a thread that hardly ever runs.
    starved: "punch-starved";
    /// The same with huge pages.
    huge: "punch-huge";
    /// Rings and buffers: the port goes down and the client reconnects.
    rings: "punch-rings";
    /// Buffers are punched out while the switch reads from them.
    sent: "punch-sent";
    /// Many short punches.
    pieces: "punch-pieces";
}
