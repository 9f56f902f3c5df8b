//! Objects of claimed resources.

use super::*;

/// A Secret and its counterpart, under a claim by label that selects or not.
fn claimed(object: Seen<ObjectFacts>, copy: Seen<ObjectFacts>, selected: Seen<String>) -> Facts {
    let mut facts = facts(object, copy);
    facts.kind = resolve(&served(), "secret", |_| false).unwrap();
    facts.name = "permit".to_owned();
    facts.links[0].relation = Relation::Claimed(ClaimFacts {
        claims: vec![crate::claims::tests::claim("secrets", Some(("app", "cowboy")))],
        selected,
        ..ClaimFacts::default()
    });
    facts
}

fn rejected(mut facts: Facts) -> Facts {
    if let Relation::Claimed(claim) = &mut facts.links[0].relation {
        claim.rejected = true;
    }
    facts
}

fn secret(change: &Value) -> Seen<ObjectFacts> {
    let mut value =
        json!({ "metadata": { "name": "permit", "namespace": "west", "uid": "s1" }, "data": { "permit": "MTg3Mw==" } });
    merge(&mut value, change);
    object(value)
}

fn marks(owner: &str, uid: &str) -> Value {
    json!({ "metadata": { "labels": { "kube-bind.io/owner": owner }, "annotations": {
        "kube-bind.io/cluster-namespace": CONTRACT, format!("kube-bind.io/{owner}-uid"): uid,
        format!("kube-bind.io/{owner}-namespace"): "west" } } })
}

fn by_label() -> Seen<String> {
    Seen::Is("by its labels".to_owned())
}

#[test]
fn a_claimed_object_says_by_what_and_how_far() {
    let claims = (Well, "binding cowboys claims it: by its labels", "");
    let copy = secret(&marks("consumer", "s1"));
    check(
        &claimed(secret(&json!({})), copy.clone(), by_label()),
        &[claims, (Well, "in sync with its copy", "")],
    );
    check(
        &claimed(secret(&json!({ "data": { "permit": "eA==" } })), copy, by_label()),
        &[claims, (Waits, "data.permit of the copy", "konnector")],
    );
    check(
        &claimed(secret(&json!({})), Seen::Absent, by_label()),
        &[claims, (Waits, "no copy of it yet", "konnector")],
    );
    check(
        &claimed(secret(&json!({})), secret(&json!({})), by_label()),
        &[
            claims,
            (Broken, "conflict: the provider has west/permit already", "you"),
        ],
    );
    check(
        &claimed(secret(&json!({})), Seen::Unknown("forbidden".to_owned()), by_label()),
        &[claims, (Unknown, "forbidden", "")],
    );
    check(
        &claimed(
            secret(&json!({})),
            Seen::Absent,
            Seen::Unknown("cannot list cowboys".to_owned()),
        ),
        &[(Unknown, "cannot list cowboys", ""), (Waits, "no copy", "konnector")],
    );
}

#[test]
fn what_is_not_claimed_stays_here() {
    check(
        &claimed(secret(&json!({})), Seen::Absent, Seen::Absent),
        &[(Well, "does not select it, only those labelled app=cowboy", "")],
    );
    let copy = || secret(&marks("consumer", "s1"));
    check(
        &claimed(secret(&json!({})), copy(), Seen::Absent),
        &[(Waits, "no claim selects it any more", "konnector")],
    );
    let refused = rejected(claimed(secret(&json!({})), Seen::Absent, Seen::Absent));
    check(
        &refused,
        &[(
            Well,
            "rejects the claim on secrets: nothing of it is read or written",
            "",
        )],
    );
    assert!(
        diagnose(&refused)[0]
            .mend
            .as_deref()
            .unwrap()
            .contains("kubectl bind claims cowboys --accept secrets")
    );
    check(
        &rejected(claimed(secret(&json!({})), copy(), by_label())),
        &[(Waits, "its copy will be deleted", "konnector")],
    );
    for (name, change) in [
        ("token", json!({ "type": "kubernetes.io/service-account-token" })),
        ("token", json!({ "type": "bootstrap.kubernetes.io/token" })),
    ] {
        let mut facts = claimed(secret(&change), Seen::Absent, by_label());
        name.clone_into(&mut facts.name);
        check(&facts, &[(Well, "never synced", "")]);
    }
}

#[test]
fn what_only_a_wider_claim_takes_waits_for_you() {
    let wider = |object, copy, selected, would_select| {
        let mut facts = claimed(object, copy, selected);
        if let Relation::Claimed(claim) = &mut facts.links[0].relation {
            claim.not_accepted = vec![crate::claims::tests::claim("secrets", None)];
            claim.would_select = would_select;
        }
        facts
    };
    let every = || Seen::Is("it selects every one".to_owned());
    let waits = wider(secret(&json!({})), Seen::Absent, Seen::Absent, every());
    let says = "it stays here: the provider of binding cowboys claims it now, it selects every one, and that claim";
    check(&waits, &[(Waits, says, "you")]);
    let mend = diagnose(&waits)[0].mend.clone().unwrap();
    assert!(mend.contains("kubectl bind claims cowboys --accept secrets"), "{mend}");
    let theirs = wider(Seen::Absent, secret(&json!({})), Seen::Absent, every());
    check(
        &theirs,
        &[(
            Waits,
            "the provider has an object of its own at west/permit: the provider of",
            "you",
        )],
    );
    // What was accepted takes it all the same.
    check(
        &wider(
            secret(&json!({})),
            secret(&marks("consumer", "s1")),
            by_label(),
            every(),
        ),
        &[
            (Well, "binding cowboys claims it: by its labels", ""),
            (Well, "in sync with its copy", ""),
        ],
    );
    check(
        &wider(secret(&json!({})), Seen::Absent, Seen::Absent, Seen::Absent),
        &[(Well, "does not select it, only those labelled app=cowboy", "")],
    );
    check(
        &wider(
            secret(&json!({})),
            Seen::Absent,
            Seen::Absent,
            Seen::Unknown("forbidden".to_owned()),
        ),
        &[(Unknown, "forbidden", "")],
    );
    check(
        &rejected(wider(secret(&json!({})), Seen::Absent, Seen::Absent, Seen::Absent)),
        &[(Well, "rejects the claim on secrets", "")],
    );
}

#[test]
fn objects_in_protected_namespaces_are_never_claimed() {
    for (namespace, why) in [
        ("kube-bind", "never synced: the konnector's own namespace"),
        ("kube-system", "never synced: its namespace belongs to Kubernetes"),
        ("kube-public", "never synced: its namespace belongs to Kubernetes"),
        ("kube-node-lease", "never synced: its namespace belongs to Kubernetes"),
    ] {
        for (object, copy) in [(secret(&json!({})), Seen::Absent), (Seen::Absent, secret(&json!({})))] {
            let mut facts = claimed(object, copy, by_label());
            facts.namespace = namespace.to_owned();
            check(&facts, &[(Well, why, "")]);
        }
    }
}

#[test]
fn only_service_accounts_have_secrets_that_are_not_copied() {
    let claims = (Well, "binding cowboys claims it: by its labels", "");
    for (group, plural, expect) in [
        ("", "serviceaccounts", (Well, "in sync with its copy", "")),
        ("wildwest.dev", "horses", (Waits, "secrets of the copy", "konnector")),
    ] {
        let object = secret(&json!({ "secrets": [{ "name": "token" }] }));
        let mut facts = claimed(object, secret(&marks("consumer", "s1")), by_label());
        group.clone_into(&mut facts.kind.group);
        plural.clone_into(&mut facts.kind.plural);
        check(&facts, &[claims, expect]);
    }
}

#[test]
fn a_copy_of_the_providers_follows_it() {
    let copy = || secret(&marks("provider", "s9"));
    let source = |change: &Value| {
        let mut own = json!({ "metadata": { "uid": "s9", "namespace": "kube-bind-x-west" } });
        merge(&mut own, change);
        secret(&own)
    };
    check(
        &claimed(copy(), source(&json!({})), by_label()),
        &[(Well, "in sync with the provider's kube-bind-x-west/permit", "")],
    );
    check(
        &claimed(copy(), source(&json!({ "data": { "permit": "eA==" } })), by_label()),
        &[(Waits, "data.permit differs from the provider's", "konnector")],
    );
    check(
        &claimed(copy(), source(&json!({ "metadata": { "uid": "s10" } })), by_label()),
        &[(Waits, "has replaced", "konnector")],
    );
    check(
        &claimed(copy(), Seen::Absent, by_label()),
        &[(Waits, "will be deleted", "konnector")],
    );
    check(
        &rejected(claimed(copy(), source(&json!({})), by_label())),
        &[(Waits, "rejects the claim, and this copy will be deleted", "konnector")],
    );
    check(
        &claimed(Seen::Absent, source(&json!({})), by_label()),
        &[(Waits, "the provider has an object of its own", "konnector")],
    );
}

#[test]
fn a_claim_that_leaves_an_object_alone_is_silent_beside_one_that_takes_it() {
    let mut both = claimed(secret(&json!({})), Seen::Absent, by_label());
    both.links
        .push(claimed(secret(&json!({})), Seen::Absent, Seen::Absent).links.remove(0));
    let lines = diagnose(&both);
    assert_eq!(lines.len(), 2, "{lines:?}");
}

#[test]
fn nothing_of_the_content_is_told() {
    let facts = claimed(secret(&json!({})), secret(&marks("consumer", "s1")), by_label());
    let lines = diagnose(&facts);
    let told = format!("{}{}{}", json!(facts), json!(lines), render(&facts, &lines, at(60)));
    assert!(!told.contains("MTg3Mw=="), "{told}");
}
