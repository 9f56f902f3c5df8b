use clap::error::ErrorKind;

use super::*;
use crate::args::{Command, parse};

fn words(line: &str) -> Vec<std::ffi::OsString> {
    ["kubectl-bind"]
        .into_iter()
        .chain(line.split_whitespace())
        .map(Into::into)
        .collect()
}

#[track_caller]
fn deploy(line: &str) -> DeployArgs {
    match parse(words(line)).unwrap().command {
        Command::Deploy(args) => *args,
        other => panic!("{line:?} is {other:?}"),
    }
}

#[track_caller]
fn check_refused(line: &str, kind: ErrorKind) {
    let error = parse(words(line)).expect_err(line);
    assert_eq!(error.kind(), kind, "{line:?}: {error}");
}

#[test]
fn what_is_left_out_is_left_as_it_is() {
    let plain = deploy("deploy");
    assert_eq!(
        (plain.adoption, plain.replicas, plain.konnector_image),
        (None, None, None)
    );
    assert_eq!((plain.dry_run, plain.wait), (DryRun::None, false));
    let all = deploy("deploy --adoption all --replicas=2 --wait --bundle-resource a.b.c --bundle-resource secrets");
    assert_eq!(
        (all.adoption, all.replicas, all.wait),
        (Some(Adoption::All), Some(2), true)
    );
    assert_eq!(
        all.bundle_resource,
        [GroupResource::new("b.c", "a"), GroupResource::new("", "secrets")]
    );
}

#[test]
fn a_removal_waits_and_is_for_real_unless_told_otherwise() {
    let undeploy = |line: &str| match parse(words(line)).unwrap().command {
        Command::Undeploy(args) => (args.dry_run, args.wait, args.ignore_not_found),
        other => panic!("{line:?} is {other:?}"),
    };
    assert_eq!(undeploy("undeploy"), (false, true, false));
    assert_eq!(
        undeploy("undeploy -d --wait=false --ignore-not-found"),
        (true, false, true)
    );
    check_refused("undeploy konnector", ErrorKind::UnknownArgument);
    check_refused("undeply", ErrorKind::InvalidSubcommand);
}

#[test]
fn a_dry_run_is_that_of_a_client() {
    for (line, expect) in [
        ("deploy --dry-run", DryRun::Client),
        ("deploy --dry-run=client -o yaml", DryRun::Client),
        ("deploy --dry-run=none", DryRun::None),
    ] {
        assert_eq!(deploy(line).dry_run, expect, "{line}");
    }
    check_refused("deploy --dry-run=server", ErrorKind::InvalidValue);
    check_refused("deploy --show-secrets", ErrorKind::MissingRequiredArgument);
}

#[test]
fn an_answer_lies_in_one_place() {
    let file = deploy("deploy -f - --bundle acme --secret-key kubeconfig");
    assert_eq!(file.file.as_deref(), Some(std::path::Path::new("-")));
    assert!(deploy("deploy --filename x").file.is_some());
    let secret = deploy("deploy --secret team-a/x --provider-kubeconfig k").secret;
    assert_eq!(secret, Some(("team-a".to_owned(), "x".to_owned())));
    check_refused("deploy --secret team-a/x", ErrorKind::MissingRequiredArgument);
    check_refused("deploy --provider-kubeconfig k", ErrorKind::MissingRequiredArgument);
    check_refused("deploy --bundle acme", ErrorKind::MissingRequiredArgument);
    check_refused("deploy --secret-key x", ErrorKind::MissingRequiredArgument);
    check_refused(
        "deploy -f x --secret a/b --provider-kubeconfig k",
        ErrorKind::ArgumentConflict,
    );
    for nonsense in ["x", "a/b/c", "/x", "a/"] {
        let line = format!("deploy --secret {nonsense} --provider-kubeconfig k");
        check_refused(&line, ErrorKind::ValueValidation);
    }
}

#[test]
fn slips_of_the_finger_deploy_nothing() {
    for line in ["deplyo", "deply", "adpot", "adopts"] {
        check_refused(line, ErrorKind::InvalidSubcommand);
    }
    check_refused("deploy --namespace other", ErrorKind::UnknownArgument);
}
