use bindery_api::{
    annotations, finalizers,
    v1alpha2::{DeletionPolicy, GroupResource},
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt as _;
use serde_json::json;

use super::*;
use crate::{
    binding::{
        fixtures::{
            CRD, act, binding, crd, deleting_export, fresh, installed, pinned, reached, served, session, words,
        },
        observed::ExportDeletion,
    },
    controller::access::SecretProblem,
    drain::DrainProgress,
    engine::Problem,
    holder::Finding,
    session::{connect::ConnectError, provider_rights::READ_NAMESPACE},
};

fn with(mut seen: ObservedBinding, change: impl FnOnce(&mut ObservedBinding)) -> ObservedBinding {
    binding(&mut seen).metadata.deletion_timestamp = Some(Time(seen.now));
    if let Some(session) = &mut seen.session {
        // Most plans are looked at after the contract was given up.
        session.standing = Standing::Released;
    }
    change(&mut seen);
    seen
}

#[track_caller]
fn check(seen: &ObservedBinding, expect: &[&str], says: &str) {
    let plan = plan(seen);
    assert_eq!(words(&plan.ops), expect, "{}", plan.message);
    assert!(plan.message.contains(says), "{}", plan.message);
}

fn forced(seen: &mut ObservedBinding) {
    binding(seen)
        .annotations_mut()
        .insert(annotations::FORCE_UNBIND.to_owned(), annotations::TRUE.to_owned());
}

fn draining(remaining: Option<usize>) -> ObservedBinding {
    with(served(), |seen| {
        let engine = seen.engines.get_mut(CRD).unwrap();
        engine.draining = true;
        engine.progress.remaining = remaining;
    })
}

#[test]
fn objects_go_first_and_the_finalizer_last() {
    check(&with(served(), |_| {}), &["drain", "go on"], "counting");
    check(&draining(None), &["go on"], "counting");
    check(&draining(Some(3)), &["go on"], "3 objects are left");
    check(&draining(Some(0)), &["go on", "delete crd"], "all objects are deleted");
    let terminating = with(draining(Some(0)), |seen| {
        let now = seen.now;
        crd(seen).metadata.deletion_timestamp = Some(Time(now));
    });
    check(&terminating, &["go on"], "all objects are deleted");
    let empty = with(pinned(), |_| {});
    check(&empty, &["delete export"], "requesting");
    let running = with(pinned(), |seen| seen.deletion = Some(ExportDeletion::Running));
    check(&running, &[], "waiting");
    let done = with(pinned(), |seen| seen.deletion = Some(ExportDeletion::Done));
    check(&done, &["delete roles", "remove finalizer"], "");
}

#[test]
fn a_successor_goes_on_where_the_last_one_was_killed() {
    check(
        &with(installed(), |_| {}),
        &["start engine", "drain", "go on"],
        "counting",
    );
    let terminating = with(installed(), |seen| {
        let now = seen.now;
        crd(seen).metadata.deletion_timestamp = Some(Time(now));
    });
    check(&terminating, &["start engine", "drain", "go on"], "counting");
    for gone in [ExportLookup::Absent, deleting_export()] {
        let ended = with(pinned(), |seen| session(seen).export = gone);
        check(&ended, &["delete roles", "remove finalizer"], "");
    }
    check(&with(fresh(), |_| {}), &[], "");
}

#[test]
fn the_stored_secret_goes_with_the_last_binding_of_its_contract() {
    let last = with(pinned(), |seen| {
        session(seen).export = ExportLookup::Absent;
        seen.has_stored_secret = true;
    });
    check(&last, &["delete secret", "delete roles", "remove finalizer"], "");
    let shared = with(last, |seen| seen.contract_is_shared = true);
    check(&shared, &["delete roles", "remove finalizer"], "");
}

#[test]
fn the_contract_is_given_up_with_its_last_binding() {
    let held = |change: fn(&mut ObservedBinding)| {
        with(pinned(), |seen| {
            session(seen).export = ExportLookup::Absent;
            session(seen).standing = Standing::Held { instance: "i".into() };
            change(seen);
        })
    };
    let end = ["delete roles", "remove finalizer"];
    let mut last = held(|_| {});
    check(&last, &["end holding"], "giving the contract up");
    let ops = plan(&last).ops;
    act(&mut last, &ops);
    check(&last, &end, "");
    check(&held(|seen| seen.contract_is_shared = true), &end, "");
    check(&held(forced), &end, "");
    check(
        &held(|seen| seen.access = ContractAccess::Failed(gone_contract())),
        &end,
        "",
    );
}

#[test]
fn who_does_not_hold_the_contract_ends_nothing_of_it() {
    let recorded = bindery_api::holder::RecordedHolder::default().digest();
    let waiting = |seen: ObservedBinding| {
        with(seen, |seen| {
            session(seen).standing = Standing::Waiting {
                finding: Finding::RestoredOrCloned,
                recorded: recorded.clone(),
            };
        })
    };
    for seen in [served(), installed()] {
        check(&waiting(seen), &["pause"], "kubectl bind accept");
    }
    check(&waiting(pinned()), &[], "kubectl bind accept");
    let pending = |seen: ObservedBinding| with(seen, |seen| session(seen).standing = Standing::Pending);
    check(&pending(served()), &["pause"], "first heartbeat");
    check(&pending(pinned()), &[], "first heartbeat");
    let accepted = with(waiting(served()), |seen| {
        session(seen).standing = waiting(served()).session.unwrap().standing;
        let key = annotations::ACCEPT_HOLDER.to_owned();
        binding(seen).annotations_mut().insert(key, recorded.to_string());
    });
    check(&accepted, &["accept holder"], "answering");
}

fn gone_contract() -> ConnectError {
    ConnectError::Gone {
        server: "https://provider".to_owned(),
        namespace: "kube-bind-x".to_owned(),
    }
}

#[test]
fn without_the_export_nobody_answers_for_the_objects() {
    let gone = |seen: ObservedBinding| with(seen, |seen| session(seen).export = ExportLookup::Absent);
    check(&gone(served()), &["stop engine", "release All"], "counting");
    let released = gone(with(installed(), |seen| {
        let released = DrainProgress {
            remaining: Some(0),
            problem: None,
        };
        seen.releasers.insert(CRD.to_owned(), (DrainMode::All, released));
    }));
    check(&released, &["delete crd"], "all objects are deleted");
}

#[test]
fn a_provider_that_cannot_be_asked_is_waited_for_unless_forced() {
    let unreachable = ConnectError::Unreachable {
        server: "https://x".to_owned(),
        message: "no route".to_owned(),
    };
    let away = with(served(), |seen| seen.access = ContractAccess::Failed(unreachable));
    check(&away, &["pause"], "force-unbind");
    assert!(plan(&away).stuck);
    let expired = with(served(), |seen| session(seen).expired = Some("revoked".to_owned()));
    check(&expired, &["pause"], "kubectl bind renew");
    let swapped = with(served(), |seen| {
        seen.access = ContractAccess::Changed {
            pinned: "a".to_owned(),
            found: reached("b"),
        };
    });
    check(&swapped, &["pause"], "another provider");
    for mut seen in [away, expired, swapped] {
        forced(&mut seen);
        check(&seen, &["stop engine", "release All"], "");
    }
    let ended = with(pinned(), forced);
    check(&ended, &["delete roles", "remove finalizer"], "");
    assert!(plan(&ended).provider_keeps.is_some());
}

#[test]
fn a_binding_that_never_reached_a_provider_ends_at_once() {
    let problem = SecretProblem::NotFound { at: Box::default() };
    let never = with(pinned(), |seen| {
        binding(seen).status = None;
        seen.session = None;
        seen.access = ContractAccess::Problem(problem);
    });
    check(&never, &["delete roles", "remove finalizer"], "");
}

#[test]
fn what_stays_on_the_provider_is_said() {
    let old = with(pinned(), |seen| session(seen).has_backend = false);
    check(&old, &["delete roles", "remove finalizer"], "");
    assert!(plan(&old).provider_keeps.unwrap().contains("no backend"));
    let kept = with(pinned(), |seen| {
        let policy = bindery_api::v1alpha2::DeletionPolicy::Orphan;
        binding(seen).spec.deletion_policy = Some(policy);
    });
    check(&kept, &["force export"], "requesting");
    let refused = with(pinned(), |seen| {
        seen.deletion = Some(ExportDeletion::Failing("2 objects are left".to_owned()));
    });
    check(&refused, &[], "2 objects are left");
}

#[test]
fn a_crd_that_was_never_served_has_no_objects_to_wait_for() {
    let established = |status: &str| {
        with(installed(), |seen| {
            let conditions =
                json!({"conditions": [{"type": "Established", "status": status}], "storedVersions": ["v1"]});
            crd(seen).status = serde_json::from_value(conditions).unwrap();
        })
    };
    let never = established("False");
    check(&never, &["go on", "delete crd"], "all objects are deleted");
    let mut by_force = never.clone();
    forced(&mut by_force);
    check(&by_force, &["delete crd"], "all objects are deleted");
    let looked_at_no_more = with(by_force, |seen| {
        let released = DrainProgress {
            remaining: None,
            problem: Some("404 page not found".to_owned()),
        };
        seen.releasers.insert(CRD.to_owned(), (DrainMode::All, released));
    });
    check(
        &looked_at_no_more,
        &["stop release", "delete crd"],
        "all objects are deleted",
    );
    let soon = json!({"conditions": [{"type": "Established", "status": "False", "reason": "Installing"}]});
    for status in [json!(null), soon] {
        let mut unseen = with(never.clone(), |seen| {
            crd(seen).status = serde_json::from_value(status).unwrap();
        });
        forced(&mut unseen);
        check(&unseen, &["release All"], "counting");
    }
}

#[test]
fn while_it_is_not_known_whose_the_contract_is_nothing_is_done_there() {
    let unpinned = |seen: ObservedBinding, heartbeat: &Heartbeat| {
        with(seen, |seen| {
            session(seen).pin = ClusterPin::Unknown;
            session(seen).heartbeat = heartbeat.clone();
        })
    };
    let missing = Heartbeat::Failing {
        message: "ClusterBinding kube-bind-x/cluster does not exist".to_owned(),
    };
    for (start, ops) in [(served(), &["pause"][..]), (pinned(), &[])] {
        let waiting = unpinned(start.clone(), &Heartbeat::Pending);
        check(&waiting, ops, "waiting for the provider");
        assert!(!plan(&waiting).stuck);
        let stuck = unpinned(start, &missing);
        check(&stuck, ops, "does not exist");
        check(&stuck, ops, "force-unbind");
        assert!(plan(&stuck).stuck);
    }
    let mut by_force = unpinned(pinned(), &missing);
    forced(&mut by_force);
    check(&by_force, &["delete roles", "remove finalizer"], "");
    let gone = with(unpinned(pinned(), &missing), |seen| {
        session(seen).export = ExportLookup::Absent;
    });
    check(&gone, &["delete roles", "remove finalizer"], "");
}

#[test]
fn paused_it_waits_and_says_so() {
    let paused = |seen: ObservedBinding| {
        with(seen, |seen| {
            let annotations = binding(seen).annotations_mut();
            annotations.insert(annotations::PAUSED.to_owned(), annotations::TRUE.to_owned());
        })
    };
    check(
        &paused(served()),
        &["pause"],
        "kubectl annotate apiservicebinding cowboys kube-bind.io/paused-",
    );
    check(&paused(draining(Some(3))), &["pause"], "paused");
    let mut by_force = paused(served());
    forced(&mut by_force);
    check(&by_force, &["pause"], "paused");
    let asked = with(pinned(), |seen| seen.deletion = Some(ExportDeletion::Running));
    check(&paused(asked), &["pause", "stop deletion"], "paused");
    let releasing = with(installed(), |seen| {
        seen.releasers
            .insert(CRD.to_owned(), (DrainMode::All, DrainProgress::default()));
    });
    check(&paused(releasing), &["pause", "stop release"], "paused");
}

#[test]
fn no_crd_goes_before_all_objects_are_gone() {
    let two = |left: Option<usize>| {
        with(draining(Some(0)), |seen| {
            let other = "sheriffs.wildwest.dev";
            let mut second = crd(seen).clone();
            second.metadata.name = Some(other.to_owned());
            seen.crds.insert(other.to_owned(), std::sync::Arc::new(second));
            let mut engine = seen.engines[CRD].clone();
            engine.progress.remaining = left;
            seen.engines.insert(other.to_owned(), engine);
        })
    };
    check(&two(Some(2)), &["go on"], "2 objects are left");
    check(&two(None), &["go on"], "counting");
    check(
        &two(Some(0)),
        &["go on", "delete crd", "delete crd"],
        "all objects are deleted",
    );
}

/// A binding that was deleted with propagation policy Orphan, before or after the garbage collector has taken it off its CRD.
fn orphaning(start: ObservedBinding, is_collected: bool) -> ObservedBinding {
    with(start, |seen| {
        let bound = GroupResource::new("wildwest.dev", "cowboys");
        binding(seen).status.as_mut().unwrap().bound_schemas = vec![bound];
        if is_collected {
            crd(seen).metadata.owner_references = None;
        } else {
            binding(seen).finalizers_mut().push(finalizers::ORPHAN.to_owned());
        }
    })
}

fn releasing(seen: ObservedBinding, mode: DrainMode, remaining: Option<usize>) -> ObservedBinding {
    with(seen, |seen| {
        seen.engines.clear();
        let progress = DrainProgress {
            remaining,
            problem: None,
        };
        seen.releasers.insert(CRD.to_owned(), (mode, progress));
    })
}

#[test]
fn objects_whose_binding_orphans_them_are_let_go_and_stay() {
    for is_collected in [false, true] {
        let served = orphaning(served(), is_collected);
        check(&served, &["stop engine", "release LetGo"], "counting");
        let wrong = releasing(served.clone(), DrainMode::All, Some(0));
        check(&wrong, &["release LetGo"], "counting");
        let begun = |remaining| releasing(served.clone(), DrainMode::LetGo, remaining);
        check(&begun(None), &[], "counting");
        check(&begun(Some(2)), &[], "2 objects are left to let go");
        check(&begun(Some(0)), &["force export"], "requesting");
        assert_eq!(begun(Some(2)).bound().len(), 1, "the status lists the CRD to the end");
        let held = with(begun(Some(1)), |seen| {
            let (_, progress) = seen.releasers.get_mut(CRD).unwrap();
            progress.problem = Some("west/billy is paused".to_owned());
        });
        check(&held, &[], "1 object is left to let go: west/billy is paused");
        assert!(plan(&held).stuck && !plan(&begun(Some(1))).stuck);
        let mut by_force = served.clone();
        forced(&mut by_force);
        check(&by_force, &["stop engine", "release LetGo"], "counting");
        let mut half_collected = begun(Some(2));
        binding(&mut half_collected)
            .finalizers_mut()
            .retain(|one| one != finalizers::ORPHAN);
        check(&half_collected, &[], "2 objects are left to let go");
        let mut seen = served;
        for _ in 0..5 {
            let ops = plan(&seen).ops;
            act(&mut seen, &ops);
        }
        assert!(seen.binding.finalizers().is_empty(), "{:?}", plan(&seen));
        assert_eq!(seen.crds.len(), 1);
    }
}

/// The state longer after the deletion than the konnector tries to release copies.
fn late(mut seen: ObservedBinding) -> ObservedBinding {
    seen.now += jiff::SignedDuration::from_secs(31);
    seen
}

fn by_bundle(seen: &mut ObservedBinding) {
    let owner = json!({"apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceBindingBundle", "name": "west",
                       "uid": "u", "controller": true});
    binding(seen).metadata.owner_references = Some(vec![serde_json::from_value(owner).unwrap()]);
}

fn without_backend(seen: &mut ObservedBinding) {
    session(seen).has_backend = false;
}

#[test]
fn who_does_not_hold_the_contract_writes_no_mark_and_comes_to_an_end() {
    for change in [by_bundle as fn(&mut ObservedBinding), without_backend] {
        let waiting = |start: ObservedBinding| {
            with(start, |seen| {
                change(seen);
                binding(seen).spec.deletion_policy = None;
                session(seen).standing = Standing::Waiting {
                    finding: Finding::RestoredOrCloned,
                    recorded: bindery_api::holder::RecordedHolder::default().digest(),
                };
            })
        };
        check(&waiting(served()), &["pause"], "kubectl bind accept");
        check(&late(waiting(served())), &["stop engine", "release All"], "counting");
        check(&waiting(pinned()), &["delete roles", "remove finalizer"], "");
    }
}

#[test]
fn what_nobody_ordered_deletes_no_copy() {
    let unset = |seen: &mut ObservedBinding| binding(seen).spec.deletion_policy = None;
    let of_its_own = with(served(), unset);
    check(&of_its_own, &["stop engine", "release All"], "counting");
    check(&with(pinned(), unset), &["force export"], "requesting");
    let cut_off = with(of_its_own, |seen| seen.access = ContractAccess::Connecting);
    check(&cut_off, &["stop engine", "release All"], "counting");

    // Nobody deletes the export then, so the konnector marks the copies.
    for change in [by_bundle as fn(&mut ObservedBinding), without_backend] {
        let seen = with(with(served(), unset), change);
        check(&seen, &["drain", "go on"], "counting");
        let expired = |seen: &mut ObservedBinding| session(seen).expired = Some("yesterday".to_owned());
        check(&with(seen.clone(), expired), &["pause"], "yesterday");
        check(
            &late(with(seen.clone(), expired)),
            &["stop engine", "release All"],
            "counting",
        );
        let cut_off = |seen: &mut ObservedBinding| {
            seen.engines.get_mut(CRD).unwrap().progress.problem = Some(Problem {
                reason: "Unreachable",
                message: "cannot watch the provider".to_owned(),
                cause: Cause::Unreachable,
                namespace: None,
            });
        };
        check(&with(seen.clone(), cut_off), &["drain", "go on"], "cannot watch");
        check(
            &late(with(seen.clone(), cut_off)),
            &["stop engine", "release All"],
            "counting",
        );
        check(&late(seen.clone()), &["drain", "go on"], "counting");
        let begun = releasing(seen.clone(), DrainMode::All, Some(2));
        check(&begun, &[], "2 objects are left");
        let ended = with(with(pinned(), unset), change);
        check(&ended, &["delete roles", "remove finalizer"], "");
        let deleting = with(with(served(), change), |_| {});
        check(&deleting, &["drain", "go on"], "counting");
    }
}

#[test]
fn a_crd_that_only_looks_orphaned_is_none_of_the_binding() {
    let owned_by_another = with(orphaning(served(), true), |seen| {
        let owner = json!({"apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceBinding", "name": "other", "uid": "o",
                           "controller": true});
        crd(seen).metadata.owner_references = Some(vec![serde_json::from_value(owner).unwrap()]);
    });
    let never_bound = with(orphaning(served(), true), |seen| {
        binding(seen).status.as_mut().unwrap().bound_schemas.clear();
    });
    for seen in [owned_by_another, never_bound] {
        check(&seen, &["stop engine", "delete export"], "requesting");
        assert!(seen.bound().is_empty());
    }
    let mut live = orphaning(served(), false);
    binding(&mut live).metadata.deletion_timestamp = None;
    assert!(live.orphaned().next().is_none() && live.owned().next().is_some());
}

#[test]
fn it_ends_from_anywhere() {
    for start in [pinned(), installed(), served()] {
        for force in [false, true] {
            let mut seen = with(start.clone(), |seen| seen.has_stored_secret = true);
            if force {
                forced(&mut seen);
            }
            for _ in 0..10 {
                let ops = plan(&seen).ops;
                act(&mut seen, &ops);
            }
            assert!(seen.binding.finalizers().is_empty(), "{:?}", plan(&seen));
            assert!(seen.crds.is_empty() && seen.engines.is_empty() && seen.releasers.is_empty());
            assert!(!seen.has_stored_secret);
        }
    }
}

#[test]
fn a_bundles_binding_leaves_the_export_to_the_next() {
    let bundled = |change: fn(&mut ObservedBinding)| {
        with(pinned(), |seen| {
            let owner = json!({"apiVersion": "kube-bind.io/v1alpha2", "kind": "APIServiceBindingBundle", "name": "west",
                               "uid": "u", "controller": true});
            binding(seen).metadata.owner_references = Some(vec![serde_json::from_value(owner).unwrap()]);
            change(seen);
        })
    };
    check(&bundled(|_| {}), &["delete roles", "remove finalizer"], "");
    check(
        &bundled(|seen| seen.access = ContractAccess::Connecting),
        &["delete roles", "remove finalizer"],
        "",
    );
    let orphaning = |seen: &mut ObservedBinding| binding(seen).spec.deletion_policy = Some(DeletionPolicy::Orphan);
    check(&bundled(orphaning), &["force export"], "requesting");
}

#[test]
fn an_unverified_contract_holds_a_deletion_up_unless_the_user_forces_it() {
    let unverified = |seen: &mut ObservedBinding| {
        session(seen).found = None;
        session(seen).missing_rights = vec![READ_NAMESPACE];
    };
    check(&with(served(), unverified), &["pause"], "lacks rights");
    let gone = |seen: &mut ObservedBinding| session(seen).found = None;
    check(&with(served(), gone), &["pause"], "it does not exist there");
    let another = |seen: &mut ObservedBinding| session(seen).found = Some("b".into());
    check(&with(served(), another), &["pause"], "has UID b; consent to that");
    let empty = with(pinned(), unverified);
    check(&empty, &[], "lacks rights");
    assert!(plan(&empty).stuck);
    let without_backend = with(pinned(), |seen| {
        unverified(seen);
        session(seen).has_backend = false;
    });
    check(&without_backend, &["delete roles", "remove finalizer"], "");
    let kept = plan(&without_backend).provider_keeps.unwrap();
    assert!(kept.contains("cannot be verified"), "{kept}");
    let by_force = with(pinned(), |seen| {
        unverified(seen);
        forced(seen);
    });
    check(&by_force, &["delete roles", "remove finalizer"], "");
}
