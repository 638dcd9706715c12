//! Expensive wake-ups at the expense of the caller.

attacks! {
    /// 500,000 watches of the eventfd that the switch signals.
    call: "watch-call";
    /// The same for the eventfd that the switch reads.
    kick: "watch-kick";
    /// Epoll instances that watch each other.
    nested: "watch-nested";
    /// Hundreds of threads waiting for the signal.
    threads: "await-call";
    /// Signals without packets.
    kicks: "kick";
}
