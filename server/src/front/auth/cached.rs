//! Verdicts, remembered for a moment: a busy caller costs one check, not one a call, and a thousand calls at once with
//! one token cost one check as well.

use std::{fmt, sync::Arc, time::Duration};

use jiff::Timestamp;
use moka::{Expiry, future::Cache};

use super::{Authenticator, CheckError, Presented, Verdict};

/// A revoked token is refused after this time at the latest.
const GOOD_FOR: Duration = Duration::from_secs(10);
/// A token that was refused may be good a moment later, such as when its ServiceAccount was just made.
const BAD_FOR: Duration = Duration::from_secs(2);
const ENTRIES_MAX: u64 = 20_000;

/// The cache. Clones are the same one.
#[derive(Clone)]
pub struct Cached {
    verdicts: Cache<[u8; 32], Arc<Verdict>>,
}

struct Lifetime;

impl Expiry<[u8; 32], Arc<Verdict>> for Lifetime {
    fn expire_after_create(&self, _: &[u8; 32], verdict: &Arc<Verdict>, _: std::time::Instant) -> Option<Duration> {
        Some(lifetime(verdict, Timestamp::now()))
    }
}

/// How long a verdict counts, which is never longer than the token.
fn lifetime(verdict: &Verdict, now: Timestamp) -> Duration {
    match verdict {
        Err(_) => BAD_FOR,
        Ok(identity) => identity.expires_at.map_or(GOOD_FOR, |end| {
            Duration::try_from(end.duration_since(now))
                .unwrap_or(Duration::ZERO)
                .min(GOOD_FOR)
        }),
    }
}

impl Default for Cached {
    fn default() -> Self {
        Self {
            verdicts: Cache::builder()
                .max_capacity(ENTRIES_MAX)
                .expire_after(Lifetime)
                .build(),
        }
    }
}

impl Cached {
    pub(super) fn holds(&self, token: &Presented) -> bool {
        self.verdicts.contains_key(&token.digest())
    }

    /// The verdict at hand, or a new one. What could not be checked is not remembered.
    pub(super) async fn get(
        &self,
        token: &Presented,
        authenticator: &Arc<dyn Authenticator>,
    ) -> Result<Verdict, Arc<CheckError>> {
        let check = async { authenticator.check(token).await.map(Arc::new) };
        let verdict = self.verdicts.try_get_with(token.digest(), check).await?;
        Ok(verdict.as_ref().clone())
    }
}

impl fmt::Debug for Cached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cached")
            .field("entries", &self.verdicts.entry_count())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures::future::{BoxFuture, join_all};
    use serde_json::json;

    use super::*;
    use crate::front::auth::{Claims, Denial, Identity, bearer::tests::token};

    #[derive(Debug, Default)]
    struct Counting(AtomicU32);

    impl Authenticator for Counting {
        fn is_for(&self, _: &Claims) -> bool {
            true
        }

        fn precheck(&self, _: &Presented) -> Result<(), Denial> {
            Ok(())
        }

        fn check<'a>(&'a self, _: &'a Presented) -> BoxFuture<'a, Result<Verdict, CheckError>> {
            Box::pin(async {
                self.0.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
                Ok(Ok(Identity::default()))
            })
        }
    }

    #[tokio::test]
    async fn calls_at_once_with_one_token_are_one_check() {
        let counting = Arc::new(Counting::default());
        let authenticator: Arc<dyn Authenticator> = Arc::<Counting>::clone(&counting);
        let (one, other) = (token(&json!({"sub": "one"})), token(&json!({"sub": "other"})));
        let cached = Cached::default();
        join_all((0..50).map(|_| cached.get(&one, &authenticator))).await;
        assert_eq!(counting.0.load(Ordering::Relaxed), 1);
        assert!(cached.holds(&one) && !cached.holds(&other));
        cached
            .get(&other, &authenticator)
            .await
            .expect("a check")
            .expect("an identity");
        assert_eq!(counting.0.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn a_verdict_never_outlives_its_token() {
        let now = Timestamp::UNIX_EPOCH;
        let until = |seconds: i64| {
            Ok(Identity {
                expires_at: Some(Timestamp::from_second(seconds).expect("a time")),
                ..Identity::default()
            })
        };
        assert_eq!(lifetime(&until(3600), now), GOOD_FOR);
        assert_eq!(lifetime(&until(3), now), Duration::from_secs(3));
        assert_eq!(lifetime(&until(-3), now), Duration::ZERO);
        assert_eq!(lifetime(&Ok(Identity::default()), now), GOOD_FOR);
        assert_eq!(lifetime(&Err(Denial::Expired), now), BAD_FOR);
    }
}
