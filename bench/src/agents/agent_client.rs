//! Clients of agents: each comes from an address of its own, with a token that renewals replace.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bindery_api::backend::Backend;
use bindery_sdk::{Client, token_fn};
use parking_lot::Mutex;
use secrecy::SecretString;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint};

/// As in the SDK, whose own channels choose no address to come from.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEP_ALIVE_TIMEOUT: Duration = Duration::from_secs(20);

/// The token of an agent, which all of its clients send. Clones share it.
#[derive(Clone)]
pub(super) struct AgentToken(Arc<Mutex<SecretString>>);

impl AgentToken {
    /// The token that the agent was given with its contract.
    pub(super) fn new(backend: &Backend) -> Self {
        Self(Arc::new(Mutex::new(backend.token.clone().into())))
    }

    /// Has all further calls send the token of a renewed credential.
    pub(super) fn replace(&self, backend: Backend) {
        *self.0.lock() = backend.token.into();
    }
}

/// An address of loopback for each, as each cluster has one of its own.
pub(super) fn address(agent: usize) -> IpAddr {
    let number = u32::try_from(agent).unwrap_or(u32::MAX) & 0xf_ffff;
    IpAddr::V4(Ipv4Addr::from_bits(0x7f10_0000 | number))
}

/// A client with a connection of its own, which its first call opens.
pub(super) fn client(backend: &Backend, from: IpAddr, token: &AgentToken) -> Result<Client> {
    let ca = backend.ca_data.as_deref().context("a backend without a CA")?;
    let tls = ClientTlsConfig::new()
        .domain_name("127.0.0.1")
        .timeout(CONNECT_TIMEOUT)
        .ca_certificate(Certificate::from_pem(STANDARD.decode(ca)?));
    let channel = Endpoint::from_shared(backend.address.clone())?
        .connect_timeout(CONNECT_TIMEOUT)
        .tcp_nodelay(true)
        .tcp_keepalive(Some(KEEP_ALIVE_INTERVAL))
        .http2_keep_alive_interval(KEEP_ALIVE_INTERVAL)
        .keep_alive_timeout(KEEP_ALIVE_TIMEOUT)
        .local_address(Some(from))
        .tls_config(tls)?
        .connect_lazy();
    let token = token.clone();
    let tokens = token_fn(move || {
        let token = token.0.lock().clone();
        async move { Ok(token) }
    });
    Ok(Client::builder(&backend.address)
        .token_source(tokens)
        .build_with_channel(channel)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_agent_comes_from_an_address_of_its_own() {
        assert_eq!(address(0).to_string(), "127.16.0.0");
        assert_eq!(address(4_999).to_string(), "127.16.19.135");
        assert!(address(999_999).is_loopback());
    }
}
