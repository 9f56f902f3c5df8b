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
                 Lease of the konnector was deleted"
            }
            Self::RestoredOrCloned => {
                "the provider has seen this contract further than this konnector has: this cluster is a clone, or it was restored \
                 from a backup"
            }
            Self::ProviderWentBack => {
                "the provider has not seen this contract as far as this konnector has: the provider was restored from a backup"
            }
            Self::OtherHolder => "another konnector was accepted as the holder of the contract",
            Self::Contested => "two konnectors held the contract at the same time: this cluster and a clone of it",
            Self::OlderKonnector => {
                "an older konnector, which does not tell whether it holds the contract, has sent a heartbeat: it may still run"
            }
        }
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
        return Err(Finding::ProviderWentBack);
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
