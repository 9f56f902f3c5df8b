use bindery_api::{annotations, v1alpha2::ClusterSecretKeyRef};
use bindery_runtime::kubeconfig::Refusal;
use kube::ResourceExt as _;

use super::*;
use crate::{
    bundle::{
        fixtures::{bound, bundle, contract, list, respec, secret, seen},
        plan::plan,
    },
    controller::{access::SecretProblem, observed_session::ClusterPin},
};

fn with(mut seen: ObservedBundle, change: impl FnOnce(&mut ObservedBundle)) -> ObservedBundle {
    change(&mut seen);
    seen
}

fn status_of(seen: &ObservedBundle) -> APIServiceBindingBundleStatus {
    of(seen, &plan(seen), &ExportFailures::new())
}

/// Type, reason and severity of a condition that must not hold, and a part of its message.
#[track_caller]
fn check(seen: &ObservedBundle, kind: &str, reason: &str, severity: Severity, says: &str) {
    let status = status_of(seen);
    let condition = conditions::get(&status.conditions, kind).unwrap_or_else(|| panic!("no {kind}: {status:?}"));
    assert!(!condition.is_true(), "{condition:?}");
    assert_eq!((condition.reason.as_str(), condition.severity), (reason, severity));
    assert!(condition.message.contains(says), "{}", condition.message);
    assert!(!conditions::is_true(&status.conditions, conditions::READY));
    assert_eq!(status.observed_generation, Some(3));
}

#[test]
fn all_is_well() {
    let mut seen = bound(&["a", "b"]);
    let status = status_of(&seen);
    for kind in [
        conditions::READY,
        types::SECRET_VALID,
        types::SYNCED,
        types::PROVIDER_REACHABLE,
    ] {
        assert!(conditions::is_true(&status.conditions, kind), "{kind}: {status:?}");
    }
    let synced = conditions::get(&status.conditions, types::SYNCED).unwrap();
    assert_eq!(synced.message, "2 of 2 exports are bound");
    assert_eq!((status.discovered_services, status.bound_services), (Some(2), Some(2)));
    assert!(status.last_sync_time.is_some());
    assert_eq!(status.contract_uid.as_deref(), Some("a"));
    assert_eq!(status.provider_namespace.as_deref(), Some("kube-bind-x"));
    assert_eq!(status.provider_pretty_name.as_deref(), Some("Wild West"));
    bundle(&mut seen).status = Some(status.clone());
    assert_eq!(
        changes(Some(&status), &status_of(&seen), seen.now),
        None,
        "a second look writes nothing"
    );
}

#[test]
fn clocks_alone_are_written_once_a_minute() {
    let mut seen = bound(&["a"]);
    let mut known = status_of(&seen);
    let mut writes = 0;
    for second in 0..=180 {
        seen.now = Timestamp::from_second(second).unwrap();
        seen.last_probe.as_mut().unwrap().at = seen.now;
        bundle(&mut seen).status = Some(known.clone());
        let status = status_of(&seen);
        if changes(Some(&known), &status, seen.now).is_some() {
            writes += 1;
            known = status;
        }
    }
    assert_eq!(writes, 3);
    list(&mut seen, &["a", "b"]);
    let changed = status_of(&seen);
    assert!(
        changes(Some(&known), &changed, seen.now).is_some(),
        "news are told at once"
    );
}

#[test]
fn every_problem_of_the_secret_has_its_reason() {
    let problem = |problem, reason: &str, says: &str| {
        let seen = with(bound(&["a"]), |seen| seen.access = ContractAccess::Problem(problem));
        check(&seen, "SecretValid", reason, Severity::Error, says);
        check(&seen, "Synced", "ProviderClientError", Severity::Error, "SecretValid");
        assert!(conditions::get(&status_of(&seen).conditions, types::PROVIDER_REACHABLE).is_none());
    };
    let at = || Box::new(secret("provider"));
    problem(
        SecretProblem::NotFound { at: at() },
        "KubeconfigSecretNotFound",
        "create it",
    );
    problem(
        SecretProblem::NoKey { at: at() },
        "KubeconfigKeyNotFound",
        "no key kubeconfig",
    );
    let namespace = "kube-bind".to_owned();
    let elsewhere = Box::new(ClusterSecretKeyRef {
        namespace: "default".to_owned(),
        ..secret("provider")
    });
    let elsewhere = SecretProblem::Elsewhere {
        at: elsewhere,
        namespace,
    };
    problem(elsewhere, "KubeconfigSecretElsewhere", "only in namespace kube-bind");
    let refused = |refusal| SecretProblem::Refused { at: at(), refusal };
    problem(
        refused(Refusal::Unparsable { line: None }),
        "KubeconfigSecretInvalid",
        "parsed",
    );
    problem(refused(Refusal::NoNamespace), "KubeconfigNamespaceMissing", "namespace");
    let unsafe_field = Refusal::Dangerous {
        field: "exec",
        danger: "runs a program",
        mend: "give a token",
    };
    problem(refused(unsafe_field), "KubeconfigUnsafe", "runs a program");
    let changed = with(bound(&["a"]), |seen| {
        let (pinned, found) = ("a".to_owned(), contract("z"));
        seen.access = ContractAccess::Changed { pinned, found };
        bundle(seen).annotations_mut().insert(
            annotations::ACCEPT_PROVIDER_CHANGE.to_owned(),
            "1969-01-01T00:00:00Z".to_owned(),
        );
    });
    check(
        &changed,
        "SecretValid",
        "ProviderChanged",
        Severity::Error,
        "annotating the bundle",
    );
    check(
        &changed,
        "SecretValid",
        "ProviderChanged",
        Severity::Error,
        "expired at",
    );
    assert_eq!(status_of(&changed).contract_uid.as_deref(), Some("a"), "the pin stays");
    let expired = with(bound(&["a"]), |seen| {
        seen.session.as_mut().unwrap().expired = Some("revoked".to_owned());
    });
    check(
        &expired,
        "SecretValid",
        "CredentialExpired",
        Severity::Error,
        "kube-bind/provider, key kubeconfig",
    );
}

#[test]
fn a_provider_that_does_not_answer_is_an_error_in_the_end() {
    let failing = |problem: ConnectError, failures: u32, retries: Option<i32>| {
        with(bound(&["a"]), |seen| {
            respec(seen, |spec| spec.max_retries = retries);
            let probe = seen.last_probe.as_mut().unwrap();
            (probe.problem, probe.failures) = (Some(problem), failures);
        })
    };
    let (server, message) = ("https://x".to_owned(), "no route".to_owned());
    let away = || ConnectError::Unreachable {
        server: server.clone(),
        message: message.clone(),
    };
    for (failures, retries, severity) in [
        (1, None, Severity::Warning),
        (2, None, Severity::Warning),
        (3, None, Severity::Error),
        (99, None, Severity::Error),
        (1, Some(0), Severity::Error),
        (4, Some(5), Severity::Warning),
    ] {
        let seen = failing(away(), failures, retries);
        check(&seen, "ProviderReachable", "ProviderUnreachable", severity, "no route");
        let status = status_of(&seen);
        let condition = conditions::get(&status.conditions, types::PROVIDER_REACHABLE).unwrap();
        assert!(condition.last_probe_time.is_some());
        assert!(
            conditions::is_true(&status.conditions, types::SYNCED),
            "what is known is in sync"
        );
    }
    let unverified = ConnectError::Unverified {
        server: server.clone(),
        namespace: "kube-bind-x".to_owned(),
    };
    let (denied, unauthorized, gone) = (
        ConnectError::Denied {
            server: server.clone(),
            message: message.clone(),
        },
        ConnectError::Unauthorized {
            server: server.clone(),
            message: message.clone(),
        },
        ConnectError::Gone {
            server: server.clone(),
            namespace: "kube-bind-x".to_owned(),
        },
    );
    for (problem, reason) in [
        (denied, "ProviderForbidden"),
        (unverified, "ContractUnverified"),
        (unauthorized, "ProviderUnauthorized"),
        (gone, "ContractNotFound"),
    ] {
        let at_first = with(failing(problem.clone(), 1, None), |seen| {
            seen.access = ContractAccess::Failed(problem);
        });
        check(&at_first, "ProviderReachable", reason, Severity::Warning, "https://x");
        check(&at_first, "Synced", "ListExportsFailed", Severity::Warning, "https://x");
    }
}

#[test]
fn exports_that_cannot_be_followed_are_told_when_that_lasts() {
    let failing = |since| {
        with(bound(&["a"]), |seen| {
            seen.exports.failing = Some(("forbidden".to_owned(), since));
        })
    };
    assert!(conditions::is_true(
        &status_of(&failing(Duration::from_secs(9))).conditions,
        types::SYNCED
    ));
    check(
        &failing(PATIENCE),
        "Synced",
        "ListExportsFailed",
        Severity::Warning,
        "forbidden",
    );
    let unknown = with(failing(Duration::ZERO), |seen| seen.exports.complete = false);
    check(&unknown, "Synced", "ListExportsFailed", Severity::Warning, "forbidden");
}

#[test]
fn problems_of_single_exports_are_named() {
    let names: Vec<_> = (0..25).map(|number| format!("e{number:02}")).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let seen = seen(&names);
    let failures: ExportFailures = names
        .iter()
        .map(|name| ((*name).to_owned(), "refused".to_owned()))
        .collect();
    let status = of(&seen, &plan(&seen), &failures);
    let synced = conditions::get(&status.conditions, types::SYNCED).unwrap();
    assert_eq!((&*synced.reason, synced.severity), ("SyncErrors", Severity::Warning));
    assert!(
        synced.message.starts_with("export e00: refused; export e01: refused"),
        "{}",
        synced.message
    );
    assert!(synced.message.ends_with("and 15 more"), "{}", synced.message);
    let typo = with(bound(&["a"]), |seen| {
        respec(seen, |spec| {
            spec.polling_interval = Some(serde_json::from_value("soon".into()).unwrap());
        });
    });
    check(&typo, "Synced", "InvalidSpec", Severity::Warning, "soon");
    let waiting = with(bound(&["a"]), |seen| {
        let now = seen.now;
        let binding = std::sync::Arc::make_mut(&mut seen.bindings[0]);
        binding.metadata.deletion_timestamp = Some(Time(now));
    });
    check(
        &waiting,
        "Synced",
        "Waiting",
        Severity::Info,
        "export a: APIServiceBinding a is being deleted",
    );
}

#[test]
fn what_merely_goes_on_is_told_apart() {
    let mut seen = bound(&["a", "b"]);
    let all = status_of(&seen);
    bundle(&mut seen).status = Some(all.clone());
    let check = |seen: &ObservedBundle, expect| assert_eq!(is_mere_progress(Some(&all), &status_of(seen)), expect);
    check(&seen, false);
    let unready = with(seen.clone(), |seen| {
        seen.now = Timestamp::from_second(1000).unwrap();
        std::sync::Arc::make_mut(&mut seen.bindings[0]).status = None;
    });
    assert!(changes(Some(&all), &status_of(&unready), unready.now).is_some());
    check(&unready, true);
    assert!(!is_mere_progress(None, &status_of(&unready)));
    let fewer = with(seen.clone(), |seen| list(seen, &["a"]));
    check(&fewer, false);
    let failing = with(seen, |seen| seen.bindings_failing = Some("gone".to_owned()));
    check(&failing, false);
}

#[test]
fn a_look_before_the_provider_has_answered_changes_nothing() {
    let mut seen = bound(&["a"]);
    let status = status_of(&seen);
    bundle(&mut seen).status = Some(status.clone());
    seen.access = ContractAccess::Connecting;
    assert_eq!(changes(Some(&status), &status_of(&seen), seen.now), None);
    bundle(&mut seen).status = None;
    check(&seen, "Synced", "Connecting", Severity::Info, "answer");
}

#[test]
fn that_the_contract_serves_another_cluster_is_kept_until_it_is_found_out_again() {
    let mut seen = bound(&["a"]);
    seen.session.as_mut().unwrap().pin = ClusterPin::Other {
        recorded: Some("theirs".to_owned()),
    };
    bundle(&mut seen).status = Some(status_of(&seen));
    let away = with(seen.clone(), |seen| {
        seen.session = None;
        seen.access = ContractAccess::Failed(ConnectError::Unreachable {
            server: "https://x".to_owned(),
            message: "no route".to_owned(),
        });
    });
    check(
        &away,
        types::SYNCED,
        "ConsumerClusterMismatch",
        Severity::Error,
        "theirs",
    );
    seen.session.as_mut().unwrap().pin = ClusterPin::Ours;
    assert!(conditions::is_true(&status_of(&seen).conditions, types::SYNCED));
}
