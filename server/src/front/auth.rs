//! Who calls. A bearer token is read, sorted to the one authenticator that is responsible for its issuer, and checked
//! there; what comes out is a caller. Nothing here decides what a caller may do.

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use bindery_proto::v1alpha2::ErrorReason;
use futures::future::BoxFuture;
use jiff::Timestamp;
use tokio::{sync::Semaphore, time::timeout};

use super::{
    error::{Failure, Outcome},
    limits::{REVIEW_MAX, REVIEW_WAIT_MAX, REVIEWS_AGAIN_MAX, REVIEWS_MAX},
};
use crate::principal::Principal;

mod bearer;
mod cached;
mod token_review;

#[cfg(test)]
pub(super) use bearer::tests as tests_support;

pub use bearer::{BoundTo, Claims, Presented};
pub use cached::Cached;
pub use token_review::TokenReviewer;

/// Whom a token belongs to, as its authenticator found it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// The Kubernetes username, or `<issuer>#<subject>`.
    pub username: String,
    /// UID of a ServiceAccount, or of a user where the provider knows one.
    pub uid: Option<String>,
    /// Groups, for SubjectAccessReviews.
    pub groups: Vec<String>,
    /// What else the provider's authorizers may look at.
    pub extra: BTreeMap<String, Vec<String>>,
    /// When the token ceases to be valid.
    pub expires_at: Option<Timestamp>,
}

/// What a caller is to this server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A person or an automation.
    Principal,
    /// The ServiceAccount of one contract: the agent that was bound by it.
    Contract {
        /// The contract namespace.
        namespace: String,
    },
}

/// A verified caller.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Caller {
    /// Whom the token belongs to.
    pub identity: Identity,
    /// What it is to this server.
    pub kind: Kind,
}

/// Why a token is refused. No variant carries any of it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Denial {
    /// There is none, or more than one.
    #[error("send exactly one header authorization: Bearer <token>")]
    Missing,
    /// It does not hold.
    #[error("the token is not valid: {0}")]
    Invalid(&'static str),
    /// Its time is over.
    #[error("the token has expired; get a new one")]
    Expired,
    /// It is for somebody else.
    #[error("the token is not for this server: its audience must contain {expected}")]
    Audience {
        /// The audience of this server.
        expected: String,
    },
    /// Nobody here vouches for its issuer.
    #[error("the token's issuer is not trusted here")]
    Issuer,
}

/// That a token could not be checked at all.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The API server did not check it.
    #[error("cannot check the token: {0}")]
    Api(#[from] kube::Error),
    /// The API server was silent.
    #[error("cannot check the token: no answer")]
    Unanswered,
    /// So many tokens are to be checked that this one's turn did not come.
    #[error("too many tokens are to be checked at once; come back a little later")]
    Crowded,
}

/// What a check comes to: an identity or a denial, both worth remembering.
pub type Verdict = Result<Identity, Denial>;

/// Checks the tokens of some issuers.
pub trait Authenticator: fmt::Debug + Send + Sync {
    /// Whether this one, and no later one, is responsible for a token with these claims, which nobody has verified yet.
    fn is_for(&self, claims: &Claims) -> bool;

    /// Refuses what needs no asking. Runs before every check.
    fn precheck(&self, token: &Presented) -> Result<(), Denial>;

    /// Asks who the token belongs to. Its answers are cached by [`Authenticators`].
    fn check<'a>(&'a self, token: &'a Presented) -> BoxFuture<'a, Result<Verdict, CheckError>>;

    /// Whether names and groups that begin with `system:` may come from here: from the provider's own cluster alone.
    fn may_name_system(&self) -> bool {
        false
    }
}

/// All authenticators, in the order in which they are asked whether a token is theirs.
#[derive(Clone, Debug)]
pub struct Authenticators {
    list: Arc<[Arc<dyn Authenticator>]>,
    cached: Cached,
    /// Where tokens are checked that may be anybody's.
    places: Arc<Semaphore>,
    /// Where those are that were good before: no crowd of strangers keeps out who was let in.
    again: Arc<Semaphore>,
}

impl Authenticators {
    /// A list of authenticators, with a cache of their verdicts.
    pub fn new(list: Vec<Arc<dyn Authenticator>>) -> Self {
        Self {
            list: list.into(),
            cached: Cached::default(),
            places: Arc::new(Semaphore::new(REVIEWS_MAX)),
            again: Arc::new(Semaphore::new(REVIEWS_AGAIN_MAX)),
        }
    }

    /// Whether the verdict on a token is at hand, so that asking costs nothing.
    pub fn is_known(&self, token: &Presented) -> bool {
        self.cached.holds(token)
    }

    /// Whether the token was good when it was checked last, which says nothing of what it is now.
    pub fn was_good(&self, token: &Presented) -> bool {
        self.cached.was_good(token)
    }

    /// Whom a token belongs to.
    pub async fn authenticate(&self, token: &Presented) -> Outcome<Identity> {
        let authenticator = self
            .list
            .iter()
            .find(|authenticator| authenticator.is_for(token.claims()))
            .ok_or(Denial::Issuer)?;
        authenticator.precheck(token)?;
        let checked = self.cached.get(token, || self.check(token, authenticator)).await;
        let verdict = checked.map_err(|error| Failure::from(&*error))?;
        let identity = verdict?;
        let system = |name: &String| name.starts_with("system:");
        if !authenticator.may_name_system() && (system(&identity.username) || identity.groups.iter().any(system)) {
            return Err(Denial::Invalid("its issuer names a user or group of Kubernetes itself").into());
        }
        Ok(identity)
    }

    /// Has a token checked, one of so many at a time.
    async fn check(&self, token: &Presented, by: &Arc<dyn Authenticator>) -> Result<Verdict, CheckError> {
        let places = if self.was_good(token) {
            &self.again
        } else {
            &self.places
        };
        // Nobody ever closes them.
        let Ok(Ok(_place)) = timeout(REVIEW_WAIT_MAX, places.acquire()).await else {
            return Err(CheckError::Crowded);
        };
        timeout(REVIEW_MAX, by.check(token))
            .await
            .unwrap_or(Err(CheckError::Unanswered))
    }
}

impl Caller {
    /// What the identity is to this server. A contract's ServiceAccount is told by its name and by its namespace, where
    /// that may be a contract's: the same name in another namespace is a principal like any other.
    pub fn new(identity: Identity, may_be_contract: impl FnOnce(&str) -> bool) -> Self {
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

    /// The name of the caller.
    pub fn username(&self) -> &str {
        &self.identity.username
    }

    /// The caller as it is recorded in annotations. A UID is kept for ServiceAccounts alone: a user directory may
    /// change those of its users.
    pub fn principal(&self) -> Principal {
        let uid = self.identity.uid.clone();
        Principal {
            username: self.identity.username.clone(),
            uid: uid.filter(|_| self.identity.username.starts_with("system:serviceaccount:")),
        }
    }

    /// The contract that this caller is the ServiceAccount of.
    pub fn contract(&self) -> Option<&str> {
        match &self.kind {
            Kind::Principal => None,
            Kind::Contract { namespace } => Some(namespace),
        }
    }
}

impl Denial {
    /// The reason that the caller is told.
    pub fn reason(&self) -> ErrorReason {
        match self {
            Self::Missing => ErrorReason::TokenMissing,
            Self::Invalid(_) => ErrorReason::TokenInvalid,
            Self::Expired => ErrorReason::TokenExpired,
            Self::Audience { .. } => ErrorReason::TokenAudienceWrong,
            Self::Issuer => ErrorReason::IssuerUntrusted,
        }
    }
}

impl From<&CheckError> for Failure {
    fn from(error: &CheckError) -> Self {
        match error {
            CheckError::Api(error) => Self::of_kube("check the token", error),
            CheckError::Unanswered => Self::unanswered("check the token"),
            // Spread, so that those who come back do not come at once.
            CheckError::Crowded => Self::new(ErrorReason::Overloaded, error.to_string())
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
    async fn kubernetes_own_names_come_from_kubernetes_alone() {
        for (username, groups, refused) in [
            ("https://issuer#alice", vec!["team"], false),
            ("system:admin", vec![], true),
            ("https://issuer#alice", vec!["team", "system:masters"], true),
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
