//! The token of a stream, checked again now and then. One that was revoked in ways that nobody records ends its stream here.

use std::{sync::Arc, time::Duration};

use tokio::time::{Instant, sleep_until};
use tokio_util::task::AbortOnDropHandle;
use tonic::Code;

use crate::front::{
    auth::{Authenticators, Presented},
    error::{Failure, Outcome},
};

/// A token is checked again after this time; half of it at the earliest.
const AFTER: Duration = Duration::from_mins(5);
/// A check that came to nothing is made again after this time, or half of it; after twice the time where that fails too,
/// and so on.
const AGAIN_AFTER: Duration = Duration::from_secs(10);
const AGAIN_AFTER_MAX: Duration = Duration::from_mins(1);

/// When the token is checked, and the check.
#[derive(Debug)]
pub(super) struct Recheck {
    authenticators: Authenticators,
    token: Option<Arc<Presented>>,
    at: Instant,
    again_after: Duration,
    /// A task of its own: while the stream waits for its client, the check does not keep others waiting.
    under_way: Option<AbortOnDropHandle<Outcome<()>>>,
}

// === impl Recheck ===

impl Recheck {
    pub(super) fn new(authenticators: &Authenticators, token: Option<&Arc<Presented>>) -> Self {
        Self {
            authenticators: authenticators.clone(),
            token: token.cloned(),
            at: after(AFTER),
            again_after: AGAIN_AFTER,
            under_way: None,
        }
    }

    /// Waits until the token is refused. May be dropped and called again: a check goes on meanwhile.
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
                    self.again_after = AGAIN_AFTER;
                }
                Ok(Err(failure)) if failure.reason().code() == Code::Unauthenticated => return failure,
                // Nobody answered, or the check panicked: the token is neither good nor bad.
                Ok(Err(_)) | Err(_) => {
                    self.at = after(self.again_after);
                    self.again_after = (self.again_after * 2).min(AGAIN_AFTER_MAX);
                }
            }
        }
    }
}

/// Spread, so that the tokens of a thousand streams are not checked at once.
fn after(time: Duration) -> Instant {
    Instant::now() + time.mul_f64(0.5 + rand::random::<f64>() * 0.5)
}
