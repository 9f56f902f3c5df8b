//! A client-side limit on requests per second, as a user of a command sets it.

use std::{
    mem,
    num::NonZeroU32,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use futures::{FutureExt as _, future::BoxFuture};
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};
use tower::{Layer, Service};

/// A limit on requests per second. Requests are spread evenly: unused slots are not saved up. Clones share the limit.
#[derive(Clone, Debug)]
pub struct RateLimit(Arc<NextSlot>);

#[derive(Debug)]
struct NextSlot {
    interval: Duration,
    /// When the next request may be sent; `None` before the first.
    next: Mutex<Option<Instant>>,
}

/// Delays requests by a [`RateLimit`].
#[derive(Clone, Debug)]
pub struct RateLimited<S> {
    inner: S,
    limit: RateLimit,
}

// === impl RateLimit ===

impl RateLimit {
    /// Makes a limit of this many requests per second.
    pub fn per_second(requests: NonZeroU32) -> Self {
        Self(Arc::new(NextSlot {
            interval: Duration::from_secs(1) / requests.get(),
            next: Mutex::new(None),
        }))
    }

    /// Takes the next free slot and waits for it.
    async fn wait(&self) {
        let at = {
            let mut next = self.0.next.lock();
            let now = Instant::now();
            let at = next.map_or(now, |next| next.max(now));
            *next = Some(at + self.0.interval);
            at
        };
        sleep_until(at).await;
    }
}

impl<S> Layer<S> for RateLimit {
    type Service = RateLimited<S>;

    fn layer(&self, inner: S) -> RateLimited<S> {
        let limit = self.clone();
        RateLimited { inner, limit }
    }
}

// === impl RateLimited ===

impl<S, R> Service<R> for RateLimited<S>
where
    S: Service<R> + Clone + Send + 'static,
    S::Future: Send,
    R: Send + 'static,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<S::Response, S::Error>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: R) -> Self::Future {
        // The service that reported to be ready takes the request, not its clone.
        let next = self.inner.clone();
        let mut ready = mem::replace(&mut self.inner, next);
        let limit = self.limit.clone();
        async move {
            limit.wait().await;
            ready.call(request).await
        }
        .boxed()
    }
}

#[cfg(test)]
mod tests {
    use tower::{ServiceExt as _, service_fn};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn requests_are_spread_over_the_second() {
        let limit = RateLimit::per_second(NonZeroU32::new(10).unwrap());
        let start = Instant::now();
        let service = || {
            limit.layer(service_fn(
                move |()| async move { Ok::<_, ()>(start.elapsed().as_millis()) },
            ))
        };
        let one = futures::future::join_all((0..6).map(|_| service().oneshot(())));
        let (one, other) = futures::future::join(one, service().oneshot(())).await;
        let times: Vec<_> = one.into_iter().chain([other]).map(Result::unwrap).collect();
        for (number, time) in times.iter().enumerate() {
            let expect = 100 * number as u128;
            assert!((expect..=expect + 2).contains(time), "{times:?}");
        }
        // Slots that were not used are not saved up.
        tokio::time::sleep(Duration::from_secs(5)).await;
        let late = futures::future::join_all((0..2).map(|_| service().oneshot(()))).await;
        assert!(late[1].unwrap() - late[0].unwrap() >= 99, "{late:?}");
    }
}
