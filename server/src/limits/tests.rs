use std::collections::BTreeSet;

use super::*;

fn contract(json: &str) -> Namespace {
    let mut namespace = Namespace::default();
    let entry = (annotations::LIMITS.to_owned(), json.to_owned());
    namespace.annotations_mut().extend([entry]);
    namespace
}

#[test]
fn an_admin_changes_the_limits_of_one_contract_and_nonsense_changes_none() {
    let standard = Limits::default();
    let changed = |json: &str| standard.of_contract(&contract(json));
    let more = Limits {
        exports: 2_000,
        streams: 8,
        ..standard
    };
    assert_eq!(changed(r#"{"exports": 2000, "streams": 8}"#), more);
    for nonsense in [
        "",
        "all",
        "[1]",
        "{}",
        r#"{"exports": 0}"#,
        r#"{"exports": -1}"#,
        r#"{"exports": "9"}"#,
        r#"{"Exports": 9}"#,
        r#"{"contracts": 9, "requests": 9}"#,
    ] {
        assert_eq!(changed(nonsense), standard, "{nonsense}");
    }
    assert_eq!(
        changed(r#"{"exports": 99999999999, "namespaces": "x"}"#).exports,
        u32::MAX
    );
    assert_eq!(standard.of_contract(&Namespace::default()), standard);
}

#[test]
fn one_more_than_the_limit_is_refused_with_number_and_mend() {
    let limits = Limits {
        exports: 2,
        contracts: 1,
        ..Limits::default()
    };
    assert_eq!(limits.check(LimitName::Exports, 1, Some("kube-bind-a")), Ok(()));
    let refused = limits.check(LimitName::Exports, 2, Some("kube-bind-a")).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "contract kube-bind-a has reached its limit of 2 exports; unbind one of them, or ask the provider's admin to raise limit exports in \
         annotation backend.kube-bind.io/limits of namespace kube-bind-a, or --limit-exports of the server"
    );
    let refused = limits.check(LimitName::Contracts, 5, None).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "the caller has reached its limit of 1 contracts; have the provider's admin delete one that is not used any more, or ask the \
         provider's admin to raise --limit-contracts of the server"
    );
}

#[test]
fn every_limit_has_a_name_and_a_flag_of_its_own() {
    let names: BTreeSet<_> = LimitName::ALL.map(LimitName::as_str).into();
    let flags: BTreeSet<_> = LimitName::ALL.map(LimitName::flag).into();
    assert_eq!((names.len(), flags.len()), (LimitName::ALL.len(), LimitName::ALL.len()));
    let of_somebody: BTreeSet<_> = LimitName::OF_CONTRACT
        .into_iter()
        .chain(LimitName::OF_PRINCIPAL)
        .collect();
    assert_eq!(of_somebody, LimitName::ALL.into());
}
