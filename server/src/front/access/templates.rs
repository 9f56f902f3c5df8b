//! Access to templates: which ones a caller may bind.

use bindery_api::names::TemplateName;
use bindery_proto::v1alpha2::ErrorReason;
use serde_json::json;

use crate::front::{
    Failure, Outcome,
    access::{Grant, Reviews},
    auth::{Caller, Identity},
};
use crate::rights::bind_attributes;

/// Number of the caller's groups that a refusal names.
const GROUPS_SHOWN: usize = 8;
/// Number of bytes that the names of these groups may have together, for the message travels in a header.
const GROUPS_BYTES_MAX: usize = 512;

/// Asks the API server whether callers may `bind` templates.
#[derive(Clone, Debug)]
pub(crate) struct TemplateAccess {
    reviews: Reviews,
}

impl TemplateAccess {
    /// Asks by these reviews.
    pub(crate) fn new(reviews: Reviews) -> Self {
        Self { reviews }
    }

    /// Whether the caller may bind the template of that name, whether it exists or not.
    pub(crate) async fn may_bind(&self, caller: &Caller, template: &str) -> Outcome<bool> {
        Ok(self.grant(caller, template).await?.is_some())
    }

    /// What lets the caller bind the template of that name, whether it exists or not; none if the caller may not.
    pub(crate) async fn grant(&self, caller: &Caller, template: &str) -> Outcome<Option<Grant>> {
        // Most callers may bind all templates, so that one review answers for every name.
        match self.ask(caller, None).await? {
            None => self.ask(caller, Some(template)).await,
            of_all => Ok(of_all),
        }
    }

    /// What lets the caller bind the template. Refuses a caller that may not, in the same words whether it exists or not.
    pub(crate) async fn require_bind(&self, caller: &Caller, template: &TemplateName) -> Outcome<Grant> {
        let grant = self.grant(caller, template).await?;
        grant.ok_or_else(|| denied(&caller.identity, template))
    }

    async fn ask(&self, caller: &Caller, template: Option<&str>) -> Outcome<Option<Grant>> {
        self.reviews
            .grant(&caller.identity, bind_attributes(template), "review the right to bind")
            .await
    }
}

/// The refusal to bind a template. It names what the caller is to the provider's RBAC, so that an admin can grant the right.
fn denied(identity: &Identity, template: &TemplateName) -> Failure {
    let groups = shown_groups(&identity.groups);
    let shown = groups.join("; ");
    let message = format!(
        "{} may not bind template {template}, or it does not exist; the provider's admin grants verb bind on \
         apiserviceexporttemplates.kube-bind.io to this user or to one of its groups ({})",
        identity.username,
        if shown.is_empty() { "none" } else { &shown },
    );
    Failure::new(ErrorReason::TemplateBindDenied, message)
        .with("template", &**template)
        .with("username", &identity.username)
        // A group, such as an LDAP name, may have commas.
        .with("groups", json!(groups).to_string())
}

/// The first of a caller's groups. Those of Kubernetes itself are left out, for nobody means to grant a right to all
/// authenticated callers.
fn shown_groups(groups: &[String]) -> Vec<&str> {
    let own = groups.iter().filter(|group| !group.starts_with("system:"));
    let mut bytes_left = GROUPS_BYTES_MAX;
    let mut shown = Vec::new();
    for group in own.take(GROUPS_SHOWN) {
        let Some(left) = bytes_left.checked_sub(group.len()) else {
            break;
        };
        bytes_left = left;
        shown.push(group.as_str());
    }
    shown
}

#[cfg(test)]
mod tests {
    use tonic::Status;
    use tonic_types::StatusExt as _;

    use super::*;

    #[test]
    fn a_refusal_names_user_and_groups_and_stays_short() {
        let identity = |groups: &[String]| Identity {
            username: "jane".to_owned(),
            groups: groups.to_vec(),
            ..Identity::default()
        };
        let template: TemplateName = "cowboys".parse().unwrap();
        let says = |groups: &[String]| denied(&identity(groups), &template).message().to_owned();
        let groups = ["system:authenticated", "ranchers", "sheriffs"].map(ToOwned::to_owned);
        assert!(says(&groups).ends_with("(ranchers; sheriffs)"), "{}", says(&groups));
        assert!(says(&[]).ends_with("(none)"));
        let in_ldap = ["cn=ranchers,ou=groups,dc=example,dc=com", "sheriffs"].map(ToOwned::to_owned);
        let details = Status::from(denied(&identity(&in_ldap), &template)).get_error_details();
        let told = &details.error_info().unwrap().metadata["groups"];
        assert_eq!(serde_json::from_str::<Vec<String>>(told).unwrap(), in_ldap);
        let many: Vec<_> = (0..10_000).map(|number| format!("group-{number}")).collect();
        assert!(says(&many).len() < 1_024);
        let long = ["g".repeat(10_000)];
        assert!(says(&long).ends_with("(none)"));
    }
}
