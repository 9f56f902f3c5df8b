use bindery_api::v1alpha2::{APIServiceBindingSpec, APIServiceBindingStatus, GroupResource, PermissionClaim};

use super::*;

#[test]
fn a_contract_is_checked_when_a_binding_abandons_it() {
    let check = |old: Option<Option<&str>>, new: Option<Option<&str>>, expect| {
        let binding = |contract: Option<&str>| {
            let mut binding = APIServiceBinding::new("cowboys", APIServiceBindingSpec::default());
            binding.status = Some(APIServiceBindingStatus {
                contract_uid: contract.map(str::to_owned),
                ..APIServiceBindingStatus::default()
            });
            binding
        };
        let (old, new) = (old.map(binding), new.map(binding));
        assert_eq!(abandoned_contract(old.as_ref(), new.as_ref()), expect);
    };
    check(Some(Some("a")), None, Some("a"));
    check(Some(Some("a")), Some(Some("b")), Some("a"));
    check(Some(Some("a")), Some(None), Some("a"));
    check(Some(Some("a")), Some(Some("a")), None);
    check(Some(None), Some(Some("a")), None);
    check(None, Some(Some("a")), None);
}

#[test]
fn changed_claims_concern_the_other_bindings_of_the_contract() {
    let binding = |claims: &[&str]| {
        let mut binding = APIServiceBinding::new("cowboys", APIServiceBindingSpec::default());
        let claim = |resource: &&str| PermissionClaim {
            group_resource: GroupResource::new("", *resource),
            ..PermissionClaim::default()
        };
        binding.status = Some(APIServiceBindingStatus {
            contract_uid: Some("a".to_owned()),
            permission_claims: claims.iter().map(claim).collect(),
            ..APIServiceBindingStatus::default()
        });
        binding
    };
    let (none, some) = (binding(&[]), binding(&["secrets"]));
    assert!(claims_changed(Some(&none), Some(&some)));
    assert!(claims_changed(Some(&some), None));
    assert!(!claims_changed(Some(&some), Some(&some)));
    assert!(!claims_changed(None, Some(&some)), "it is looked at itself");
}
