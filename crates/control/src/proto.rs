//! Messages and services generated from `proto/mswitch.proto`.

#![allow(clippy::pedantic, missing_docs, unreachable_pub, reason = "generated")]

tonic::include_proto!("mswitch.v1");
