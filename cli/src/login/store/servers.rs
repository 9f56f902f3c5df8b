//! `servers.yaml`: the servers that the user has logged in to, the current one, and the issuer of each. It holds no secret.

use std::path::{Path, PathBuf};

use bindery_runtime::terminal;
use serde::{Deserialize, Serialize};

use super::{StoreError, files};

/// Name of the file.
pub(super) const NAME: &str = "servers.yaml";
/// Name of the file that is locked while the file is changed.
pub(super) const LOCK_NAME: &str = "servers.lock";

/// The servers that the user has logged in to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Servers {
    /// Address of the server that commands call unless they are told another one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) current: Option<String>,
    /// The servers, by address.
    #[serde(default)]
    pub(crate) servers: Vec<KnownServer>,
}

/// A server that the user has logged in to, and how to reach it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct KnownServer {
    /// The address in its one spelling, such as `https://bind.example.com`.
    pub(crate) address: String,
    /// The issuer that the user logged in at. A server that names another one later is refused.
    pub(crate) issuer: IssuerPin,
    /// File with the CA of the server's certificate; the CAs of the system without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) certificate_authority: Option<PathBuf>,
    /// File with the client certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) client_certificate: Option<PathBuf>,
    /// File with the key of the client certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) client_key: Option<PathBuf>,
    /// Whether the server is spoken to without TLS, on loopback.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) allow_plaintext: bool,
}

/// The issuer and the client that a server let the user log in at first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct IssuerPin {
    /// URL of the issuer.
    pub(crate) url: String,
    /// The public client. With another one, an ID token would be for another program.
    pub(crate) client_id: String,
    /// File with the CA of the issuer's certificate; the CAs of the system without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) certificate_authority: Option<PathBuf>,
}

impl Servers {
    /// The server with this address.
    pub(crate) fn get(&self, address: &str) -> Option<&KnownServer> {
        self.servers.iter().find(|known| known.address == address)
    }

    /// The server that commands call unless they are told another one.
    pub(crate) fn current(&self) -> Option<&KnownServer> {
        self.get(self.current.as_deref()?)
    }

    /// Adds a server or replaces what is known of it, and makes it the current one.
    pub(crate) fn put(&mut self, server: KnownServer) {
        self.current = Some(server.address.clone());
        self.servers.retain(|known| known.address != server.address);
        self.servers.push(server);
        self.servers.sort_by(|one, other| one.address.cmp(&other.address));
    }

    /// Forgets a server. If it was the current one, the only other one becomes current.
    pub(crate) fn remove(&mut self, address: &str) {
        self.servers.retain(|known| known.address != address);
        if self.current.as_deref() == Some(address) {
            self.current = match self.servers.as_slice() {
                [only] => Some(only.address.clone()),
                _ => None,
            };
        }
    }

    pub(super) fn read(path: &Path) -> Result<Self, StoreError> {
        let Some(text) = files::read_own(path)?.filter(|text| !text.trim().is_empty()) else {
            return Ok(Self::default());
        };
        serde_saphyr::from_str(&text).map_err(|error| StoreError::Damaged {
            path: path.to_owned(),
            fault: error.to_string().lines().next().unwrap_or_default().to_owned(),
        })
    }

    pub(super) fn write(&self, path: &Path) -> Result<(), StoreError> {
        let text = terminal::yaml(self).map_err(|fault| StoreError::Write {
            path: path.to_owned(),
            fault,
        })?;
        files::replace(path, text.as_bytes())
    }
}
