//! A cache of verdicts: a caller costs one check per few seconds, however many calls it makes, also at the same time.

use std::{fmt, sync::Arc, time::Duration};

use jiff::Timestamp;
use moka::{Expiry, future::Cache};

use crate::front::auth::{CheckError, Presented, Verdict};

/// How long a token counts as valid after a check, and so the time until a revoked token is refused.
const GOOD_FOR: Duration = Duration::from_secs(10);
/// How long a token counts as invalid after a check. Short, for its ServiceAccount may just have been made.
const BAD_FOR: Duration = Duration::from_secs(2);
/// How long a token that was valid counts as known.
const KNOWN_FOR: Duration = Duration::from_hours(1);
const ENTRIES_MAX: u64 = 20_000;

/// The cache of verdicts. Clones share it.
#[derive(Clone)]
pub(crate) struct Cached {
    verdicts: Cache<Key, Arc<Verdict>>,
    /// Tokens that were valid at their last check. They may have become invalid since.
    good: Cache<[u8; 32], ()>,
}

/// A token, and the generation of the authenticator that checked it.
type Key = ([u8; 32], u64);

struct Lifetime;

impl Expiry<Key, Arc<Verdict>> for Lifetime {
    fn expire_after_create(&self, _: &Key, verdict: &Arc<Verdict>, _: std::time::Instant) -> Option<Duration> {
        Some(lifetime(verdict, Timestamp::now()))
    }
}

/// How long a verdict is cached, which is never longer than the token is valid.
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
            good: Cache::builder()
                .max_capacity(ENTRIES_MAX)
                .time_to_live(KNOWN_FOR)
                .build(),
        }
    }
}

impl Cached {
    pub(super) fn holds(&self, token: &Presented, generation: u64) -> bool {
        self.verdicts.contains_key(&(token.digest(), generation))
    }

    /// Whether the token was valid at its last check.
    pub(super) fn was_good(&self, token: &Presented) -> bool {
        self.good.contains_key(&token.digest())
    }

    /// The cached verdict, or that of a new check. The failure of a check is not cached.
    pub(super) async fn get<C>(
        &self,
        token: &Presented,
        generation: u64,
        check: impl FnOnce() -> C,
    ) -> Result<Verdict, Arc<CheckError>>
    where
        C: Future<Output = Result<Verdict, CheckError>>,
    {
        let digest = token.digest();
        let check = async {
            let verdict = check().await?;
            match &verdict {
                Ok(_) => self.good.insert(digest, ()).await,
                Err(_) => self.good.invalidate(&digest).await,
            }
            Ok(Arc::new(verdict))
        };
        let verdict = self.verdicts.try_get_with((digest, generation), check).await?;
        Ok(verdict.as_ref().clone())
    }
}

impl fmt::Debug for Cached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cached")
            .field("entries", &self.verdicts.entry_count())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use futures::future::join_all;
    use serde_json::json;

    use super::*;
    use crate::front::auth::{Denial, Identity, bearer::tests::token};

    #[tokio::test]
    async fn calls_at_once_with_one_token_are_one_check() {
        let checks = AtomicU32::new(0);
        let check = || async {
            checks.fetch_add(1, Ordering::Relaxed);
            tokio::task::yield_now().await;
            Ok(Ok(Identity::default()))
        };
        let (one, other) = (token(&json!({"sub": "one"})), token(&json!({"sub": "other"})));
        let cached = Cached::default();
        join_all((0..50).map(|_| cached.get(&one, 0, check))).await;
        assert_eq!(checks.load(Ordering::Relaxed), 1);
        assert!(cached.holds(&one, 0) && !cached.holds(&other, 0));
        cached
            .get(&other, 0, check)
            .await
            .expect("a check")
            .expect("an identity");
        assert_eq!(checks.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn what_was_good_is_known_until_it_is_refused() {
        let cached = Cached::default();
        let one = token(&json!({"sub": "one"}));
        let checked = async |outcome: Result<Verdict, CheckError>| {
            let _ = cached.get(&one, 0, || async { outcome }).await;
            (cached.holds(&one, 0), cached.was_good(&one))
        };
        // Expired in our clock's eyes, so that each is checked anew.
        let good = || {
            Ok(Identity {
                expires_at: Some(Timestamp::UNIX_EPOCH),
                ..Identity::default()
            })
        };
        assert_eq!(checked(Err(CheckError::Unanswered)).await, (false, false));
        assert_eq!(checked(Ok(good())).await, (false, true));
        assert_eq!(checked(Err(CheckError::Busy)).await, (false, true));
        assert_eq!(checked(Ok(Err(Denial::Expired))).await, (true, false));
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
