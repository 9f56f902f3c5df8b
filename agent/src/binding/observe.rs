//! Collects the state of a binding from caches. What is not known yet is requested in the background.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use bindery_api::{
    Conditions as _, annotations,
    conditions::HEARTBEATING,
    v1alpha2::{APIServiceBinding, APIServiceBindingBundle, PermissionClaim},
};
use bindery_runtime::queue::Priority;
use jiff::Timestamp;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::ResourceExt as _;

use super::{
    contract_pin::ContractPin,
    controller::BindingController,
    crd::ObservedSchema,
    observed::{ObservedBinding, ObservedClaims, OwningBundle, crd_names},
    runtime::{BindingKey, BindingRuntime},
};
use crate::{
    controller::{
        access::{self, ContractAccess, KnownCredentials},
        bundle_settings::BundleSettings,
        conditions::mismatch,
        consent::{self, Consent},
        object_counts::ObjectCount,
        observed_session::ObservedSession,
        ownership::{bundle_of, inherits_crd, orphans_crd, owns_crd},
    },
    session::{Session, provider_rights::LIST_SCHEMAS},
};

impl BindingController {
    /// Collects all that decisions about a binding are made from.
    pub(super) fn observe(
        &self,
        binding: &Arc<APIServiceBinding>,
        runtime: &mut BindingRuntime,
        key: &BindingKey,
    ) -> ObservedBinding {
        let now = Timestamp::now();
        let consumer = &self.context.consumer;
        let takeover = Consent::read(&**binding, annotations::ACCEPT_PROVIDER_CHANGE, now);
        let deletions = Consent::read(&**binding, annotations::ALLOW_DELETIONS, now);
        if let Some(pause) = consent::next_expiry([&takeover, &deletions], now) {
            self.queue.add_after(key.clone(), pause);
        }
        let consent = takeover.until();
        runtime.consent(consent, deletions.until());
        let bundle = self.bundle_of(binding);
        let (access, pinned) = self.connect(binding, bundle.as_deref(), runtime, now);
        let session = runtime.connection.session().cloned();
        if let (Some(session), Some(until)) = (&session, consent) {
            session.consent_until(until);
        }
        if let Some(session) = session
            .as_ref()
            .filter(|_| binding.metadata.deletion_timestamp.is_none())
        {
            session.resume_holding();
        }
        let sharing = self.sharing(binding, pinned.as_deref());
        let is_stored = |uid: &str| access::stored_credential(consumer, uid).is_some();
        let mut seen = ObservedBinding {
            binding: Arc::clone(binding),
            now,
            access,
            session: session.as_ref().map(|session| {
                let export = session.exports().get(binding.export_name());
                let is_pinned = binding.contract_uid() == Some(&*session.contract().uid);
                let was_other = is_pinned && mismatch(binding.conditions(), HEARTBEATING).is_some();
                ObservedSession::of(session, consumer, export, consent.is_some(), was_other)
            }),
            crds: BTreeMap::new(),
            schemas: BTreeMap::new(),
            engines: runtime.engines(),
            releasers: runtime.releasers(),
            claims: ObservedClaims {
                elsewhere: sharing.iter().filter_map(|other| claimed(other)).collect(),
                ..runtime.observed_claims()
            },
            last_count: None,
            deletion: runtime.export_deletion(),
            contract_is_shared: !sharing.is_empty() || self.is_bundled(pinned.as_deref()),
            has_stored_secret: pinned.as_deref().is_some_and(is_stored),
            bundle: None,
        };
        let patience = seen.release_patience();
        if binding.metadata.deletion_timestamp.is_some() && seen.releases_copies() && !patience.is_zero() {
            self.queue.add_after(key.clone(), patience);
        }
        seen.bundle = bundle.map(|bundle| self.owning_bundle(&seen, &bundle));
        let is_trusted = seen.session.as_ref().is_some_and(ObservedSession::is_trusted);
        runtime.withhold_deletions(seen.session.is_some() && !is_trusted);
        // A bundle says itself how often its provider is polled.
        let interval = self.context.options.polling_interval;
        runtime.poll_every(seen.bundle.is_none().then_some(interval));
        self.observe_crds(&mut seen, session.as_deref(), runtime, key);
        // What an earlier binding left ends without this one's user having said anything about its copies.
        let inherits = seen.crds.values().any(|crd| inherits_crd(binding, crd));
        runtime.keep(binding.keeps_copies() || inherits);
        seen.last_count = runtime.count(seen.objects());
        self.count_for_bundle(&seen);
        seen
    }

    /// Finds out which contract the credentials reach and attaches the session with it. Returns the pinned contract too.
    fn connect(
        &self,
        binding: &APIServiceBinding,
        bundle: Option<&APIServiceBindingBundle>,
        runtime: &mut BindingRuntime,
        now: Timestamp,
    ) -> (ContractAccess, Option<String>) {
        let context = &self.context;
        let pin = ContractPin::of(binding, bundle, now);
        let secret = &binding.spec.kubeconfig_secret_ref;
        let known = KnownCredentials {
            consent: pin.consent,
            unbinding: binding.metadata.deletion_timestamp.is_some(),
            ..KnownCredentials::of(&context.consumer, secret, pin.contract.as_deref())
        };
        let attempts = &mut runtime.connection.attempts;
        let access = known.reach(&context.sessions, &context.connector, attempts, None);
        let access = match context.other_konnectors.refuse_foreign(access, secret) {
            ContractAccess::Reached(_) if pin.waits => ContractAccess::Connecting,
            access => access,
        };
        if let ContractAccess::Reached(reached) = &access {
            let session = context.enter(reached, secret);
            if let Some(own) = known.own(&reached.origin) {
                session.note_origin(&binding.name_any(), own);
            }
            runtime.attach(&session);
        }
        (access.map(|reached| reached.contract.clone()), known.pinned)
    }

    /// Collects the CRDs and schemas that the binding needs or owns.
    fn observe_crds(
        &self,
        seen: &mut ObservedBinding,
        session: Option<&Session>,
        runtime: &mut BindingRuntime,
        key: &BindingKey,
    ) {
        let crds = &self.context.consumer.crds;
        let is_its = |crd: &CustomResourceDefinition| owns_crd(&seen.binding, crd) || orphans_crd(&seen.binding, crd);
        for crd in crds.list(is_its) {
            seen.crds.insert(crd.name_any(), crd);
        }
        let mut needed: BTreeSet<String> = seen.crds.keys().cloned().collect();
        if let Some(export) = seen.session.as_ref().and_then(|session| session.export.present()) {
            needed.extend(crd_names(export));
        }
        for name in &needed {
            if let Some(crd) = crds.get("", name) {
                seen.crds.insert(name.clone(), crd);
            }
            if let Some(session) = session {
                let schema = self.schema(session, name, runtime, key);
                seen.schemas.insert(name.clone(), schema);
            }
        }
        let before = self.needed_crds.lock().insert(seen.name().into(), needed.clone());
        if before.as_ref() != Some(&needed) {
            // A CRD may have changed after it was read and before the binding was known to need it.
            self.queue.add(key.clone(), Priority::Backlog);
        }
    }

    /// The bundle that made the binding, if that bundle exists.
    fn bundle_of(&self, binding: &APIServiceBinding) -> Option<Arc<APIServiceBindingBundle>> {
        let owner = bundle_of(binding)?;
        let bundle = self.context.consumer.bundles.get("", &owner.name)?;
        (bundle.metadata.uid.as_ref() == Some(&owner.uid)).then_some(bundle)
    }

    /// Returns what a bundle says about a binding that it made.
    fn owning_bundle(&self, seen: &ObservedBinding, bundle: &APIServiceBindingBundle) -> OwningBundle {
        let settings = BundleSettings::of(&bundle.spec, self.context.options.polling_interval);
        OwningBundle {
            selects: seen
                .export()
                .is_none_or(|export| settings.selects(export) != Some(false)),
            removed: bundle.spec.removed_exports.unwrap_or_default(),
            name: bundle.name_any(),
            role: self.context.options.bundles_role.clone(),
        }
    }

    /// Publishes the object count for the controller of bundles.
    fn count_for_bundle(&self, seen: &ObservedBinding) {
        let (Some(bundle), Some(uid)) = (&seen.bundle, &seen.binding.metadata.uid) else {
            return;
        };
        let count = seen.objects().map(|objects| ObjectCount {
            objects,
            export_is_gone: seen.export_is_gone(),
        });
        self.context.object_counts.set(uid, &bundle.name, count);
    }

    /// Whether a bundle is pinned to a contract.
    pub(super) fn is_bundled(&self, contract_uid: Option<&str>) -> bool {
        let bundles = &self.context.consumer.bundles;
        contract_uid.is_some_and(|uid| !bundles.list(|bundle| bundle.contract_uid() == Some(uid)).is_empty())
    }

    /// The other bindings that are pinned to a contract.
    fn sharing(&self, binding: &APIServiceBinding, pinned: Option<&str>) -> Vec<Arc<APIServiceBinding>> {
        if pinned.is_none() {
            return Vec::new();
        }
        let bindings = &self.context.consumer.bindings;
        bindings.list(|other| other.metadata.uid != binding.metadata.uid && other.contract_uid() == pinned)
    }

    /// Returns the schema of a CRD. A missing schema counts as unknown for a short time, since it may arrive after its export.
    fn schema(&self, session: &Session, name: &str, runtime: &mut BindingRuntime, key: &BindingKey) -> ObservedSchema {
        if let Some(schema) = session.schemas().get(&session.contract().namespace, name) {
            runtime.schema_found(name);
            return ObservedSchema::Present(schema);
        }
        if !session.schemas().is_synced() {
            let is_forbidden = session.verification().borrow().lacks(LIST_SCHEMAS);
            return if is_forbidden {
                ObservedSchema::Unreadable
            } else {
                ObservedSchema::Unknown
            };
        }
        match runtime.schema_missed(name) {
            None => ObservedSchema::Missing,
            Some(left) => {
                self.queue.add_after(key.clone(), left);
                ObservedSchema::Unknown
            }
        }
    }
}

/// Name of a binding and the claims that its status lists.
fn claimed(binding: &APIServiceBinding) -> Option<(String, Vec<PermissionClaim>)> {
    let claims = binding.status.as_ref()?.permission_claims.clone();
    Some((binding.name_any(), claims))
}
