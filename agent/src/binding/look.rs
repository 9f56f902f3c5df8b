//! Looks at a binding and all that concerns it. Asks nobody: what is not known yet is being found out beside this.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bindery_api::{
    annotations,
    names::CLUSTER_BINDING,
    v1alpha2::{APIServiceBinding, PermissionClaim, SecretRef},
};
use bindery_runtime::queue::Lane;
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::{
    Controller, Key,
    claims::ClaimsSeen,
    consent::{self, Consent},
    credential::{self, Access, Known},
    observe::{self, ClusterPin, Observed, SessionSeen},
    resource::{self, Schema},
    runtime::Runtime,
};
use crate::session::{
    Session, Settings,
    credential::Renewal,
    dial::Reached,
    exports::Lookup,
    heartbeat::Heartbeat,
    secret::{self, Stored},
};

/// A renewal that failed this often in a row is said to fail.
const RENEWAL_FAILURES_SHOWN: u32 = 3;

impl Controller {
    /// Everything that decisions are made of.
    pub(super) fn look(&self, binding: &Arc<APIServiceBinding>, runtime: &mut Runtime, key: &Key) -> Observed {
        let now = Timestamp::now();
        let takeover = Consent::read(binding, annotations::ACCEPT_PROVIDER_CHANGE, now);
        let deletions = Consent::read(binding, annotations::ALLOW_DELETIONS, now);
        if let Some(pause) = consent::wake([&takeover, &deletions], now) {
            self.queue.add_after(key.clone(), pause);
        }
        let consent = takeover.until();
        runtime.consent(consent, deletions.until());
        let known = self.known(binding, consent.is_some());
        runtime.forget_dials(&known.candidates());
        let access = known.resolve(
            |reached: &Arc<Reached>| &reached.contract,
            |access| match self.sessions.recall(access) {
                Some(reached) => Some(Ok(reached)),
                None => runtime.dial(&self.dialer, access, &self.queue, key),
            },
        );
        if let Access::Reached(reached) = &access {
            let session = self
                .sessions
                .enter(reached, &self.consumer, &self.session_settings(binding), &self.metrics);
            if let Some(own) = known.own(&reached.origin) {
                session.know(&binding.name_any(), own);
            }
            runtime.attach(session, &self.queue, key);
        }
        let session = runtime.session().cloned();
        if let (Some(session), Some(until)) = (&session, consent) {
            session.consent_until(until);
        }
        let sharing = self.sharing(binding, known.pinned.as_deref());
        let mut seen = Observed {
            binding: Arc::clone(binding),
            now,
            access: access.map(|reached| reached.contract.clone()),
            session: session
                .as_ref()
                .map(|session| self.look_at_session(session, &binding.name_any(), consent)),
            crds: BTreeMap::new(),
            schemas: BTreeMap::new(),
            engines: runtime.engines(),
            releasers: runtime.releasers(),
            claims: ClaimsSeen {
                elsewhere: sharing.iter().filter_map(|other| claimed(other)).collect(),
                ..runtime.claims()
            },
            frozen: runtime.frozen(),
            deletion: runtime.deletion(),
            contract_is_shared: !sharing.is_empty(),
            has_stored_secret: known
                .pinned
                .as_deref()
                .is_some_and(|uid| self.stored_secret(uid).is_some()),
        };
        for crd in self.consumer.crds.list(|crd| resource::is_owned(crd, binding)) {
            seen.crds.insert(crd.name_any(), crd);
        }
        let mut needs: BTreeSet<String> = seen.crds.keys().cloned().collect();
        if let Some(Lookup::Present(export)) = seen.session.as_ref().map(|session| session.export.clone()) {
            needs.extend(observe::crd_names(&export));
        }
        for name in &needs {
            if let Some(crd) = self.consumer.crds.get("", name) {
                seen.crds.insert(name.clone(), crd);
            }
            if let Some(session) = &session {
                let schema = self.schema(session, name, runtime, key);
                seen.schemas.insert(name.clone(), schema);
            }
        }
        let name: Arc<str> = binding.name_any().into();
        let before = self.needs.lock().insert(Arc::clone(&name), needs.clone());
        if before.as_ref() != Some(&needs) {
            // A CRD may have changed before anybody was told whom that concerns.
            self.queue.add(key.clone(), Lane::Backlog);
        }
        seen
    }

    fn known(&self, binding: &APIServiceBinding, consent: bool) -> Known {
        let home = &self.consumer.home;
        let pinned = binding.status.as_ref().and_then(|status| status.contract_uid.clone());
        let secret = self
            .consumer
            .secrets
            .get(home, &binding.spec.kubeconfig_secret_ref.name);
        Known {
            secret: credential::read(binding, secret.as_deref(), home),
            stored: pinned.as_deref().and_then(|uid| self.stored_secret(uid)),
            pinned,
            consent,
            unbinding: binding.metadata.deletion_timestamp.is_some(),
        }
    }

    fn stored_secret(&self, contract_uid: &str) -> Option<Stored> {
        let stored = self
            .consumer
            .secrets
            .get(&self.consumer.home, &secret::name(contract_uid))?;
        secret::read(&stored, contract_uid)
    }

    /// The other bindings that are pinned to a contract.
    fn sharing(&self, binding: &APIServiceBinding, pinned: Option<&str>) -> Vec<Arc<APIServiceBinding>> {
        if pinned.is_none() {
            return Vec::new();
        }
        let contract = |other: &APIServiceBinding| other.status.as_ref()?.contract_uid.clone();
        self.consumer
            .bindings
            .list(|other| other.metadata.uid != binding.metadata.uid && contract(other).as_deref() == pinned)
    }

    fn session_settings(&self, binding: &APIServiceBinding) -> Settings {
        let reference = &binding.spec.kubeconfig_secret_ref;
        Settings {
            heartbeat_interval: self.settings.heartbeat_interval,
            polling_interval: self.settings.polling_interval,
            secret: SecretRef {
                name: reference.name.clone(),
                namespace: reference.namespace.clone(),
            },
        }
    }

    fn look_at_session(&self, session: &Session, export: &str, consent: Option<Timestamp>) -> SessionSeen {
        let contract = session.contract();
        let heartbeat = session.heartbeat().borrow().clone();
        let cluster_binding = session.cluster_binding().get(&contract.namespace, CLUSTER_BINDING);
        let recorded = cluster_binding
            .as_ref()
            .and_then(|seen| seen.status.as_ref()?.consumer_cluster_uid.as_deref());
        let pin = match (recorded, self.consumer.cluster_uid()) {
            (Some(recorded), Some(ours)) if recorded == ours => ClusterPin::Ours,
            // With consent the next heartbeat takes the contract over.
            (Some(_), Some(_)) if consent.is_some() => ClusterPin::Unknown,
            (Some(recorded), Some(_)) => ClusterPin::Other {
                recorded: recorded.to_owned(),
            },
            // A provider that took the heartbeat and does not record the cluster is kube-bind's.
            (None, Some(_)) if heartbeat == Heartbeat::Beating && cluster_binding.is_some() => ClusterPin::Ours,
            _ => ClusterPin::Unknown,
        };
        let held = session.credential().held();
        let renewal_fails = match &held.renewal {
            Renewal::Failing { message, count } if *count >= RENEWAL_FAILURES_SHOWN => Some(message.clone()),
            Renewal::Denied { message } => Some(message.clone()),
            Renewal::Well | Renewal::Failing { .. } => None,
        };
        SessionSeen {
            id: session.id(),
            contract_uid: Arc::clone(&contract.uid),
            contract: Arc::clone(&contract.namespace),
            export: session.exports().get(export),
            pin,
            heartbeat,
            expired: held.expired(tokio::time::Instant::now()),
            renewal_fails,
            pretty_name: cluster_binding.map(|seen| seen.spec.provider_pretty_name.clone()),
            has_backend: held.access.backend.is_some(),
        }
    }

    fn schema(&self, session: &Session, name: &str, runtime: &mut Runtime, key: &Key) -> Schema {
        if let Some(schema) = session.schemas().get(&session.contract().namespace, name) {
            runtime.found(name);
            return Schema::Present(schema);
        }
        if !session.schemas().is_synced() {
            return Schema::Unknown;
        }
        match runtime.missed(name) {
            None => Schema::Missing,
            Some(left) => {
                self.queue.add_after(key.clone(), left);
                Schema::Unknown
            }
        }
    }
}

/// What a binding claims, or has not withdrawn yet.
fn claimed(binding: &APIServiceBinding) -> Option<(String, Vec<PermissionClaim>)> {
    let claims = binding.status.as_ref()?.permission_claims.clone();
    Some((binding.name_any(), claims))
}
