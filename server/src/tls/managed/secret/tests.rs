use std::time::Duration;

use jiff::Timestamp;

use super::*;
use crate::tls::managed::{
    issue::{KeyIssuer, apply, bootstrap},
    plan::{Policy, Step, plan},
};

fn policy() -> Policy {
    Policy {
        ca_lifetime: Duration::from_hours(300),
        serving_lifetime: Duration::from_hours(30),
        names: ["bind.example.com".to_owned(), "10.0.0.7".to_owned()].into(),
    }
}

fn made() -> ManagedTls {
    let now = Timestamp::now();
    let state = bootstrap(&policy(), &KeyIssuer, now).expect("a CA");
    let steps = plan(&state, &policy(), now);
    apply(state, &steps, &policy(), &KeyIssuer, now).expect("certificates")
}

fn carry_out(state: ManagedTls, steps: &[Step]) -> ManagedTls {
    apply(state, steps, &policy(), &KeyIssuer, Timestamp::now()).expect("certificates")
}

fn secret(state: &ManagedTls) -> Secret {
    Secret {
        data: Some(encode(state)),
        ..Secret::default()
    }
}

fn decoded(secret: &Secret) -> ManagedTls {
    decode(secret).expect("no fault").expect("content")
}

#[test]
fn what_is_stored_is_read_back() {
    let mut state = made();
    for steps in [&[][..], &[Step::PublishCa], &[Step::SignWithNext], &[Step::PublishCa]] {
        state = carry_out(state, steps);
        let read = decoded(&secret(&state));
        assert_eq!(read.bundle(), state.bundle());
        assert_eq!(encode(&read), encode(&state));
        assert_eq!(read.former, state.former);
        assert_eq!(read.next.is_some(), state.next.is_some());
    }
    assert_eq!(state.authorities().count(), 3);
}

#[test]
fn a_bundle_that_lacks_the_next_ca_is_noticed() {
    let state = carry_out(made(), &[Step::PublishCa]);
    let mut secret = secret(&state);
    assert!(has_bundle(&secret, &decoded(&secret)));
    let bundle = ByteString(state.signing.certificate.pem().into_bytes());
    secret.data.as_mut().expect("data").insert(BUNDLE.to_owned(), bundle);
    let read = decoded(&secret);
    assert_eq!(read.bundle(), state.bundle());
    assert!(!has_bundle(&secret, &read));
}

#[test]
fn what_is_made_is_accepted_by_clients_that_know_the_bundle() {
    let state = made();
    let serving = &state.serving.as_ref().expect("a certificate").certificate;
    assert_eq!(serving.names, policy().names);
    assert!(is_signed_by(serving, &state.signing.certificate));
    assert!(!is_signed_by(serving, &made().signing.certificate));
}

#[test]
fn an_empty_secret_holds_nothing() {
    assert!(decode(&Secret::default()).expect("no fault").is_none());
    let empty = Secret {
        data: Some(BTreeMap::new()),
        ..Secret::default()
    };
    assert!(decode(&empty).expect("no fault").is_none());
}

/// Changes one key of a Secret that holds everything.
#[track_caller]
fn check_damaged(key: &'static str, value: Option<&str>, complaint: &str) {
    let mut data = encode(&carry_out(made(), &[Step::PublishCa]));
    match value {
        Some(value) => data.insert(key.to_owned(), ByteString(value.as_bytes().to_vec())),
        None => data.remove(key),
    };
    let data = Some(data);
    let fault = decode(&Secret {
        data,
        ..Secret::default()
    })
    .expect_err("a fault");
    assert!(matches!(fault, SecretFault::Damaged { .. }), "{fault}");
    assert!(fault.to_string().contains(complaint), "{fault}");
}

#[test]
fn a_damaged_ca_is_a_fault_that_names_the_key() {
    let other = made();
    let foreign_key = other.signing.key.expose_secret();
    let foreign_certificate = other.signing.certificate.pem();
    check_damaged("signing-ca.crt", None, "signing-ca.crt is not one certificate");
    check_damaged(
        "signing-ca.crt",
        Some("nonsense"),
        "signing-ca.crt is not one certificate",
    );
    check_damaged(
        "signing-ca.crt",
        Some(&foreign_certificate),
        "signing-ca.key is not the private key",
    );
    check_damaged(
        "signing-ca.key",
        Some(foreign_key),
        "signing-ca.key is not the private key",
    );
    check_damaged("signing-ca.key", None, "signing-ca.key is not the private key");
    check_damaged("next-ca.key", None, "next-ca.key is not the private key");
    check_damaged("next-ca.crt", Some(""), "next-ca.crt is not one certificate");
    check_damaged("ca.crt", None, "ca.crt is not a list");
    check_damaged("ca.crt", Some(""), "ca.crt is not a list");
    check_damaged("ca.crt", Some(&foreign_certificate), "ca.crt does not hold");
}

#[test]
fn a_secret_of_somebody_else_is_told_apart() {
    let mut data = encode(&made());
    data.retain(|key, _| ["tls.crt", "tls.key", "ca.crt"].contains(&key.as_str()));
    let data = Some(data);
    let fault = decode(&Secret {
        data,
        ..Secret::default()
    })
    .expect_err("a fault");
    assert!(matches!(fault, SecretFault::Foreign { .. }));
    assert!(
        fault
            .to_string()
            .contains("holds ca.crt, tls.crt, tls.key and no CA that signs"),
        "{fault}"
    );
}

#[test]
fn a_damaged_serving_certificate_counts_as_absent() {
    let state = made();
    let serving = |change: &dyn Fn(&mut Data)| {
        let mut data = encode(&state);
        change(&mut data);
        let data = Some(data);
        decoded(&Secret {
            data,
            ..Secret::default()
        })
        .serving
    };
    assert!(serving(&|_| {}).is_some());
    assert!(serving(&|data| drop(data.remove("tls.key"))).is_none());
    assert!(serving(&|data| drop(data.insert("tls.crt".to_owned(), ByteString(b"x".to_vec())))).is_none());
    // A certificate that only names the CA.
    let forged = ManagedTls::of(Ca {
        certificate: state.signing.certificate.clone(),
        key: made().signing.key,
    });
    let forged = carry_out(forged, &[Step::IssueServing(policy().names)]);
    let forged = encode(&forged);
    let swap = |data: &mut Data| {
        for key in SERVING {
            data.insert(key.to_owned(), forged[key].clone());
        }
    };
    assert!(serving(&swap).is_none());
}
