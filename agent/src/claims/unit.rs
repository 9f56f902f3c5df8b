//! What runs for one claimed resource: first the search for a version that both clusters serve, then an engine.

mod engine;
mod search;

use std::{sync::Arc, time::Duration};

use bindery_api::v1alpha2::InformerScope;
use tokio::{sync::Notify, time::Instant};

use super::{
    ClaimProgress, Problem, Wanted,
    flavour::{Claimed, Doing},
    registry::Site,
    rules::{self, Rules, Terms},
};
use crate::{
    engine::Shared,
    references::{ClaimKey, References},
};
use engine::{Engine, Guards};
use search::{Doubt, Lack, Search, Verdict};

/// How long it may take to learn what bound objects refer to before that is a problem.
const PATIENCE: Duration = Duration::from_secs(10);

/// What runs for one claimed resource.
pub(crate) struct Unit {
    claim: ClaimKey,
    rules: Arc<Rules>,
    informer_scope: InformerScope,
    search: Search,
    engine: Option<Engine>,
    doubt: Option<Doubt>,
    /// Since when it is not known what is referred to.
    waits: Option<Instant>,
}

/// Whether the provider is watched as a whole, by what is said of a claim. Whoever only withdraws may have lost the right to.
pub(crate) fn informer_scope(claim: &ClaimKey, wanted: &[&Wanted]) -> InformerScope {
    let is_secrets = claim.resource.is_core() && claim.resource.resource == "secrets";
    let may = |wanted: &&&Wanted| {
        wanted.informer_scope == InformerScope::Cluster
            && (!is_secrets || wanted.cluster_wide_secrets)
            && !rules::accepted(claim, wanted).is_empty()
    };
    if wanted.iter().any(|one| may(&one)) {
        InformerScope::Cluster
    } else {
        InformerScope::Namespaced
    }
}

// === impl Unit ===

impl Unit {
    /// Starts to search. `news` is notified of all that changes.
    pub(crate) fn start(
        site: &Site,
        references: &References,
        claim: ClaimKey,
        terms: Terms,
        informer_scope: InformerScope,
        news: &Arc<Notify>,
    ) -> Self {
        let rules = Rules::new(
            claim.clone(),
            (Arc::clone(&site.contract.namespace), Arc::clone(&site.contract.uid)),
            Arc::clone(&site.home),
            references.clone(),
            terms,
        );
        Self {
            search: Search::start(site, &claim.resource, news),
            claim,
            rules: Arc::new(rules),
            informer_scope,
            engine: None,
            doubt: None,
            waits: None,
        }
    }

    /// How the provider is watched.
    pub(crate) fn informer_scope(&self) -> InformerScope {
        self.informer_scope
    }

    /// The bindings say something else.
    pub(crate) fn set(&mut self, terms: Terms, guards: &Guards) {
        let paused = terms.paused;
        let is_news = self.rules.set(terms);
        if let Some(engine) = &mut self.engine {
            engine.guard(guards);
            engine.running.shared.pause(paused);
            if is_news {
                engine.look_again();
            }
        }
    }

    /// Starts the engine as soon as it is known what to sync, and ends it when that is served no more.
    pub(crate) fn tend(&mut self, site: &Site, guards: &Guards, news: &Arc<Notify>) {
        self.doubt(site, news);
        if self.engine.is_some() {
            return;
        }
        if let Some(Ok(resource)) = self.search.outcome() {
            let engine = Engine::start(site, &self.rules, resource, self.informer_scope, guards, news);
            self.engine = Some(engine);
        }
    }

    /// Whether what was found is still served, if a watch fails for long.
    fn doubt(&mut self, site: &Site, news: &Arc<Notify>) {
        let Some(engine) = &self.engine else {
            return;
        };
        let trouble = engine.progress.borrow().trouble.clone();
        // Clusters always serve core resources.
        if self.claim.resource.is_core() || trouble.is_none_or(|trouble| trouble.reason != "Unreachable") {
            self.doubt = None;
            return;
        }
        let known = &engine.running.shared.frame.resource;
        let doubt = self.doubt.get_or_insert_with(Doubt::new);
        match doubt.decide(site, &self.claim.resource, known, news) {
            Verdict::Open => {}
            Verdict::Unfounded => self.doubt = Some(Doubt::new()),
            Verdict::Founded(search) => {
                self.search = search;
                self.engine = None;
                self.doubt = None;
                self.waits = None;
            }
        }
    }

    /// What its engine shares with its tasks.
    pub(crate) fn engine(&self) -> Option<&Arc<Shared<Claimed>>> {
        self.engine.as_ref().map(|engine| &engine.running.shared)
    }

    /// How it is going, in the words for one binding.
    pub(crate) fn progress(&mut self, binding: &str) -> ClaimProgress {
        let Some(engine) = &self.engine else {
            return match self.search.outcome() {
                Some(Err(lack)) => self.lacking(lack),
                Some(Ok(_)) | None => ClaimProgress::default(),
            };
        };
        let doing = engine.progress.borrow().clone();
        let synced = doing.common.consumer_synced && doing.common.provider_synced && doing.complaint.is_none();
        let is_counted = synced || (doing.out_of_reach && doing.common.consumer_synced);
        self.waits = doing
            .complaint
            .as_ref()
            .map(|_| self.waits.unwrap_or_else(Instant::now));
        ClaimProgress {
            synced,
            from_consumer: doing.from_consumer,
            from_provider: doing.from_provider,
            pending: doing.common.pending,
            failing: doing.common.failing,
            selects_all: false,
            // Nothing is left only if nothing is on its way either.
            remaining: (is_counted && (doing.left > 0 || doing.is_idle)).then_some(doing.left),
            out_of_reach: doing.out_of_reach,
            problem: self.problem(binding, doing),
        }
    }

    /// There is nothing to sync.
    fn lacking(&self, lack: Lack) -> ClaimProgress {
        let is_nowhere = matches!(lack, Lack::Nowhere);
        let is_claimed = !self.rules.terms().exports.is_empty();
        ClaimProgress {
            remaining: is_nowhere.then_some(0),
            problem: (is_claimed || !is_nowhere).then(|| lack.problem(&self.claim.resource)),
            ..ClaimProgress::default()
        }
    }

    /// When to look again although nothing may have changed.
    pub(crate) fn due(&self) -> Option<Instant> {
        let patience = self.waits.map(|since| since + PATIENCE);
        let doubt = self.doubt.as_ref().and_then(Doubt::due);
        let due = [patience, doubt].into_iter().flatten();
        due.filter(|due| *due > Instant::now()).min()
    }

    fn problem(&self, binding: &str, doing: Doing) -> Option<Problem> {
        if let Some(trouble) = doing.trouble.filter(|_| !doing.out_of_reach) {
            return Some(Problem {
                reason: trouble.reason,
                message: trouble.message,
                lacks_right: trouble.lacks_right,
            });
        }
        if doing.left > 0 || doing.missing > 0 {
            let by = self.engine.as_ref()?.frozen_by_another(binding);
            if let Some(other) = by {
                return Some(Problem {
                    reason: "DeletionsHeldBack",
                    message: format!(
                        "copies that are to go stay for now: too many objects of APIServiceBinding {other}, which claims the \
                         same, are missing at once; its condition DeletionsSynced says what to do"
                    ),
                    lacks_right: false,
                });
            }
        }
        let is_late = self.waits.is_some_and(|since| since.elapsed() >= PATIENCE);
        doing.complaint.filter(|_| is_late).map(|message| Problem {
            reason: "ReferencesUnknown",
            message,
            lacks_right: false,
        })
    }
}

impl Drop for Unit {
    fn drop(&mut self) {
        self.rules.end();
    }
}

#[cfg(test)]
mod tests {
    use bindery_api::v1alpha2::PermissionClaim;

    use super::*;
    use crate::claims::testing::{self, claim_key};

    fn wanted(claim: &ClaimKey, informer_scope: InformerScope, cluster_wide_secrets: bool) -> Wanted {
        let accepted = PermissionClaim {
            group_resource: claim.resource.clone(),
            ..PermissionClaim::default()
        };
        Wanted {
            informer_scope,
            cluster_wide_secrets,
            accepted: vec![accepted],
            ..testing::wanted(&[])
        }
    }

    fn withdrawing(mut wanted: Wanted) -> Wanted {
        let claims = std::mem::take(&mut wanted.accepted);
        wanted.withdrawn = claims.into_iter().map(|claim| claim.group_resource).collect();
        wanted
    }

    #[test]
    fn secrets_are_watched_cluster_wide_only_by_an_explicit_word() {
        use InformerScope::{Cluster, Namespaced};

        #[track_caller]
        fn check(resource: &str, of: &[(InformerScope, bool)], expect: InformerScope) {
            let claim = claim_key(resource);
            let wanted: Vec<_> = of
                .iter()
                .map(|(scope, secrets)| wanted(&claim, *scope, *secrets))
                .collect();
            let withdrawing: Vec<_> = wanted.iter().cloned().map(withdrawing).collect();
            let scope = |wanted: &[Wanted]| informer_scope(&claim, &wanted.iter().collect::<Vec<_>>());
            assert_eq!(scope(&wanted), expect, "{resource} {of:?}");
            assert_eq!(scope(&withdrawing), Namespaced, "{resource} {of:?}");
        }
        check("configmaps", &[], Namespaced);
        check("configmaps", &[(Namespaced, false)], Namespaced);
        check("configmaps", &[(Namespaced, true)], Namespaced);
        check("configmaps", &[(Namespaced, false), (Cluster, false)], Cluster);
        check("secrets", &[(Cluster, false)], Namespaced);
        check("secrets", &[(Namespaced, true)], Namespaced);
        check("secrets", &[(Cluster, false), (Namespaced, true)], Namespaced);
        check("secrets", &[(Cluster, true)], Cluster);
    }
}
