//! Whether the server holds what it is to hand out, and what to apply where it does not.

use std::{sync::Arc, time::Duration};

use bindery_api::{
    annotations, labels,
    v1alpha2::{APIServiceExport, GroupResource},
};
use bindery_runtime::errors;
use futures::future::try_join_all;
use k8s_openapi::api::{
    authorization::v1::{ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec},
    rbac::v1::PolicyRule,
};
use kube::{Api, Client, ResourceExt as _, api::PostParams};
use serde_json::json;

use crate::{
    rbac,
    template::{ExportPlan, Refusal},
    writes::WriteError,
};

/// How long an answer is good. Rights change by an admin's hand.
const ANSWER_LIFETIME: Duration = Duration::from_secs(30);
const ANSWERS_MAX: u64 = 10_000;

/// What the server may do with a resource, asked of the API server and remembered for a moment.
#[derive(Clone)]
pub struct Rights {
    client: Client,
    /// The verbs that are missing, by resource.
    answers: moka::future::Cache<GroupResource, Arc<Vec<&'static str>>>,
}

/// Why a plan's rights cannot be handed out.
#[derive(Debug, thiserror::Error)]
pub enum RightsError {
    /// The server lacks some.
    #[error(transparent)]
    Lacking(Refusal),
    /// The API server could not be asked.
    #[error("cannot ask the API server for this server's rights: {}", errors::explain(.0))]
    Api(Arc<kube::Error>),
}

// === impl Rights ===

impl Rights {
    /// Nothing asked yet.
    pub fn new(client: Client) -> Self {
        let answers = moka::future::Cache::builder();
        Self {
            client,
            answers: answers.max_capacity(ANSWERS_MAX).time_to_live(ANSWER_LIFETIME).build(),
        }
    }

    /// Refuses a plan that needs more than the server holds.
    pub async fn check(&self, plan: &ExportPlan) -> Result<(), RightsError> {
        let resources: Vec<_> = plan.resources().collect();
        self.check_resources(&plan.template, &resources).await
    }

    /// Refuses resources of a template on which the server holds less than it is to hand out.
    async fn check_resources(&self, template: &str, resources: &[&GroupResource]) -> Result<(), RightsError> {
        let mut rules = Vec::new();
        for &resource in resources {
            let missing = self.missing(resource).await?;
            if !missing.is_empty() {
                // Whoever mends it is not to wait for an old answer.
                self.answers.invalidate(resource).await;
                rules.extend(rbac::rules(std::slice::from_ref(resource), &missing));
            }
        }
        if rules.is_empty() {
            return Ok(());
        }
        Err(RightsError::Lacking(Refusal::ServerLacksRights {
            manifest: manifest(template, &rules),
        }))
    }

    /// What the server lacks to give an export its rights, or to look after its objects; `None` if nothing.
    pub async fn lacking(&self, export: &APIServiceExport) -> Result<Option<Refusal>, WriteError> {
        let template = export
            .annotations()
            .get(annotations::TEMPLATE)
            .map_or("", String::as_str);
        let resources = export.spec.resources.iter();
        let resources: Vec<_> = resources.map(|resource| &resource.group_resource).collect();
        match self.check_resources(template, &resources).await {
            Ok(()) => Ok(None),
            Err(RightsError::Lacking(refusal)) => Ok(Some(refusal)),
            Err(RightsError::Api(error)) => Err(WriteError::Unasked(error)),
        }
    }

    /// Forgets all answers, as when the server's role has changed.
    pub fn forget(&self) {
        self.answers.invalidate_all();
    }

    async fn missing(&self, resource: &GroupResource) -> Result<Arc<Vec<&'static str>>, RightsError> {
        let asked = self.answers.try_get_with_by_ref(resource, async {
            let verbs = rbac::WRITE_VERBS.iter().map(|verb| self.may(verb, resource));
            let allowed = try_join_all(verbs).await?;
            let missing = rbac::WRITE_VERBS.iter().zip(allowed);
            let missing = missing.filter(|(_, allowed)| !allowed).map(|(verb, _)| *verb);
            Ok::<_, kube::Error>(Arc::new(missing.collect::<Vec<_>>()))
        });
        asked.await.map_err(RightsError::Api)
    }

    async fn may(&self, verb: &str, resource: &GroupResource) -> Result<bool, kube::Error> {
        let review = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(ResourceAttributes {
                    group: Some(resource.group.clone()),
                    resource: Some(resource.resource.clone()),
                    verb: Some(verb.to_owned()),
                    ..ResourceAttributes::default()
                }),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        let api: Api<SelfSubjectAccessReview> = Api::all(self.client.clone());
        let answer = api.create(&PostParams::default(), &review).await?;
        Ok(answer.status.is_some_and(|status| status.allowed))
    }
}

impl std::fmt::Debug for Rights {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Rights").finish_non_exhaustive()
    }
}

/// A ClusterRole that gives the server the rules, ready to apply. JSON is YAML, and reads well enough in one line per
/// rule.
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
