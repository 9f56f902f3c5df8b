//! The stream of contracts: all of them for a caller whom RBAC lets watch them, else those of the caller and its groups.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bindery_proto::v1alpha2::{Contract, ErrorReason, WatchContractsResponse, watch_contracts_response};
use k8s_openapi::api::core::v1::Namespace;
use kube::ResourceExt as _;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use crate::{
    contract,
    front::{
        Failure, Front, Outcome,
        access::ContractVerb,
        auth::Caller,
        streams::{
            CurrentObject, Filter, MessageStream, SentObject, StreamEvent, StreamRequest, StreamSource,
            changes::{ALL_CONTRACTS, scope_of_group, scope_of_owner},
            hub::RemovedObject,
        },
        transport::interceptor::Call,
        wire::validate::WatchContracts,
    },
};

const METHOD: &str = "/kubebind.v1alpha2.ContractService/WatchContracts";
/// The right to watch all contracts is reviewed again after this time, or up to half of it earlier.
const REVIEW_AGAIN: Duration = Duration::from_mins(1);

/// Source of contracts.
struct Contracts {
    front: Arc<Front>,
    caller: Arc<Caller>,
    /// Whether all contracts are shown, by RBAC, until that right is taken away.
    all: Option<WatchRight>,
}

/// The right of a caller to watch all contracts, which is reviewed again while a stream is open.
struct WatchRight {
    is_lost: Arc<AtomicBool>,
    _review: AbortOnDropHandle<()>,
}

impl Front {
    pub(super) async fn watch_contracts(
        self: &Arc<Self>,
        call: &Call,
        message: WatchContracts,
    ) -> Outcome<MessageStream<WatchContractsResponse>> {
        let caller = call.caller()?;
        let shows_all = !message.owned && self.contracts.may(caller, ContractVerb::Watch, None).await?;
        let scopes = if shows_all {
            vec![ALL_CONTRACTS.to_owned()]
        } else {
            scopes(caller)
        };
        let mut parts = vec!["contracts"];
        parts.extend(scopes.iter().map(String::as_str));
        // A caller with other groups sees other contracts, so that its token is of another filter.
        let filter = Filter::of(&parts);
        let source = Contracts {
            front: Arc::clone(self),
            caller: Arc::clone(caller),
            all: shows_all.then(|| WatchRight::new(self, caller)),
        };
        let request = StreamRequest {
            method: METHOD,
            scopes,
            filter,
            resume_token: &message.resume_token,
        };
        self.streams.open(call, request, &self.hubs.contracts, source)
    }
}

/// The scopes of the contracts that a caller or one of its groups owns.
fn scopes(caller: &Caller) -> Vec<String> {
    let records = caller.principal().records();
    let mut scopes: Vec<_> = records.iter().map(scope_of_owner).collect();
    let groups = caller.identity.groups.iter();
    let groups = groups.filter(|group| contract::sharing::check_group(group).is_ok());
    let mut groups: Vec<_> = groups.map(|group| scope_of_group(group)).collect();
    groups.sort_unstable();
    groups.dedup();
    scopes.extend(groups);
    scopes
}

impl WatchRight {
    fn new(front: &Arc<Front>, caller: &Arc<Caller>) -> Self {
        let is_lost = Arc::new(AtomicBool::new(false));
        let review = {
            let (front, caller, is_lost) = (Arc::clone(front), Arc::clone(caller), Arc::clone(&is_lost));
            async move {
                loop {
                    // At random, so that many streams do not ask at once.
                    sleep(REVIEW_AGAIN.mul_f64(0.5 + rand::random::<f64>() * 0.5)).await;
                    // Without an answer, the right counts as neither kept nor lost.
                    if let Ok(false) = front.contracts.may(&caller, ContractVerb::Watch, None).await {
                        is_lost.store(true, Ordering::Relaxed);
                        front.hubs.contracts.wake(ALL_CONTRACTS);
                        return;
                    }
                }
            }
        };
        Self {
            is_lost,
            _review: AbortOnDropHandle::new(tokio::spawn(review)),
        }
    }
}

impl Contracts {
    fn shows(&self, namespace: &Namespace) -> bool {
        let owns = || contract::may_use(namespace, &self.caller.principal(), &self.caller.identity.groups);
        contract::is_contract(namespace) && (self.all.is_some() || owns())
    }

    fn current(&self, namespace: &Namespace) -> SentObject<Contract> {
        SentObject {
            key: namespace.name_any().into(),
            identity: RemovedObject {
                name: namespace.name_any(),
                uid: namespace.uid().unwrap_or_default(),
            },
            object: self.front.show_contract(namespace),
        }
    }
}

impl StreamSource for Contracts {
    type Object = Contract;
    type Message = WatchContractsResponse;

    fn all(&self) -> Vec<SentObject<Contract>> {
        let shown = self
            .front
            .state
            .caches
            .namespaces
            .list(|namespace| self.shows(namespace));
        shown.iter().map(|namespace| self.current(namespace)).collect()
    }

    fn now(&self, changed: &str) -> Vec<CurrentObject<Contract>> {
        let found = self.front.state.caches.namespaces.get("", changed);
        let found = found.filter(|namespace| self.shows(namespace));
        vec![(changed.into(), found.map(|namespace| self.current(&namespace)))]
    }

    fn namespace(&self) -> String {
        String::new()
    }

    fn may_go_on(&self) -> Outcome<()> {
        let is_lost = self.all.as_ref().is_some_and(|all| all.is_lost.load(Ordering::Relaxed));
        if !is_lost {
            return Ok(());
        }
        let text =
            "you may not watch all clusterbindings.kube-bind.io any more; watch again to follow those that you own";
        Err(Failure::new(ErrorReason::MethodDenied, text).with("method", METHOD))
    }

    fn is_current(&self) -> Outcome<()> {
        self.front.require_followed_contracts()
    }

    fn message(event: StreamEvent<Contract>, resume_token: String) -> WatchContractsResponse {
        use watch_contracts_response::Event as Wrapped;
        let event = match event {
            StreamEvent::Begin(begin) => Wrapped::SnapshotBegin(begin),
            StreamEvent::Applied(contract) => Wrapped::Applied(contract),
            StreamEvent::Removed(removed) => Wrapped::Removed(removed),
            StreamEvent::Complete(complete) => Wrapped::SnapshotComplete(complete),
            StreamEvent::Heartbeat(heartbeat) => Wrapped::Heartbeat(heartbeat),
        };
        WatchContractsResponse {
            event: Some(event),
            resume_token,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::front::auth::{Identity, Kind};

    #[test]
    fn a_caller_follows_its_own_contracts_and_those_of_its_groups() {
        let caller = |username: &str, uid: Option<&str>, groups: &[&str]| Caller {
            identity: Identity {
                username: username.to_owned(),
                uid: uid.map(ToOwned::to_owned),
                groups: groups.iter().map(|group| (*group).to_owned()).collect(),
                ..Identity::default()
            },
            kind: Kind::Principal,
        };
        let jane = scopes(&caller("jane", None, &["b", "a", "b", "system:authenticated"]));
        assert_eq!(jane, [r#"owner/{"username":"jane"}"#, "group/a", "group/b"]);
        let account = scopes(&caller("system:serviceaccount:ns:ci", Some("7"), &[]));
        assert_eq!(
            account,
            [
                r#"owner/{"username":"system:serviceaccount:ns:ci","uid":"7"}"#,
                r#"owner/{"username":"system:serviceaccount:ns:ci"}"#
            ]
        );
    }
}
