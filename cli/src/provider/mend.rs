//! What the user can do about an error of the provider's backend: who has to grant, say or choose what.

use bindery_api::{names, v1alpha2::GROUP};
use bindery_proto::v1alpha2::ErrorReason;
use bindery_sdk::{BuildError, Error, TransportFault};
use serde_json::Value;

use super::ProviderError;

/// What to do about an error, where its message does not say it.
pub(super) fn of(error: &ProviderError) -> Option<String> {
    if let Some(error) = error.login_error() {
        return error.mend();
    }
    match error {
        ProviderError::Build(BuildError::Plaintext { address, .. }) if address.is_loopback() => {
            Some("Add --allow-plaintext to speak plaintext on this machine's loopback.".to_owned())
        }
        ProviderError::Build(_) | ProviderError::TlsFile { .. } => None,
        ProviderError::Call {
            template,
            principal,
            audience,
            source,
            ..
        } => match source.as_ref() {
            Error::Transport(transport) => match transport.fault {
                TransportFault::CertificateUntrusted => {
                    Some("Give the CA of the backend with --certificate-authority FILE.".to_owned())
                }
                TransportFault::ClientCertificate => Some(
                    "Give a client certificate that the provider's admin issued with --client-certificate FILE and \
                     --client-key FILE."
                        .to_owned(),
                ),
                _ => None,
            },
            Error::Token(_) => Some(get_a_token(audience)),
            Error::Pending(_) => {
                Some("The provider goes on by itself: run the same command again to wait longer.".to_owned())
            }
            Error::Status(status) => {
                let told = |key: &str| status.metadata.get(key).filter(|value| !value.is_empty()).cloned();
                let caller = Caller {
                    // The backend knows the username; the token alone tells less.
                    principal: told("username").or_else(|| principal.clone()),
                    groups: told("groups").map_or_else(Vec::new, |groups| groups_of(&groups)),
                };
                by_reason(source.reason()?, template.as_deref(), &caller, audience)
            }
            _ => None,
        },
    }
}

/// Who called, as far as it is known.
#[derive(Default)]
struct Caller {
    principal: Option<String>,
    /// Groups that the token carries, without those of Kubernetes itself.
    groups: Vec<String>,
}

/// The groups that a backend names: a JSON list, since a group may have commas. Earlier backends separate them by commas.
fn groups_of(told: &str) -> Vec<String> {
    serde_json::from_str(told).unwrap_or_else(|_| told.split(',').map(str::to_owned).collect())
}

fn by_reason(reason: ErrorReason, template: Option<&str>, caller: &Caller, audience: &str) -> Option<String> {
    let principal = caller.principal.as_deref();
    match reason {
        ErrorReason::TokenMissing
        | ErrorReason::TokenInvalid
        | ErrorReason::TokenExpired
        | ErrorReason::TokenAudienceWrong
        | ErrorReason::IssuerUntrusted => Some(get_a_token(audience)),
        ErrorReason::TemplateBindDenied => Some(bind_role(template?, caller)),
        ErrorReason::TemplateNotFound => Some("`kubectl bind templates` lists what you may bind.".to_owned()),
        ErrorReason::CollectionNotFound => Some("`kubectl bind collections` lists the collections.".to_owned()),
        ErrorReason::ClusterIdentityTaken | ErrorReason::ContractDenied => Some(format!(
            "Another principal bound this cluster first. Its owner can share the contract with a group of yours by\n\
             `kubectl bind share NAME --group GROUP`. If that owner is not the cluster's, the provider's admin gives you the\n\
             contract instead, and ends all its credentials, by `kubectl bind provider transfer CONTRACT --to {}`.",
            principal.unwrap_or("YOUR-NAME"),
        )),
        ErrorReason::RequestNameTaken | ErrorReason::ExportNameTaken => {
            Some("Choose another name for the binding with --name.".to_owned())
        }
        ErrorReason::LimitReached => Some(
            "Unbind or delete what you do not need any more, or show this message to the provider's admin, who can raise the limit.".to_owned(),
        ),
        ErrorReason::TemplateNotReady | ErrorReason::ServerLacksRights => {
            Some("Only the provider's admin can mend this: show this message to the admin.".to_owned())
        }
        _ => None,
    }
}

fn get_a_token(audience: &str) -> String {
    format!(
        "A person logs in with `kubectl bind login {audience}`.\n\
         The token of a ServiceAccount must be for the audience {audience}. On the provider's cluster,\n\
         `kubectl create token NAME --audience {audience}` makes one for a ServiceAccount."
    )
}

/// The command, and the manifests for those who apply manifests instead, by which the provider's admin grants a principal or one of
/// its groups the right to bind a template. The binding's name has a hash of the principal: `kubectl apply` of the manifests for one
/// principal must not take the right of another one away.
fn bind_role(template: &str, caller: &Caller) -> String {
    let principal = caller.principal.as_deref().unwrap_or("YOUR-NAME");
    let account = principal.strip_prefix("system:serviceaccount:");
    let (flag, subject) = match account.and_then(|account| Some((account, account.split_once(':')?))) {
        Some((account, (namespace, name))) => (
            ["--service-account", account],
            format!(
                "- kind: ServiceAccount\n  namespace: {}\n  name: {}",
                quoted(namespace),
                quoted(name)
            ),
        ),
        None => (["--user", principal], rbac_subject("User", principal)),
    };
    let words = ["kubectl", "bind", "provider", "grant", template];
    let words = words.into_iter().chain(flag).chain(["--provider-context", "CONTEXT"]);
    // Only a byte 0 cannot be quoted, and no username has one.
    let command = shlex::try_join(words).unwrap_or_default();
    // As comments, for a right for a group is one for all its members.
    let comment = |group: &String| {
        let subject = rbac_subject("Group", group).replace('\n', "\n# ");
        format!("\n# or a group of yours:\n# {subject}")
    };
    let groups = caller.groups.iter().map(comment).collect::<Vec<_>>().concat();
    let role = format!("bind-{template}");
    let binding = quoted(&format!("{role}-{}", names::identity_hash(principal)));
    let (role, template) = (quoted(&role), quoted(template));
    format!(
        "If there is such a template, the provider's admin can grant you the verb bind on it:\n\n\
         {command}\n\n\
         or with these manifests:\n\n\
         apiVersion: rbac.authorization.k8s.io/v1\n\
         kind: ClusterRole\n\
         metadata:\n  name: {role}\n\
         rules:\n\
         - apiGroups: [{GROUP}]\n  resources: [apiserviceexporttemplates]\n  verbs: [bind]\n  resourceNames: [{template}]\n\
         ---\n\
         apiVersion: rbac.authorization.k8s.io/v1\n\
         kind: ClusterRoleBinding\n\
         metadata:\n  name: {binding}\n\
         roleRef:\n  apiGroup: rbac.authorization.k8s.io\n  kind: ClusterRole\n  name: {role}\n\
         subjects:\n{subject}{groups}"
    )
}

fn rbac_subject(kind: &str, name: &str) -> String {
    format!(
        "- apiGroup: rbac.authorization.k8s.io\n  kind: {kind}\n  name: {}",
        quoted(name)
    )
}

/// A text as JSON writes it, which is YAML too.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

#[cfg(test)]
mod tests;
