//! Looks at a bundle and all that concerns it. Asks nobody: what is not known yet is being found out beside this.

use std::{collections::BTreeMap, sync::Arc};

use bindery_api::{
    annotations,
    v1alpha2::{APIServiceBindingBundle, APIServiceExport, SecretRef},
};
use jiff::Timestamp;
use kube::ResourceExt as _;

use super::{
    Controller, Key, Terms,
    observe::{Gone, Observed},
    runtime::Runtime,
};
use crate::{
    binding::{
        consent::{self, Consent},
        credential::{Access, Holder, Known},
        observe::SessionSeen,
    },
    session::{
        Session, Settings,
        dial::Reached,
        exports::{Listed, Lookup},
    },
};

impl Controller {
    /// Everything that decisions are made of.
    pub(super) fn look(&self, bundle: &Arc<APIServiceBindingBundle>, runtime: &mut Runtime, key: &Key) -> Observed {
        let now = Timestamp::now();
        let terms = Terms::of(&bundle.spec, self.settings.polling_interval);
        let takeover = Consent::read(&**bundle, annotations::ACCEPT_PROVIDER_CHANGE, now);
        if let Some(pause) = consent::wake([&takeover], now) {
            self.queue.add_after(Arc::clone(key), pause);
        }
        let consent = takeover.until();
        let holder = Holder {
            secret: &bundle.spec.kubeconfig_secret_ref,
            pinned: bundle.status.as_ref().and_then(|status| status.contract_uid.as_deref()),
            consent: consent.is_some(),
            unbinding: false,
        };
        let known = Known::of(&self.common.consumer, &holder);
        let access = known.reach(
            &self.common.sessions,
            &self.common.dialer,
            &mut runtime.dials,
            Some(terms.pace),
        );
        if let Access::Reached(reached) = &access {
            let session = self.enter(bundle, &known, reached);
            runtime.attach(session, terms.pace, &self.queue, key);
        }
        let session = runtime.session().cloned();
        if let (Some(session), Some(until)) = (&session, consent) {
            session.consent_until(until);
        }
        let probed = runtime.answered(&access, now);
        let consumer = &self.common.consumer;
        let mut bindings = consumer.bindings.list(|_| true);
        bindings.sort_by_key(|binding| binding.name_any());
        let mut seen = Observed {
            bundle: Arc::clone(bundle),
            now,
            access: access.map(|reached| reached.contract.clone()),
            session: session.as_ref().map(|session| {
                SessionSeen::of(session, consumer, Lookup::Unknown { failure: None }, consent.is_some())
            }),
            exports: session
                .as_ref()
                .map(|session| session.exports().list())
                .unwrap_or_default(),
            probed,
            bindings,
            bindings_failing: consumer.bindings.health().borrow().failure.clone(),
            counts: BTreeMap::new(),
            gone: BTreeMap::new(),
            bundles: consumer
                .bundles
                .list(|_| true)
                .iter()
                .filter_map(|bundle| bundle.uid())
                .collect(),
            terms,
        };
        let uids: Vec<_> = seen.own().filter_map(|binding| binding.uid()).collect();
        for uid in uids {
            if let Some(count) = self.common.tally.count(&uid) {
                seen.counts.insert(uid, count);
            }
        }
        seen.gone = gone(&seen, runtime);
        seen
    }

    /// The session of the contract that was reached, which learns what the bundle knows.
    fn enter(&self, bundle: &APIServiceBindingBundle, known: &Known, reached: &Reached) -> Arc<Session> {
        let reference = &bundle.spec.kubeconfig_secret_ref;
        let settings = Settings {
            heartbeat_interval: self.settings.heartbeat_interval,
            polling_interval: self.settings.polling_interval,
            secret: SecretRef {
                name: reference.name.clone(),
                namespace: reference.namespace.clone(),
            },
        };
        let Self { common, .. } = self;
        let session = common
            .sessions
            .enter(reached, &common.consumer, &settings, &common.metrics);
        if let Some(own) = known.own(&reached.origin) {
            // No binding has a slash in its name.
            session.know(&format!("bundle/{}", bundle.name_any()), own);
            let secret = common.consumer.secrets.get(&common.consumer.home, &reference.name);
            let document = secret
                .as_ref()
                .and_then(|secret| secret.data.as_ref()?.get(&reference.key));
            if let Some(document) = document {
                session.keep(own, &document.0);
            }
        }
        session
    }
}

/// The exports of own bindings that are not to be bound any more, and since when.
fn gone(seen: &Observed, runtime: &mut Runtime) -> BTreeMap<String, Gone> {
    if !seen.exports.complete {
        return BTreeMap::new();
    }
    let Listed { exports, .. } = &seen.exports;
    let is_replaced = |export: &APIServiceExport| {
        let mark = export.annotations().get(annotations::REPLACE);
        mark.is_some_and(|mark| mark == annotations::TRUE)
    };
    let known: BTreeMap<&str, &Lookup> = exports.iter().map(|(name, lookup)| (&**name, lookup)).collect();
    let gone = seen.own().filter_map(|binding| {
        let export = binding.export_name();
        match known.get(export) {
            Some(Lookup::Present(found)) if found.metadata.deletion_timestamp.is_some() => {
                Some((export, is_replaced(found)))
            }
            Some(Lookup::Present(found)) => (seen.terms.takes(found) == Some(false)).then_some((export, false)),
            Some(_) => None,
            None => Some((export, false)),
        }
    });
    runtime.gone(gone, seen.exports.steady)
}
