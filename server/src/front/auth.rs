//! Authentication: a bearer token is parsed, and checked by the authenticator of its issuer; the result is a [`Caller`]. What the
//! caller may do is decided in [`access`](super::access).

use std::{borrow::Cow, collections::BTreeMap, fmt, sync::Arc, time::Duration};

use bindery_proto::v1alpha2::ErrorReason;
use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::{
    sync::{Semaphore, watch},
    time::timeout,
};

use crate::front::{
    Failure, Outcome,
    limits::{REVIEW_MAX, REVIEW_WAIT_MAX, REVIEWS_AGAIN_MAX, REVIEWS_MAX},
};
use crate::{oidc::IssuerUnreachable, principal::Principal};

mod bearer;
mod cached;
mod oidc;
mod token_review;

#[cfg(test)]
pub(crate) use bearer::tests as tests_support;

pub(crate) use bearer::{BoundTo, Claims, Presented};
pub(crate) use cached::Cached;
pub(crate) use oidc::IdTokenVerifier;
pub(crate) use token_review::TokenReviewer;

/// Longest name of a user or group of an issuer, in bytes, as of the author of a request made as a resource.
const NAME_LENGTH_MAX: usize = 1_024;

/// The identity that a token belongs to, as its authenticator found it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The Kubernetes username.
    pub username: String,
    /// UID of a ServiceAccount, or of a user where the provider knows one.
    pub uid: Option<String>,
    /// Groups, for SubjectAccessReviews.
    pub groups: Vec<String>,
    /// Further attributes for SubjectAccessReviews.
    pub extra: BTreeMap<String, Vec<String>>,
    /// When the token expires.
    pub expires_at: Option<Timestamp>,
    /// Issuer and subject of an ID token: who the user is, whatever the name.
    pub source: Option<(String, String)>,
}

/// The kind of a caller, which decides which methods it may call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A person or an automation that binds.
    Principal,
    /// The ServiceAccount of a contract, which its konnector uses.
    Contract {
        /// The contract namespace.
        namespace: String,
    },
}

/// A verified caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    /// The identity that the token belongs to.
    pub identity: Identity,
    /// The kind of the caller.
    pub kind: Kind,
}

/// Why a token is refused. No variant holds any part of the token.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Denial {
    /// The call has no token, or several.
    #[error("send exactly one header authorization: Bearer <token>")]
    Missing,
    /// The token is malformed, or its issuer refuses it.
    #[error("the token is not valid: {0}")]
    Invalid(Cow<'static, str>),
    /// The token has expired.
    #[error("the token has expired; get a new one")]
    Expired,
    /// The token is for another audience.
    #[error("the token is not for this server: its audience must contain {expected}")]
    Audience {
        /// The audience of this server.
        expected: String,
    },
    /// The token was issued to another client.
    #[error("the token is not for this server: {0}")]
    OtherClient(String),
    /// No authenticator is responsible for its issuer.
    #[error(
        "the token's issuer is not trusted here; log in with one that GetProvider names, or have the provider trust it"
    )]
    Issuer,
}

/// Why a token could not be checked.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CheckError {
    /// The API server refused the check.
    #[error("cannot check the token: {0}")]
    Api(#[from] kube::Error),
    /// The API server did not answer in time.
    #[error("cannot check the token: no answer")]
    Unanswered,
    /// The issuer's keys are not known.
    #[error("cannot check the token: {0}")]
    Issuer(#[from] IssuerUnreachable),
    /// Too many tokens wait for a check, so that this one got no permit in time.
    #[error("too many tokens are checked at once; try again after the delay of the RetryInfo")]
    Busy,
}

/// The result of a check: an identity or a denial. Both are cached.
pub(crate) type Verdict = Result<Identity, Denial>;

/// Checks the tokens of one or more issuers.
pub(crate) trait Authenticator: fmt::Debug + Send + Sync {
    /// Whether this authenticator is responsible for a token with these claims, which are not verified yet. The first responsible
    /// one checks the token.
    fn is_for(&self, claims: &Claims) -> bool;

    /// Refuses a token by its claims alone, before any request is made.
    fn precheck(&self, token: &Presented) -> Result<(), Denial>;

    /// Finds the identity that the token belongs to. [`Authenticators`] caches the verdict.
    fn check<'a>(&'a self, token: &'a Presented) -> BoxFuture<'a, Result<Verdict, CheckError>>;

    /// Whether its users and groups may have names that begin with `system:`, as those of the provider's own cluster do.
    fn may_name_system(&self) -> bool {
        false
    }

    /// A number that changes whenever former verdicts no longer count.
    fn generation(&self) -> u64 {
        0
    }

    /// That number as it changes; none if it never does.
    fn generations(&self) -> Option<watch::Receiver<u64>> {
        None
    }

    /// Whether a check is a request to the API server, of which only so many are made at the same time.
    fn asks_api_server(&self) -> bool {
        true
    }
}

/// All authenticators, in the order in which they are tried, with a cache of their verdicts.
#[derive(Clone, Debug)]
pub(crate) struct Authenticators {
    list: Arc<[Arc<dyn Authenticator>]>,
    cached: Cached,
    /// Permits for checks of tokens that were not valid before.
    permits: Arc<Semaphore>,
    /// Permits for checks of tokens that were valid before, so that strangers cannot keep known callers out.
    permits_of_known: Arc<Semaphore>,
}

impl Authenticators {
    /// All these authenticators, with an empty cache.
    pub(crate) fn new(list: Vec<Arc<dyn Authenticator>>) -> Self {
        Self {
            list: list.into(),
            cached: Cached::default(),
            permits: Arc::new(Semaphore::new(REVIEWS_MAX)),
            permits_of_known: Arc::new(Semaphore::new(REVIEWS_AGAIN_MAX)),
        }
    }

    /// Whether the verdict on a token is cached.
    pub(crate) fn is_known(&self, token: &Presented) -> bool {
        let generation = self.responsible(token).map(|authenticator| authenticator.generation());
        generation.is_some_and(|generation| self.cached.holds(token, generation))
    }

    /// Whether the token was valid at its last check. It may have become invalid since.
    pub(crate) fn was_good(&self, token: &Presented) -> bool {
        self.cached.was_good(token)
    }

    /// Changes when former verdicts on a token no longer count; none if they always do.
    pub(crate) fn generations(&self, token: &Presented) -> Option<watch::Receiver<u64>> {
        self.responsible(token)?.generations()
    }

    /// The identity that a token belongs to, by the cache or by a check.
    pub(crate) async fn authenticate(&self, token: &Presented) -> Outcome<Identity> {
        let authenticator = self.responsible(token).ok_or(Denial::Issuer)?;
        authenticator.precheck(token)?;
        // Read before the check, which then is by this generation or a later one.
        let generation = authenticator.generation();
        let check = || self.check(token, authenticator);
        let checked = self.cached.get(token, generation, check).await;
        let verdict = checked.map_err(|error| Failure::from(&*error))?;
        let identity = verdict?;
        if !authenticator.may_name_system() {
            std::iter::once(&identity.username)
                .chain(&identity.groups)
                .try_for_each(|name| check_name(name))?;
        }
        Ok(identity)
    }

    fn responsible(&self, token: &Presented) -> Option<&Arc<dyn Authenticator>> {
        self.list
            .iter()
            .find(|authenticator| authenticator.is_for(token.claims()))
    }

    /// Checks a token, as soon as it gets a permit if the check is a request to the API server.
    async fn check(&self, token: &Presented, by: &Arc<dyn Authenticator>) -> Result<Verdict, CheckError> {
        if !by.asks_api_server() {
            return by.check(token).await;
        }
        let permits = if self.was_good(token) {
            &self.permits_of_known
        } else {
            &self.permits
        };
        // Neither semaphore is ever closed.
        let Ok(Ok(_permit)) = timeout(REVIEW_WAIT_MAX, permits.acquire()).await else {
            return Err(CheckError::Busy);
        };
        timeout(REVIEW_MAX, by.check(token))
            .await
            .unwrap_or(Err(CheckError::Unanswered))
    }
}

impl Caller {
    /// A caller with this identity. It is of kind [`Kind::Contract`] if it is a ServiceAccount with the name of contracts'
    /// accounts in a namespace that may be a contract's, else a principal.
    pub(crate) fn new(identity: Identity, may_be_contract: impl FnOnce(&str) -> bool) -> Self {
        let contract = identity
            .username
            .strip_prefix("system:serviceaccount:")
            .and_then(|rest| rest.split_once(':'))
            .filter(|(_, name)| *name == bindery_api::names::KUBE_BINDER)
            .map(|(namespace, _)| namespace.to_owned())
            .filter(|namespace| may_be_contract(namespace));
        Self {
            identity,
            kind: contract.map_or(Kind::Principal, |namespace| Kind::Contract { namespace }),
        }
    }

    /// The username of the caller.
    pub(crate) fn username(&self) -> &str {
        &self.identity.username
    }

    /// The caller as it is recorded in annotations. It has a UID only for ServiceAccounts, for a user directory may change the UIDs
    /// of its users, and issuer and subject only for users of an ID token.
    pub(crate) fn principal(&self) -> Principal {
        let uid = self.identity.uid.clone();
        let (issuer, subject) = self.identity.source.clone().unzip();
        Principal {
            username: self.identity.username.clone(),
            uid: uid.filter(|_| self.identity.username.starts_with("system:serviceaccount:")),
            issuer,
            subject,
        }
    }

    /// The contract whose ServiceAccount the caller is.
    pub(crate) fn contract(&self) -> Option<&str> {
        match &self.kind {
            Kind::Principal => None,
            Kind::Contract { namespace } => Some(namespace),
        }
    }
}

impl Denial {
    /// The reason in the status of the call.
    pub(crate) fn reason(&self) -> ErrorReason {
        match self {
            Self::Missing => ErrorReason::TokenMissing,
            Self::Invalid(_) => ErrorReason::TokenInvalid,
            Self::Expired => ErrorReason::TokenExpired,
            Self::Audience { .. } | Self::OtherClient(_) => ErrorReason::TokenAudienceWrong,
            Self::Issuer => ErrorReason::IssuerUntrusted,
        }
    }
}

/// Refuses a name that no issuer but the provider's own cluster may give to its users and groups.
fn check_name(name: &str) -> Result<(), Denial> {
    let reason = if name.starts_with("system:") {
        "its issuer names a user or group that begins with system:, as only Kubernetes' own may; have the provider's admin set \
         a prefix"
    } else if name.len() > NAME_LENGTH_MAX || name.chars().any(char::is_control) {
        "its issuer gives a user or group a name of more than 1024 bytes, or with control characters; have the issuer's admin \
         rename it"
    } else {
        return Ok(());
    };
    Err(Denial::Invalid(reason.into()))
}

impl From<&CheckError> for Failure {
    fn from(error: &CheckError) -> Self {
        match error {
            CheckError::Api(error) => Self::of_kube("check the token", error),
            CheckError::Unanswered => Self::unanswered("check the token"),
            CheckError::Issuer(IssuerUnreachable(issuer)) => {
                Self::new(ErrorReason::IssuerUnreachable, error.to_string()).with("issuer", issuer)
            }
            // At random, so that the clients do not all retry at once.
            CheckError::Busy => Self::new(ErrorReason::Overloaded, error.to_string())
                .retry_after(Duration::from_secs(1).mul_f64(1.0 + rand::random::<f64>() * 9.0)),
        }
    }
}

impl From<Denial> for Failure {
    fn from(denial: Denial) -> Self {
        let failure = Self::new(denial.reason(), denial.to_string());
        match denial {
            Denial::Audience { expected } => failure.with("audience", expected),
            _ => failure,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures::future::join_all;

    use super::*;

    #[derive(Debug)]
    struct Always(Identity);

    impl Authenticator for Always {
        fn is_for(&self, claims: &Claims) -> bool {
            claims.issuer.as_deref() == Some("https://issuer")
        }

        fn precheck(&self, _: &Presented) -> Result<(), Denial> {
            Ok(())
        }

        fn check<'a>(&'a self, _: &'a Presented) -> BoxFuture<'a, Result<Verdict, CheckError>> {
            Box::pin(async { Ok(Ok(self.0.clone())) })
        }
    }

    /// Checks at their own pace, and how many at once at most.
    #[derive(Debug, Default)]
    struct Slow {
        now: AtomicUsize,
        most: AtomicUsize,
    }

    impl Authenticator for Slow {
        fn is_for(&self, _: &Claims) -> bool {
            true
        }

        fn precheck(&self, _: &Presented) -> Result<(), Denial> {
            Ok(())
        }

        fn check<'a>(&'a self, _: &'a Presented) -> BoxFuture<'a, Result<Verdict, CheckError>> {
            Box::pin(async {
                let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
                self.most.fetch_max(now, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_millis(900)).await;
                self.now.fetch_sub(1, Ordering::Relaxed);
                // Over when it is known, so that none is remembered and each call is a check.
                Ok(Ok(Identity {
                    expires_at: Some(Timestamp::UNIX_EPOCH),
                    ..Identity::default()
                }))
            })
        }
    }

    fn identity(username: &str, groups: &[&str]) -> Identity {
        Identity {
            username: username.to_owned(),
            groups: groups.iter().map(|group| (*group).to_owned()).collect(),
            ..Identity::default()
        }
    }

    #[track_caller]
    fn check_kind(username: &str, contract: Option<&str>) {
        let caller = Caller::new(identity(username, &[]), |namespace| namespace == "kube-bind-a");
        assert_eq!(caller.contract(), contract, "{username}");
    }

    #[test]
    fn a_contract_is_told_by_its_account_and_its_namespace() {
        check_kind("system:serviceaccount:kube-bind-a:kube-binder", Some("kube-bind-a"));
        check_kind("system:serviceaccount:kube-bind-b:kube-binder", None);
        check_kind("system:serviceaccount:kube-bind-a:default", None);
        check_kind("kube-bind-a:kube-binder", None);
        check_kind("https://issuer#system:serviceaccount:kube-bind-a:kube-binder", None);
    }

    #[tokio::test]
    async fn names_of_issuers_are_plain_and_not_kubernetes_own() {
        let long = "x".repeat(NAME_LENGTH_MAX + 1);
        for (username, groups, refused) in [
            ("https://issuer#alice", vec!["team"], false),
            ("system:admin", vec![], true),
            ("https://issuer#alice", vec!["team", "system:masters"], true),
            ("https://issuer#alice\nbob", vec![], true),
            ("https://issuer#alice", vec!["team\u{7}"], true),
            (long.as_str(), vec![], true),
            (&long[1..], vec![], false),
        ] {
            let always: Arc<dyn Authenticator> = Arc::new(Always(identity(username, &groups)));
            let token = bearer::tests::token(&serde_json::json!({"iss": "https://issuer"}));
            let outcome = Authenticators::new(vec![always]).authenticate(&token).await;
            assert_eq!(outcome.is_err(), refused, "{username} {groups:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_crowd_so_many_are_checked_at_once_and_none_waits_for_ever() {
        let slow = Arc::new(Slow::default());
        let authenticators = Authenticators::new(vec![Arc::<Slow>::clone(&slow)]);
        let tokens: Vec<_> = (0..REVIEWS_MAX * 20)
            .map(|number| bearer::tests::token(&serde_json::json!({"iss": "x", "sub": number.to_string()})))
            .collect();
        let outcomes = join_all(tokens.iter().map(|token| authenticators.authenticate(token))).await;
        assert_eq!(slow.most.load(Ordering::Relaxed), REVIEWS_MAX);
        let (well, ill): (Vec<_>, Vec<_>) = outcomes.into_iter().partition(Result::is_ok);
        // In ten seconds twelve rounds begin.
        assert_eq!(well.len(), REVIEWS_MAX * 12);
        assert!(
            ill.iter()
                .filter_map(|outcome| outcome.as_ref().err())
                .all(|failure| failure.reason() == ErrorReason::Overloaded)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn strangers_do_not_keep_out_who_was_let_in_before() {
        let slow = Arc::new(Slow::default());
        let authenticators = Authenticators::new(vec![Arc::<Slow>::clone(&slow)]);
        let token = |number: usize| bearer::tests::token(&serde_json::json!({"iss": "x", "sub": number.to_string()}));
        let known: Vec<_> = (0..REVIEWS_AGAIN_MAX * 2).map(token).collect();
        join_all(known.iter().map(|token| authenticators.authenticate(token))).await;
        let strangers: Vec<_> = (known.len()..REVIEWS_MAX * 40).map(token).collect();
        let crowd = join_all(strangers.iter().map(|token| authenticators.authenticate(token)));
        // After the crowd.
        let again = async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            join_all(known.iter().map(|token| authenticators.authenticate(token))).await
        };
        let (crowd, again) = tokio::join!(crowd, again);
        assert!(crowd.iter().any(Result::is_err), "no crowd");
        assert!(again.iter().all(Result::is_ok), "{again:?}");
        assert_eq!(slow.most.load(Ordering::Relaxed), REVIEWS_MAX + REVIEWS_AGAIN_MAX);
    }

    #[tokio::test]
    async fn a_stranger_s_token_is_for_nobody() {
        let always: Arc<dyn Authenticator> = Arc::new(Always(identity("a", &[])));
        let token = bearer::tests::token(&serde_json::json!({"iss": "https://other"}));
        let failure = Authenticators::new(vec![always])
            .authenticate(&token)
            .await
            .expect_err("a refusal");
        assert_eq!(failure.reason(), ErrorReason::IssuerUntrusted);
    }
}
