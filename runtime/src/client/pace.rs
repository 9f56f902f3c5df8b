//! No more requests in a second than a person wants there to be.

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

/// So many requests in a second, evenly spread. Clones share the count.
#[derive(Clone, Debug)]
pub struct Pace(Arc<State>);

#[derive(Debug)]
struct State {
    interval: Duration,
    /// When the next request may go.
    next: Mutex<Option<Instant>>,
}

/// Delays requests as a [`Pace`] says.
#[derive(Clone, Debug)]
pub struct Paced<S> {
    inner: S,
    pace: Pace,
}

// === impl Pace ===

impl Pace {
    /// This many requests a second.
    pub fn per_second(requests: NonZeroU32) -> Self {
        Self(Arc::new(State {
            interval: Duration::from_secs(1) / requests.get(),
            next: Mutex::new(None),
        }))
    }

    async fn turn(&self) {
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

impl<S> Layer<S> for Pace {
    type Service = Paced<S>;

    fn layer(&self, inner: S) -> Paced<S> {
        let pace = self.clone();
        Paced { inner, pace }
    }
}

// === impl Paced ===

impl<S, R> Service<R> for Paced<S>
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
        // The one that said it is ready takes the request.
        let next = self.inner.clone();
        let mut ready = mem::replace(&mut self.inner, next);
        let pace = self.pace.clone();
        async move {
            pace.turn().await;
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
        let pace = Pace::per_second(NonZeroU32::new(10).unwrap());
        let start = Instant::now();
        let service = || {
            pace.layer(service_fn(
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
        // What was not used is not saved up.
        tokio::time::sleep(Duration::from_secs(5)).await;
        let late = futures::future::join_all((0..2).map(|_| service().oneshot(()))).await;
        assert!(late[1].unwrap() - late[0].unwrap() >= 99, "{late:?}");
    }
}
