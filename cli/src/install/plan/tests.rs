mod bundles;

use bindery_api::{
    Conditions as _,
    conditions::{Severity, false_condition},
    v1alpha2::APIServiceBindingStatus,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};

use super::*;
use crate::{
    install::manifests::{
        ClaimRights, Kubeconfig,
        tests::{binding_of, limited, manifests, rejecting},
    },
    provider::kubeconfig::tests::{kubeconfig, parse},
};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// What is wanted, with a kubeconfig whose tokens expire at second 1000.
fn wanted() -> Manifests {
    manifests(Kubeconfig::Document(kubeconfig(1000, 1000).to_string().into_bytes()))
}

/// What is installed after a bind at second 0, whose tokens expired at second 100 and 200.
fn installed() -> Installed {
    let old = kubeconfig(100, 200);
    let manifests = manifests(Kubeconfig::Document(old.to_string().into_bytes()));
    let secret = manifests.secret().clone();
    let rights = manifests.rights.unwrap();
    Installed {
        has_namespace: true,
        secret: Some(secret),
        credential: parse(&old).ok(),
        cluster_role: Some(rights.cluster_role),
        cluster_role_binding: Some(rights.cluster_role_binding),
        owner: Some(manifests.owner.into()),
        ..Installed::default()
    }
}

impl Installed {
    fn binding_mut(&mut self) -> &mut APIServiceBinding {
        match &mut self.owner {
            Some(CredentialOwner::Binding(binding)) => binding,
            other => panic!("{other:?}"),
        }
    }
}

#[track_caller]
fn check(seen: &Installed, now: i64, expect: &[&str]) {
    let writes = plan(&wanted(), seen, at(now)).unwrap();
    let verb = |kind| match kind {
        WriteKind::Create => "create",
        WriteKind::Change => "change",
        WriteKind::RecordClaims => "record",
    };
    let writes: Vec<_> = writes
        .iter()
        .map(|write| format!("{} {write}", verb(write.kind)))
        .collect();
    assert_eq!(writes, expect);
}

#[test]
fn a_first_bind_makes_everything_and_the_binding_last() {
    check(
        &Installed::default(),
        0,
        &[
            "create Namespace kube-bind",
            "create ClusterRole kube-bind-konnector-west",
            "create ClusterRoleBinding kube-bind-konnector-west",
            "create Secret kube-bind/kubeconfig-west",
            "create APIServiceBinding west",
        ],
    );
}

#[test]
fn a_second_bind_changes_nothing() {
    check(&installed(), 50, &[]);
}

#[test]
fn a_bind_that_was_interrupted_goes_on() {
    let seen = Installed {
        owner: None,
        cluster_role_binding: None,
        ..installed()
    };
    check(
        &seen,
        50,
        &[
            "create ClusterRoleBinding kube-bind-konnector-west",
            "create APIServiceBinding west",
        ],
    );
}

#[test]
fn credentials_are_replaced_when_they_are_bad() {
    let replaced = &["change Secret kube-bind/kubeconfig-west"];
    check(&installed(), 100, replaced);
    check(
        &Installed {
            credential: None,
            ..installed()
        },
        50,
        replaced,
    );
    let mut moved = kubeconfig(100, 200);
    moved["clusters"][0]["cluster"]["server"] = "https://other.example.com".into();
    check(
        &Installed {
            credential: parse(&moved).ok(),
            ..installed()
        },
        50,
        replaced,
    );
    let mut complaining = installed();
    let complaint = false_condition("SecretValid", Severity::Error, "CredentialExpired", "expired");
    complaining.binding_mut().set_condition(complaint, at(0));
    check(&complaining, 50, replaced);
}

#[test]
fn what_was_changed_by_hand_is_put_back() {
    let mut seen = installed();
    seen.cluster_role.as_mut().unwrap().rules.as_mut().unwrap()[0].resource_names = Some(vec!["one".to_owned()]);
    seen.cluster_role_binding.as_mut().unwrap().subjects = None;
    seen.binding_mut().annotations_mut().clear();
    check(
        &seen,
        50,
        &[
            "change ClusterRole kube-bind-konnector-west",
            "change ClusterRoleBinding kube-bind-konnector-west",
            "change APIServiceBinding west",
        ],
    );
}

#[test]
fn what_a_server_fills_in_is_no_difference() {
    let mut seen = installed();
    let subject = &mut seen.cluster_role_binding.as_mut().unwrap().subjects.as_mut().unwrap()[0];
    subject.api_group = Some(String::new());
    seen.binding_mut()
        .annotations_mut()
        .insert("a".to_owned(), "b".to_owned());
    check(&seen, 50, &[]);
}

#[test]
fn the_order_of_rules_is_no_difference() {
    let mut seen = installed();
    seen.cluster_role.as_mut().unwrap().rules.as_mut().unwrap().reverse();
    check(&seen, 50, &[]);
}

#[test]
fn a_new_rejection_changes_role_and_binding() {
    let secrets = GroupResource::new("", "secrets");
    let wanted = rejecting(
        std::slice::from_ref(&secrets),
        Kubeconfig::Document(kubeconfig(1000, 1000).to_string().into_bytes()),
    );
    let ops = plan(&wanted, &installed(), at(50)).unwrap();
    let ops: Vec<_> = ops.iter().map(ToString::to_string).collect();
    assert_eq!(ops, ["ClusterRole kube-bind-konnector-west", "APIServiceBinding west"]);

    let mut foreign = installed();
    foreign.binding_mut().metadata.labels = None;
    let conflict = plan(&wanted, &foreign, at(50)).expect_err("a conflict");
    assert!(
        conflict
            .to_string()
            .contains("kubectl bind claims west --reject secrets"),
        "{conflict}"
    );
    foreign.binding_mut().spec.rejected_permission_claims = vec![secrets];
    assert!(plan(&wanted, &foreign, at(50)).is_ok());
}

#[test]
fn a_wider_claim_is_recorded_whoever_made_the_binding() {
    let recorded = |record: Option<&str>, ours: bool| {
        let mut seen = installed();
        let binding = seen.binding_mut();
        let annotations = binding.annotations_mut();
        annotations.remove(annotations::ACCEPTED_CLAIMS);
        annotations.extend(record.map(|record| (annotations::ACCEPTED_CLAIMS.to_owned(), record.to_owned())));
        if !ours {
            binding.metadata.labels = None;
        }
        let ops = plan(&wanted(), &seen, at(50)).unwrap();
        ops.first().map(|write| {
            let binding: APIServiceBinding = serde_json::from_value(write.manifest.clone()).unwrap();
            (write.kind, Accepted::of(&binding))
        })
    };
    let now = Accepted::of(&binding_of(wanted()));
    let old = r#"[{"resource":"configmaps","selector":{"labelSelector":{}}}]"#;
    let wider = r#"[{"resource":"secrets","selector":{"labelSelector":{}}}]"#;
    assert_eq!(recorded(Some(old), true), Some((WriteKind::Change, now.clone())));
    assert_eq!(recorded(Some(old), false), Some((WriteKind::RecordClaims, now.clone())));
    assert_eq!(
        recorded(Some("nonsense"), false),
        Some((WriteKind::RecordClaims, now.clone()))
    );
    assert_eq!(recorded(Some(wider), true), Some((WriteKind::Change, now.clone())));
    // Of a binding that is not ours, only what is missing is written; the konnector makes its first record.
    assert_eq!(recorded(Some(wider), false), None);
    assert_eq!(recorded(None, false), None);
    assert_eq!(recorded(None, true), Some((WriteKind::Change, now)));
}

#[test]
fn what_is_not_ours_is_never_changed() {
    let unmark = |meta: &mut ObjectMeta| meta.labels = None;
    let mut seen = installed();
    unmark(&mut seen.cluster_role.as_mut().unwrap().metadata);
    check(&seen, 50, &[]);
    seen.cluster_role.as_mut().unwrap().rules = None;
    let conflict = plan(&wanted(), &seen, at(50)).expect_err("a conflict");
    assert!(
        conflict
            .to_string()
            .starts_with("ClusterRole kube-bind-konnector-west exists"),
        "{conflict}"
    );

    let mut seen = installed();
    unmark(&mut seen.secret.as_mut().unwrap().metadata);
    unmark(&mut seen.binding_mut().metadata);
    check(&seen, 50, &[]);
    assert!(
        plan(&wanted(), &seen, at(150)).is_err(),
        "an expired Secret of somebody else"
    );
}

#[test]
fn another_provider_is_named_before_anybody_is_asked() {
    let asked = |text: &str| installed().refuse_other_backend(&text.parse().unwrap());
    assert_eq!(asked("https://bind.example.com:443/"), Ok(()));
    let message = asked("https://other.example.com").expect_err("a conflict").to_string();
    for part in [
        "west",
        "https://bind.example.com",
        "https://other.example.com",
        "--name",
        "unbind west",
    ] {
        assert!(message.contains(part), "{message}");
    }
    assert_eq!(
        Installed::default().refuse_other_backend(&"https://other".parse().unwrap()),
        Ok(())
    );
}

#[test]
fn a_binding_that_is_going_is_left_alone() {
    let mut seen = installed();
    seen.binding_mut().metadata.deletion_timestamp = Some(Time(at(1)));
    let conflict = seen
        .refuse_other_backend(&"https://bind.example.com".parse().unwrap())
        .expect_err("a conflict");
    assert!(matches!(conflict, Conflict::Deleting { .. }));
}

#[test]
fn a_binding_to_another_export_is_left_alone() {
    let asked = |export: Option<&str>| {
        let mut seen = installed();
        seen.binding_mut().spec.export_name = export.map(str::to_owned);
        seen.refuse_other_backend(&"https://bind.example.com".parse().unwrap())
    };
    assert_eq!((asked(None), asked(Some("west"))), (Ok(()), Ok(())));
    let message = asked(Some("cowboys")).expect_err("a conflict").to_string();
    assert!(message.contains("the export cowboys"), "{message}");
}

#[track_caller]
fn check_contract(pinned: Option<&str>, server: &str, expect: bool) {
    let mut seen = installed();
    seen.binding_mut().status = Some(APIServiceBindingStatus {
        contract_uid: pinned.map(str::to_owned),
        ..APIServiceBindingStatus::default()
    });
    let mut got = kubeconfig(1000, 1000);
    got["clusters"][0]["cluster"]["server"] = server.into();
    let same = seen.refuse_other_contract(&parse(&got).unwrap(), "uid-1");
    assert_eq!(same.is_ok(), expect, "{pinned:?} {server}: {same:?}");
}

#[test]
fn a_contract_is_known_by_its_uid_or_its_place() {
    let (here, elsewhere) = ("https://api.example.com:6443", "https://elsewhere.example.com");
    check_contract(None, here, true);
    check_contract(None, elsewhere, false);
    check_contract(Some("uid-1"), elsewhere, true);
    check_contract(Some("uid-2"), here, true);
    check_contract(Some("uid-2"), elsewhere, false);
}

#[test]
fn an_api_that_is_there_already_is_not_given_away() {
    let api = |binding: Option<&str>| InstalledApi {
        resource: GroupResource::new("wildwest.dev", "cowboys"),
        binding: binding.map(str::to_owned),
        offered: None,
    };
    let offered = |to: &str, binding| InstalledApi {
        offered: Some(to.to_owned()),
        ..api(binding)
    };
    assert_eq!(refuse_foreign_apis(&[offered("west", None)], "west"), Ok(()));
    assert_eq!(refuse_foreign_apis(&[], "west"), Ok(()));
    assert_eq!(refuse_foreign_apis(&[api(Some("west"))], "west"), Ok(()));
    for foreign in [
        api(None),
        api(Some("east")),
        offered("west", Some("east")),
        offered("east", None),
    ] {
        let message = refuse_foreign_apis(&[api(Some("west")), foreign], "west")
            .expect_err("a conflict")
            .to_string();
        assert!(message.contains("cowboys.wildwest.dev"), "{message}");
    }
}

#[test]
fn roles_of_namespaces_are_written_and_those_of_others_are_obsolete() {
    let in_west = ClaimRights {
        in_cluster: false,
        namespaces: BTreeSet::from(["west".to_owned()]),
    };
    let wanted = limited(&[], &["west".to_owned()], &in_west, Kubeconfig::Hidden("x"));
    let mut seen = Installed::default();
    let planned = |seen: &Installed| -> Vec<String> {
        let writes = plan(&wanted, seen, at(0)).unwrap();
        let roles = writes
            .iter()
            .filter(|write| ["Role", "RoleBinding"].contains(&&*write.resource.kind));
        roles.map(|write| format!("{} {write}", write.past())).collect()
    };
    assert_eq!(
        planned(&seen),
        [
            "created Role west/kube-bind-konnector-west",
            "created RoleBinding west/kube-bind-konnector-west"
        ]
    );
    let rights = wanted.rights.as_ref().unwrap().in_namespaces[0].clone();
    (seen.roles, seen.role_bindings) = (vec![rights.role], vec![rights.role_binding]);
    assert!(planned(&seen).is_empty());
    seen.roles[0].rules = None;
    seen.role_bindings[0].subjects = None;
    assert_eq!(
        planned(&seen),
        [
            "changed Role west/kube-bind-konnector-west",
            "changed RoleBinding west/kube-bind-konnector-west"
        ]
    );
    // One that somebody else made in another namespace is left alone.
    let mut of_others = seen.roles[0].clone();
    of_others.metadata.namespace = Some("north".to_owned());
    of_others.metadata.labels = None;
    let mut former = seen.roles[0].clone();
    former.metadata.namespace = Some("east".to_owned());
    seen.roles.extend([of_others, former]);
    let obsolete: Vec<_> = seen
        .obsolete_roles(&wanted)
        .filter_map(kube::ResourceExt::namespace)
        .collect();
    assert_eq!(obsolete, ["east"]);
}
