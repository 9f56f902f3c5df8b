//! Access to templates: which ones a caller may bind. The provider's API server decides, and its answers are cached briefly.

use std::{fmt, sync::Arc, time::Duration};

use bindery_api::{names::TemplateName, v1alpha2::GROUP};
use bindery_proto::v1alpha2::ErrorReason;
use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::{Api, Client, api::PostParams};
use moka::{Expiry, future::Cache};
use sha2::{Digest as _, Sha256};
use tokio::time::timeout;

use crate::front::{
    Failure, Outcome,
    auth::{Caller, Identity},
    limits::REVIEW_MAX,
};

const ALLOWED_FOR: Duration = Duration::from_secs(10);
/// Short, so that a caller who was just granted the right can use it.
const DENIED_FOR: Duration = Duration::from_secs(1);
const ENTRIES_MAX: u64 = 50_000;

/// Asks the API server whether callers may `bind` templates. Clones share one cache.
#[derive(Clone)]
pub(crate) struct TemplateAccess {
    api: Api<SubjectAccessReview>,
    answers: Cache<[u8; 32], Option<Grant>>,
}

/// What gives a caller a right, in the words of the API server's authorizer; empty if it gives no reason.
pub(crate) type Grant = Arc<str>;

struct Lifetime;

impl Expiry<[u8; 32], Option<Grant>> for Lifetime {
    fn expire_after_create(&self, _: &[u8; 32], grant: &Option<Grant>, _: std::time::Instant) -> Option<Duration> {
        Some(if grant.is_some() { ALLOWED_FOR } else { DENIED_FOR })
    }
}

impl TemplateAccess {
    /// Asks by SubjectAccessReviews with this client.
    pub(crate) fn new(client: Client) -> Self {
        Self {
            api: Api::all(client),
            answers: Cache::builder()
                .max_capacity(ENTRIES_MAX)
                .expire_after(Lifetime)
                .build(),
        }
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
        if let Some(grant) = self.grant(caller, template).await? {
            return Ok(grant);
        }
        let message = format!(
            "{} may not bind template {template}, or it does not exist; the provider's admin grants verb bind on \
             apiserviceexporttemplates.kube-bind.io",
            caller.username(),
        );
        Err(Failure::new(ErrorReason::TemplateBindDenied, message).with("template", &**template))
    }

    async fn ask(&self, caller: &Caller, template: Option<&str>) -> Outcome<Option<Grant>> {
        let question = review(&caller.identity, template);
        let key = digest(&question);
        let ask = async {
            let answer = self.api.create(&PostParams::default(), &question).await?;
            Ok::<_, kube::Error>(grant_of(answer))
        };
        match timeout(REVIEW_MAX, self.answers.try_get_with(key, ask)).await {
            Ok(answer) => {
                answer.map_err(|error: Arc<kube::Error>| Failure::of_kube("review the right to bind", &error))
            }
            Err(_) => Err(Failure::unanswered("review the right to bind")),
        }
    }
}

impl fmt::Debug for TemplateAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TemplateAccess")
    }
}

fn review(identity: &Identity, template: Option<&str>) -> SubjectAccessReview {
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(identity.username.clone()),
            uid: identity.uid.clone(),
            groups: Some(identity.groups.clone()),
            extra: Some(identity.extra.clone()),
            resource_attributes: Some(ResourceAttributes {
                group: Some(GROUP.to_owned()),
                resource: Some("apiserviceexporttemplates".to_owned()),
                verb: Some("bind".to_owned()),
                name: template.map(ToOwned::to_owned),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}

/// The reason of the authorizer, if it allowed what was asked.
fn grant_of(answer: SubjectAccessReview) -> Option<Grant> {
    let status = answer.status?;
    let allowed = status.allowed && status.denied != Some(true);
    allowed.then(|| status.reason.unwrap_or_default().into())
}

/// The cache key of a review: a hash of its whole spec.
fn digest(question: &SubjectAccessReview) -> [u8; 32] {
    Sha256::digest(serde_json::to_vec(&question.spec).unwrap_or_default()).into()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use k8s_openapi::api::authorization::v1::SubjectAccessReviewStatus;

    use super::*;

    #[test]
    fn the_authorizer_says_what_grants_a_right() {
        let check = |status: Option<SubjectAccessReviewStatus>, expect: Option<&str>| {
            let answer = SubjectAccessReview {
                status,
                ..SubjectAccessReview::default()
            };
            assert_eq!(grant_of(answer).as_deref(), expect);
        };
        let status = |allowed, denied, reason: Option<&str>| {
            Some(SubjectAccessReviewStatus {
                allowed,
                denied,
                reason: reason.map(str::to_owned),
                ..SubjectAccessReviewStatus::default()
            })
        };
        check(
            status(true, None, Some("RBAC: allowed by x")),
            Some("RBAC: allowed by x"),
        );
        check(status(true, None, None), Some(""));
        check(status(true, Some(true), Some("allowed, then denied")), None);
        check(status(false, None, Some("nothing allows it")), None);
        check(None, None);
    }

    #[test]
    fn no_two_reviews_share_a_cache_key() {
        let identity = |username: &str, groups: &[&str]| Identity {
            username: username.to_owned(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            ..Identity::default()
        };
        let questions = [
            review(&identity("alice", &[]), None),
            review(&identity("alice", &[]), Some("cowboys")),
            review(&identity("alice", &[]), Some("sheriffs")),
            review(&identity("alice", &["a", "b"]), Some("cowboys")),
            review(&identity("alice", &["ab"]), Some("cowboys")),
            review(&identity("alic", &["ea", "b"]), Some("cowboys")),
        ];
        let keys: HashSet<_> = questions.iter().map(digest).collect();
        assert_eq!(keys.len(), questions.len());
    }
}
