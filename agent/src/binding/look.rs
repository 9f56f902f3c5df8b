//! Looks at a binding and all that concerns it. Asks nobody: what is not known yet is being found out beside this.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bindery_api::{
    annotations,
    v1alpha2::{APIServiceBinding, APIServiceBindingBundle, PermissionClaim, SecretRef},
};
use bindery_runtime::queue::Lane;
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::{
    Controller, Key,
    claims::ClaimsSeen,
    consent::{self, Consent},
    credential::{self, Access, Holder, Known},
    observe::{self, BundleSeen, Observed, SessionSeen},
    pin::Pin,
    resource::{self, Schema},
    runtime::Runtime,
};
use crate::{
    bundle::{self, Count},
    session::{Session, Settings, exports::Lookup},
};

impl Controller {
    /// Everything that decisions are made of.
    pub(super) fn look(&self, binding: &Arc<APIServiceBinding>, runtime: &mut Runtime, key: &Key) -> Observed {
        let now = Timestamp::now();
        let takeover = Consent::read(&**binding, annotations::ACCEPT_PROVIDER_CHANGE, now);
        let deletions = Consent::read(&**binding, annotations::ALLOW_DELETIONS, now);
        if let Some(pause) = consent::wake([&takeover, &deletions], now) {
            self.queue.add_after(key.clone(), pause);
        }
        let consent = takeover.until();
        runtime.consent(consent, deletions.until());
        let bundle = self.bundle_of(binding);
        let pin = Pin::of(binding, bundle.as_deref(), now);
        let known = self.known(binding, &pin);
        let access = match known.reach(&self.sessions, &self.dialer, runtime.dials(), None) {
            Access::Reached(_) if pin.waits => Access::Connecting,
            access => access,
        };
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
            session: session.as_ref().map(|session| {
                let export = session.exports().get(binding.export_name());
                SessionSeen::of(session, &self.consumer, export, consent.is_some())
            }),
            crds: BTreeMap::new(),
            schemas: BTreeMap::new(),
            engines: runtime.engines(),
            releasers: runtime.releasers(),
            claims: ClaimsSeen {
                elsewhere: sharing.iter().filter_map(|other| claimed(other)).collect(),
                ..runtime.claims()
            },
            last_count: None,
            frozen: runtime.frozen(),
            deletion: runtime.deletion(),
            contract_is_shared: !sharing.is_empty() || self.is_bundled(known.pinned.as_deref()),
            has_stored_secret: known
                .pinned
                .as_deref()
                .is_some_and(|uid| credential::stored(&self.consumer, uid).is_some()),
            bundle: None,
        };
        seen.bundle = bundle.map(|bundle| self.bundle(&seen, &bundle));
        // How often the provider of a bundle is asked, the bundle says.
        let interval = self.settings.polling_interval;
        runtime.poll_every(seen.bundle.is_none().then_some(interval));
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
        seen.last_count = runtime.count(seen.objects());
        self.tell_bundle(&seen);
        let name: Arc<str> = binding.name_any().into();
        let before = self.needs.lock().insert(Arc::clone(&name), needs.clone());
        if before.as_ref() != Some(&needs) {
            // A CRD may have changed before anybody was told whom that concerns.
            self.queue.add(key.clone(), Lane::Backlog);
        }
        seen
    }

    fn known(&self, binding: &APIServiceBinding, pin: &Pin) -> Known {
        let holder = Holder {
            secret: &binding.spec.kubeconfig_secret_ref,
            pinned: pin.contract.as_deref(),
            consent: pin.consent,
            unbinding: binding.metadata.deletion_timestamp.is_some(),
        };
        Known::of(&self.consumer, &holder)
    }

    /// The bundle that it belongs to, if that is there.
    fn bundle_of(&self, binding: &APIServiceBinding) -> Option<Arc<APIServiceBindingBundle>> {
        let owner = observe::bundle_of(binding)?;
        let bundle = self.consumer.bundles.get("", &owner.name)?;
        (bundle.metadata.uid.as_ref() == Some(&owner.uid)).then_some(bundle)
    }

    /// What belonging to a bundle means for it.
    fn bundle(&self, seen: &Observed, bundle: &APIServiceBindingBundle) -> BundleSeen {
        let terms = bundle::Terms::of(&bundle.spec, self.settings.polling_interval);
        BundleSeen {
            selects: seen.export().is_none_or(|export| terms.takes(export) != Some(false)),
            removed: bundle.spec.removed_exports.unwrap_or_default(),
            name: bundle.name_any(),
        }
    }

    /// Tells the bundle how many objects there are.
    fn tell_bundle(&self, seen: &Observed) {
        let (Some(bundle), Some(uid)) = (&seen.bundle, &seen.binding.metadata.uid) else {
            return;
        };
        let count = seen.objects().map(|objects| Count {
            objects,
            export_is_gone: seen.export_is_gone(),
        });
        self.tally.tell(uid, &bundle.name, count);
    }

    /// Whether a bundle is pinned to a contract.
    pub(super) fn is_bundled(&self, contract_uid: Option<&str>) -> bool {
        let contract = |bundle: &APIServiceBindingBundle| bundle.status.as_ref()?.contract_uid.clone();
        contract_uid.is_some_and(|uid| {
            let is_pinned = |bundle: &APIServiceBindingBundle| contract(bundle).as_deref() == Some(uid);
            !self.consumer.bundles.list(is_pinned).is_empty()
        })
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
