//! Checks the token of a stream again from time to time. Some revocations are recorded nowhere, such as the deletion of a
//! token's ServiceAccount; this check ends the stream then.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;
use tonic::Code;

use crate::front::{
    Failure, Outcome,
    auth::{Authenticators, Presented},
};

/// A token is checked again after this time, or up to half of it earlier.
const AFTER: Duration = Duration::from_mins(5);
/// A check without a result is repeated after this time, or up to half of it earlier. The time doubles with each such check.
const RETRY_AFTER: Duration = Duration::from_secs(10);
/// Longest time until a check without a result is repeated.
const RETRY_AFTER_MAX: Duration = Duration::from_mins(1);

/// The next check of a token, or the one under way.
#[derive(Debug)]
pub(super) struct Recheck {
    authenticators: Authenticators,
    token: Option<Arc<Presented>>,
    at: Instant,
    retry_after: Duration,
    /// The check in a task of its own, so that it goes on, and gives back its permit, while the stream waits for its client.
    under_way: Option<AbortOnDropHandle<Outcome<()>>>,
}

// === impl Recheck ===

impl Recheck {
    pub(super) fn new(authenticators: &Authenticators, token: Option<&Arc<Presented>>) -> Self {
        Self {
            authenticators: authenticators.clone(),
            token: token.cloned(),
            at: after(AFTER),
            retry_after: RETRY_AFTER,
            under_way: None,
        }
    }

    /// Waits until a check refuses the token. The future can be dropped and made again; a check under way goes on.
    pub(super) async fn refused(&mut self) -> Failure {
        let Some(token) = self.token.clone() else {
            return std::future::pending().await;
        };
        loop {
            if self.under_way.is_none() {
                sleep_until(self.at).await;
            }
            let check = self.under_way.get_or_insert_with(|| {
                let (authenticators, token) = (self.authenticators.clone(), Arc::clone(&token));
                let check = async move { authenticators.authenticate(&token).await.map(drop) };
                AbortOnDropHandle::new(tokio::spawn(check))
            });
            let outcome = check.await;
            self.under_way = None;
            match outcome {
                Ok(Ok(())) => {
                    self.at = after(AFTER);
                    self.retry_after = RETRY_AFTER;
                }
                Ok(Err(failure)) if failure.reason().code() == Code::Unauthenticated => return failure,
                // Without an answer, or after a panic, the token counts as neither valid nor invalid.
                Ok(Err(_)) | Err(_) => {
                    self.at = after(self.retry_after);
                    self.retry_after = (self.retry_after * 2).min(RETRY_AFTER_MAX);
                }
            }
        }
    }
}

/// A time from now of half to all of `time`, at random, so that the tokens of many streams are not checked at once.
fn after(time: Duration) -> Instant {
    Instant::now() + time.mul_f64(0.5 + rand::random::<f64>() * 0.5)
}
