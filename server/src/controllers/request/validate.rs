//! Validates a request that was made as a resource. The front door does the same for a call, before it writes anything.

use bindery_api::{
    names::{self, NAME_LENGTH_MAX},
    v1alpha2::{BindableResourcesRequest, LocalSecretKeyRef},
};
use kube::ResourceExt as _;

use super::status::Refused;
use crate::request::template_name;

/// The longest name of an author, in bytes.
const AUTHOR_LENGTH_MAX: usize = 1_024;
/// The prefix of Kubernetes' own users.
const SYSTEM: &str = "system:";

/// Where a request was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestNamespace {
    /// In a namespace of the provider, where its admin gave the author the right to create requests.
    Open,
    /// In a namespace of a contract, where the consumer may write.
    Consumers,
}

/// Returns the Secret for the response, or why the request can never be served and what to do instead.
pub(super) fn check(request: &BindableResourcesRequest, place: RequestNamespace) -> Result<LocalSecretKeyRef, Refused> {
    let name = request.name_any();
    let refuse = |reason, message: String| Err(Refused::new(reason, &message));
    if place == RequestNamespace::Consumers {
        return refuse(
            "ForbiddenNamespace",
            format!(
                "namespace {} belongs to consumers; create the request in another one",
                request.namespace().unwrap_or_default()
            ),
        );
    }
    if !names::is_label(&name) {
        return refuse(
            "InvalidName",
            format!(
                "metadata.name {name} becomes the export's, which must be a DNS label: lower-case letters, digits and dashes, \
                 63 at most; create the request under such a name"
            ),
        );
    }
    if let Some(wrong) = author(&request.spec.author) {
        return refuse("InvalidAuthor", format!("spec.author {wrong}"));
    }
    if template_name(request).is_none_or(str::is_empty) {
        let message = "spec.templateRef.name is missing; create a request that names the template to bind";
        return refuse("TemplateNotFound", message.to_owned());
    }
    if let Some(wrong) = identity(request) {
        return refuse("InvalidClusterIdentity", format!("spec.clusterIdentity.{wrong}"));
    }
    if let Some(kept) = &request.spec.ttl_after_finished
        && let Err(error) = kept.parse()
    {
        return refuse("InvalidTTL", format!("spec.ttlAfterFinished: {error}"));
    }
    if let Some(compatibility) = request.spec.compatibility {
        let message =
            format!("compatibility {compatibility:?} is not served; create a request without spec.compatibility");
        return refuse("FeatureOff", message);
    }
    secret(request)
}

/// What is wrong with an author; `None` if that is a user or ServiceAccount who may bind. Kubernetes' own components and the
/// accounts of contracts may not.
fn author(author: &str) -> Option<String> {
    if author.is_empty() || author.len() > AUTHOR_LENGTH_MAX || author.chars().any(char::is_control) {
        return Some(format!(
            "needs 1 to {AUTHOR_LENGTH_MAX} bytes and no control characters; set it to the user that makes the request"
        ));
    }
    let rest = author.strip_prefix(SYSTEM)?;
    let is_person = match rest
        .strip_prefix("serviceaccount:")
        .and_then(|account| account.split_once(':'))
    {
        Some((namespace, name)) => {
            names::is_label(namespace) && names::is_subdomain(name) && name != names::KUBE_BINDER
        }
        None => rest == "admin",
    };
    (!is_person).then(|| format!("{author} must not bind; make the request as a user or a ServiceAccount"))
}

/// What is wrong with the cluster identity of a request.
fn identity(request: &BindableResourcesRequest) -> Option<String> {
    let cluster = &request.spec.cluster_identity;
    let wrong = |text: &str| text.len() > NAME_LENGTH_MAX || text.chars().any(char::is_control);
    let identity = &cluster.identity;
    if identity.is_empty() || wrong(identity) || identity.trim() != identity {
        return Some(format!(
            "identity needs 1 to {NAME_LENGTH_MAX} bytes without control characters or outer spaces, such as the UID of the \
             consumer's namespace kube-system"
        ));
    }
    let pretty = cluster.pretty_name.as_deref().unwrap_or_default();
    wrong(pretty).then(|| format!("prettyName may have {NAME_LENGTH_MAX} bytes and no control characters"))
}

/// The Secret and the key for the kubeconfig. Another key of the Secret holds the whole response.
fn secret(request: &BindableResourcesRequest) -> Result<LocalSecretKeyRef, Refused> {
    let wanted = request.spec.kubeconfig_secret_ref.as_ref();
    let key = wanted.map_or("", |wanted| wanted.key.as_str());
    let key = if key.is_empty() || key == names::BINDING_RESPONSE_KEY {
        names::KUBECONFIG_KEY
    } else {
        key
    };
    let name = wanted.map_or_else(
        || names::response_secret(&request.name_any()),
        |wanted| wanted.name.clone(),
    );
    if !names::is_subdomain(&name) {
        let message = format!(
            "spec.kubeconfigSecretRef.name {name} cannot be the name of a Secret; create a request with a DNS subdomain there"
        );
        return Err(Refused::new("InvalidSecretRef", &message));
    }
    if !is_key(key) {
        let message = format!(
            "spec.kubeconfigSecretRef.key {key} cannot be a key of a Secret; create a request with letters, digits, dashes, dots and \
             underscores there, {NAME_LENGTH_MAX} at most"
        );
        return Err(Refused::new("InvalidSecretRef", &message));
    }
    Ok(LocalSecretKeyRef {
        name,
        key: key.to_owned(),
    })
}

/// Whether the API server accepts this as a key of a Secret.
fn is_key(key: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    key.len() <= NAME_LENGTH_MAX && key.bytes().all(inner) && key != "." && !key.starts_with("..")
}

#[cfg(test)]
mod tests {
    use bindery_api::v1alpha2::{Compatibility, NameRef};
    use serde_json::json;

    use super::*;

    pub(super) fn request(change: impl FnOnce(&mut BindableResourcesRequest)) -> BindableResourcesRequest {
        let mut request = BindableResourcesRequest::default();
        request.metadata.name = Some("riders".to_owned());
        request.metadata.namespace = Some("tenants".to_owned());
        request.spec.author = "jane".to_owned();
        request.spec.template_ref = Some(NameRef::new("cowboys"));
        request.spec.cluster_identity.identity = "cluster-a".to_owned();
        change(&mut request);
        request
    }

    #[track_caller]
    fn check_refused(expect: &str, change: impl FnOnce(&mut BindableResourcesRequest)) {
        let refused = check(&request(change), RequestNamespace::Open).expect_err("served");
        assert_eq!(refused.reason, expect, "{refused:?}");
    }

    #[track_caller]
    fn check_secret(asked: Option<(&str, &str)>, expect: (&str, &str)) {
        let found = check(
            &request(|request| {
                request.spec.kubeconfig_secret_ref = asked.map(|(name, key)| LocalSecretKeyRef {
                    name: name.to_owned(),
                    key: key.to_owned(),
                });
            }),
            RequestNamespace::Open,
        );
        let found = found.expect("refused");
        assert_eq!((&*found.name, &*found.key), expect);
    }

    #[test]
    fn the_kubeconfig_never_takes_the_place_of_the_response() {
        check_secret(None, ("riders-binding-response", "kubeconfig"));
        check_secret(Some(("response", "config")), ("response", "config"));
        check_secret(Some(("response", "")), ("response", "kubeconfig"));
        check_secret(Some(("response", "binding-response")), ("response", "kubeconfig"));
    }

    #[test]
    fn what_can_never_be_served_says_so() {
        check_refused("InvalidName", |request| request.metadata.name = Some("a.b".to_owned()));
        check_refused("InvalidName", |request| request.metadata.name = Some("a".repeat(64)));
        check_refused("TemplateNotFound", |request| request.spec.template_ref = None);
        check_refused("TemplateNotFound", |request| {
            request.spec.template_ref = Some(NameRef::new(""));
        });
        for identity in ["", " a", "a\n", &"a".repeat(254)] {
            check_refused("InvalidClusterIdentity", |request| {
                identity.clone_into(&mut request.spec.cluster_identity.identity);
            });
        }
        check_refused("InvalidClusterIdentity", |request| {
            request.spec.cluster_identity.pretty_name = Some("a".repeat(254));
        });
        for ttl in ["", "soon", "-1s", "99999999h"] {
            check_refused("InvalidTTL", |request| {
                request.spec.ttl_after_finished = Some(serde_json::from_value(json!(ttl)).unwrap());
            });
        }
        check_refused("FeatureOff", |request| {
            request.spec.compatibility = Some(Compatibility::KubeBind);
        });
        for (name, key) in [
            ("A", "k"),
            ("", "k"),
            ("a/b", "k"),
            ("a", "k/k"),
            ("a", ".."),
            ("a", "."),
            ("a", "\u{e4}"),
        ] {
            check_refused("InvalidSecretRef", |request| {
                request.spec.kubeconfig_secret_ref = Some(LocalSecretKeyRef {
                    name: name.to_owned(),
                    key: key.to_owned(),
                });
            });
        }
        let consumers = check(&request(|_| {}), RequestNamespace::Consumers).expect_err("served");
        assert_eq!(consumers.reason, "ForbiddenNamespace");
    }

    #[test]
    fn names_at_their_limits_are_served() {
        let longest = request(|request| {
            request.metadata.name = Some("a".repeat(63));
            request.spec.cluster_identity.identity = "i".repeat(253);
            request.spec.author = format!("system:serviceaccount:{}:{}", "n".repeat(63), "a".repeat(253));
        });
        let secret = check(&longest, RequestNamespace::Open).expect("refused");
        assert_eq!(secret.name, format!("{}-binding-response", "a".repeat(63)));
    }

    #[test]
    fn kubernetes_own_users_are_no_authors() {
        for author in [
            "jane",
            "oidc:jane@example.com",
            "system:admin",
            "system:serviceaccount:a:b",
        ] {
            assert_eq!(super::author(author), None);
        }
        for author in [
            "",
            "a\nb",
            "system:anonymous",
            "system:node:one",
            "system:apiserver",
            "system:kube-scheduler",
            "system:serviceaccount:a",
            "system:serviceaccount:a:",
            "system:serviceaccount:a:b:c",
            "system:serviceaccount:kube-bind-a:kube-binder",
        ] {
            assert!(super::author(author).is_some(), "{author:?}");
        }
    }
}
