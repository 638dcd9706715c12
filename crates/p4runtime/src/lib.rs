//! The server of P4Runtime.
#![forbid(unsafe_code)]
