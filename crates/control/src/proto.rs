//! The messages and calls of `proto/mswitch.proto`, generated.

#![allow(clippy::pedantic, missing_docs, unreachable_pub, reason = "generated")]

tonic::include_proto!("mswitch.v1");
