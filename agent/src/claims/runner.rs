//! Serves one claimed resource: first by a search for a version that both clusters serve, then by an engine.

mod engine;
mod search;

use std::{sync::Arc, time::Duration};

use bindery_api::{claims::SECRETS, v1alpha2::InformerScope};
use tokio::{sync::Notify, time::Instant};

use super::{
    ClaimProgress, Wanted,
    rules::{self, ClaimRules, ClaimTerms},
    strategy::{Claimed, ClaimedProgress},
};
use crate::{
    connection::Sides,
    contract::Contract,
    engine::{Cause, Problem, Shared, Surroundings},
    references::{ClaimKey, References},
};
use engine::{Engine, Guards};
use search::{SearchFailure, StalenessCheck, Verdict, VersionSearch};

/// The time until references that are not all known are reported as a problem.
const PATIENCE: Duration = Duration::from_secs(10);

/// What the claims of a session are served with.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub contract: Contract,
    pub sides: Sides,
    pub around: Surroundings,
    /// The konnector's own namespace.
    pub own_namespace: Arc<str>,
}

/// Serves one claimed resource until it is dropped.
pub(crate) struct ClaimRunner {
    claim: ClaimKey,
    rules: Arc<ClaimRules>,
    informer_scope: InformerScope,
    search: VersionSearch,
    engine: Option<Engine>,
    staleness: Option<StalenessCheck>,
    /// Since when not all references have been known.
    references_unknown_since: Option<Instant>,
}

/// Decides whether the provider is watched cluster-wide for a claim. A binding that only withdraws may have lost the right to.
pub(crate) fn informer_scope(claim: &ClaimKey, wanted: &[&Wanted]) -> InformerScope {
    let is_secrets = claim.resource.is_core() && claim.resource.resource == SECRETS;
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

// === impl ClaimRunner ===

impl ClaimRunner {
    /// Starts to search. `news` is notified of every change.
    pub(crate) fn start(
        site: &Site,
        references: &References,
        claim: ClaimKey,
        terms: ClaimTerms,
        informer_scope: InformerScope,
        news: &Arc<Notify>,
    ) -> Self {
        let rules = ClaimRules::new(
            claim.clone(),
            (Arc::clone(&site.contract.namespace), Arc::clone(&site.contract.uid)),
            Arc::clone(&site.own_namespace),
            references.clone(),
            terms,
        );
        Self {
            search: VersionSearch::start(site, &claim.resource, news),
            claim,
            rules: Arc::new(rules),
            informer_scope,
            engine: None,
            staleness: None,
            references_unknown_since: None,
        }
    }

    /// Whether the provider is watched by namespace or cluster-wide.
    pub(crate) fn informer_scope(&self) -> InformerScope {
        self.informer_scope
    }

    /// Whether the objects that were seen have the labels that these terms let come down.
    pub(crate) fn carries_labels_of(&self, terms: &ClaimTerms) -> bool {
        self.rules.carries_labels_of(terms)
    }

    /// Replaces what the bindings say.
    pub(crate) fn set(&mut self, terms: ClaimTerms, guards: &Guards) {
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

    /// Starts the engine as soon as a version is found, and ends it when that is served no more.
    pub(crate) fn tend(&mut self, site: &Site, guards: &Guards, news: &Arc<Notify>) {
        self.check_staleness(site, news);
        if self.engine.is_some() {
            return;
        }
        if let Some(Ok(resource)) = self.search.outcome() {
            let engine = Engine::start(site, &self.rules, resource, self.informer_scope, guards, news);
            self.engine = Some(engine);
        }
    }

    /// Searches again when a watch has failed for long: the version may not be served any more.
    fn check_staleness(&mut self, site: &Site, news: &Arc<Notify>) {
        let Some(engine) = &self.engine else {
            return;
        };
        let problem = engine.progress.borrow().common.problem.clone();
        // Clusters always serve core resources.
        if self.claim.resource.is_core() || problem.is_none_or(|problem| problem.cause != Cause::Unreachable) {
            self.staleness = None;
            return;
        }
        let known = &engine.running.shared.frame.resource;
        let staleness = self.staleness.get_or_insert_with(StalenessCheck::new);
        match staleness.decide(site, &self.claim.resource, known, news) {
            Verdict::Open => {}
            Verdict::Current => self.staleness = Some(StalenessCheck::new()),
            Verdict::Stale(search) => {
                self.search = search;
                self.engine = None;
                self.staleness = None;
                self.references_unknown_since = None;
            }
        }
    }

    /// The engine, if it runs.
    pub(crate) fn engine(&self) -> Option<&Arc<Shared<Claimed>>> {
        self.engine.as_ref().map(|engine| &engine.running.shared)
    }

    /// The progress to report to one binding.
    pub(crate) fn progress(&mut self, binding: &str) -> ClaimProgress {
        let Some(engine) = &self.engine else {
            return match self.search.outcome() {
                Some(Err(lack)) => self.lacking(lack),
                Some(Ok(_)) | None => ClaimProgress::default(),
            };
        };
        let progress = engine.progress.borrow().clone();
        let synced = progress.common.consumer_synced && progress.common.provider_synced && progress.complaint.is_none();
        let is_counted = synced || (progress.out_of_reach && progress.common.consumer_synced);
        self.references_unknown_since = progress
            .complaint
            .as_ref()
            .map(|_| self.references_unknown_since.unwrap_or_else(Instant::now));
        ClaimProgress {
            synced,
            from_consumer: progress.from_consumer,
            from_provider: progress.from_provider,
            pending: progress.common.pending,
            failing: progress.common.failing,
            orphans: progress.common.orphans.clone(),
            left_out: progress
                .left_out
                .as_ref()
                .map(|(key, left_out)| format!("{left_out} of {key}")),
            selects_all: false,
            // No leftovers are reported only once no write is under way either.
            remaining: (is_counted && (progress.leftovers > 0 || progress.is_idle)).then_some(progress.leftovers),
            out_of_reach: progress.out_of_reach,
            problem: self.problem(binding, progress),
        }
    }

    /// The progress while there is no version to sync.
    fn lacking(&self, lack: SearchFailure) -> ClaimProgress {
        let is_nowhere = matches!(lack, SearchFailure::Nowhere);
        let is_claimed = !self.rules.terms().exports.is_empty();
        ClaimProgress {
            remaining: is_nowhere.then_some(0),
            problem: (is_claimed || !is_nowhere).then(|| lack.problem(&self.claim.resource)),
            ..ClaimProgress::default()
        }
    }

    /// When to look at it again even if nothing changes.
    pub(crate) fn due(&self) -> Option<Instant> {
        let patience = self.references_unknown_since.map(|since| since + PATIENCE);
        let staleness = self.staleness.as_ref().and_then(StalenessCheck::due);
        let due = [patience, staleness].into_iter().flatten();
        due.filter(|due| *due > Instant::now()).min()
    }

    fn problem(&self, binding: &str, progress: ClaimedProgress) -> Option<Problem> {
        let problem = progress.common.problem.filter(|_| !progress.out_of_reach);
        if problem.is_some() {
            return problem;
        }
        if progress.leftovers > 0
            && let Some(by) = self.engine.as_ref()?.held_back_by(binding)
        {
            return Some(Problem {
                reason: "DeletionsHeldBack",
                message: format!(
                    "copies that are to go stay for now, because orphans of APIServiceBinding {by} may refer to them; condition \
                     OrphanedObjects of that binding says what to do"
                ),
                cause: Cause::Other,
                namespace: None,
            });
        }
        let is_late = self
            .references_unknown_since
            .is_some_and(|since| since.elapsed() >= PATIENCE);
        progress.complaint.filter(|_| is_late).map(|message| Problem {
            reason: "ReferencesUnknown",
            message,
            cause: Cause::Other,
            namespace: None,
        })
    }
}

impl Drop for ClaimRunner {
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
