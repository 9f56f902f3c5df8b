//! Refuses writes of a process that may have lost its Lease.

use std::{
    future::{poll_fn, ready},
    sync::Arc,
    task::{Context, Poll},
};

use arc_swap::ArcSwapOption;
use futures::{FutureExt as _, future::BoxFuture};
use http::Request;
use tower::{BoxError, Layer, Service};

use crate::lease::Renewals;

/// Which Lease the writes of a network need, if any. Clones share it.
#[derive(Clone, Debug, Default)]
pub(super) struct LeaseCheck(Arc<ArcSwapOption<Renewals>>);

/// Fails writes while the renewal of a Lease is overdue.
#[derive(Clone, Debug)]
pub(super) struct LeaseChecked<S> {
    inner: S,
    check: LeaseCheck,
}

/// A write was not sent, because another replica may hold the Lease.
#[derive(Debug, thiserror::Error)]
#[error("the Lease was not renewed in time; nothing is written until it is")]
struct LeaseOverdue;

// === impl LeaseCheck ===

impl LeaseCheck {
    /// Lets writes pass only while this Lease is renewed in time; with `None`, always.
    pub(super) fn set(&self, renewals: Option<Renewals>) {
        self.0.store(renewals.map(Arc::new));
    }

    fn is_overdue(&self) -> bool {
        self.0.load().as_deref().is_some_and(Renewals::is_overdue)
    }
}

impl<S> Layer<S> for LeaseCheck {
    type Service = LeaseChecked<S>;

    fn layer(&self, inner: S) -> LeaseChecked<S> {
        let check = self.clone();
        LeaseChecked { inner, check }
    }
}

// === impl LeaseChecked ===

impl<S, B> Service<Request<B>> for LeaseChecked<S>
where
    S: Service<Request<B>, Error = BoxError> + 'static,
    S::Future: Send,
    S::Response: Send,
    B: 'static,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<S::Response, BoxError>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        if request.method().is_safe() {
            return self.inner.call(request).boxed();
        }
        let check = self.check.clone();
        if check.is_overdue() {
            return ready(Err(BoxError::from(LeaseOverdue))).boxed();
        }
        let mut answer = Box::pin(self.inner.call(request));
        let checked = poll_fn(move |context| {
            // The process may have stood still while the request waited for a connection.
            if check.is_overdue() {
                return Poll::Ready(Err(BoxError::from(LeaseOverdue)));
            }
            answer.as_mut().poll(context)
        });
        checked.boxed()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        time::Duration,
    };

    use http::Method;
    use tokio::{sync::Notify, time::advance};
    use tower::{ServiceExt as _, service_fn};

    use super::*;

    const DEADLINE: Duration = Duration::from_secs(10);

    fn request(method: Method) -> Request<()> {
        let mut request = Request::new(());
        *request.method_mut() = method;
        request
    }

    #[tokio::test(start_paused = true)]
    async fn no_write_is_sent_once_the_renewal_is_overdue() {
        static SENT: AtomicUsize = AtomicUsize::new(0);
        let check = LeaseCheck::default();
        let service = check.layer(service_fn(|_: Request<()>| async {
            SENT.fetch_add(1, Ordering::Relaxed);
            Ok::<_, BoxError>(())
        }));
        let is_sent = async |method: Method| {
            let before = SENT.load(Ordering::Relaxed);
            let answer = service.clone().oneshot(request(method)).await;
            assert_eq!(answer.is_ok(), SENT.load(Ordering::Relaxed) > before);
            answer.is_ok()
        };
        let writes = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE];
        for method in &writes {
            assert!(is_sent(method.clone()).await, "{method} without a Lease");
        }
        let (renewals, renew) = Renewals::renewed_now(DEADLINE);
        check.set(Some(renewals));
        advance(DEADLINE.saturating_sub(Duration::from_millis(1))).await;
        for method in &writes {
            assert!(is_sent(method.clone()).await, "{method} in time");
        }
        advance(Duration::from_millis(1)).await;
        for method in &writes {
            assert!(!is_sent(method.clone()).await, "{method} while it is overdue");
        }
        assert!(is_sent(Method::GET).await, "a read while it is overdue");
        renew();
        for method in &writes {
            assert!(is_sent(method.clone()).await, "{method} after a renewal");
        }
        advance(DEADLINE).await;
        assert!(!is_sent(Method::POST).await);
        check.set(None);
        assert!(is_sent(Method::POST).await, "the Lease was given up");
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_waited_for_a_connection_for_too_long_is_not_sent() {
        static CONNECTED: Notify = Notify::const_new();
        static SENT: AtomicUsize = AtomicUsize::new(0);
        let check = LeaseCheck::default();
        let (renewals, _renew) = Renewals::renewed_now(DEADLINE);
        check.set(Some(renewals));
        let transport = service_fn(|_: Request<()>| async {
            CONNECTED.notified().await;
            SENT.fetch_add(1, Ordering::Relaxed);
            Ok::<_, BoxError>(())
        });
        let answer = tokio::spawn(check.layer(transport).oneshot(request(Method::PATCH)));
        tokio::task::yield_now().await;
        advance(DEADLINE).await;
        CONNECTED.notify_one();
        assert!(answer.await.unwrap().is_err());
        assert_eq!(SENT.load(Ordering::Relaxed), 0);
    }
}
