use bindery_api::{annotations, orphans::OrphanSet, v1alpha2::RemovedExports};
use bindery_runtime::cache::ObjectKey;
use bindery_runtime::guard::{Guard, Limits, NameRule};
use kube::ResourceExt as _;
use serde_json::json;

use super::*;
use crate::{
    binding::{
        crd::ObservedSchema,
        fixtures::{CRD, binding, crd, fresh, installed, pinned, reached, schema, served, session},
        observed::OwningBundle,
        plan,
    },
    controller::{access::SecretProblem, conditions::turned, observed_session::ClusterPin},
    drain::{DrainMode, DrainProgress},
    engine::{Cause, Problem},
    holder::{Finding, Standing},
    session::{
        connect::ConnectError,
        exports::ExportLookup,
        heartbeat::Heartbeat,
        provider_rights::{LIST_CLUSTER_BINDINGS, LIST_SCHEMAS, ProviderRight, READ_NAMESPACE, WRITE_HEARTBEAT},
    },
};

pub(super) fn with(mut seen: ObservedBinding, change: impl FnOnce(&mut ObservedBinding)) -> ObservedBinding {
    change(&mut seen);
    seen
}

pub(super) fn status_of(seen: &ObservedBinding) -> APIServiceBindingStatus {
    live(seen, &plan::plan(seen), &CrdFailures::new())
}

/// Type, reason and severity of a condition that must not hold, and a part of its message.
#[track_caller]
pub(super) fn check(seen: &ObservedBinding, kind: &str, reason: &str, severity: Severity, says: &str) {
    let status = status_of(seen);
    let condition = conditions::get(&status.conditions, kind).unwrap_or_else(|| panic!("no {kind}: {status:?}"));
    assert!(!condition.is_true(), "{condition:?}");
    assert_eq!((condition.reason.as_str(), condition.severity), (reason, severity));
    assert!(condition.message.contains(says), "{}", condition.message);
    assert!(!conditions::is_true(&status.conditions, conditions::READY));
}

#[test]
fn all_is_well() {
    let status = status_of(&served());
    for kind in [
        conditions::READY,
        types::SECRET_VALID,
        types::CONNECTED,
        types::SCHEMA_IN_SYNC,
        types::HEARTBEATING,
        types::INFORMERS_SYNCED,
        types::OBJECTS_IN_SYNC,
        types::ACTIVE,
    ] {
        assert!(conditions::is_true(&status.conditions, kind), "{kind}: {status:?}");
    }
    assert_eq!(status.provider_pretty_name.as_deref(), Some("Wild West"));
    assert_eq!(status.contract_uid.as_deref(), Some("a"));
    assert_eq!(status.provider_namespace.as_deref(), Some("kube-bind-x"));
    assert_eq!(status.bound_schemas.len(), 1);
    let mut settled = served();
    binding(&mut settled).status = Some(status.clone());
    assert_eq!(
        changes(Some(&status), &status_of(&settled)),
        None,
        "a second look writes nothing"
    );
}

#[test]
fn a_new_binding_of_a_session_that_runs_is_not_ready_before_anything_is_bound() {
    check(
        &fresh(),
        types::SCHEMA_IN_SYNC,
        "Starting",
        Severity::Info,
        "recorded in the status",
    );
    let unpinned = with(pinned(), |seen| binding(seen).status = None);
    check(
        &unpinned,
        types::SCHEMA_IN_SYNC,
        "Starting",
        Severity::Info,
        "recorded in the status",
    );
}

#[test]
fn a_bad_secret_says_what_mends_it() {
    let problem = |problem| with(fresh(), |seen| seen.access = ContractAccess::Problem(problem));
    let at = bindery_api::v1alpha2::ClusterSecretKeyRef {
        namespace: "kube-bind".to_owned(),
        name: "x".to_owned(),
        key: "kubeconfig".to_owned(),
    };
    let missing = problem(SecretProblem::NotFound { at: Box::new(at) });
    check(
        &missing,
        "SecretValid",
        "KubeconfigSecretNotFound",
        Severity::Error,
        "kube-bind/x",
    );
    let failed = |failure| with(served(), |seen| seen.access = ContractAccess::Failed(failure));
    let (server, message) = ("https://x".to_owned(), "Unauthorized".to_owned());
    let expired = failed(ConnectError::Unauthorized { server, message });
    check(
        &expired,
        "SecretValid",
        "CredentialExpired",
        Severity::Error,
        "kubectl bind renew cowboys",
    );
    let (server, message) = ("https://x".to_owned(), "forbidden".to_owned());
    check(
        &failed(ConnectError::Denied { server, message }),
        "SecretValid",
        "CredentialDenied",
        Severity::Error,
        "ask the provider's admin",
    );
    let over = with(served(), |seen| session(seen).expired = Some("revoked".to_owned()));
    check(
        &over,
        "SecretValid",
        "CredentialExpired",
        Severity::Error,
        "kubectl bind renew cowboys",
    );
    let failing = with(served(), |seen| {
        session(seen).renewal_fails = Some("no route".to_owned());
    });
    check(
        &failing,
        "SecretValid",
        "CredentialRenewalFailing",
        Severity::Warning,
        "no route",
    );
    let locked = with(served(), |seen| {
        session(seen).renewal_fails = Some("a token was used again".to_owned());
        session(seen).is_renewal_locked = true;
    });
    for says in ["a token was used again", "kubectl bind renew cowboys"] {
        check(
            &locked,
            "SecretValid",
            "CredentialRenewalLocked",
            Severity::Warning,
            says,
        );
    }
    let changed = with(served(), |seen| {
        seen.access = ContractAccess::Changed {
            pinned: "a".to_owned(),
            found: reached("b"),
        };
    });
    check(
        &changed,
        "SecretValid",
        "ProviderChanged",
        Severity::Error,
        "accept-provider-change",
    );
    assert_eq!(status_of(&changed).contract_uid.as_deref(), Some("a"), "the pin stays");
}

#[test]
fn what_the_provider_lacks_is_named() {
    let (server, message) = ("https://x".to_owned(), "no route".to_owned());
    let away = with(pinned(), |seen| {
        seen.access = ContractAccess::Failed(ConnectError::Unreachable { server, message });
    });
    check(&away, "Connected", "ProviderUnreachable", Severity::Warning, "no route");
    let absent = |seen| with(seen, |seen| session(seen).export = ExportLookup::Absent);
    check(
        &absent(pinned()),
        "Connected",
        "APIServiceExportNotFound",
        Severity::Error,
        "kube-bind-x/cowboys",
    );
    check(
        &absent(installed()),
        "Connected",
        "ExportRemoved",
        Severity::Error,
        "no longer synced",
    );
    let schema = with(pinned(), |seen| {
        drop(seen.schemas.insert(CRD.to_owned(), ObservedSchema::Missing));
    });
    check(&schema, "Connected", "BoundSchemaFetchFailed", Severity::Error, CRD);
    let heartbeat = with(served(), |seen| {
        session(seen).heartbeat = Heartbeat::Failing {
            message: "no route".to_owned(),
        };
    });
    check(
        &heartbeat,
        "Heartbeating",
        "ClusterBindingUpdateFailed",
        Severity::Warning,
        "no route",
    );
    let other = with(served(), |seen| {
        session(seen).pin = ClusterPin::Other {
            recorded: Some("theirs".to_owned()),
        };
    });
    check(
        &other,
        "Heartbeating",
        "ConsumerClusterMismatch",
        Severity::Error,
        "theirs",
    );
}

#[test]
fn what_the_consumer_refuses_is_named() {
    let foreign = with(installed(), |seen| crd(seen).metadata.owner_references = None);
    check(
        &foreign,
        "Connected",
        "ForeignCustomResourceDefinition",
        Severity::Error,
        CRD,
    );
    let failure = CrdFailure {
        reason: "CustomResourceDefinitionCreateFailed",
        message: "spec is invalid".to_owned(),
    };
    let seen = pinned();
    let status = live(
        &seen,
        &plan::plan(&seen),
        &CrdFailures::from([(CRD.to_owned(), failure)]),
    );
    let connected = conditions::get(&status.conditions, types::CONNECTED).unwrap();
    assert_eq!(
        (connected.reason.as_str(), connected.message.as_str()),
        ("CustomResourceDefinitionCreateFailed", "spec is invalid")
    );
    check(
        &pinned(),
        "SchemaInSync",
        "CustomResourceDefinitionMissing",
        Severity::Info,
        CRD,
    );
    let blind = with(served(), |seen| {
        let progress = &mut seen.engines.get_mut(CRD).unwrap().progress;
        progress.consumer_synced = false;
        progress.problem = Some(problem("no right", Cause::ConsumerForbids));
    });
    check(
        &blind,
        "InformersSynced",
        "InformerSyncTimeout",
        Severity::Error,
        "kube-bind-konnector-cowboys",
    );
    let failing = with(served(), |seen| {
        let progress = &mut seen.engines.get_mut(CRD).unwrap().progress;
        progress.failing = 1;
        progress.problem = Some(problem("billy: quota is forbidden", Cause::ProviderForbids));
    });
    check(
        &failing,
        "ObjectsInSync",
        "ObjectsFailing",
        Severity::Warning,
        "billy: quota",
    );
}

fn annotate(seen: &mut ObservedBinding, annotation: &str, value: &str) {
    let annotations = binding(seen).annotations_mut();
    annotations.insert(annotation.to_owned(), value.to_owned());
}

#[test]
fn a_pause_is_shown_wherever_it_finds_the_binding() {
    let unreachable = ConnectError::Unreachable {
        server: String::new(),
        message: String::new(),
    };
    for seen in [
        fresh(),
        served(),
        with(served(), |seen| seen.access = ContractAccess::Connecting),
        with(served(), |seen| {
            seen.access = ContractAccess::Failed(unreachable.clone());
        }),
    ] {
        let paused = with(seen, |seen| annotate(seen, annotations::PAUSED, "true"));
        let says = "kubectl annotate apiservicebinding cowboys kube-bind.io/paused-";
        check(&paused, "Active", "Paused", Severity::Info, says);
        let end = unbinding(&paused, &UnbindPlan::default());
        let draining = conditions::get(&end.conditions, types::DRAINING).unwrap();
        assert_eq!((draining.is_true(), draining.reason.as_str()), (true, "Paused"));
        assert!(!conditions::is_true(&end.conditions, types::ACTIVE));
    }
}

#[test]
fn orphans_are_told_with_what_ends_them_and_leave_a_binding_ready() {
    let orphaned = |uids: &[&str]| {
        with(served(), |seen| {
            let orphans = &mut seen.engines.get_mut(CRD).unwrap().progress.orphans;
            for uid in uids {
                orphans.set.add(uid);
            }
            orphans.first = vec![ObjectKey::new("wild-west", "billy")];
        })
    };
    let told = |seen: &ObservedBinding| conditions::get(&status_of(seen).conditions, types::ORPHANED_OBJECTS).cloned();
    assert_eq!(told(&served()), None);
    let seen = orphaned(&["a", "b"]);
    let condition = told(&seen).unwrap();
    assert!(
        condition.is_true() && condition.reason == "SourcesMissing",
        "{condition:?}"
    );
    for says in [
        "2 copies have",
        "wild-west/billy, ...;",
        "kubectl bind orphans cowboys --delete",
    ] {
        assert!(condition.message.contains(says), "{condition:?}");
    }
    let set = seen.engines[CRD].progress.orphans.set;
    assert_eq!(OrphanSet::of_message(&condition.message), Some(set));
    let ready = |seen: &ObservedBinding| conditions::is_true(&status_of(seen).conditions, conditions::READY);
    assert_eq!(ready(&seen), ready(&served()));
    // A restarted konnector says what the one before it said, until it has listed all.
    let successor = with(served(), |other| {
        binding(other).status = Some(status_of(&seen));
        other.engines.get_mut(CRD).unwrap().progress.provider_synced = false;
    });
    assert_eq!(told(&successor).map(|told| told.message), Some(condition.message));
    let counted = with(successor, |seen| {
        seen.engines.get_mut(CRD).unwrap().progress.provider_synced = true;
    });
    assert_eq!(told(&counted), None);
}

#[test]
fn a_condition_of_a_former_version_goes() {
    let seen = with(served(), |seen| {
        let mut status = status_of(seen);
        let frozen = conditions::false_condition("DeletionsSynced", Severity::Error, "TooManyMissing", "12 of 50");
        conditions::set(&mut status.conditions, frozen, seen.now);
        binding(seen).status = Some(status);
    });
    assert_eq!(conditions::get(&status_of(&seen).conditions, "DeletionsSynced"), None);
}

#[test]
fn a_schema_that_is_not_taken_over_is_named() {
    let broken = with(served(), |seen| {
        let mut schema = std::sync::Arc::unwrap_or_clone(schema());
        schema.spec.versions[0].schema["openAPIV3Schema"]["type"] = json!("string");
        seen.schemas
            .insert(CRD.to_owned(), ObservedSchema::Present(std::sync::Arc::new(schema)));
    });
    check(&broken, "SchemaInSync", "IncompatibleSchema", Severity::Warning, CRD);
    assert!(conditions::is_true(&status_of(&broken).conditions, types::CONNECTED));
}

#[test]
fn a_consent_that_is_none_is_said_to_be_none() {
    let changed = with(served(), |seen| {
        annotate(seen, annotations::ACCEPT_PROVIDER_CHANGE, "yes");
        seen.access = ContractAccess::Changed {
            pinned: "a".to_owned(),
            found: reached("b"),
        };
    });
    check(
        &changed,
        "SecretValid",
        "ProviderChanged",
        Severity::Error,
        "is \"yes\", which is no time",
    );
}

#[test]
fn fields_that_no_longer_apply_are_removed() {
    let mut seen = served();
    binding(&mut seen).status = Some(status_of(&served()));
    seen.crds.clear();
    let status = status_of(&seen);
    assert!(status.bound_schemas.is_empty());
    let changes = changes(seen.binding.status.as_ref(), &status).unwrap();
    assert_eq!(changes["boundSchemas"], Value::Null, "the schema takes no empty list");
}

#[test]
fn an_ending_is_not_ready() {
    let seen = served();
    let end = UnbindPlan {
        message: "3 objects are left to delete".to_owned(),
        ..UnbindPlan::default()
    };
    let status = unbinding(&seen, &end);
    assert!(conditions::is_true(&status.conditions, types::DRAINING));
    let ready = conditions::get(&status.conditions, conditions::READY).unwrap();
    assert_eq!((ready.reason.as_str(), ready.severity), ("Unbinding", Severity::Info));
}

#[test]
fn only_conditions_that_turned_get_events() {
    let well = status_of(&served());
    let over = status_of(&with(served(), |seen| {
        session(seen).expired = Some("revoked".to_owned());
    }));
    let reasons = |before: &APIServiceBindingStatus, after: &APIServiceBindingStatus| -> Vec<String> {
        turned(&before.conditions, &after.conditions)
            .map(|condition| format!("{} {}", condition.type_, condition.reason))
            .collect()
    };
    assert_eq!(reasons(&well, &over), ["SecretValid CredentialExpired"]);
    assert_eq!(reasons(&over, &over), [""; 0]);
    assert_eq!(reasons(&over, &well), ["Ready "]);
}

#[test]
fn a_change_that_the_provider_does_not_pass_on_is_said_here_too() {
    let says = |severity, reason: &str| {
        let said = false_condition(
            types::SCHEMA_IN_SYNC,
            severity,
            reason,
            "v1: spec.intent: field removed",
        );
        with(served(), |seen| {
            let ExportLookup::Present(export) = &mut seen.session.as_mut().unwrap().export else {
                panic!("no export");
            };
            conditions::set(
                &mut std::sync::Arc::make_mut(export)
                    .status
                    .get_or_insert_default()
                    .conditions,
                said,
                seen.now,
            );
        })
    };
    let refused = says(Severity::Warning, "IncompatibleSchema");
    check(
        &refused,
        types::SCHEMA_IN_SYNC,
        "IncompatibleSchema",
        Severity::Warning,
        "spec.intent",
    );
    let report = export_report(&refused, &status_of(&refused), &plan::plan(&refused));
    assert!(report.connected.is_true() && report.consumer_in_sync.is_true());
    let kept = status_of(&says(Severity::Info, "SchemaChanged"));
    assert!(conditions::is_true(&kept.conditions, types::SCHEMA_IN_SYNC));
    assert!(conditions::is_true(&kept.conditions, conditions::READY));
}

#[test]
fn the_provider_hears_what_became_of_its_schemas() {
    let report_of = |seen: &ObservedBinding| export_report(seen, &status_of(seen), &plan::plan(seen));
    let well = report_of(&served());
    assert!(well.connected.is_true() && well.consumer_in_sync.is_true());
    assert_eq!(well.consumer_in_sync.type_, "ConsumerInSync");
    let foreign = report_of(&with(installed(), |seen| crd(seen).metadata.owner_references = None));
    assert_eq!(foreign.connected.reason, "BoundSchemasNotValid");
    assert!(!foreign.consumer_in_sync.is_true());
}

/// A binding of a bundle with this policy, which selects its export or not.
fn bundled(mut seen: ObservedBinding, removed: RemovedExports, selects: bool) -> ObservedBinding {
    seen.bundle = Some(OwningBundle {
        name: "west".to_owned(),
        role: "konnector.team.bundles".to_owned(),
        removed,
        selects,
    });
    binding(&mut seen).spec.export_name = Some("cows".to_owned());
    seen
}

fn problem(message: &str, cause: Cause) -> Problem {
    Problem {
        reason: "Any",
        message: message.to_owned(),
        cause,
        namespace: None,
    }
}

fn released(remaining: Option<usize>) -> ObservedBinding {
    with(installed(), |seen| {
        let released = DrainProgress {
            remaining,
            problem: None,
        };
        seen.releasers.insert(CRD.to_owned(), (DrainMode::Deleted, released));
        session(seen).export = ExportLookup::Absent;
    })
}

#[test]
fn a_bundles_binding_says_what_becomes_of_it_without_its_export() {
    let check_removed = |remaining, policy, says: &str| {
        let seen = bundled(released(remaining), policy, true);
        check(&seen, "Connected", "ExportRemoved", Severity::Error, says);
        check(&seen, "Connected", "ExportRemoved", Severity::Error, "kube-bind-x/cows");
    };
    check_removed(Some(7), RemovedExports::Keep, "7 objects are left");
    check_removed(Some(1), RemovedExports::Keep, "1 object is left");
    check_removed(None, RemovedExports::Keep, "objects are being counted");
    let recounted = |remaining, says: &str| {
        let seen = with(bundled(released(remaining), RemovedExports::Keep, true), |seen| {
            seen.last_count = Some(3);
        });
        check(&seen, "Connected", "ExportRemoved", Severity::Error, says);
    };
    recounted(None, "3 objects are left");
    recounted(Some(2), "2 objects are left");
    check_removed(
        Some(7),
        RemovedExports::Keep,
        "annotate apiservicebinding cowboys --overwrite kube-bind.io/allow-unbind-until=",
    );
    check_removed(Some(7), RemovedExports::Unbind, "its objects will be deleted");
    let never_installed = with(pinned(), |seen| session(seen).export = ExportLookup::Absent);
    let seen = bundled(never_installed, RemovedExports::Keep, true);
    check(
        &seen,
        "Connected",
        "ExportRemoved",
        Severity::Error,
        "0 objects are left",
    );
    let expired = with(bundled(released(Some(7)), RemovedExports::Keep, true), |seen| {
        let annotations = binding(seen).annotations_mut();
        annotations.insert(annotations::ALLOW_UNBIND.to_owned(), "1969-01-01T00:00:00Z".to_owned());
    });
    check(
        &expired,
        "Connected",
        "ExportRemoved",
        Severity::Error,
        "expired at 1969",
    );
    let unselected = with(bundled(served(), RemovedExports::Keep, false), |seen| {
        seen.engines.get_mut(CRD).unwrap().progress.objects = 3;
    });
    check(
        &unselected,
        "Connected",
        "ExportNotSelected",
        Severity::Error,
        "3 objects are left",
    );
    let selected = status_of(&bundled(served(), RemovedExports::Keep, true));
    assert!(conditions::is_true(&selected.conditions, types::CONNECTED));
}

#[test]
fn objects_are_counted_by_releaser_or_engine() {
    assert_eq!(released(Some(7)).objects(), Some(7));
    assert_eq!(released(None).objects(), None);
    assert_eq!(pinned().objects(), Some(0), "there is no CRD");
    let engine = |synced, objects| {
        with(served(), |seen| {
            let progress = &mut seen.engines.get_mut(CRD).unwrap().progress;
            (progress.consumer_synced, progress.objects) = (synced, objects);
        })
    };
    assert_eq!(engine(true, 3).objects(), Some(3));
    assert_eq!(engine(false, 0).objects(), None);
    let gone = with(engine(true, 0), |seen| session(seen).export = ExportLookup::Absent);
    assert_eq!(gone.objects(), None, "it counted before the export was gone");
    assert_eq!(installed().objects(), None, "no engine counts");
}

#[test]
fn a_right_that_a_bundles_binding_lacks_belongs_into_the_bundles_role() {
    let forbidden = with(bundled(served(), RemovedExports::Keep, true), |seen| {
        let progress = &mut seen.engines.get_mut(CRD).unwrap().progress;
        progress.consumer_synced = false;
        progress.problem = Some(problem("no right", Cause::ConsumerForbids));
    });
    let says = "ClusterRole konnector.team.bundles: {";
    check(
        &forbidden,
        "InformersSynced",
        "InformerSyncTimeout",
        Severity::Error,
        says,
    );
}

#[test]
fn a_right_to_list_that_is_taken_away_is_told_and_ends_nothing() {
    let unwatched = |mut seen: ObservedBinding| {
        let progress = &mut seen.engines.get_mut(CRD).unwrap().progress;
        let problem = problem(
            "cannot watch the consumer: cowboys is forbidden",
            Cause::ConsumerForbids,
        );
        (progress.problem, progress.unwatched) = (Some(problem.clone()), Some(problem));
        seen
    };
    let told = |seen: &ObservedBinding, says: &str| {
        let reason = problem("", Cause::ConsumerForbids).reason;
        check(seen, "InformersSynced", reason, Severity::Error, says);
    };
    let held = unwatched(served());
    told(&held, "changes are not seen");
    told(&held, "kube-bind-konnector-cowboys");
    let waiting = unwatched(with(served(), |seen| {
        seen.session.as_mut().unwrap().standing = Standing::Waiting {
            finding: Finding::RestoredOrCloned,
            recorded: bindery_api::holder::RecordedHolder::default().digest(),
        };
    }));
    told(&waiting, "changes are not seen");
    check(
        &waiting,
        "Held",
        "RestoredOrCloned",
        Severity::Error,
        "kubectl bind accept",
    );
    for seen in [held, waiting] {
        let watched = with(served(), |watched| watched.session.clone_from(&seen.session));
        let (ops, expect) = (plan::plan(&seen).ops, plan::plan(&watched).ops);
        assert_eq!(ops, expect, "it does what it would do with the right");
    }
}

#[test]
fn mere_progress_turns_no_condition() {
    let draining = |message: &str, stuck| {
        let ending = UnbindPlan {
            message: message.to_owned(),
            stuck,
            ..UnbindPlan::default()
        };
        super::unbinding(&served(), &ending)
    };
    let before = draining("3 objects are left", false);
    assert!(is_mere_progress(Some(&before), &draining("2 objects are left", false)));
    assert!(!is_mere_progress(Some(&before), &before), "nothing new is no progress");
    assert!(!is_mere_progress(Some(&before), &draining("2 objects are left", true)));
    assert!(!is_mere_progress(None, &before));
    let mut moved = draining("2 objects are left", false);
    moved.provider_pretty_name = Some("Far West".to_owned());
    assert!(!is_mere_progress(Some(&before), &moved));
}

#[test]
fn what_a_provider_sends_and_is_not_used_is_told_with_the_mend() {
    let guard = Guard::new(Limits { objects: 1, bytes: 9 });
    let mut reader = guard.reader("/api/v1/secrets", NameRule::Object);
    let told = || with(served(), |seen| session(seen).faults = guard.faults().borrow().clone());
    let kind = types::PROVIDER_DATA_ACCEPTED;
    assert_eq!(conditions::get(&status_of(&told()).conditions, kind), None);
    reader.listed("west", "a\u{1b}[2J/b");
    for says in [
        r#""a\u{1b}[2J/b""#,
        "others are synced",
        "ask the provider's admin",
        "/api/v1/secrets",
    ] {
        check(&told(), kind, "InvalidNames", Severity::Warning, says);
    }
    reader.listed("west", "b");
    for says in [
        "more than 1 objects",
        "--provider-max-objects",
        "2 were counted",
        "nothing is deleted",
    ] {
        check(&told(), kind, "ProviderLimitExceeded", Severity::Error, says);
    }
}

#[test]
fn each_missing_right_is_named_and_the_worst_effect_is_told() {
    let lacking = |rights: &[ProviderRight], is_verified: bool, pin: ClusterPin| {
        with(served(), |seen| {
            let session = session(seen);
            session.missing_rights = rights.to_vec();
            session.found = is_verified.then(|| session.contract_uid.clone());
            session.pin = pin;
        })
    };
    let (kind, warning) = (types::PROVIDER_ACCESS_COMPLETE, Severity::Warning);
    let unverified = lacking(&[READ_NAMESPACE, LIST_SCHEMAS], false, ClusterPin::Ours);
    for says in [
        "nothing is deleted",
        "[namespaces], verbs: [get]",
        "[boundschemas], verbs: [list]",
    ] {
        check(&unverified, kind, "ContractUnverified", warning, says);
    }
    let another = with(lacking(&[], true, ClusterPin::Ours), |seen| {
        session(seen).found = Some("b".into());
    });
    for says in [
        "pinned to a",
        "has UID b",
        "annotating the binding with kube-bind.io/accept-provider-change",
    ] {
        check(&another, kind, "ContractUnverified", warning, says);
    }
    let told = status_of(&another);
    let told = conditions::get(&told.conditions, kind).unwrap();
    assert!(!told.message.contains("lacks rights"), "{told:?}");
    let unrecorded = lacking(&[WRITE_HEARTBEAT], true, ClusterPin::Unverified);
    check(
        &unrecorded,
        kind,
        "ContractUnverified",
        warning,
        "clusterbindings/status",
    );
    let unwritten = lacking(&[WRITE_HEARTBEAT], true, ClusterPin::Ours);
    check(&unwritten, kind, "RightsMissing", warning, "clusterbindings/status");
    let unlisted = with(
        lacking(&[LIST_CLUSTER_BINDINGS], true, ClusterPin::Unverified),
        |seen| {
            session(seen).heartbeat = Heartbeat::Pending;
        },
    );
    check(
        &unlisted,
        types::HEARTBEATING,
        "ClusterBindingUpdateFailed",
        warning,
        "sends no heartbeats",
    );
    let missed = with(unverified, |seen| session(seen).export = ExportLookup::Absent);
    check(
        &missed,
        types::CONNECTED,
        "ContractUnverified",
        warning,
        "nothing is unbound",
    );
    let status = status_of(&lacking(&[], true, ClusterPin::Ours));
    assert!(conditions::get(&status.conditions, kind).is_none(), "{status:?}");
}

#[test]
fn that_the_contract_serves_another_cluster_is_kept_until_it_is_found_out_again() {
    let other = with(served(), |seen| {
        session(seen).pin = ClusterPin::Other {
            recorded: Some("theirs".to_owned()),
        };
    });
    let told = status_of(&other);
    let mut away = with(served(), |seen| {
        binding(seen).status = Some(told);
        seen.session = None;
        seen.access = ContractAccess::Failed(ConnectError::Unreachable {
            server: "https://x".to_owned(),
            message: "no route".to_owned(),
        });
    });
    check(
        &away,
        types::HEARTBEATING,
        "ConsumerClusterMismatch",
        Severity::Error,
        "theirs",
    );
    away.session = with(served(), |seen| {
        session(seen).pin = ClusterPin::Other { recorded: None }
    })
    .session;
    away.access = ContractAccess::Reached(reached("a"));
    check(
        &away,
        types::HEARTBEATING,
        "ConsumerClusterMismatch",
        Severity::Error,
        "cannot be read",
    );
    session(&mut away).pin = ClusterPin::Ours;
    assert!(conditions::is_true(&status_of(&away).conditions, types::HEARTBEATING));
}
