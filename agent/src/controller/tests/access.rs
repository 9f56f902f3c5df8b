use std::collections::BTreeMap;

use k8s_openapi::ByteString;

use super::*;
use crate::session::kubeconfigs;

fn reference(namespace: &str) -> ClusterSecretKeyRef {
    ClusterSecretKeyRef {
        name: "kubeconfig-x".to_owned(),
        key: "kubeconfig".to_owned(),
        namespace: namespace.to_owned(),
    }
}

fn secret(key: &str, document: &str) -> Secret {
    Secret {
        data: Some(BTreeMap::from([(
            key.to_owned(),
            ByteString(document.as_bytes().to_vec()),
        )])),
        ..Secret::default()
    }
}

/// Reason of a binding and of a bundle, and a part of the message.
#[track_caller]
fn check_read(namespace: &str, secret: Option<&Secret>, reasons: (&str, &str), says: &str) {
    let problem = read(&reference(namespace), secret, "kube-bind").expect_err("a problem");
    assert_eq!((problem.reason(), problem.exact_reason()), reasons);
    assert!(problem.to_string().contains(says), "{problem}");
}

#[test]
fn every_problem_of_a_secret_has_its_reason() {
    const INVALID: &str = "KubeconfigSecretInvalid";
    let document = kubeconfigs::document("x", 0, 3600);
    let good = secret("kubeconfig", &document);
    assert!(read(&reference("kube-bind"), Some(&good), "kube-bind").is_ok());
    let reasons = (INVALID, "KubeconfigSecretElsewhere");
    check_read("default", Some(&good), reasons, "only in namespace kube-bind");
    let theirs = SecretProblem::ServedElsewhere {
        at: Box::new(reference("kube-bind")),
        contract: "kube-bind-x".to_owned(),
        namespace: "other".to_owned(),
    };
    assert_eq!(
        (theirs.reason(), theirs.exact_reason()),
        (INVALID, "ContractServedElsewhere")
    );
    assert!(
        theirs.to_string().contains("konnector of namespace other serves"),
        "{theirs}"
    );
    let reasons = ("KubeconfigSecretNotFound", "KubeconfigSecretNotFound");
    check_read("kube-bind", None, reasons, "kube-bind/kubeconfig-x");
    let check = |key: &str, document: &str, reason: &str, says: &str| {
        check_read("kube-bind", Some(&secret(key, document)), (INVALID, reason), says);
    };
    check("other", "", "KubeconfigKeyNotFound", "no key kubeconfig");
    check("kubeconfig", "x", INVALID, "cannot be parsed");
    let nowhere = document.replace("kube-bind-x", "");
    check("kubeconfig", &nowhere, "KubeconfigNamespaceMissing", "has no namespace");
    let plain = document.replace("https://x.", "http://x.");
    check("kubeconfig", &plain, "KubeconfigUnsafe", "plain http");
    let program = document.replace(
        "\"user\":{\"token\"",
        "\"user\":{\"exec\":{\"command\":\"x\"},\"token\"",
    );
    check("kubeconfig", &program, "KubeconfigUnsafe", "exec");
}

/// What asking with a kubeconfig gives: the contract of this UID, a failure, or nothing yet.
#[derive(Clone, Copy)]
enum Answer {
    Contract(&'static str),
    Expired,
    Pending,
}

/// A contract, and which kubeconfig led there.
type Found = (Contract, Arc<ProviderAccess>);

fn reached(access: &Arc<ProviderAccess>, uid: &str) -> Found {
    let contract = Contract {
        uid: uid.into(),
        namespace: "kube-bind-x".into(),
    };
    (contract, Arc::clone(access))
}

struct Case {
    given: Option<Answer>,
    /// Whether the stored one is newer than the one given, whether that is known to be of the same contract, and what
    /// the stored one gives.
    stored: Option<(bool, bool, Answer)>,
    pinned: Option<&'static str>,
    consent: bool,
    unbinding: bool,
}

const PLAIN: Case = Case {
    given: Some(Answer::Contract("a")),
    stored: None,
    pinned: Some("a"),
    consent: false,
    unbinding: false,
};

/// The outcome in a word, and whether it was reached with the stored credential.
fn outcome(case: &Case) -> String {
    let given = kubeconfigs::access("given", 1000, 3600);
    let stored_access = |newer: bool| kubeconfigs::access("stored", if newer { 2000 } else { 500 }, 3600);
    let known = KnownCredentials {
        secret: match case.given {
            Some(_) => Ok(Arc::clone(&given)),
            None => read(&reference("kube-bind"), None, "kube-bind"),
        },
        stored: case.stored.map(|(newer, known, _)| StoredCredential {
            access: stored_access(newer),
            origins: known
                .then(|| given.fingerprint.as_str().to_owned())
                .into_iter()
                .collect(),
        }),
        pinned: case.pinned.map(str::to_owned),
        consent: case.consent,
        unbinding: case.unbinding,
    };
    let access = known.resolve(
        |found: &Found| &found.0,
        |access| {
            let answer = if access.fingerprint == given.fingerprint {
                case.given.unwrap()
            } else {
                case.stored.unwrap().2
            };
            match answer {
                Answer::Contract(uid) => Some(Ok(reached(access, uid))),
                Answer::Expired => Some(Err(ConnectError::Unauthorized {
                    server: String::new(),
                    message: String::new(),
                })),
                Answer::Pending => None,
            }
        },
    );
    match access {
        ContractAccess::Problem(problem) => problem.reason().to_owned(),
        ContractAccess::Connecting => "connecting".to_owned(),
        ContractAccess::Failed(_) => "failed".to_owned(),
        ContractAccess::Changed { pinned, found } => format!("{pinned} became {}", found.0.uid),
        ContractAccess::Reached((contract, access)) => {
            let by = if access.fingerprint == given.fingerprint {
                "given"
            } else {
                "stored"
            };
            format!("{} by {by}", contract.uid)
        }
    }
}

#[test]
fn the_kubeconfig_of_a_binding_is_recorded_once_it_is_known_where_it_leads() {
    let access = |name| kubeconfigs::access(name, 1000, 3600);
    let (given, stored, other) = (access("given"), access("stored"), access("other"));
    let check = |origin: &ProviderAccess, origins: &[&ProviderAccess], expect: Option<&ProviderAccess>| {
        let known = KnownCredentials {
            secret: Ok(Arc::clone(&given)),
            stored: Some(StoredCredential {
                access: Arc::clone(&stored),
                origins: origins
                    .iter()
                    .map(|origin| origin.fingerprint.as_str().to_owned())
                    .collect(),
            }),
            pinned: None,
            consent: false,
            unbinding: true,
        };
        assert_eq!(known.own(&origin.fingerprint), expect.map(|access| &access.fingerprint));
    };
    check(&given, &[], Some(&given));
    check(&stored, &[&given], Some(&given));
    check(&stored, &[&other], None);
    check(&other, &[&given], None);
}

#[test]
fn the_newest_credential_of_the_same_contract_is_used() {
    use Answer::{Contract, Expired, Pending};
    let check = |case: Case, expect: &str| assert_eq!(outcome(&case), expect);
    check(PLAIN, "a by given");
    check(Case { pinned: None, ..PLAIN }, "a by given");
    check(
        Case {
            given: Some(Pending),
            ..PLAIN
        },
        "connecting",
    );
    check(
        Case {
            given: Some(Expired),
            ..PLAIN
        },
        "failed",
    );
    let newer = Some((true, true, Contract("a")));
    check(Case { stored: newer, ..PLAIN }, "a by stored");
    check(
        Case {
            stored: newer,
            given: Some(Expired),
            ..PLAIN
        },
        "a by stored",
    );
    check(
        Case {
            stored: Some((false, true, Contract("a"))),
            ..PLAIN
        },
        "a by given",
    );
    check(
        Case {
            stored: Some((true, true, Expired)),
            ..PLAIN
        },
        "a by given",
    );
    let unknown = Some((true, false, Contract("a")));
    check(
        Case {
            stored: unknown,
            ..PLAIN
        },
        "a by given",
    );
    check(
        Case {
            stored: unknown,
            given: Some(Expired),
            ..PLAIN
        },
        "failed",
    );
}

#[test]
fn another_contract_needs_consent_and_a_lost_secret_ends_the_access() {
    use Answer::Contract;
    let check = |case: Case, expect: &str| assert_eq!(outcome(&case), expect);
    let swapped = || Case {
        given: Some(Contract("b")),
        ..PLAIN
    };
    check(swapped(), "a became b");
    check(
        Case {
            consent: true,
            ..swapped()
        },
        "b by given",
    );
    let stored = Some((true, false, Contract("a")));
    check(Case { stored, ..swapped() }, "a became b");
    check(
        Case {
            stored,
            unbinding: true,
            ..swapped()
        },
        "a by stored",
    );
    check(
        Case {
            given: None,
            stored,
            ..PLAIN
        },
        "KubeconfigSecretNotFound",
    );
    check(
        Case {
            given: None,
            stored,
            unbinding: true,
            ..PLAIN
        },
        "a by stored",
    );
    check(
        Case {
            given: None,
            unbinding: true,
            ..PLAIN
        },
        "KubeconfigSecretNotFound",
    );
}

/// The identity of an unverified contract that is reached with a kubeconfig for this host.
fn unverified(host: &str) -> String {
    Contract::unverified(&kubeconfigs::access(host, 1000, 3600))
        .uid
        .to_string()
}

/// Which contract serves a binding with this pin, or `changed`, where the provider shows `found`.
fn served_by(pinned: &str, found: &str, consent: bool) -> String {
    let known = KnownCredentials {
        secret: Ok(kubeconfigs::access("given", 1000, 3600)),
        stored: None,
        pinned: Some(pinned.to_owned()),
        consent,
        unbinding: false,
    };
    let access = known.resolve(
        |found: &Found| &found.0,
        |access| {
            let (found, access) = reached(access, found);
            Some(Ok((known.identity(&found, &access), access)))
        },
    );
    match access {
        ContractAccess::Reached((contract, _)) => contract.uid.to_string(),
        ContractAccess::Changed { .. } => "changed".to_owned(),
        other => format!("{other:?}"),
    }
}

#[test]
fn a_digest_gives_way_to_a_uid_by_consent_alone() {
    let check = |pinned: &str, found: &str, consent: bool, expect: &str| {
        assert_eq!(served_by(pinned, found, consent), expect, "{pinned} and {found}");
    };
    let (here, elsewhere) = (unverified("given"), unverified("elsewhere"));
    check(&here, &here, false, &here);
    check(&here, "a", false, &here);
    check(&here, "a", true, "a");
    check(&elsewhere, "a", false, "changed");
    check(&elsewhere, &here, false, "changed");
    check(&elsewhere, &here, true, &here);
}

#[test]
fn a_pinned_uid_stands_until_another_one_is_read() {
    let check = |found: &str, consent: bool, expect: &str| assert_eq!(served_by("a", found, consent), expect);
    check("a", false, "a");
    check(&unverified("given"), false, "a");
    check(&unverified("given"), true, "a");
    check("b", false, "changed");
    check("b", true, "b");
}

#[test]
fn a_pinned_uid_is_never_replaced_by_a_digest() {
    let access = kubeconfigs::access("given", 1000, 3600);
    let check = |pinned: Option<&str>, stored: Option<&str>, consent: bool, expect: bool| {
        let known = KnownCredentials {
            secret: Ok(Arc::clone(&access)),
            stored: stored.map(|host| StoredCredential {
                access: kubeconfigs::access(host, 500, 3600),
                origins: [].into(),
            }),
            pinned: pinned.map(str::to_owned),
            consent,
            unbinding: false,
        };
        assert_eq!(known.needs_uid(&access), expect, "{pinned:?}, stored {stored:?}");
    };
    check(None, None, false, false);
    check(Some(&unverified("given")), None, false, false);
    check(Some("a"), None, false, true);
    check(Some("a"), None, true, true);
    check(Some("a"), Some("elsewhere"), false, true);
    check(Some("a"), Some("given"), false, false);
}
