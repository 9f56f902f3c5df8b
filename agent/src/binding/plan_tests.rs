use super::*;
use crate::{
    binding::{
        credential::{Access, SecretProblem},
        testing::{
            CRD, binding, converge, crd, deleting_export, fresh, installed, pinned, reached, served, session, words,
        },
    },
    session::{dial::DialError, exports::Lookup},
};

#[track_caller]
fn check(seen: &Observed, expect: &[&str]) {
    assert_eq!(words(&plan(seen).ops), expect);
}

fn schema_is(seen: &mut Observed, schema: Schema) {
    seen.schemas.insert(CRD.to_owned(), schema);
}

fn with(mut seen: Observed, change: impl FnOnce(&mut Observed)) -> Observed {
    change(&mut seen);
    seen
}

#[test]
fn a_binding_grows_step_by_step() {
    check(&fresh(), &["set finalizer"]);
    let unpinned = with(pinned(), |seen| binding(seen).status = None);
    check(&unpinned, &["pause"]);
    check(&pinned(), &["create crd", "go on"]);
    check(&installed(), &["start engine", "go on"]);
    check(&served(), &["go on"]);
}

#[test]
fn nothing_is_written_while_it_is_not_known_for_whom() {
    let problem = SecretProblem::NotFound { at: Box::default() };
    let failure = DialError::Unreachable {
        server: String::new(),
        message: String::new(),
    };
    let changed = Access::Changed {
        pinned: "a".to_owned(),
        found: reached("b"),
    };
    for access in [Access::Problem(problem), Access::Failed(failure), changed] {
        check(&with(served(), |seen| seen.access = access), &["pause"]);
    }
    check(&with(served(), |seen| seen.access = Access::Connecting), &[]);
    check(
        &with(served(), |seen| session(seen).contract_uid = "b".into()),
        &["pause"],
    );
    let other = ClusterPin::Other {
        recorded: "other".to_owned(),
    };
    check(&with(served(), |seen| session(seen).pin = other), &["pause"]);
    check(&with(installed(), |seen| session(seen).pin = ClusterPin::Unknown), &[]);
}

#[test]
fn absence_counts_only_where_it_is_proved() {
    let unknown = Lookup::Unknown { failure: None };
    check(&with(served(), |seen| session(seen).export = unknown), &[]);
    for gone in [Lookup::Absent, deleting_export()] {
        check(
            &with(served(), |seen| session(seen).export = gone),
            &["stop engine", "release Deleted"],
        );
    }
    let back = with(served(), |seen| {
        session(seen).export = Lookup::Absent;
        converge(seen);
        session(seen).export = Lookup::Present(std::sync::Arc::new(crate::binding::testing::export()));
    });
    check(&back, &["start engine", "stop release", "go on"]);
}

#[test]
fn an_engine_follows_its_session_its_export_and_its_schema() {
    check(&with(served(), |seen| session(seen).id = 2), &["start engine", "go on"]);
    let replaced = with(served(), |seen| {
        let mut export = crate::binding::testing::export();
        export.metadata.uid = Some("another".to_owned());
        session(seen).export = Lookup::Present(std::sync::Arc::new(export));
    });
    check(&replaced, &["start engine", "go on"]);
    let unlisted = with(served(), |seen| schema_is(seen, Schema::Unknown));
    check(&unlisted, &["go on"]);
    let lost = with(served(), |seen| schema_is(seen, Schema::Missing));
    check(&lost, &["stop engine", "go on"]);
}

#[test]
fn objects_are_let_go_only_of_what_is_not_exported() {
    // A CRD that is not served yet has objects that the provider may well answer for.
    let not_served = with(installed(), |seen| crd(seen).status = None);
    check(&not_served, &["go on"]);
    let shrunk = with(served(), |seen| {
        let mut export = crate::binding::testing::export();
        export.spec.resources[0].group_resource.resource = "sheriffs".to_owned();
        session(seen).export = Lookup::Present(std::sync::Arc::new(export));
    });
    check(&shrunk, &["stop engine", "release Deleted", "go on"]);
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
