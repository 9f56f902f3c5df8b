use bindery_synk::{
    Gvk, ObjectRef,
    report::{Outcome, Problem},
    wire::Action,
};
use kube::core::Status;

use super::*;

fn refusal(code: u16) -> Failure {
    let status = Status::failure("no", "Reason").with_code(code);
    Failure::cluster("read Namespace kube-system")(kube::Error::Api(Box::new(status)))
}

#[track_caller]
fn check(failure: &Failure, expect: Exit) {
    assert_eq!(failure.exit(), expect, "{failure}");
}

#[test]
fn each_failure_has_its_exit_code() {
    check(&Failure::Usage("no backend".to_owned()), Exit::Usage);
    check(&refusal(401), Exit::Denied);
    check(&refusal(403), Exit::Denied);
    check(&refusal(404), Exit::NotFound);
    check(&refusal(409), Exit::Failed);
    check(&refusal(503), Exit::Failed);
    check(&Failure::NoKonnector, Exit::Failed);
    check(&Failure::NoBinding("cowboys".to_owned()), Exit::NotFound);
    check(&Failure::NeitherBindingNorBundle("acme".to_owned()), Exit::NotFound);
    check(&Failure::NoSecret("team-a/x".to_owned()), Exit::NotFound);
    check(&Failure::Incomplete("the objects of x".to_owned()), Exit::Failed);
    let answer = |source: response::Unreadable| Failure::Answer {
        from: "x.yaml".to_owned(),
        source,
    };
    check(&Failure::NotInstalled, Exit::NotFound);
    check(&Failure::NotDeployed, Exit::Failed);
    check(
        &SetFailure::TimedOut {
            problem: "x".to_owned(),
            unreachable: false,
        }
        .into(),
        Exit::TimedOut,
    );
    let stopped = SetFailure::Stopped("konnector".parse().unwrap());
    check(&stopped.into(), Exit::Interrupted);
    check(&SetFailure::NotInstalled.into(), Exit::Failed);
    let status = Status::failure("no", "Reason").with_code(403);
    let source = kube::Error::Api(Box::new(status));
    check(&SetFailure::api("write clusterroles")(source).into(), Exit::Denied);
    check(&answer(response::Unreadable::NoRequests), Exit::Usage);
    check(&answer(offer::Refusal::Empty.into()), Exit::Failed);
    check(&Failure::NoObject("Cowboy west/billy".to_owned()), Exit::NotFound);
    check(&Failure::NotAccepted("template cowboys".to_owned()), Exit::Usage);
    check(&Failure::Declined("nothing was bound".to_owned()), Exit::Failed);
    let timed_out = Failure::TimedOut {
        what: "APIServiceBinding cowboys is not ready".to_owned(),
        waited: std::time::Duration::from_secs(5),
        last: "SecretValid=False".to_owned(),
    };
    check(&timed_out, Exit::TimedOut);
    check(&Failure::Output(io::ErrorKind::BrokenPipe.into()), Exit::Done);
    check(&Failure::Output(io::ErrorKind::StorageFull.into()), Exit::Failed);
}

#[test]
fn a_right_that_is_missing_is_told_of_a_set_too() {
    let failure = |code: u16| {
        let status = Status::failure("no", "Reason").with_code(code);
        let object = ObjectRef {
            gvk: Gvk::new("v1", "Secret"),
            namespace: None,
            name: "a".to_owned(),
        };
        let error = Problem::of(&object, &kube::Error::Api(Box::new(status)));
        let outcome = Outcome {
            object,
            action: Action::None,
            uid: None,
            generation: None,
            error: Some(error),
        };
        let report = Report {
            version: None,
            changed: true,
            objects: vec![outcome],
            pruned: Vec::new(),
        };
        Failure::from(SetFailure::Incomplete(Box::new(report)))
    };
    check(&failure(403), Exit::Denied);
    assert!(failure(403).mend().unwrap().contains("admin"));
    check(&failure(422), Exit::Failed);
    assert!(failure(422).mend().unwrap().contains("Run this again"));
}

#[test]
fn a_failure_names_the_object_and_the_mend() {
    let shown = refusal(403).shown();
    assert!(
        shown.starts_with("error: cannot read Namespace kube-system: no\n\n"),
        "{shown}"
    );
    assert!(shown.contains("--dry-run"), "{shown}");
}

#[test]
fn no_refusal_names_a_flag_that_this_command_lacks() {
    let refusals = [
        Refusal::Owned {
            object: ObjectRef {
                gvk: Gvk::new("v1", "Secret"),
                namespace: None,
                name: "a".to_owned(),
            },
            owner: "ResourceSet other.v2".to_owned(),
        },
        Refusal::OtherNamespace {
            set: "konnector".parse().unwrap(),
            recorded: "elsewhere".to_owned(),
            given: KUBE_BIND_NAMESPACE.to_owned(),
        },
    ];
    let text = refused(&refusals);
    assert!(!text.contains("--"), "{text}");
    for part in ["secret/a", "other.v2", "elsewhere"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
}
