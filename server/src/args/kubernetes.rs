//! What consumers are told about the Kubernetes API: from flags, from the server's own connection, or from the cluster.

use bindery_proto::address::Scheme;
use kube::Config;

use super::{Args, ArgsError, not_https, own_ca, parse, read_ca};
use crate::settings::KubernetesEndpoint;

const FLAG: &str = "external-address";

impl Args {
    /// Whether the URL of the Kubernetes API must be found in the cluster: no flag gives it, and the server's own URL is one that
    /// only pods can reach. `service_host` is what the kubelet tells pods (KUBERNETES_SERVICE_HOST).
    pub fn needs_cluster_info(&self, config: &Config, service_host: Option<&str>) -> bool {
        let host = config.cluster_url.host().unwrap_or_default();
        let is_service = service_host.is_some_and(|service| unbracketed(service) == unbracketed(host));
        self.external_address.is_none() && (is_service || is_service_name(host))
    }

    /// The Kubernetes API as consumers reach it. `found` is what the cluster says of itself, if it was asked.
    pub(super) fn kubernetes(
        &self,
        config: &Config,
        found: Option<KubernetesEndpoint>,
    ) -> Result<KubernetesEndpoint, ArgsError> {
        let given = match &self.external_ca_file {
            Some(path) => Some(read_ca("external-ca-file", path)?),
            None => None,
        };
        let server_name = self.external_server_name.clone();
        if let Some(address) = &self.external_address {
            return Ok(KubernetesEndpoint {
                address: checked(address)?,
                ca: given.map_or_else(|| own_ca(config), |ca| Ok(Some(ca)))?,
                server_name,
            });
        }
        if let Some(found) = found {
            return Ok(KubernetesEndpoint {
                address: checked(&found.address)?,
                ca: given.or(found.ca),
                server_name: server_name.or(found.server_name),
            });
        }
        Ok(KubernetesEndpoint {
            address: config.cluster_url.to_string().trim_end_matches('/').to_owned(),
            ca: given.map_or_else(|| own_ca(config), |ca| Ok(Some(ca)))?,
            server_name: server_name.or_else(|| config.tls_server_name.clone()),
        })
    }
}

/// The names of Service `kubernetes`, in any cluster domain.
fn is_service_name(host: &str) -> bool {
    let host = host.to_ascii_lowercase();
    ["kubernetes", "kubernetes.default", "kubernetes.default.svc"].contains(&&*host)
        || host.starts_with("kubernetes.default.svc.")
}

fn unbracketed(host: &str) -> &str {
    host.trim_start_matches('[').trim_end_matches(']')
}

/// The URL in canonical form. The Kubernetes API may stand behind a path; scheme and host must be sound all the same.
fn checked(given: &str) -> Result<String, ArgsError> {
    let (origin, path) = split_path(given);
    let address = parse(FLAG, origin)?;
    if address.scheme() == Scheme::Https {
        Ok(format!("{address}{path}"))
    } else {
        Err(not_https(FLAG, &address))
    }
}

fn split_path(address: &str) -> (&str, &str) {
    let authority = address.find("://").map_or(0, |at| at + 3);
    match address[authority..].find('/') {
        Some(at) => (
            &address[..authority + at],
            address[authority + at..].trim_end_matches('/'),
        ),
        None => (address, ""),
    }
}
