//! The network on which the konnector reaches API servers and backends.

use std::{fmt, sync::Arc};

use bindery_runtime::client;
use bindery_sdk::Channel;

/// How the konnector reaches API servers, and the backends of providers. The default is TCP and TLS for both. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Network {
    /// How to reach API servers.
    pub kubernetes: client::Network,
    /// How to reach backends, if not by TCP and TLS.
    pub backends: Option<Arc<dyn BackendDialer>>,
}

/// Makes connections to backends without TCP and TLS.
pub trait BackendDialer: fmt::Debug + Send + Sync {
    /// Returns a channel to the backend at this URL. Called within a Tokio runtime.
    fn channel(&self, address: &str) -> Channel;
}
