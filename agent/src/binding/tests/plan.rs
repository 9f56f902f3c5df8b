use bindery_api::{
    annotations,
    v1alpha2::{BoundSchemaVersion, ConflictPolicy, ExportResource, GroupResource, Isolation},
};
use kube::ResourceExt as _;
use serde_json::json;

use super::*;
use crate::{
    binding::fixtures::{
        CRD, binding, converge, crd, deleting_export, fresh, installed, pinned, reached, served, session, words,
    },
    controller::access::SecretProblem,
    model::Placement,
    session::{connect::ConnectError, exports::ExportLookup},
};

#[track_caller]
fn check(seen: &ObservedBinding, expect: &[&str]) {
    assert_eq!(words(&plan(seen).ops), expect);
}

fn schema_is(seen: &mut ObservedBinding, schema: ObservedSchema) {
    seen.schemas.insert(CRD.to_owned(), schema);
}

fn with(mut seen: ObservedBinding, change: impl FnOnce(&mut ObservedBinding)) -> ObservedBinding {
    change(&mut seen);
    seen
}

#[test]
fn a_binding_grows_step_by_step() {
    check(&fresh(), &["add finalizer"]);
    let unpinned = with(pinned(), |seen| binding(seen).status = None);
    check(&unpinned, &["pause"]);
    check(&pinned(), &["create crd", "go on"]);
    check(&installed(), &["start engine", "go on"]);
    check(&served(), &["go on"]);
}

#[test]
fn nothing_is_written_while_it_is_not_known_for_whom() {
    let problem = SecretProblem::NotFound { at: Box::default() };
    let failure = ConnectError::Unreachable {
        server: String::new(),
        message: String::new(),
    };
    let changed = ContractAccess::Changed {
        pinned: "a".to_owned(),
        found: reached("b"),
    };
    for access in [
        ContractAccess::Problem(problem),
        ContractAccess::Failed(failure),
        changed,
    ] {
        check(&with(served(), |seen| seen.access = access), &["pause"]);
    }
    check(&with(served(), |seen| seen.access = ContractAccess::Connecting), &[]);
    check(
        &with(served(), |seen| session(seen).contract_uid = "b".into()),
        &["pause"],
    );
    let other = ClusterPin::Other {
        recorded: Some("other".to_owned()),
    };
    check(&with(served(), |seen| session(seen).pin = other), &["pause"]);
    check(&with(installed(), |seen| session(seen).pin = ClusterPin::Unknown), &[]);
}

#[test]
fn absence_counts_only_where_it_is_proved() {
    let unknown = ExportLookup::Unknown { failure: None };
    check(&with(served(), |seen| session(seen).export = unknown), &[]);
    for gone in [ExportLookup::Absent, deleting_export()] {
        check(
            &with(served(), |seen| session(seen).export = gone),
            &["stop engine", "release Deleted"],
        );
    }
    let back = with(served(), |seen| {
        session(seen).export = ExportLookup::Absent;
        converge(seen);
        session(seen).export = ExportLookup::Present(std::sync::Arc::new(crate::binding::fixtures::export()));
    });
    check(&back, &["start engine", "stop release", "go on"]);
}

#[test]
fn an_engine_follows_its_session_its_export_and_its_schema() {
    check(&with(served(), |seen| session(seen).id = 2), &["start engine", "go on"]);
    let replaced = with(served(), |seen| {
        let mut export = crate::binding::fixtures::export();
        export.metadata.uid = Some("another".to_owned());
        session(seen).export = ExportLookup::Present(std::sync::Arc::new(export));
    });
    check(&replaced, &["start engine", "go on"]);
    let unlisted = with(served(), |seen| schema_is(seen, ObservedSchema::Unknown));
    check(&unlisted, &["go on"]);
    let lost = with(served(), |seen| schema_is(seen, ObservedSchema::Missing));
    check(&lost, &["stop engine", "go on"]);
}

#[test]
fn objects_are_let_go_only_of_what_is_not_exported() {
    // A CRD that is not served yet has objects that the provider may well answer for.
    let not_served = with(installed(), |seen| crd(seen).status = None);
    check(&not_served, &["go on"]);
    let shrunk = with(served(), |seen| {
        let mut export = crate::binding::fixtures::export();
        export.spec.resources[0].group_resource.resource = "sheriffs".to_owned();
        session(seen).export = ExportLookup::Present(std::sync::Arc::new(export));
    });
    check(&shrunk, &["stop engine", "release Deleted", "go on"]);
    let unverified = with(shrunk, |seen| session(seen).found = None);
    check(&unverified, &["stop engine", "go on"]);
}

#[test]
fn paused_nothing_is_written_whatever_is_seen() {
    let paused = |seen: ObservedBinding| {
        with(seen, |seen| {
            let annotations = binding(seen).annotations_mut();
            annotations.insert(annotations::PAUSED.to_owned(), annotations::TRUE.to_owned());
        })
    };
    check(&paused(fresh()), &["pause", "add finalizer"]);
    check(&paused(pinned()), &["pause"]);
    check(&paused(installed()), &["pause", "start engine"]);
    check(&paused(served()), &["pause"]);
    check(
        &paused(with(served(), |seen| seen.access = ContractAccess::Connecting)),
        &["pause"],
    );
    let mut gone = with(served(), |seen| session(seen).export = ExportLookup::Absent);
    check(&paused(gone.clone()), &["pause", "stop engine"]);
    converge(&mut gone);
    check(&paused(gone), &["pause", "stop release"]);
    for other in ["false", "True", ""] {
        let active = with(served(), |seen| {
            let annotations = binding(seen).annotations_mut();
            annotations.insert(annotations::PAUSED.to_owned(), other.to_owned());
        });
        check(&active, &["go on"]);
    }
}

#[test]
fn an_api_that_cannot_be_served_holds_up_no_other() {
    let hostile = |group: &str, schema: ObservedSchema| {
        with(served(), |seen| {
            let mut export = crate::binding::fixtures::export();
            let resource = GroupResource::new(group, "deputies");
            export.spec.resources.insert(
                0,
                ExportResource {
                    group_resource: resource,
                    versions: vec![],
                },
            );
            session(seen).export = ExportLookup::Present(std::sync::Arc::new(export));
            seen.engines.clear();
            seen.schemas.insert(format!("deputies.{group}"), schema);
        })
    };
    let protected = || {
        let mut schema = std::sync::Arc::unwrap_or_clone(crate::binding::fixtures::schema());
        schema.spec.group = "rbac.authorization.k8s.io".to_owned();
        schema.spec.names.plural = "deputies".to_owned();
        ObservedSchema::Present(std::sync::Arc::new(schema))
    };
    for seen in [
        hostile("rbac.authorization.k8s.io", protected()),
        hostile("wildwest.dev", protected()),
        hostile("wildwest.dev", ObservedSchema::Missing),
        hostile("wildwest.dev", ObservedSchema::Unknown),
    ] {
        check(&seen, &["start engine", "go on"]);
    }
    let foreign = with(hostile("wildwest.dev", ObservedSchema::Unknown), |seen| {
        let name = "deputies.wildwest.dev";
        let mut other = crd(seen).clone();
        other.metadata.owner_references = None;
        seen.crds.insert(name.to_owned(), std::sync::Arc::new(other));
        let mut schema = std::sync::Arc::unwrap_or_clone(crate::binding::fixtures::schema());
        schema.spec.names.plural = "deputies".to_owned();
        seen.schemas
            .insert(name.to_owned(), ObservedSchema::Present(std::sync::Arc::new(schema)));
    });
    check(&foreign, &["start engine", "go on"]);
    let reasons = |seen: &ObservedBinding| -> Vec<String> {
        let refused = plan(seen).states.into_values().filter_map(|state| match state {
            CrdState::Refused { reason, .. } => Some(reason.to_owned()),
            CrdState::Pending { .. } | CrdState::Usable(_) => None,
        });
        refused.collect()
    };
    assert_eq!(reasons(&foreign), ["ForeignCustomResourceDefinition"]);
    assert_eq!(
        reasons(&hostile("rbac.authorization.k8s.io", protected())),
        ["ProtectedGroup"]
    );
}

#[test]
fn an_engine_goes_on_through_changes_of_its_schema() {
    let changed = |change: &dyn Fn(&mut BoundSchemaVersion)| {
        with(served(), |seen| {
            let mut schema = std::sync::Arc::unwrap_or_clone(crate::binding::fixtures::schema());
            change(&mut schema.spec.versions[0]);
            schema_is(seen, ObservedSchema::Present(std::sync::Arc::new(schema)));
        })
    };
    let wider = changed(&|version| {
        version.schema["openAPIV3Schema"]["properties"] = json!({"spec": {"type": "object"}});
    });
    check(&wider, &["patch crd", "go on"]);
    let broken = changed(&|version| version.schema["openAPIV3Schema"]["type"] = json!("string"));
    check(&broken, &["go on"]);
    assert_eq!(plan(&broken).refused_changes[CRD].reason, "IncompatibleSchema");
    // Installed by now: its engine is another one only where it has to speak otherwise.
    let with_status = with(served(), |seen| {
        let subresources = serde_json::from_value(json!({"status": {}})).unwrap();
        crd(seen).spec.versions[0].subresources = subresources;
    });
    assert!(words(&plan(&with_status).ops).contains(&"start engine".to_owned()));
}

#[test]
fn an_export_says_where_its_copies_go() {
    let of = |isolation, conflict_policy, scope: &str| {
        let seen = with(installed(), |seen| {
            let mut export = crate::binding::fixtures::export();
            export.spec.isolation = isolation;
            export.spec.conflict_policy = conflict_policy;
            session(seen).export = ExportLookup::Present(std::sync::Arc::new(export));
            crd(seen).spec.scope = scope.to_owned();
        });
        let started = plan(&seen).ops.into_iter().find_map(|op| match op {
            BindingOp::StartEngine { spec, .. } => Some((spec.placement, spec.last_wins)),
            _ => None,
        });
        started.unwrap()
    };
    let last = Some(ConflictPolicy::LastWins);
    assert_eq!(of(Isolation::None, last, "Cluster"), (Placement::None, true));
    assert_eq!(of(Isolation::None, None, "Cluster"), (Placement::None, false));
    assert_eq!(of(Isolation::Prefixed, last, "Cluster"), (Placement::Prefixed, false));
    assert_eq!(of(Isolation::None, last, "Namespaced"), (Placement::Mapped, false));
}

#[test]
fn it_comes_to_rest_from_anywhere() {
    for mut seen in [fresh(), pinned(), installed(), served()] {
        if seen.pinned().is_none() {
            binding(&mut seen).status.clone_from(&pinned().binding.status);
        }
        converge(&mut seen);
        check(&seen, &["go on"]);
        assert!(seen.engines.contains_key(CRD));
    }
}

#[test]
fn an_unverified_contract_is_synced_and_nothing_ends() {
    let unverified: fn(&mut ObservedBinding) = |seen| session(seen).found = None;
    let unrecorded: fn(&mut ObservedBinding) = |seen| session(seen).pin = ClusterPin::Unverified;
    for lacks in [unverified, unrecorded] {
        check(&with(pinned(), lacks), &["create crd", "go on"]);
        check(&with(installed(), lacks), &["start engine", "go on"]);
        check(&with(served(), lacks), &["go on"]);
        for missed in [ExportLookup::Absent, deleting_export()] {
            let ended = with(served(), |seen| session(seen).export = missed.clone());
            assert!(!plan(&ended).ops.is_empty(), "a trusted provider ends it");
            let kept = with(ended, lacks);
            check(&kept, &["pause"]);
            assert!(!kept.export_is_gone());
        }
    }
}

#[test]
fn without_schemas_only_an_installed_crd_is_used() {
    let unread = |seen: &mut ObservedBinding| schema_is(seen, ObservedSchema::Unreadable);
    check(&with(pinned(), unread), &["go on"]);
    check(&with(installed(), unread), &["start engine", "go on"]);
    check(&with(served(), unread), &["go on"]);
    let refused = plan(&with(pinned(), unread));
    let (reason, message) = refused.refused().unwrap();
    assert_eq!(reason, "RightsMissing");
    assert!(message.contains("resources: [boundschemas]"), "{message}");
}
