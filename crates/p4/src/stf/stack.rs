//! A thread with room for programs that nest deeply.

/// Stack of the thread.
const STACK: usize = 256 << 20;
/// Part of it that machine code may take.
pub(super) const CODE_STACK: usize = 128 << 20;

/// Runs a function on a thread of its own, whose stack is as large as the interpreter and machine code may need.
///
/// # Errors
/// The thread could not be started, or ended by a panic.
pub(super) fn with_stack<T: Send>(run: impl FnOnce() -> T + Send) -> Result<T, String> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK).spawn_scoped(scope, run);
        thread.map_err(|error| error.to_string()).and_then(|thread| {
            thread.join().map_err(|_| "the run ended by a panic, which is a fault of the switch".to_owned())
        })
    })
}
