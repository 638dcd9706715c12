//! Wake-ups that cost the one who causes them.

attacks! {
    /// 500,000 watches of what the switch signals.
    call: "watch-call";
    /// The same of what the switch reads when it is woken.
    kick: "watch-kick";
    /// Epoll instances that watch each other.
    nested: "watch-nested";
    /// Hundreds of threads that wait for the signal.
    threads: "await-call";
    /// Signals for nothing.
    kicks: "kick";
}
