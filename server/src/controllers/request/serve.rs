//! Serves requests that users create as resources: the admission policy vouches for their author, and a Secret holds the
//! response.

use std::{collections::HashSet, sync::Arc, time::Duration};

use bindery_api::v1alpha2::{BindableResourcesRequest, LocalSecretKeyRef, Phase};
use bindery_runtime::backoff::Backoff;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;

use super::{
    Requests,
    plan::{self, Observed, RequestStep},
    response::{self, Response, ResponseSecret},
    status::{self, Refused, RequestOutcome},
    validate,
};
use crate::{
    contract::served,
    controllers::Next,
    credentials::IssueError,
    request::OutsideReason,
    writes::{Write, WriteError},
};

/// How often to look again at a request that waits for policies, rights or Secrets: no cache shows those.
const WAITING: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

const CREATION_FAILED: &str = OutsideReason::SecretCreationFailed.as_str();

impl Requests {
    /// The next step for a request that was made as a resource.
    pub(super) async fn serve(
        &self,
        request: &Arc<BindableResourcesRequest>,
        now: Timestamp,
    ) -> Result<Next, WriteError> {
        let is_done = request.phase() == Phase::Succeeded;
        let as_it_stands = |outcome: RequestOutcome| if is_done { outcome.once_succeeded() } else { outcome };
        let secret = match validate::check(request, self.place(request)) {
            Ok(secret) => secret,
            Err(refused) => {
                self.report(request, &as_it_stands(RequestOutcome::Failed(refused)), now)
                    .await?;
                return Ok(Next::Seldom(WAITING));
            }
        };
        if is_done && status::is_ready(request) {
            let state = &self.context.state;
            let client = &state.clients.write;
            let found = response::read(client, request, &secret, &state.identity.subject()).await?;
            if matches!(found, Ok(ResponseSecret::Written)) {
                return self.recheck(request, secret, now).await;
            }
        }
        if let Err(refusal) = self.context.state.author_verifier.admit(request).await? {
            let refused = RequestOutcome::Pending(Refused::new(refusal.reason().as_str(), &refusal));
            self.report(request, &as_it_stands(refused), now).await?;
            return Ok(Next::Seldom(WAITING));
        }
        let seen = self.observe(request, Some(secret), now).await?;
        let next = self.advance(&seen, plan::plan(&seen)).await?;
        // The request may wait for something that no cache shows. Its status does not decide that, since users can write it.
        Ok(if next == Next::Change {
            Next::Seldom(WAITING)
        } else {
            next
        })
    }

    /// Reports where the export of an answered request was unbound meanwhile, or its credentials were revoked.
    async fn recheck(
        &self,
        request: &Arc<BindableResourcesRequest>,
        secret: LocalSecretKeyRef,
        now: Timestamp,
    ) -> Result<Next, WriteError> {
        let seen = self.observe(request, Some(secret), now).await?;
        if let RequestStep::Report(outcome) = plan::plan(&seen) {
            self.report(request, &outcome, now).await?;
        }
        Ok(Next::After(kept(request, now)))
    }

    /// Records in the contract that a request is fulfilled. The change brings the request back, to be answered.
    pub(super) async fn fulfil(&self, seen: &Observed<'_>, namespace: &Namespace) -> Result<Next, WriteError> {
        let state = &self.context.state;
        let requests = state.caches.requests.list(|_| true);
        let there: HashSet<_> = requests.iter().filter_map(|it| it.metadata.uid.as_deref()).collect();
        let uid = seen.request.metadata.uid.as_deref().unwrap_or_default();
        let contract = namespace.name_any();
        if let Some(patch) = served::patch(namespace, uid, |uid| there.contains(uid)) {
            let write = Write::patch("a request is fulfilled", namespace, patch);
            write.apply(&state.clients.write).await?;
            return Ok(Next::Change);
        }
        let message = format!(
            "{} requests for contract {contract} were served and are still there; delete some of them",
            served::MAX
        );
        let refused = Refused::new("TooManyRequests", &message).within(&contract);
        self.report(seen.request, &RequestOutcome::Pending(refused), seen.now)
            .await?;
        Ok(Next::Seldom(WAITING))
    }

    /// Writes the response, if it is not written yet, and reports the outcome.
    pub(super) async fn answer(&self, seen: &Observed<'_>, contract: &str) -> Result<Next, WriteError> {
        let outcome = match self.respond(seen, contract).await? {
            Ok(()) => RequestOutcome::Succeeded {
                contract: contract.to_owned(),
                secret: seen.secret.clone(),
            },
            Err(refused) => RequestOutcome::Pending(refused.within(contract)),
        };
        let is_done = seen.request.phase() == Phase::Succeeded;
        let outcome = if is_done { outcome.once_succeeded() } else { outcome };
        self.report(seen.request, &outcome, seen.now).await?;
        Ok(match outcome {
            RequestOutcome::Succeeded { .. } => Next::After(kept(seen.request, seen.now)),
            _ => Next::Seldom(WAITING),
        })
    }

    /// Writes the response. Credentials are issued only when it is known that the Secret can and may be written.
    async fn respond(&self, seen: &Observed<'_>, contract: &str) -> Result<Result<(), Refused>, WriteError> {
        let (Some(secret), Some(requested)) = (&seen.secret, plan::requested(seen)) else {
            return Ok(Ok(()));
        };
        let state = &self.context.state;
        let (client, server) = (&state.clients.write, state.identity.subject());
        let before = match response::read(client, seen.request, secret, &server).await? {
            Ok(ResponseSecret::Written) => return Ok(Ok(())),
            Ok(ResponseSecret::Foreign(message)) => {
                return Ok(Err(Refused::new(OutsideReason::ForeignSecret.as_str(), &message)));
            }
            Ok(ResponseSecret::Stuck(message)) => return Ok(Err(Refused::new(CREATION_FAILED, &message))),
            Ok(ResponseSecret::Missing) => None,
            Ok(ResponseSecret::Open(before)) => Some(before),
            Err(refused) => return Ok(Err(refused)),
        };
        let minted = match self.context.issuer.mint(contract).await {
            Ok(minted) => minted,
            Err(IssueError::Write { source, .. }) if matches!(source, WriteError::Foreign { .. }) => {
                return Ok(Err(Refused::new(CREATION_FAILED, &source)));
            }
            // The server's rights in a new contract take a moment to be in effect.
            Err(IssueError::Write { source, .. }) => return Err(source),
            Err(error @ IssueError::Revoked { .. }) => return Ok(Err(Refused::new("CredentialsRevoked", &error))),
            Err(error @ IssueError::Locked { .. }) => return Ok(Err(Refused::new("RenewalLocked", &error))),
            Err(error) => return Ok(Err(Refused::new(CREATION_FAILED, &error))),
        };
        let response = Response {
            request: seen.request,
            secret,
            contract,
            requested: &requested,
            kubeconfig: &minted.kubeconfig,
        };
        let written = response::write(client, &response, before.as_deref(), &server).await?;
        if written.is_ok() {
            tracing::info!(
                request = seen.request.name_any(),
                namespace = seen.request.namespace(),
                credential = minted.credential_id,
                "response written"
            );
        }
        Ok(written)
    }

    fn place(&self, request: &BindableResourcesRequest) -> validate::RequestNamespace {
        let namespace = request.namespace().unwrap_or_default();
        let made = self.context.state.caches.namespaces.get("", &namespace);
        let shared = self.context.made.shared.get("", &namespace);
        if made.is_some() || shared.is_some() {
            validate::RequestNamespace::Consumers
        } else {
            validate::RequestNamespace::Open
        }
    }
}

/// When to look again at an answered request: to check its response, or to delete it.
fn kept(request: &BindableResourcesRequest, now: Timestamp) -> Duration {
    let look = status::look_after(request, now);
    match status::expiry(request, now) {
        status::Expiry::In(left) => look.min(left),
        _ => look,
    }
}
