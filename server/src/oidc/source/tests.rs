use std::fs;

use serde_json::json;

use super::*;
use crate::oidc::tests_support::SigningKey;

fn flags() -> IssuerFlags {
    IssuerFlags {
        url: "https://accounts.example.com".to_owned(),
        client_id: "bindery".to_owned(),
        username_claim: "sub".to_owned(),
        ..IssuerFlags::default()
    }
}

fn source(flags: IssuerFlags) -> ConfigSource {
    ConfigSource {
        issuers: IssuerSource::Flags(flags),
        keys: Vec::new(),
    }
}

#[track_caller]
fn check_prefix(claim: &str, prefix: Option<&str>, expect: &str) {
    let flags = IssuerFlags {
        username_claim: claim.to_owned(),
        username_prefix: prefix.map(ToOwned::to_owned),
        ..flags()
    };
    assert_eq!(flags.prefix(), expect, "{claim} {prefix:?}");
}

#[test]
fn the_prefix_of_names_is_that_of_the_api_server() {
    check_prefix("sub", None, "https://accounts.example.com#");
    check_prefix("email", None, "");
    check_prefix("email", Some("oidc:"), "oidc:");
    check_prefix("sub", Some("-"), "");
    check_prefix("sub", Some(""), "https://accounts.example.com#");
}

#[test]
fn flags_are_an_issuer_and_their_faults_name_the_flag() {
    let read = source(flags()).load(None).expect("a configuration");
    assert_eq!(read.urls().collect::<Vec<_>>(), ["https://accounts.example.com"]);
    let fault = |flags: IssuerFlags| source(flags).load(None).expect_err("a fault").to_string();
    let http = fault(IssuerFlags {
        url: "http://accounts.example.com".to_owned(),
        ..flags()
    });
    assert_eq!(http, "--oidc-issuer-url: must begin with https:// and a host");
    let client = fault(IssuerFlags {
        client_id: String::new(),
        ..flags()
    });
    assert_eq!(client, "--oidc-client-id: must not be empty");
    let folder = tempfile::tempdir().expect("a folder");
    let ca_file = folder.path().join("ca.crt");
    let with_ca = IssuerFlags {
        ca_file: Some(ca_file.clone()),
        ..flags()
    };
    assert_eq!(source(with_ca.clone()).files(), std::slice::from_ref(&ca_file));
    assert!(fault(with_ca.clone()).starts_with("--oidc-ca-file: cannot read"));
    fs::write(&ca_file, "nonsense").expect("a file");
    assert_eq!(fault(with_ca.clone()), "--oidc-ca-file: must hold certificates in PEM");
    let ca = rcgen::generate_simple_self_signed(vec!["ca".to_owned()]).expect("a certificate");
    fs::write(&ca_file, ca.cert.pem()).expect("a file");
    assert!(source(with_ca).load(None).is_ok());
}

#[test]
fn a_file_and_files_of_keys_are_read() {
    let folder = tempfile::tempdir().expect("a folder");
    let (config, keys) = (folder.path().join("config.yaml"), folder.path().join("keys.json"));
    let source = ConfigSource {
        issuers: IssuerSource::File(config.clone()),
        keys: vec![("https://consumer.example.com".to_owned(), keys.clone())],
    };
    assert_eq!(source.files(), [config.clone(), keys.clone()]);
    let fault = || {
        source
            .load(Some("https://own.example.com"))
            .expect_err("a fault")
            .to_string()
    };
    assert!(fault().starts_with("--issuer-keys: cannot read"), "{}", fault());
    fs::write(&keys, "{}").expect("a file");
    assert!(fault().contains("keys.json is no JWK set"), "{}", fault());
    let jwk = SigningKey::ec("e").jwk();
    fs::write(&keys, json!({"keys": [jwk]}).to_string()).expect("a file");
    assert!(
        fault().starts_with("--authentication-config: cannot read"),
        "{}",
        fault()
    );
    let write = |url: &str| {
        let file = json!({
            "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
            "jwt": [{
                "issuer": {"url": url, "audiences": ["https://bind.example.com:443"]},
                "claimMappings": {"username": {"claim": "sub", "prefix": "a:"}},
            }],
        });
        fs::write(&config, file.to_string()).expect("a file");
    };
    write("https://own.example.com");
    assert!(
        fault().contains("config.yaml: jwt[0].issuer.url: is the issuer of the provider's own"),
        "{}",
        fault()
    );
    write("https://consumer.example.com");
    assert!(source.load(Some("https://own.example.com")).is_ok());
    fs::write(&keys, "x".repeat(1024 * 1024 + 1)).expect("a file");
    assert!(fault().contains("larger than"), "{}", fault());
}

#[test]
fn without_flags_there_is_no_issuer() {
    let none = ConfigSource::default();
    assert!(none.is_empty() && none.files().is_empty());
    assert_eq!(none.load(None).expect("a configuration").urls().count(), 0);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("keys.json");
    fs::write(&file, json!({"keys": [SigningKey::ec("e").jwk()]}).to_string()).expect("a file");
    let keys = ConfigSource {
        keys: vec![("https://consumer.example.com".to_owned(), file)],
        ..ConfigSource::default()
    };
    let fault = keys.load(None).expect_err("keys of nobody").to_string();
    assert!(
        fault.starts_with("--issuer-keys: names issuer https://consumer.example.com"),
        "{fault}"
    );
}
