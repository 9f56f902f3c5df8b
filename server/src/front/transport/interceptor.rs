//! The interceptor that every call passes before its service: it looks the method up, finds out who calls, and holds the call
//! against the limits, the table of methods and its deadline. The handler then gets a [`Call`].

use std::{convert::Infallible, net::IpAddr, sync::Arc};

use bindery_proto::v1alpha2::ErrorReason;
use bindery_runtime::traces::TraceContext;
use http::{HeaderMap, Request, Response};
use tokio::{sync::Semaphore, time::timeout_at};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status, body::Body};
use tower::{Service, ServiceExt as _};
use tracing::Span;

use crate::{
    limits::{LimitName, Limits},
    principal::Principal,
};

use crate::front::{
    Failure, Outcome,
    access::{self, Backend, Freshness, Method},
    audit::{AuditedCall, Auditor, CallNote},
    auth::{Authenticators, Caller, Presented},
    limits::{CALLS_MAX, CallerRates, OPEN_CALL_MAX, PEER_RATE, PRINCIPAL_CALLS_MAX, Permit, Permits, Rate},
    transport::{
        REQUEST_ID,
        connection::Peer,
        deadline::Deadline,
        metrics::Metrics,
        open_calls::{self, OpenCalls},
        places::Place,
    },
};

/// What a handler knows of its call beside the message.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// Who calls; none in a method that needs no token.
    caller: Option<Arc<Caller>>,
    /// The token, which a stream checks again from time to time.
    token: Option<Arc<Presented>>,
    /// When the call must be answered.
    pub deadline: Deadline,
    /// What the handler notes of the call, for the audit log.
    pub note: CallNote,
    /// The limits of the caller.
    pub limits: Limits,
    /// The trace that the call is a part of; `None` if it is not traced.
    pub trace: Option<TraceContext>,
}

/// Admits or refuses each call.
#[derive(Debug)]
pub(crate) struct Interceptor {
    backend: Arc<dyn Backend>,
    authenticators: Authenticators,
    metrics: Metrics,
    auditor: Auditor,
    stop: CancellationToken,
    peers: Rate<IpAddr>,
    principals: CallerRates<Principal>,
    calls_of_principal: Permits<Principal>,
    calls: Semaphore,
    open_calls: OpenCalls,
}

// === impl Call ===

impl Call {
    /// A call by `caller`, who presented `token`.
    pub(crate) fn new(caller: Option<Arc<Caller>>, token: Option<Arc<Presented>>, deadline: Deadline) -> Self {
        Self {
            caller,
            token,
            deadline,
            note: CallNote::default(),
            limits: Limits::default(),
            trace: None,
        }
    }

    /// The call that the interceptor attached to a request.
    pub(crate) fn of<M>(request: &tonic::Request<M>) -> Outcome<Self> {
        let call = request.extensions().get::<Self>().cloned();
        call.ok_or_else(|| Failure::internal("a request came past the interceptor"))
    }

    /// The call that the interceptor attached to a request, and the validated message.
    pub(crate) fn read<M, T: TryFrom<M, Error = Failure>>(request: tonic::Request<M>) -> Outcome<(Self, T)> {
        Ok((Self::of(&request)?, T::try_from(request.into_inner())?))
    }

    /// Who calls.
    pub(crate) fn caller(&self) -> Outcome<&Arc<Caller>> {
        self.caller
            .as_ref()
            .ok_or_else(|| Failure::internal("a method that needs a caller takes calls without a token"))
    }

    /// The token of the caller.
    pub(crate) fn token(&self) -> Option<&Arc<Presented>> {
        self.token.as_ref()
    }
}

// === impl Interceptor ===

impl Interceptor {
    /// An interceptor before `backend`. It refuses all calls once `stop` is cancelled.
    pub(crate) fn new(
        backend: Arc<dyn Backend>,
        authenticators: Authenticators,
        metrics: Metrics,
        auditor: Auditor,
        stop: CancellationToken,
    ) -> Self {
        Self {
            backend,
            authenticators,
            metrics,
            auditor,
            stop,
            peers: Rate::new(PEER_RATE),
            principals: CallerRates::new(),
            calls_of_principal: Permits::new(PRINCIPAL_CALLS_MAX),
            calls: Semaphore::new(CALLS_MAX),
            open_calls: OpenCalls::new(),
        }
    }

    /// Admits a call and has `service` answer it, or answers with the reason of the refusal. The response carries the method
    /// as an extension. A call of an audited method is recorded when it ends.
    pub(crate) async fn call<S>(&self, service: S, request: Request<Body>) -> Response<Body>
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    {
        let method = access::method(request.uri().path());
        let mut deadline = Deadline::of(request.headers());
        if method.is_some_and(|method| method.open) {
            deadline = deadline.within(OPEN_CALL_MAX);
        }
        // Not tower-http's TimeoutLayer: it has one time for all calls, and each gRPC call brings its own.
        let audited = method.and_then(|method| Some((method.path, method.audit?)));
        let note = audited.map_or_else(CallNote::default, |_| CallNote::kept());
        let audited = audited.map(|(path, action)| {
            let call = AuditedCall {
                action,
                path,
                request_id: request_id(&request),
                peer: Peer::of(request.extensions()).map(|peer| peer.0.to_string()),
                error: None,
            };
            self.auditor.follow(call, note.clone())
        });
        let answer = self.answer(service, request, method, deadline, &note);
        let answer = timeout_at(deadline.answer_by(), answer).await;
        let answer = answer.unwrap_or_else(|_| Err(Failure::deadline()));
        let mut response = answer.unwrap_or_else(|failure| Status::from(failure).into_http());
        if let Some(audited) = audited {
            let status = Status::from_header_map(response.headers());
            audited.answered(status.filter(|status| status.code() != Code::Ok));
        }
        if let Some(method) = method {
            response.extensions_mut().insert(method);
        }
        response
    }

    async fn answer<S>(
        &self,
        service: S,
        mut request: Request<Body>,
        method: Option<&'static Method>,
        deadline: Deadline,
        note: &CallNote,
    ) -> Outcome<Response<Body>>
    where
        S: Service<Request<Body>, Response = Response<Body>, Error = Infallible>,
    {
        let peer = Peer::network_of(request.extensions());
        let place = request.extensions().get::<Arc<Place>>().cloned();
        if method.is_some_and(|method| method.open) {
            self.peers.check(&peer)?;
            let open_call = self.open_calls.admit(peer)?;
            request.extensions_mut().insert(Call::new(None, None, deadline));
            let Ok(response) = service.oneshot(open_calls::limited(request)).await;
            return Ok(open_call.follow(response, deadline.at(), place));
        }
        self.refuse_unless_ready()?;
        let (caller, token) = self.identify(request.headers(), peer).await?;
        if let Some(place) = place {
            place.authenticated();
        }
        note.add_caller(&caller.identity);
        let mut call = Call::new(Some(Arc::new(caller)), Some(Arc::new(token)), deadline);
        let Some(method) = method else {
            return Err(Failure::new(ErrorReason::FeatureOff, "this server has no such method")
                .with("method", request.uri().path()));
        };
        call.limits = self.backend.limits(call.caller()?.contract());
        let _permit_of_principal = self.admit(method, call.caller()?, &call.limits)?;
        let _permit = self.calls.try_acquire().map_err(|_| {
            let text = "the server answers as many calls as it can; try again";
            Failure::new(ErrorReason::Overloaded, text)
        })?;
        if let Some(contract) = call.caller.as_deref().and_then(Caller::contract) {
            let token = call.token.as_deref().filter(|_| method.freshness == Freshness::Live);
            self.backend.confirm(contract, token).await?;
        }
        call.note = note.clone();
        call.trace = request.extensions_mut().remove::<TraceContext>();
        request.extensions_mut().insert(call);
        let Ok(response) = service.oneshot(request).await;
        Ok(response)
    }

    /// Refuses a caller whose kind may not call the method, or who calls too often.
    fn admit(&self, method: &Method, caller: &Caller, limits: &Limits) -> Outcome<Permit<Principal>> {
        method.admit(caller)?;
        let principal = caller.principal();
        self.principals
            .check(&principal, limits.calls_per_second)
            .map_err(|refused| {
                let reached = limits.reached(LimitName::CallsPerSecond, caller.contract());
                self.backend.count_refusal(reached.name);
                refused
                    .saying(reached.to_string())
                    .with("limit", reached.name.as_str())
                    .with("max", reached.limit.to_string())
            })?;
        self.calls_of_principal.try_acquire(principal).ok_or_else(|| {
            let text = "too many calls at once; wait for some to be answered";
            Failure::new(ErrorReason::RateLimited, text)
        })
    }

    fn refuse_unless_ready(&self) -> Outcome<()> {
        let (reason, text) = if self.stop.is_cancelled() {
            let text = "this replica is shutting down; another one answers";
            (ErrorReason::ShuttingDown, text)
        } else if !self.backend.is_ready() {
            let text = "this replica is still listing what it caches; try again";
            (ErrorReason::CacheNotReady, text)
        } else {
            return Ok(());
        };
        Err(Failure::new(reason, text))
    }

    async fn identify(&self, headers: &HeaderMap, peer: IpAddr) -> Outcome<(Caller, Presented)> {
        let token = match Presented::read(headers) {
            Ok(token) => token,
            Err(denial) => {
                self.peers.check(&peer)?;
                return Err(denial.into());
            }
        };
        if !self.authenticators.is_known(&token) {
            // A caller that was admitted before may share an address with strangers.
            if !self.authenticators.was_good(&token) {
                self.peers.check(&peer)?;
            }
            self.metrics.token_check();
        }
        let identity = self.authenticators.authenticate(&token).await?;
        Span::current().record("principal", identity.username.as_str());
        let caller = Caller::new(identity, |namespace| self.backend.may_be_contract(namespace));
        Ok((caller, token))
    }
}

/// The id of a request, which the layers before the interceptor set.
fn request_id(request: &Request<Body>) -> String {
    let id = request.headers().get(REQUEST_ID);
    id.and_then(|id| id.to_str().ok()).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
