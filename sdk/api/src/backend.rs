//! The extension of a kubeconfig with the provider's gRPC endpoint, and a token that renews the kubeconfig there.

use std::fmt;

use kube::config::NamedExtension;
use serde::{Deserialize, Serialize};

/// Name of the extension in a kubeconfig's cluster.
pub const EXTENSION: &str = "kube-bind.io/backend";

/// The gRPC endpoint of a provider, and a token for this endpoint only.
#[derive(Serialize, Deserialize, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase")]
pub struct Backend {
    /// URL of the endpoint.
    pub address: String,
    /// CA of the endpoint's certificate, PEM in base64; absent means the system's CAs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_data: Option<String>,
    /// The secret token that renews the kubeconfig.
    pub token: String,
}

/// The extension is not valid. Its content is left out, for it holds a secret.
#[derive(thiserror::Error, Clone, Copy, Debug, PartialEq, Eq)]
#[error(
    "extension kube-bind.io/backend of the kubeconfig's cluster needs the texts address and token; bind again to get a whole one"
)]
pub struct InvalidBackend;

impl Backend {
    /// Reads the extension of a cluster; `None` if the provider has no gRPC endpoint.
    pub fn find(extensions: &[NamedExtension]) -> Result<Option<Self>, InvalidBackend> {
        extensions
            .iter()
            .find(|entry| entry.name == EXTENSION)
            .map(|entry| Self::deserialize(&entry.extension).map_err(|_| InvalidBackend))
            .transpose()
    }

    /// Builds the extension of a cluster.
    pub fn to_extension(&self) -> NamedExtension {
        let mut fields = serde_json::Map::new();
        fields.insert("address".to_owned(), self.address.as_str().into());
        if let Some(ca_data) = &self.ca_data {
            fields.insert("caData".to_owned(), ca_data.as_str().into());
        }
        fields.insert("token".to_owned(), self.token.as_str().into());
        NamedExtension {
            name: EXTENSION.to_owned(),
            extension: fields.into(),
        }
    }
}

impl fmt::Debug for Backend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Backend")
            .field("address", &self.address)
            .field("ca_data", &self.ca_data.as_ref().map(String::len))
            .field("token", &"***")
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn backend(ca_data: Option<&str>) -> Backend {
        Backend {
            address: "https://bind.example.com:8443".to_owned(),
            ca_data: ca_data.map(ToOwned::to_owned),
            token: "hush-hush".to_owned(),
        }
    }

    fn entry(name: &str, extension: serde_json::Value) -> NamedExtension {
        NamedExtension {
            name: name.to_owned(),
            extension,
        }
    }

    #[test]
    fn is_found_again_among_others() {
        for ca_data in [None, Some("Q0E=")] {
            let written = backend(ca_data);
            let extensions = [
                entry("client.authentication.k8s.io/exec", json!({})),
                written.to_extension(),
            ];
            assert_eq!(Backend::find(&extensions), Ok(Some(written)));
        }
        assert_eq!(Backend::find(&[entry("other", json!({}))]), Ok(None));
    }

    #[test]
    fn a_broken_one_is_an_error_and_not_an_absence() {
        for broken in [
            json!(null),
            json!({ "address": "x" }),
            json!({ "address": 1, "token": "hush-hush" }),
        ] {
            let error = Backend::find(&[entry(EXTENSION, broken)]).unwrap_err();
            assert!(!error.to_string().contains("hush"));
        }
    }

    #[test]
    fn what_is_written_is_what_serde_writes() {
        let written = backend(Some("Q0E="));
        assert_eq!(
            written.to_extension().extension,
            serde_json::to_value(&written).unwrap()
        );
    }

    #[test]
    fn the_token_is_not_shown() {
        assert!(!format!("{:?}", backend(None)).contains("hush"));
    }
}
