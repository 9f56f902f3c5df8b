//! Collects the state of a bundle from caches. What is not known yet is requested in the background.

use std::{collections::BTreeMap, sync::Arc};

use bindery_api::{Conditions as _, annotations, meta::is_annotated, v1alpha2::APIServiceBindingBundle};
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::{
    controller::BundleController,
    observed::{ObservedBundle, RemovedExport},
    runtime::{BundleKey, BundleRuntime},
    status::types::SYNCED,
};
use crate::{
    controller::{
        access::{ContractAccess, KnownCredentials},
        bundle_settings::BundleSettings,
        conditions::mismatch,
        consent::{self, Consent},
        observed_session::ObservedSession,
    },
    session::{Session, connect::ContractConnection, exports::ExportLookup},
};

impl BundleController {
    /// Collects all that decisions about a bundle are made from.
    pub(super) fn observe(
        &self,
        bundle: &Arc<APIServiceBindingBundle>,
        runtime: &mut BundleRuntime,
        key: &BundleKey,
    ) -> ObservedBundle {
        let now = Timestamp::now();
        let context = &self.context;
        let consumer = &context.consumer;
        let settings = BundleSettings::of(&bundle.spec, context.options.polling_interval);
        let takeover = Consent::read(&**bundle, annotations::ACCEPT_PROVIDER_CHANGE, now);
        if let Some(pause) = consent::next_expiry([&takeover], now) {
            self.queue.add_after(Arc::clone(key), pause);
        }
        let consent = takeover.until();
        let known = KnownCredentials {
            consent: consent.is_some(),
            ..KnownCredentials::of(consumer, &bundle.spec.kubeconfig_secret_ref, bundle.contract_uid())
        };
        let attempts = &mut runtime.connection.attempts;
        let access = known.reach(&context.sessions, &context.connector, attempts, Some(settings.polling));
        let access = context
            .other_konnectors
            .refuse_foreign(access, &bundle.spec.kubeconfig_secret_ref);
        if let ContractAccess::Reached(reached) = &access {
            let session = self.enter(bundle, &known, reached);
            runtime.attach(&session, settings.polling);
        }
        let session = runtime.connection.session().cloned();
        if let (Some(session), Some(until)) = (&session, consent) {
            session.consent_until(until);
        }
        if let Some(session) = session
            .as_ref()
            .filter(|_| bundle.metadata.deletion_timestamp.is_none())
        {
            session.resume_holding();
        }
        let last_probe = runtime.last_probe(&access, now);
        let mut bindings = consumer.bindings.list(|_| true);
        bindings.sort_by_key(|binding| binding.name_any());
        let bundles = consumer.bundles.list(|_| true);
        let mut seen = ObservedBundle {
            bundle: Arc::clone(bundle),
            now,
            access: access.map(|reached| reached.contract.clone()),
            session: session.as_ref().map(|session| {
                let no_export = ExportLookup::Unknown { failure: None };
                let is_pinned = bundle.contract_uid() == Some(&*session.contract().uid);
                let was_other = is_pinned && mismatch(bundle.conditions(), SYNCED).is_some();
                ObservedSession::of(session, consumer, no_export, consent.is_some(), was_other)
            }),
            exports: session.map(|session| session.exports().list()).unwrap_or_default(),
            last_probe,
            bindings,
            bindings_failing: consumer.bindings.health().borrow().failure.clone(),
            counts: BTreeMap::new(),
            removed: BTreeMap::new(),
            bundles: bundles.iter().filter_map(|bundle| bundle.uid()).collect(),
            settings,
        };
        let count = |uid: String| Some((context.object_counts.get(&uid)?, uid));
        let counts = seen.own().filter_map(|binding| count(binding.uid()?));
        seen.counts = counts.map(|(count, uid)| (uid, count)).collect();
        seen.removed = removed_exports(&seen, runtime);
        seen
    }

    /// Joins the session of the contract that was reached, and tells it about the bundle's kubeconfig.
    fn enter(
        &self,
        bundle: &APIServiceBindingBundle,
        known: &KnownCredentials,
        reached: &ContractConnection,
    ) -> Arc<Session> {
        let (reference, consumer) = (&bundle.spec.kubeconfig_secret_ref, &self.context.consumer);
        let session = self.context.enter(reached, reference);
        if let Some(own) = known.own(&reached.origin) {
            // The slash keeps the name apart from names of bindings.
            session.note_origin(&format!("bundle/{}", bundle.name_any()), own);
            let secret = consumer.secrets.get(&consumer.namespace, &reference.name);
            let kubeconfig = secret
                .as_ref()
                .and_then(|secret| secret.data.as_ref()?.get(&reference.key));
            if let Some(kubeconfig) = kubeconfig {
                session.store_copy(own, &kubeconfig.0);
            }
        }
        session
    }
}

/// The exports of the bundle's own bindings that are no longer to be bound.
fn removed_exports(seen: &ObservedBundle, runtime: &mut BundleRuntime) -> BTreeMap<String, RemovedExport> {
    if !seen.exports.complete {
        return BTreeMap::new();
    }
    let removed = seen.own().filter_map(|binding| {
        let export = binding.export_name();
        match seen.exports.get(export) {
            Some(ExportLookup::Present(found)) if found.metadata.deletion_timestamp.is_some() => {
                Some((export, is_annotated(&found.metadata, annotations::REPLACE)))
            }
            Some(ExportLookup::Present(found)) => {
                (seen.settings.selects(found) == Some(false)).then_some((export, false))
            }
            Some(_) => None,
            None => Some((export, false)),
        }
    });
    runtime.removed_exports(removed, seen.exports.read_for)
}
