//! The kubeconfig of a contract, which the konnector uses.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use bindery_api::backend::Backend;
use secrecy::SecretString;
use serde_json::{Map, Value, json};

use crate::settings::KubernetesEndpoint;

/// Cluster, user and context all have this name on the wire.
const NAME: &str = "default";

pub(super) fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Renders the kubeconfig of a contract as YAML; none if it cannot be serialised.
pub(super) fn render(
    contract: &str,
    kubernetes: &KubernetesEndpoint,
    token: &str,
    backend: &Backend,
) -> Option<SecretString> {
    let mut cluster = Map::new();
    cluster.insert("server".to_owned(), kubernetes.address.as_str().into());
    if let Some(ca) = &kubernetes.ca {
        cluster.insert("certificate-authority-data".to_owned(), base64(ca).into());
    }
    if let Some(server_name) = &kubernetes.server_name {
        cluster.insert("tls-server-name".to_owned(), server_name.as_str().into());
    }
    let extension = backend.to_extension();
    cluster.insert(
        "extensions".to_owned(),
        json!([{ "name": extension.name, "extension": extension.extension }]),
    );
    let kubeconfig = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": NAME, "cluster": Value::Object(cluster) }],
        "users": [{ "name": NAME, "user": { "token": token } }],
        "contexts": [{ "name": NAME, "context": { "cluster": NAME, "user": NAME, "namespace": contract } }],
        "current-context": NAME,
    });
    serde_saphyr::to_string(&kubeconfig).ok().map(Into::into)
}

#[cfg(test)]
mod tests {
    use kube::config::Kubeconfig;
    use secrecy::ExposeSecret as _;

    use super::*;

    fn backend() -> Backend {
        Backend {
            address: "https://bind.example.com:8443".to_owned(),
            ca_data: Some(base64(b"grpc ca")),
            token: "renewal".to_owned(),
        }
    }

    #[track_caller]
    fn check(kubernetes: &KubernetesEndpoint) {
        let rendered = render("kube-bind-a", kubernetes, "secret", &backend()).unwrap();
        let mut read = Kubeconfig::from_yaml(rendered.expose_secret()).unwrap();
        assert_eq!(read.current_context.as_deref(), Some("default"));
        let context = read.contexts.remove(0).context.unwrap();
        assert_eq!(
            (&*context.cluster, context.user.as_deref()),
            ("default", Some("default"))
        );
        assert_eq!(context.namespace.as_deref(), Some("kube-bind-a"));
        let user = read.auth_infos.remove(0).auth_info.unwrap();
        assert_eq!(user.token.unwrap().expose_secret(), "secret");
        let cluster = read.clusters.remove(0).cluster.unwrap();
        assert_eq!(cluster.server.as_deref(), Some(&*kubernetes.address));
        assert_eq!(cluster.tls_server_name, kubernetes.server_name);
        assert_eq!(cluster.certificate_authority_data, kubernetes.ca.as_deref().map(base64));
        assert_eq!(
            Backend::find(&cluster.extensions.unwrap_or_default()),
            Ok(Some(backend()))
        );
    }

    #[test]
    fn is_read_back_whole() {
        let mut kubernetes = KubernetesEndpoint {
            address: "https://127.0.0.1:6443".to_owned(),
            ca: None,
            server_name: None,
        };
        check(&kubernetes);
        kubernetes.ca = Some(b"-----BEGIN CERTIFICATE-----\nAA==\n".to_vec());
        kubernetes.server_name = Some("kubernetes.default".to_owned());
        check(&kubernetes);
    }
}
