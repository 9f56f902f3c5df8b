//! Requests that were made as resources: admitted by the policy, answered by a Secret.

use std::{collections::HashSet, sync::Arc, time::Duration};

use bindery_api::v1alpha2::{BindableResourcesRequest, LocalSecretKeyRef, Phase};
use bindery_runtime::backoff::Backoff;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, ResourceExt as _};

use super::{
    Requests, asked, phase,
    plan::{self, Observed, Op, Outcome, Refused},
    response::{self, Response, Standing},
    status,
};
use crate::{
    contract::served,
    controllers::Next,
    credentials::IssueError,
    writes::{self, WriteError},
};

/// What a request waits for outside, policies, rights and Secrets, is in no cache of ours.
const WAITING: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));

impl Requests {
    /// The next step for a request that was made as a resource.
    pub(super) async fn serve(
        &self,
        request: &Arc<BindableResourcesRequest>,
        now: Timestamp,
    ) -> Result<Next, WriteError> {
        let is_done = phase(request) == Phase::Succeeded;
        let as_it_stands = |outcome: Outcome| if is_done { outcome.once_succeeded() } else { outcome };
        let secret = match asked::check(request, self.place(request)) {
            Ok(secret) => secret,
            Err(refused) => {
                self.say(request, &as_it_stands(Outcome::Failed(refused)), now).await?;
                return Ok(Next::Seldom(WAITING));
            }
        };
        if is_done && status::is_ready(request) {
            let state = &self.context.state;
            let client = &state.clients.write;
            let found = response::read(client, request, &secret, &state.identity.subject()).await?;
            if matches!(found, Ok(Standing::Written)) {
                return self.recheck(request, secret, now).await;
            }
        }
        if let Err(refusal) = self.context.state.gate.admit(request).await? {
            let refused = Outcome::Pending(Refused::new(refusal.reason(), &refusal));
            self.say(request, &as_it_stands(refused), now).await?;
            return Ok(Next::Seldom(WAITING));
        }
        let seen = self.observe(request, Some(secret), now).await?;
        let next = self.advance(&seen, plan::plan(&seen)).await?;
        // What it waits for may be in no cache, and others can write what it says that it waits for.
        Ok(if next == Next::Change {
            Next::Seldom(WAITING)
        } else {
            next
        })
    }

    /// What the response was for may have been unbound, or revoked, and then it says so.
    async fn recheck(
        &self,
        request: &Arc<BindableResourcesRequest>,
        secret: LocalSecretKeyRef,
        now: Timestamp,
    ) -> Result<Next, WriteError> {
        let seen = self.observe(request, Some(secret), now).await?;
        let mut ops = plan::plan(&seen);
        ops.retain(|op| matches!(op, Op::Say(_)));
        self.advance(&seen, ops).await?;
        Ok(Next::After(kept(request, now)))
    }

    /// Remembers that the contract was bound for a request; the change brings it back, to be answered.
    pub(super) async fn remember(&self, seen: &Observed<'_>, namespace: &Namespace) -> Result<Next, WriteError> {
        let state = &self.context.state;
        let requests = state.caches.requests.list(|_| true);
        let there: HashSet<_> = requests.iter().filter_map(|it| it.metadata.uid.as_deref()).collect();
        let uid = seen.request.metadata.uid.as_deref().unwrap_or_default();
        let contract = namespace.name_any();
        if let Some(patch) = served::patch(namespace, uid, |uid| there.contains(uid)) {
            let api: Api<Namespace> = Api::all(state.clients.write.clone());
            writes::merge(&api, &contract, &patch).await?;
            return Ok(Next::Change);
        }
        let message = format!(
            "{} requests for contract {contract} were served and are still there; delete some of them",
            served::MAX
        );
        let refused = Refused::new("TooManyRequests", &message).within(&contract);
        self.say(seen.request, &Outcome::Pending(refused), seen.now).await?;
        Ok(Next::Seldom(WAITING))
    }

    /// Writes the response where it is not written yet, and says how that went.
    pub(super) async fn answer(&self, seen: &Observed<'_>, contract: &str) -> Result<Next, WriteError> {
        let outcome = match self.respond(seen, contract).await? {
            Ok(()) => Outcome::Succeeded {
                contract: contract.to_owned(),
                secret: seen.secret.clone(),
            },
            Err(refused) => Outcome::Pending(refused.within(contract)),
        };
        let is_done = phase(seen.request) == Phase::Succeeded;
        let outcome = if is_done { outcome.once_succeeded() } else { outcome };
        self.say(seen.request, &outcome, seen.now).await?;
        Ok(match outcome {
            Outcome::Succeeded { .. } => Next::After(kept(seen.request, seen.now)),
            _ => Next::Seldom(WAITING),
        })
    }

    /// Nothing is issued before it is known that it can be written, and may be.
    async fn respond(&self, seen: &Observed<'_>, contract: &str) -> Result<Result<(), Refused>, WriteError> {
        let (Some(secret), Some(asked)) = (&seen.secret, plan::asked(seen)) else {
            return Ok(Ok(()));
        };
        let state = &self.context.state;
        let (client, server) = (&state.clients.write, state.identity.subject());
        let before = match response::read(client, seen.request, secret, &server).await? {
            Ok(Standing::Written) => return Ok(Ok(())),
            Ok(Standing::Foreign(message)) => return Ok(Err(Refused::new("ForeignSecret", &message))),
            Ok(Standing::Stuck(message)) => return Ok(Err(Refused::new("SecretCreationFailed", &message))),
            Ok(Standing::Missing) => None,
            Ok(Standing::Open(before)) => Some(before),
            Err(refused) => return Ok(Err(refused)),
        };
        let minted = match self.context.issuer.mint(contract).await {
            Ok(minted) => minted,
            Err(IssueError::Write { source, .. }) if matches!(source, WriteError::Foreign { .. }) => {
                return Ok(Err(Refused::new("SecretCreationFailed", &source)));
            }
            // The server's own rights in a new contract take a moment to count.
            Err(IssueError::Write { source, .. }) => return Err(source),
            Err(error @ IssueError::Revoked { .. }) => return Ok(Err(Refused::new("CredentialsRevoked", &error))),
            Err(error) => return Ok(Err(Refused::new("SecretCreationFailed", &error))),
        };
        let response = Response {
            request: seen.request,
            secret,
            contract,
            asked: &asked,
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

    fn place(&self, request: &BindableResourcesRequest) -> asked::Place {
        let namespace = request.namespace().unwrap_or_default();
        let made = self.context.state.caches.namespaces.get("", &namespace);
        let shared = self.context.made.shared.get("", &namespace);
        if made.is_some() || shared.is_some() {
            asked::Place::Consumers
        } else {
            asked::Place::Open
        }
    }
}

/// When to look again at a request that is answered: for its response, or for its end.
fn kept(request: &BindableResourcesRequest, now: Timestamp) -> Duration {
    let look = status::look_after(request, now);
    match status::expiry(request, now) {
        status::Expiry::In(left) => look.min(left),
        _ => look,
    }
}
