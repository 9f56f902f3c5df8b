//! Decides whether a konnector may go on as the holder of a contract.

use bindery_api::holder::{HolderChain, RecordedHolder};

/// Why a konnector is not the holder of a contract, by what it sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding {
    /// The provider records a holder, and this konnector has no record of the contract: it is a second installation, or its Lease
    /// was deleted.
    SecondInstall,
    /// The provider records a later step of the same holder: this cluster is a clone, or was restored from a backup.
    RestoredOrCloned,
    /// The provider records an earlier step of the same holder, or none: the provider was restored from a backup.
    ProviderWentBack,
    /// The ClusterBinding that had the record is gone, or another one has taken its place.
    RecordDeleted,
    /// The provider records another holder, which the user accepted elsewhere.
    OtherHolder,
    /// Two konnectors held the contract at the same time, and one of them has noted it on the provider.
    Contested,
    /// An older konnector, which keeps no record, has sent a heartbeat.
    OlderKonnector,
}

impl Finding {
    /// Reason of the condition of bindings and bundles.
    pub fn reason(self) -> &'static str {
        match self {
            Self::SecondInstall => "SecondInstall",
            Self::RestoredOrCloned => "RestoredOrCloned",
            Self::ProviderWentBack => "ProviderWentBack",
            Self::RecordDeleted => "RecordDeleted",
            Self::OtherHolder => "OtherHolder",
            Self::Contested => bindery_api::holder::CONTESTED,
            Self::OlderKonnector => "OlderKonnector",
        }
    }

    /// What was seen, as the begin of a message.
    pub fn seen(self) -> &'static str {
        match self {
            Self::SecondInstall => {
                "another konnector holds the contract, and this one has no record of it: this is a second installation, or the \
                 Lease of the konnector was deleted, as when the konnector is removed after an unbind that did not wait for the provider, \
                 and is installed again"
            }
            Self::RestoredOrCloned => {
                "the provider has seen this contract further than this konnector has: this cluster is a clone, or it was restored \
                 from a backup"
            }
            Self::ProviderWentBack => {
                "the provider has not seen this contract as far as this konnector has: the provider was restored from a backup"
            }
            Self::RecordDeleted => {
                "the ClusterBinding of the contract, in which the provider recorded this konnector, was deleted: by somebody, or by a \
                 restore that makes objects anew; the provider's server makes another one"
            }
            Self::OtherHolder => "another konnector was accepted as the holder of the contract",
            Self::Contested => "two konnectors held the contract at the same time: this cluster and a clone of it",
            Self::OlderKonnector => {
                "an older konnector, which does not tell whether it holds the contract, has sent a heartbeat: this konnector was rolled \
                 back for a while, or another one still runs, which has to be stopped first"
            }
        }
    }

    /// Whether a cache that is behind shows the same, so that only a read proves it.
    pub(crate) fn may_be_late(self) -> bool {
        matches!(self, Self::ProviderWentBack | Self::RecordDeleted)
    }

    /// Whether a konnector that held the contract until now has met another one that holds it too.
    pub(super) fn is_rival(self) -> bool {
        matches!(self, Self::RestoredOrCloned | Self::OtherHolder)
    }
}

/// Decides whether a konnector with this chain holds the contract, or may take it: if and only if the provider has a record that the
/// chain contains, or if both have none. Generations only word what was found.
pub(super) fn judge(chain: &HolderChain, recorded: &RecordedHolder) -> Result<(), Finding> {
    if recorded.is_contested {
        return Err(Finding::Contested);
    }
    if chain.contains(recorded.record.as_ref()) {
        return if recorded.is_bypassed {
            Err(Finding::OlderKonnector)
        } else {
            Ok(())
        };
    }
    let Some(record) = &recorded.record else {
        return Err(if chain.has_lost_binding(recorded.binding.as_deref()) {
            Finding::RecordDeleted
        } else {
            Finding::ProviderWentBack
        });
    };
    let steps = || chain.attempts.iter().chain([&chain.current]).flatten();
    Err(if steps().next().is_none() {
        Finding::SecondInstall
    } else if steps().all(|step| step.instance != record.instance) {
        Finding::OtherHolder
    } else if chain
        .current
        .as_ref()
        .is_some_and(|current| record.generation <= current.generation)
    {
        Finding::ProviderWentBack
    } else {
        Finding::RestoredOrCloned
    })
}

#[cfg(test)]
mod tests {
    use bindery_api::holder::HolderRecord;

    use super::*;

    fn step(text: &str) -> HolderRecord {
        text.parse().unwrap()
    }

    fn chain(current: Option<&str>, attempts: &[Option<&str>]) -> HolderChain {
        HolderChain {
            current: current.map(step),
            attempts: attempts.iter().map(|attempt| attempt.map(step)).collect(),
            binding: None,
        }
    }

    fn recorded(record: Option<&str>) -> RecordedHolder {
        RecordedHolder {
            record: record.map(step),
            ..RecordedHolder::default()
        }
    }

    #[track_caller]
    fn check(case: &str, chain: &HolderChain, record: Option<&str>, expect: Result<(), Finding>) {
        assert_eq!(judge(chain, &recorded(record)), expect, "{case}");
    }

    #[test]
    fn each_case_has_its_outcome() {
        let empty = chain(None, &[]);
        let settled = chain(Some("i/5/e"), &[]);
        let begun = chain(Some("i/5/e"), &[Some("i/6/f")]);
        check("first start", &empty, None, Ok(()));
        check("crash before the first P", &chain(None, &[Some("i/1/a")]), None, Ok(()));
        check("restart, failover, any time down", &settled, Some("i/5/e"), Ok(()));
        check("crash between C and P", &begun, Some("i/5/e"), Ok(()));
        check(
            "crash after P, a lost answer, a late patch",
            &begun,
            Some("i/6/f"),
            Ok(()),
        );
        let long = chain(Some("i/5/e"), &[Some("i/6/f"), Some("i/6/g"), Some("i/6/h")]);
        check(
            "late patch of a leader that died long ago",
            &long,
            Some("i/6/f"),
            Ok(()),
        );
        check(
            "clone older than a heartbeat",
            &settled,
            Some("i/7/g"),
            Err(Finding::RestoredOrCloned),
        );
        check(
            "clone within a heartbeat, which claims first",
            &begun,
            Some("i/6/x"),
            Err(Finding::RestoredOrCloned),
        );
        check(
            "restore in place",
            &begun,
            Some("i/9/k"),
            Err(Finding::RestoredOrCloned),
        );
        check(
            "restore in place from within a heartbeat",
            &settled,
            Some("i/5/e"),
            Ok(()),
        );
        check(
            "provider restored",
            &settled,
            Some("i/3/c"),
            Err(Finding::ProviderWentBack),
        );
        check(
            "provider restored, another branch",
            &settled,
            Some("i/5/x"),
            Err(Finding::ProviderWentBack),
        );
        check(
            "provider restored to before the contract was held",
            &settled,
            None,
            Err(Finding::ProviderWentBack),
        );
        check(
            "both restored, cut alike",
            &chain(Some("i/3/c"), &[]),
            Some("i/3/c"),
            Ok(()),
        );
        check(
            "second install, Lease deleted",
            &empty,
            Some("i/5/e"),
            Err(Finding::SecondInstall),
        );
        check(
            "another one was accepted",
            &settled,
            Some("j/6/f"),
            Err(Finding::OtherHolder),
        );
        check(
            "crash while accepting",
            &chain(Some("i/5/e"), &[Some("k/7/z")]),
            Some("j/6/f"),
            Err(Finding::OtherHolder),
        );
        check(
            "unbound, crash before the Lease forgets it",
            &chain(Some("i/5/e"), &[None]),
            None,
            Ok(()),
        );
        check(
            "unbound, crash before P",
            &chain(Some("i/5/e"), &[None]),
            Some("i/5/e"),
            Ok(()),
        );
    }

    #[test]
    fn a_deleted_cluster_binding_is_told_from_a_provider_that_went_back() {
        let settled = chain(Some("i/5/e"), &[]).on(Some("u"));
        let on = |binding: Option<&str>, record| RecordedHolder {
            binding: binding.map(str::to_owned),
            ..recorded(record)
        };
        let judged = |binding, record| judge(&settled, &on(binding, record));
        assert_eq!(
            judged(None, None),
            Err(Finding::RecordDeleted),
            "it is not made anew yet"
        );
        assert_eq!(judged(Some("v"), None), Err(Finding::RecordDeleted));
        assert_eq!(judged(Some("u"), None), Err(Finding::ProviderWentBack));
        assert_eq!(judged(Some("v"), Some("i/3/c")), Err(Finding::ProviderWentBack));
        assert_eq!(
            judged(Some("v"), Some("i/5/e")),
            Ok(()),
            "a restore that makes objects anew, cut alike"
        );
    }

    #[test]
    fn a_cache_that_is_behind_shows_no_later_step() {
        let held = chain(Some("i/5/e"), &[Some("i/6/f")]);
        for (record, is_late) in [
            (Some("i/4/d"), true),
            (None, true),
            (Some("i/7/g"), false),
            (Some("j/6/f"), false),
        ] {
            let finding = judge(&held, &recorded(record)).unwrap_err();
            assert_eq!(finding.may_be_late(), is_late, "{finding:?} for {record:?}");
        }
    }

    /// What a start does before the process ends.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum Crash {
        /// Before the step is written to the Lease.
        First,
        /// The Lease has the step, and the request to the provider is not sent, or refused.
        AfterLease,
        /// The Lease has the step, and the request is still on its way.
        OnTheWay,
        /// The provider has the step, and the answer is lost.
        AfterProvider,
        /// The Lease has forgotten all other steps.
        Never,
    }

    const CRASHES: [Crash; 5] = [
        Crash::First,
        Crash::AfterLease,
        Crash::OnTheWay,
        Crash::AfterProvider,
        Crash::Never,
    ];

    /// Both clusters, and the requests to the provider that are still on their way.
    #[derive(Clone, Debug, Default)]
    struct Clusters {
        chain: HolderChain,
        provider: Option<HolderRecord>,
        on_the_way: Vec<HolderRecord>,
        steps: u64,
    }

    impl Clusters {
        fn judged(&self, provider: Option<&HolderRecord>) -> Result<(), Finding> {
            judge(
                &self.chain,
                &RecordedHolder {
                    record: provider.cloned(),
                    ..RecordedHolder::default()
                },
            )
        }

        /// A start that ends so.
        fn start(&mut self, crash: Crash) {
            if crash == Crash::First {
                return;
            }
            self.steps += 1;
            let step = step(&format!("i/{}/n{}", self.steps, self.steps));
            self.chain = self.chain.begin(self.provider.as_ref(), Some(step.clone()));
            match crash {
                Crash::First | Crash::AfterLease => {}
                Crash::OnTheWay => self.on_the_way.push(step),
                Crash::AfterProvider => self.accept(step),
                Crash::Never => {
                    self.accept(step.clone());
                    self.chain = HolderChain::fold(step);
                }
            }
        }

        /// The provider's record is written on condition of its version, so that what was sent before cannot arrive any more.
        fn accept(&mut self, step: HolderRecord) {
            self.provider = Some(step);
            self.on_the_way.clear();
        }
    }

    #[test]
    fn four_crashes_in_a_row_at_any_steps_stop_nobody() {
        for case in 0..CRASHES.len().pow(4) {
            let mut clusters = Clusters::default();
            let mut crashes = Vec::new();
            for place in 0..4_u32 {
                let crash = CRASHES[case / CRASHES.len().pow(place) % CRASHES.len()];
                crashes.push(crash);
                clusters.start(crash);
                assert_eq!(clusters.judged(clusters.provider.as_ref()), Ok(()), "{crashes:?}");
                // Any of the requests may arrive now, however late.
                for late in &clusters.on_the_way {
                    assert_eq!(clusters.judged(Some(late)), Ok(()), "{late} after {crashes:?}");
                }
            }
        }
    }

    #[test]
    fn a_request_that_outlives_four_later_starts_makes_the_konnector_wait() {
        let mut clusters = Clusters::default();
        clusters.start(Crash::Never);
        for _ in 0..5 {
            clusters.start(Crash::OnTheWay);
        }
        let [first, later @ ..] = &clusters.on_the_way[..] else {
            panic!("nothing is on its way");
        };
        for late in later {
            assert_eq!(clusters.judged(Some(late)), Ok(()), "{late}");
        }
        // The chain has a limit. What it forgot stops the konnector: nothing is written until the user accepts it.
        assert_eq!(clusters.judged(Some(first)), Err(Finding::RestoredOrCloned));
        assert_eq!(clusters.judged(clusters.provider.as_ref()), Ok(()));
    }

    #[test]
    fn a_contest_and_an_older_konnector_stop_whoever_is_known() {
        let settled = chain(Some("i/5/e"), &[]);
        for record in [Some("i/5/e"), Some("i/6/f")] {
            let contested = RecordedHolder {
                is_contested: true,
                ..recorded(record)
            };
            assert_eq!(judge(&settled, &contested), Err(Finding::Contested));
        }
        let bypassed = RecordedHolder {
            is_bypassed: true,
            ..recorded(Some("i/5/e"))
        };
        assert_eq!(judge(&settled, &bypassed), Err(Finding::OlderKonnector));
    }
}
