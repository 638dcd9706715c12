//! The driver's side of virtqueues, for tests and tools.
