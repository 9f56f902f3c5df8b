//! Finds the public URL and CA of the Kubernetes API where a cluster publishes them: in ConfigMap `cluster-info` of namespace
//! `kube-public`, whose key `kubeconfig` holds both, as kubeadm and others write it for nodes that join.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bindery_runtime::errors;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client, config::Kubeconfig};

use crate::{settings::KubernetesEndpoint, tls::read_certificates};

const NAMESPACE: &str = "kube-public";
const NAME: &str = "cluster-info";
const KEY: &str = "kubeconfig";

/// Why the cluster does not say how consumers reach its Kubernetes API.
#[derive(Debug, thiserror::Error)]
#[error(
    "consumers cannot use the URL {own}, at which this server reaches the Kubernetes API, and ConfigMap \
     {NAMESPACE}/{NAME} {fault}; give --external-address URL and, unless its CA is the server's own, --external-ca-file FILE"
)]
pub struct ClusterInfoError {
    /// The server's own URL.
    own: String,
    /// What is wrong with the ConfigMap.
    fault: Fault,
}

/// What is wrong with ConfigMap `cluster-info`.
#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error("does not exist")]
    Missing,
    #[error("cannot be read: {}", errors::explain(.0))]
    Read(#[source] kube::Error),
    #[error("has no {KEY} with a cluster in it")]
    NoCluster,
    #[error("names {0:?} as the server, which is no https:// URL")]
    Address(String),
    #[error("holds a certificate-authority-data that is no certificate")]
    Ca,
}

/// Asks the cluster. `own` is the URL at which the server reaches it, for the error.
pub async fn find(client: &Client, own: &str) -> Result<KubernetesEndpoint, ClusterInfoError> {
    let found = match Api::<ConfigMap>::namespaced(client.clone(), NAMESPACE)
        .get_opt(NAME)
        .await
    {
        Ok(Some(found)) => read(&found),
        Ok(None) => Err(Fault::Missing),
        Err(error) => Err(Fault::Read(error)),
    };
    found.map_err(|fault| ClusterInfoError {
        own: own.trim_end_matches('/').to_owned(),
        fault,
    })
}

fn read(found: &ConfigMap) -> Result<KubernetesEndpoint, Fault> {
    let text = found
        .data
        .as_ref()
        .and_then(|data| data.get(KEY))
        .ok_or(Fault::NoCluster)?;
    let kubeconfig: Kubeconfig = serde_saphyr::from_str(text).map_err(|_| Fault::NoCluster)?;
    // There is one cluster; no context names it.
    let cluster = kubeconfig.clusters.into_iter().find_map(|named| named.cluster);
    let cluster = cluster.ok_or(Fault::NoCluster)?;
    let address = cluster.server.unwrap_or_default();
    if !address.starts_with("https://") {
        return Err(Fault::Address(address));
    }
    let ca = cluster.certificate_authority_data.map(|data| ca(&data)).transpose()?;
    Ok(KubernetesEndpoint {
        address,
        ca,
        server_name: cluster.tls_server_name,
    })
}

fn ca(data: &str) -> Result<Vec<u8>, Fault> {
    let pem = STANDARD.decode(data.trim()).map_err(|_| Fault::Ca)?;
    read_certificates(&pem).map_err(|_| Fault::Ca)?;
    Ok(pem)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config_map(kubeconfig: Option<String>) -> ConfigMap {
        ConfigMap {
            data: kubeconfig.map(|text| [(KEY.to_owned(), text)].into()),
            ..ConfigMap::default()
        }
    }

    fn kubeconfig(cluster: &str) -> String {
        format!("apiVersion: v1\nkind: Config\nclusters:\n- name: \"\"\n  cluster: {cluster}\n")
    }

    #[track_caller]
    fn check_refused(kubeconfig: Option<String>, expect: &str) {
        let fault = read(&config_map(kubeconfig)).expect_err("a fault");
        assert!(fault.to_string().contains(expect), "{fault}");
    }

    #[test]
    fn reads_what_kubeadm_writes() {
        let issued = rcgen::generate_simple_self_signed(vec!["api".to_owned()]).expect("a certificate");
        let pem = issued.cert.pem();
        let data = STANDARD.encode(&pem);
        let cluster = format!("{{certificate-authority-data: {data}, server: \"https://203.0.113.7:6443\"}}");
        let text = kubeconfig(&cluster) + "contexts: null\ncurrent-context: \"\"\npreferences: {}\nusers: null\n";
        let found = read(&config_map(Some(text))).expect("an endpoint");
        assert_eq!(found.address, "https://203.0.113.7:6443");
        assert_eq!(found.ca, Some(pem.into_bytes()));
    }

    #[test]
    fn what_cannot_be_used_is_told_apart() {
        check_refused(None, "has no kubeconfig");
        check_refused(Some("clusters: []".to_owned()), "has no kubeconfig");
        check_refused(Some(": nonsense".to_owned()), "has no kubeconfig");
        check_refused(Some(kubeconfig("{server: \"http://a\"}")), "no https:// URL");
        let data = STANDARD.encode("nonsense");
        let cluster = format!("{{server: \"https://a\", certificate-authority-data: {data}}}");
        check_refused(Some(kubeconfig(&cluster)), "no certificate");
    }

    #[test]
    fn the_error_names_the_flags() {
        let error = ClusterInfoError {
            own: "https://10.96.0.1".to_owned(),
            fault: Fault::Missing,
        };
        let told = error.to_string();
        for word in [
            "10.96.0.1",
            "kube-public/cluster-info does not exist",
            "--external-address",
            "--external-ca-file",
        ] {
            assert!(told.contains(word), "{told}");
        }
    }
}
