//! The gRPC messages and services of Bindery, generated from the .proto files beside it, and the few pure functions
//! that both ends of a call must agree on: what a method's path says of retrying, how a reason is spelled, which CRD
//! value an enum value stands for, and which audience belongs to an address.
//!
//! ```
//! use bindery_proto::v1alpha2::{ErrorReason, GetExportRequest};
//!
//! let request = GetExportRequest { name: "cowboys".to_owned(), ..GetExportRequest::default() };
//! assert_eq!(request.contract, "");
//! assert_eq!(ErrorReason::TokenExpired.reason_str(), "TOKEN_EXPIRED");
//! ```

pub mod address;
mod code;
mod codec;
pub mod crd;
pub mod idempotency;
pub mod reason;

mod redact;

/// Generated code, module by module as the packages of the .proto files.
pub mod kubebind {
    /// Package `kubebind.v1alpha2`: messages, and a client and a server module per service.
    #[allow(
        missing_docs,
        missing_debug_implementations,
        unreachable_pub,
        clippy::all,
        clippy::pedantic,
        clippy::or_fun_call,
        clippy::str_to_string,
        clippy::use_self,
        clippy::redundant_clone,
        reason = "generated"
    )]
    pub mod v1alpha2 {
        tonic::include_proto!("kubebind.v1alpha2");
    }
}

pub use code::code_name;
pub use codec::Codec;
pub use kubebind::v1alpha2;

/// The encoded `FileDescriptorSet` of the package and all it imports, with comments and custom options. For gRPC
/// reflection, and for tests that walk the messages.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));

/// `ErrorInfo.domain` of every error.
pub const ERROR_DOMAIN: &str = "kube-bind.io";
