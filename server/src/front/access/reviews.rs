//! Rights of callers in the provider's own RBAC. The provider's API server decides by SubjectAccessReviews, and its answers are
//! cached briefly.

use std::{fmt, sync::Arc, time::Duration};

use k8s_openapi::api::authorization::v1::{ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec};
use kube::{Api, Client, api::PostParams};
use moka::{Expiry, future::Cache};
use sha2::{Digest as _, Sha256};
use tokio::time::timeout;

use crate::front::{Failure, Outcome, auth::Identity, limits::REVIEW_MAX};

const ALLOWED_FOR: Duration = Duration::from_secs(10);
/// Short, so that a caller who was just granted the right can use it.
const DENIED_FOR: Duration = Duration::from_secs(1);
const ENTRIES_MAX: u64 = 50_000;

/// Asks the API server what callers may do. Clones share one cache.
#[derive(Clone)]
pub(crate) struct Reviews {
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

impl Reviews {
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

    /// What lets a caller do this; none if the caller may not. `doing` completes "cannot …" in errors.
    pub(super) async fn grant(
        &self,
        identity: &Identity,
        attributes: ResourceAttributes,
        doing: &str,
    ) -> Outcome<Option<Grant>> {
        let question = review(identity, attributes);
        let key = digest(&question);
        let ask = async {
            let answer = self.api.create(&PostParams::default(), &question).await?;
            Ok::<_, kube::Error>(grant_of(answer))
        };
        match timeout(REVIEW_MAX, self.answers.try_get_with(key, ask)).await {
            Ok(answer) => answer.map_err(|error: Arc<kube::Error>| Failure::of_kube(doing, &error)),
            Err(_) => Err(Failure::unanswered(doing)),
        }
    }
}

impl fmt::Debug for Reviews {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Reviews")
    }
}

fn review(identity: &Identity, attributes: ResourceAttributes) -> SubjectAccessReview {
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: Some(identity.username.clone()),
            uid: identity.uid.clone(),
            groups: Some(identity.groups.clone()),
            extra: Some(identity.extra.clone()),
            resource_attributes: Some(attributes),
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
        let named = |name: Option<&str>, verb: &str| ResourceAttributes {
            name: name.map(ToOwned::to_owned),
            verb: Some(verb.to_owned()),
            ..ResourceAttributes::default()
        };
        let questions = [
            review(&identity("alice", &[]), named(None, "bind")),
            review(&identity("alice", &[]), named(None, "get")),
            review(&identity("alice", &[]), named(Some("cowboys"), "bind")),
            review(&identity("alice", &[]), named(Some("sheriffs"), "bind")),
            review(&identity("alice", &["a", "b"]), named(Some("cowboys"), "bind")),
            review(&identity("alice", &["ab"]), named(Some("cowboys"), "bind")),
            review(&identity("alic", &["ea", "b"]), named(Some("cowboys"), "bind")),
        ];
        let keys: HashSet<_> = questions.iter().map(digest).collect();
        assert_eq!(keys.len(), questions.len());
    }
}
