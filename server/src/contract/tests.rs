use super::*;

fn principal(username: &str) -> Principal {
    Principal::named(username)
}

fn contract_of(name: &str, identity: &str, owner: &str) -> Arc<Namespace> {
    Arc::new(namespace(&NewContract {
        name,
        identity,
        pretty_name: "Ranch",
        owner: &principal(owner),
        owner_groups: &[],
        template: "cowboys",
    }))
}

#[track_caller]
fn check(existing: &[Arc<Namespace>], cluster: &str, caller: &str, expect: Result<bool, &str>) {
    let concerns = concerning("kube-bind-", cluster);
    let shown: Vec<_> = existing
        .iter()
        .filter(|it| !is_contract(it) || concerns(it))
        .cloned()
        .collect();
    let located = locate(existing, "kube-bind-", cluster);
    assert_eq!(
        locate(&shown, "kube-bind-", cluster),
        located,
        "those that concern it do"
    );
    let outcome = located.and_then(|located| {
        admit(&located, cluster, &principal(caller), &[])?;
        Ok(located.namespace.is_some())
    });
    assert_eq!(outcome.as_ref().map(|found| *found).map_err(Refusal::reason), expect);
}

#[test]
fn a_contract_belongs_to_who_made_it() {
    let name = names::contract_namespace("kube-bind-", "cluster-a");
    let janes = contract_of(&name, "cluster-a", "jane");
    check(&[], "cluster-a", "jane", Ok(false));
    check(&[Arc::clone(&janes)], "cluster-a", "jane", Ok(true));
    check(&[Arc::clone(&janes)], "cluster-a", "john", Err("ClusterIdentityTaken"));
    check(&[Arc::clone(&janes)], "cluster-b", "john", Ok(false));
    // An identity that merely begins like another is another.
    check(&[janes], "cluster-", "john", Ok(false));
}

#[test]
fn who_owns_a_contract_wrongly_is_replaced_and_not_joined() {
    let contract = "kube-bind-a".to_owned();
    let mend = Refusal::IdentityTaken { contract }.to_string();
    assert!(
        mend.contains("`kubectl bind provider transfer kube-bind-a --to PRINCIPAL`"),
        "{mend}"
    );
    assert!(
        !mend.contains("add you") && !mend.contains(annotations::OWNERS),
        "{mend}"
    );
}

#[test]
fn the_admin_can_add_owners_and_a_broken_list_admits_nobody() {
    let name = names::contract_namespace("kube-bind-", "cluster-a");
    let with_owners = |json: &str| {
        let mut contract = (*contract_of(&name, "cluster-a", "jane")).clone();
        contract
            .annotations_mut()
            .insert(annotations::OWNERS.to_owned(), json.to_owned());
        vec![Arc::new(contract)]
    };
    let both = with_owners(r#"[{"username": "jane"}, {"username": "john", "uid": "1"}]"#);
    check(&both, "cluster-a", "jane", Ok(true));
    check(&both, "cluster-a", "john", Err("ClusterIdentityTaken"));
    let john = Principal {
        uid: Some("1".to_owned()),
        ..principal("john")
    };
    assert!(is_owned_by(&both[0], &john));
    check(&with_owners("jane"), "cluster-a", "jane", Err("ClusterIdentityTaken"));
    check(&with_owners("[]"), "cluster-a", "jane", Err("ClusterIdentityTaken"));
}

#[test]
fn an_older_contract_of_another_name_is_found_by_its_identity() {
    let old = contract_of("cluster-old", "cluster-a", "jane");
    let located = locate(std::slice::from_ref(&old), "kube-bind-", "cluster-a").unwrap();
    assert_eq!(located.name, "cluster-old");
    let second = contract_of("kube-bind-new", "cluster-a", "jane");
    check(&[old, second], "cluster-a", "jane", Err("ClusterIdentityAmbiguous"));
}

#[test]
fn no_contract_gets_a_name_that_reaches_into_anothers() {
    let name = names::contract_namespace("kube-bind-", "cluster-a");
    let overlaps = Err("ContractNameOverlaps");
    for (other, expect) in [
        (format!("{name}-x"), overlaps),
        ("kube-bind".to_owned(), overlaps),
        ("kube".to_owned(), overlaps),
        (format!("{name}x"), Ok(false)),
        ("kube-b".to_owned(), Ok(false)),
        (names::contract_namespace("kube-bind-", "cluster-b"), Ok(false)),
    ] {
        let other = contract_of(&other, "cluster-b", "john");
        assert_eq!(concerning("kube-bind-", "cluster-a")(&other), expect.is_err());
        check(std::slice::from_ref(&other), "cluster-a", "jane", expect);
        // A contract that is there already stays.
        let own = contract_of(&name, "cluster-a", "jane");
        check(&[own, other], "cluster-a", "jane", Ok(true));
    }
    // A namespace that was made for a contract is none.
    let mut mapped = (*contract_of(&format!("{name}-x"), "cluster-b", "john")).clone();
    mapped
        .labels_mut()
        .insert(labels::CONTRACT.to_owned(), "kube-bind-x".to_owned());
    check(&[Arc::new(mapped)], "cluster-a", "jane", Ok(false));
}

#[test]
fn a_namespace_of_that_name_that_is_no_contract_is_left_alone() {
    let name = names::contract_namespace("kube-bind-", "cluster-a");
    let other_identity = contract_of(&name, "cluster-b", "jane");
    check(&[other_identity], "cluster-a", "jane", Err("ClusterIdentityMismatch"));
    let mut made_for_another = (*contract_of(&name, "cluster-a", "jane")).clone();
    made_for_another
        .labels_mut()
        .insert(labels::CONTRACT.to_owned(), "kube-bind-x".to_owned());
    check(
        &[Arc::new(made_for_another)],
        "cluster-a",
        "jane",
        Err("ForeignNamespace"),
    );
}

#[test]
fn a_contract_on_its_way_out_is_waited_for() {
    let name = names::contract_namespace("kube-bind-", "cluster-a");
    let mut going = (*contract_of(&name, "cluster-a", "jane")).clone();
    going.metadata.deletion_timestamp = Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(
        jiff::Timestamp::UNIX_EPOCH,
    ));
    check(&[Arc::new(going)], "cluster-a", "jane", Err("ContractTerminating"));
    assert!(!Refusal::Terminating { contract: name }.is_final());
}

#[test]
fn a_template_is_granted_once() {
    let contract = contract_of("kube-bind-a", "cluster-a", "jane");
    let jane = Granter::new(principal("jane"), &[]);
    assert_eq!(grants::grant(&contract, "cowboys", &jane), None);
    let patch = grants::grant(&contract, "bandits", &jane).unwrap();
    assert_eq!(
        patch["metadata"]["annotations"][annotations::GRANTED_TEMPLATES],
        r#"["bandits","cowboys"]"#
    );
}

#[test]
fn members_of_an_owner_group_use_the_contract_and_do_not_own_it() {
    let name = names::contract_namespace("kube-bind-", "cluster-a");
    let mut contract = (*contract_of(&name, "cluster-a", "jane")).clone();
    contract
        .annotations_mut()
        .insert(annotations::OWNER_GROUPS.to_owned(), r#"["ranchers"]"#.to_owned());
    let located = Located {
        name,
        namespace: Some(Arc::new(contract.clone())),
    };
    let admitted = |caller: &str, groups: &[&str]| {
        let groups: Vec<_> = groups.iter().map(|group| (*group).to_owned()).collect();
        let outcome = admit(&located, "cluster-a", &principal(caller), &groups);
        assert_eq!(outcome.is_ok(), may_use(&contract, &principal(caller), &groups));
        outcome.map_err(|refusal| refusal.reason())
    };
    assert_eq!(admitted("jane", &[]), Ok(()));
    assert_eq!(admitted("john", &["bandits", "ranchers"]), Ok(()));
    assert_eq!(admitted("john", &["bandits"]), Err("ClusterIdentityTaken"));
    assert_eq!(admitted("ranchers", &[]), Err("ClusterIdentityTaken"));
    assert!(!is_owned_by(&contract, &principal("john")));
}
