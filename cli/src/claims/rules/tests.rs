use bindery_api::consumer_rules::rule;

use super::*;
use crate::install::manifests::{Kubeconfig, tests::manifests};

#[test]
fn rights_on_a_claim_come_and_go() {
    let (secrets, configmaps) = (GroupResource::new("", "secrets"), GroupResource::new("", "configmaps"));
    let before = manifests(Kubeconfig::Hidden("x"))
        .rights
        .unwrap()
        .cluster_role
        .rules
        .unwrap();
    let without = without_claim(&before, &secrets);
    assert_eq!(without.len(), before.len() - 1);
    assert!(!holds_claim(&without, &secrets));
    let with = with_claim(&with_claim(&without, &secrets), &secrets);
    assert_eq!(with.len(), before.len());
    assert!(holds_claim(&with, &secrets) && !holds_claim(&with, &configmaps));
    // One rule for two resources, as a user may write it.
    let both = [rule("", ["secrets", "configmaps"], &OBJECT_VERBS)];
    assert!(holds_claim(&both, &secrets));
    let left = without_claim(&both, &secrets);
    assert!(holds_claim(&left, &configmaps) && !holds_claim(&left, &secrets));
    // A right to read is not all that it takes, nor one on a single object.
    assert!(!holds_claim(
        &[rule("", ["secrets"], &["get", "list", "watch"])],
        &secrets
    ));
    let mut one = claim_rule(&secrets);
    one.resource_names = Some(vec!["a".to_owned()]);
    assert!(!holds_claim(&[one], &secrets));
}
