//! Checks the token of a stream again from time to time, and when the configuration of its issuer was replaced. Some revocations
//! are recorded nowhere, such as the deletion of a token's ServiceAccount; this check ends the stream then. A stream also ends
//! where the token now belongs to another user or to other groups: the client opens the next one as that.

use std::{sync::Arc, time::Duration};

use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};
use tokio_util::task::AbortOnDropHandle;
use tonic::Code;

use crate::front::{
    Outcome,
    auth::{Authenticators, Identity, Presented},
    transport::interceptor::Call,
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
    checked: Option<(Arc<Presented>, Identity)>,
    /// Changes when former verdicts on the token no longer count.
    generations: Option<watch::Receiver<u64>>,
    at: Instant,
    retry_after: Duration,
    /// The check in a task of its own, so that it goes on, and gives back its permit, while the stream waits for its client.
    under_way: Option<AbortOnDropHandle<Outcome<Identity>>>,
}

// === impl Recheck ===

impl Recheck {
    pub(super) fn new(authenticators: &Authenticators, call: &Call) -> Self {
        let checked = call.token().cloned().zip(call.caller().ok());
        let checked = checked.map(|(token, caller)| (token, caller.identity.clone()));
        let mut generations = checked
            .as_ref()
            .and_then(|(token, _)| authenticators.generations(token));
        // The configuration may have been replaced since the call was admitted.
        if let Some(generations) = &mut generations {
            generations.mark_changed();
        }
        Self {
            authenticators: authenticators.clone(),
            checked,
            generations,
            at: after(AFTER),
            retry_after: RETRY_AFTER,
            under_way: None,
        }
    }

    /// Waits until a check ends the stream: with the refusal of the token, or in good order where the token is another's now. The
    /// future can be dropped and made again; a check under way goes on.
    pub(super) async fn end(&mut self) -> Outcome<()> {
        let Some((token, identity)) = self.checked.clone() else {
            return std::future::pending().await;
        };
        loop {
            if self.under_way.is_none() {
                tokio::select! {
                    () = sleep_until(self.at) => {}
                    () = changed(self.generations.as_mut()) => {}
                }
            }
            let check = self.under_way.get_or_insert_with(|| {
                let (authenticators, token) = (self.authenticators.clone(), Arc::clone(&token));
                let check = async move { authenticators.authenticate(&token).await };
                AbortOnDropHandle::new(tokio::spawn(check))
            });
            let outcome = check.await;
            self.under_way = None;
            match outcome {
                Ok(Ok(now)) if !is_same(&now, &identity) => return Ok(()),
                Ok(Ok(_)) => {
                    self.at = after(AFTER);
                    self.retry_after = RETRY_AFTER;
                }
                Ok(Err(failure)) if failure.reason().code() == Code::Unauthenticated => return Err(failure),
                // Without an answer, or after a panic, the token counts as neither valid nor invalid.
                Ok(Err(_)) | Err(_) => {
                    self.at = after(self.retry_after);
                    self.retry_after = (self.retry_after * 2).min(RETRY_AFTER_MAX);
                }
            }
        }
    }
}

/// Waits until the generation changes; for ever where there are none.
async fn changed(generations: Option<&mut watch::Receiver<u64>>) {
    let changed = match generations {
        Some(generations) => generations.changed().await.is_ok(),
        None => false,
    };
    if !changed {
        std::future::pending::<()>().await;
    }
}

/// Whether two checks of one token found the same user with the same groups. What an API server adds beside may differ.
fn is_same(one: &Identity, other: &Identity) -> bool {
    one.username == other.username && one.uid == other.uid && one.source == other.source && one.groups == other.groups
}

/// A time from now of half to all of `time`, at random, so that the tokens of many streams are not checked at once.
fn after(time: Duration) -> Instant {
    Instant::now() + time.mul_f64(0.5 + rand::random::<f64>() * 0.5)
}
