//! The logic `p4`.
#![forbid(unsafe_code)]
