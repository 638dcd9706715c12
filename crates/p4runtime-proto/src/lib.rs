//! P4Runtime 1.5: messages, and the service's two sides.
//!
//! Controllers of versions 1.3 and 1.4 speak the same, with fewer fields. Ids, names and fields of a program are in
//! [`P4Info`], which the front end makes.
#![forbid(unsafe_code)]

pub use p4::info::P4Info;

pub use google::rpc;
pub use p4rt::v1;

mod google {
    /// Google's error model.
    #[allow(missing_docs, unreachable_pub, clippy::doc_markdown)]
    pub mod rpc {
        tonic::include_proto!("google.rpc");
    }
}

mod p4rt {
    /// Messages and service of P4Runtime's package `p4.v1`, as proto/p4/v1 declares them.
    #[allow(missing_docs, unreachable_pub, clippy::doc_markdown, clippy::large_enum_variant)]
    pub mod v1 {
        tonic::include_proto!("p4.v1");
    }
}
