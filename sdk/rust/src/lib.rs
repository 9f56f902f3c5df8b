//! A client for the Bindery backend: TLS, tokens, retries by code, typed errors, and watches that reconnect.
//!
//! ```no_run
//! use bindery_sdk::{Client, FileToken, v1alpha2::ListTemplatesRequest};
//!
//! # async fn run() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::builder("https://bind.example.com")
//!     .token_source(FileToken::new("/var/run/secrets/tokens/backend"))
//!     .build()?;
//! let mut templates = client.list_templates(ListTemplatesRequest::default());
//! while let Some(template) = templates.next().await {
//!     println!("{}", template?.metadata.unwrap_or_default().name);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! Each call asks the token source for a token, marks it as sensitive, sends its deadline to the server, and retries failures
//! that may be retried (see [`RetryPolicy`]) until that deadline. A token never appears in `Debug` output, errors or log lines.
//!
//! A program must unwind panics, as programs do unless `panic = "abort"` is set: the gRPC library panics on error details that are
//! not base64, and this crate turns that panic into an error.

/// The example of the README is compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod bind;
mod builder;
mod client;
mod error;
mod kubeconfig;
pub mod manifests;
mod method;
pub mod objects;
mod page;
mod retry;
mod token;
mod trace;
mod transport;
mod watch;

pub use bind::{BindRequest, Bound};
pub use bindery_proto::address::{Address, AddressError, audience};
pub use bindery_proto::v1alpha2;
pub use builder::{BuildError, ClientBuilder};
pub use client::catalog::TemplateDetails;
pub use client::credential::Renewed;
pub use client::{Client, MESSAGE_RECEIVE_MAX, MESSAGE_SEND_MAX};
pub use error::request::{PendingError, RequestFailed};
pub use error::transport::{TransportError, TransportFault};
pub use error::{Error, FieldViolation, PreconditionViolation, StatusError};
pub use kubeconfig::SecretKubeconfig;
pub use method::Method;
pub use page::ListStream;
pub use retry::RetryPolicy;
pub use token::exec::{ExecError, ExecToken};
pub use token::file::FileToken;
pub use token::{StaticToken, TokenError, TokenFn, TokenSource, token_fn};
pub use tonic::Code;
pub use tonic::transport::Channel;
pub use trace::{CallTracer, TracedCall};
pub use transport::Protocol;
pub use watch::{ContractEvent, ExportEvent, RequestEvent, Watch, WatchEvent};

/// All methods of the API, typed, for [`Client::call`].
pub mod methods {
    pub use crate::method::all::*;
}
