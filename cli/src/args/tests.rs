use clap::CommandFactory as _;

use super::*;

#[test]
fn flags_do_not_contradict_each_other() {
    Args::command().debug_assert();
}

#[test]
fn resources_are_named_as_crds_are() {
    assert_eq!(resource("secrets"), Ok(GroupResource::new("", "secrets")));
    assert_eq!(
        resource("a.b.example.com"),
        Ok(GroupResource::new("b.example.com", "a"))
    );
    for nonsense in ["", ".", "Secrets", "secrets/x", "*", "a.B", "*.example.com"] {
        assert!(resource(nonsense).is_err(), "{nonsense:?}");
    }
}

#[test]
fn a_token_is_not_shown() {
    let args = parse(
        ["kubectl-bind", "--token", "hunter2", "templates"]
            .map(Into::into)
            .to_vec(),
    )
    .unwrap();
    assert!(!format!("{args:?}").contains("hunter2"));
}
