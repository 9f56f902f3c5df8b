//! The answer to a create: the request and, once it succeeded, what the consumer installs, with a new credential. The server
//! keeps no credential.

use bindery_api::v1alpha2 as api;
use bindery_proto::v1alpha2::{BoundSchemaRef, CreateBindableResourcesRequestResponse};
use bindery_runtime::{backoff::Backoff, cache::ObjectKey, errors};
use tokio::time::{Duration, Instant, sleep};

use crate::front::services::binding::create::Checked;
use crate::{
    credentials::{IssueError, Minted},
    front::{
        Front, Outcome,
        services::wait::until_shown,
        wire::convert::{request, response},
    },
    writes::WriteError,
};

/// How long the answer waits at least for this replica to see what was just made, and for new rights to take effect.
const SETTLE: Duration = Duration::from_secs(2);
const RETRY: Backoff = Backoff::new(Duration::from_millis(25), Duration::from_millis(500));

impl Front {
    pub(super) async fn answer(
        &self,
        checked: &Checked,
        found: &api::BindableResourcesRequest,
        until: Instant,
    ) -> Outcome<CreateBindableResourcesRequestResponse> {
        let mut answer = CreateBindableResourcesRequestResponse {
            bindable_resources_request: Some(request::request(found)),
            response: None,
        };
        let contract = found.status.as_ref().and_then(|status| status.namespace.as_deref());
        let (api::Phase::Succeeded, Some(contract)) = (found.phase(), contract) else {
            return Ok(answer);
        };
        // The controller may run on another replica, so that this one sees its work a little later.
        let until = until.max(Instant::now() + SETTLE);
        let namespaces = &self.state.caches.namespaces;
        until_shown(namespaces, &ObjectKey::new("", contract), until, |shown| {
            shown.is_some()
        })
        .await;
        let export = ObjectKey::new(contract, &*checked.key.name);
        until_shown(&self.state.caches.exports, &export, until, |shown| shown.is_some()).await;
        let minted = self.mint_new(contract, until).await?;
        answer.response = Some(response::response(
            &checked.key.name,
            contract,
            &checked.plan,
            self.schemas_of(checked, contract),
            Some(response::kubeconfig(&minted)),
        ));
        Ok(answer)
    }

    /// Issues a credential in a contract that may be new: the server's own rights there take a while to take effect.
    async fn mint_new(&self, contract: &str, until: Instant) -> Outcome<Minted> {
        let mut attempt = 0;
        loop {
            match self.issuer.mint(contract).await {
                Err(error) if is_forbidden(&error) && Instant::now() < until => {
                    sleep(RETRY.delay(attempt)).await;
                    attempt += 1;
                }
                outcome => return Ok(outcome?),
            }
        }
    }

    /// References to the bound schemas of the contract, or to the planned ones where this replica sees none yet.
    fn schemas_of(&self, checked: &Checked, contract: &str) -> Vec<BoundSchemaRef> {
        let planned = response::planned_schemas(&checked.plan);
        let bound = &self.state.caches.bound_schemas;
        let current = |planned: BoundSchemaRef| match bound.get(contract, &planned.name) {
            Some(schema) => self.schemas.of(&schema).as_ref().clone(),
            None => planned,
        };
        planned.into_iter().map(current).collect()
    }
}

fn is_forbidden(error: &IssueError) -> bool {
    matches!(error, IssueError::Write { source: WriteError::Api(error), .. } if errors::is_forbidden(error))
}
