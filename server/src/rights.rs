//! Checks whether the server holds the rights that it has to grant, and prints the role to apply where it does not.

use std::{sync::Arc, time::Duration};

use bindery_api::{
    annotations, labels,
    v1alpha2::{APIServiceExport, APIServiceExportSpec, GROUP, GroupResource},
};
use bindery_runtime::errors;
use futures::future::try_join_all;
use k8s_openapi::api::{
    authorization::v1::{
        ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec, SubjectAccessReview,
        SubjectAccessReviewSpec,
    },
    rbac::v1::PolicyRule,
};
use kube::{Api, Client, ResourceExt as _, api::PostParams};
use serde_json::json;

use crate::{
    contract::grants::Granter,
    rbac::{self, claims},
    template::{ExportPlan, Refusal},
    writes::WriteError,
};

/// How long a positive answer is remembered. An admin may take rights away at any time.
const ANSWER_LIFETIME: Duration = Duration::from_secs(30);
const ANSWERS_MAX: u64 = 10_000;

/// The server's own rights, asked of the API server and remembered for a moment.
#[derive(Clone)]
pub struct Rights {
    client: Client,
    answers: moka::future::Cache<RightsQuestion, bool>,
}

/// The question whether the server may do that with a resource in every namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct RightsQuestion {
    resource: GroupResource,
    verb: &'static str,
}

/// Why the rights of an export cannot be granted.
#[derive(Debug, thiserror::Error)]
pub enum RightsError {
    /// The server lacks some of them.
    #[error(transparent)]
    Lacking(Refusal),
    /// The API server could not be asked.
    #[error("cannot ask the API server for this server's rights: {}", errors::explain(.0))]
    Api(Arc<kube::Error>),
}

// === impl Rights ===

impl Rights {
    /// Creates the memory of answers; nothing is asked yet.
    pub fn new(client: Client) -> Self {
        let answers = moka::future::Cache::builder();
        Self {
            client,
            answers: answers.max_capacity(ANSWERS_MAX).time_to_live(ANSWER_LIFETIME).build(),
        }
    }

    /// Fails for a plan whose rights the server does not hold.
    pub async fn check(&self, plan: &ExportPlan) -> Result<(), RightsError> {
        self.check_export(&plan.template, &plan.export, plan.cluster_wide_secrets)
            .await
    }

    /// The rights that the server lacks to serve an export, as a refusal; `None` if it lacks none.
    pub async fn lacking(&self, export: &APIServiceExport) -> Result<Option<Refusal>, WriteError> {
        let template = export
            .annotations()
            .get(annotations::TEMPLATE)
            .map_or("", String::as_str);
        match self
            .check_export(template, &export.spec, claims::is_marked(export))
            .await
        {
            Ok(()) => Ok(None),
            Err(RightsError::Lacking(refusal)) => Ok(Some(refusal)),
            Err(RightsError::Api(error)) => Err(WriteError::Unasked(error)),
        }
    }

    /// Fails for an export whose rights the server does not hold. `secrets` says that its Secrets are read cluster-wide.
    async fn check_export(
        &self,
        template: &str,
        export: &APIServiceExportSpec,
        secrets: bool,
    ) -> Result<(), RightsError> {
        let mut rules = Vec::new();
        for (resource, verbs) in rbac::granted_rights(export, secrets) {
            let missing = self.missing(&resource, &verbs).await?;
            if !missing.is_empty() {
                rules.extend(rbac::rules(std::slice::from_ref(&resource), &missing));
            }
        }
        if rules.is_empty() {
            return Ok(());
        }
        Err(RightsError::Lacking(Refusal::ServerLacksRights {
            manifest: manifest(template, &rules),
        }))
    }

    /// Forgets all answers, for when the server's role has changed.
    pub fn forget(&self) {
        self.answers.invalidate_all();
    }

    /// The verbs that the server lacks on a resource.
    async fn missing(
        &self,
        resource: &GroupResource,
        verbs: &[&'static str],
    ) -> Result<Vec<&'static str>, RightsError> {
        let allowed = try_join_all(verbs.iter().map(|verb| self.may(verb, resource)));
        let allowed = allowed.await.map_err(RightsError::Api)?;
        let missing = verbs.iter().zip(allowed).filter(|(_, allowed)| !allowed);
        Ok(missing.map(|(verb, _)| *verb).collect())
    }

    async fn may(&self, verb: &'static str, resource: &GroupResource) -> Result<bool, Arc<kube::Error>> {
        let question = RightsQuestion {
            resource: resource.clone(),
            verb,
        };
        let answer = self
            .answers
            .try_get_with_by_ref(&question, is_allowed(&self.client, verb, resource, None, None))
            .await?;
        if !answer {
            // An admin who grants the right does not wait for an old answer.
            self.answers.invalidate(&question).await;
        }
        Ok(answer)
    }
}

/// Asks the API server whether the server itself may do that with a resource, in a namespace or everywhere; if `name` is given, with
/// the object of this name.
pub async fn is_allowed(
    client: &Client,
    verb: &str,
    resource: &GroupResource,
    namespace: Option<&str>,
    name: Option<&str>,
) -> Result<bool, kube::Error> {
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(ResourceAttributes {
                group: Some(resource.group.clone()),
                resource: Some(resource.resource.clone()),
                verb: Some(verb.to_owned()),
                namespace: namespace.map(ToOwned::to_owned),
                name: name.map(ToOwned::to_owned),
                ..ResourceAttributes::default()
            }),
            ..SelfSubjectAccessReviewSpec::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let api: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    let answer = api.create(&PostParams::default(), &review).await?;
    Ok(answer.status.is_some_and(|status| status.allowed))
}

/// What the right to bind a template is to the provider's RBAC; with no name, the right to bind every template.
pub fn bind_attributes(template: Option<&str>) -> ResourceAttributes {
    ResourceAttributes {
        group: Some(GROUP.to_owned()),
        resource: Some("apiserviceexporttemplates".to_owned()),
        verb: Some("bind".to_owned()),
        name: template.map(ToOwned::to_owned),
        ..ResourceAttributes::default()
    }
}

/// Asks the API server whether a principal may bind a template now, as each bind asks about its caller.
pub async fn may_bind(client: &Client, granter: &Granter, template: &str) -> Result<bool, kube::Error> {
    let review = SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(granter.principal.username.clone()),
            uid: granter.principal.uid.clone(),
            groups: Some(review_groups(granter)),
            resource_attributes: Some(bind_attributes(Some(template))),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    };
    let api: Api<SubjectAccessReview> = Api::all(client.clone());
    let answer = api.create(&PostParams::default(), &review).await?;
    Ok(answer
        .status
        .is_some_and(|status| status.allowed && status.denied != Some(true)))
}

/// The recorded groups of a principal, and those that Kubernetes gives it by its name alone.
fn review_groups(granter: &Granter) -> Vec<String> {
    let mut groups = granter.groups.clone();
    let mut add = |group: String| {
        if !groups.contains(&group) {
            groups.push(group);
        }
    };
    add("system:authenticated".to_owned());
    if let Some(account) = granter.principal.username.strip_prefix("system:serviceaccount:")
        && let Some((namespace, _)) = account.split_once(':')
    {
        add("system:serviceaccounts".to_owned());
        add(format!("system:serviceaccounts:{namespace}"));
    }
    groups
}

impl std::fmt::Debug for Rights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rights").finish_non_exhaustive()
    }
}

/// A ClusterRole that gives the server these rules, as YAML that is ready to apply.
fn manifest(template: &str, rules: &[PolicyRule]) -> String {
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {
            "name": format!("bindery-server-export-{template}"),
            "labels": { labels::AGGREGATE_TO_SERVER: "true" },
        },
        "rules": rules,
    });
    serde_saphyr::to_string(&role).unwrap_or_else(|_| role.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_right_by_a_group_that_kubernetes_gives_counts() {
        let groups = |name: &str, recorded: &[&str]| {
            let recorded: Vec<_> = recorded.iter().map(|group| (*group).to_owned()).collect();
            review_groups(&Granter::new(crate::principal::Principal::named(name), &recorded))
        };
        assert_eq!(groups("jane", &["riders"]), ["riders", "system:authenticated"]);
        assert_eq!(
            groups("system:serviceaccount:ranch:bot", &[]),
            [
                "system:authenticated",
                "system:serviceaccounts",
                "system:serviceaccounts:ranch"
            ]
        );
    }

    #[test]
    fn the_missing_role_can_be_pasted_and_holds_no_wildcard() {
        let rules = rbac::rules(&[GroupResource::new("wildwest.dev", "cowboys")], &["create", "list"]);
        let text = manifest("cowboys", &rules);
        let role: k8s_openapi::api::rbac::v1::ClusterRole = serde_saphyr::from_str(&text).unwrap();
        assert_eq!(role.metadata.name.as_deref(), Some("bindery-server-export-cowboys"));
        assert_eq!(role.metadata.labels.unwrap()[labels::AGGREGATE_TO_SERVER], "true");
        assert_eq!(role.rules, Some(rules));
        assert!(!text.contains('*'));
    }
}
