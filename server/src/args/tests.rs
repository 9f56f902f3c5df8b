use clap::CommandFactory as _;
use proptest::prelude::*;

use super::*;
use crate::tls::managed::reconciler::ManagedSettings;

const TLS: [&str; 6] = [
    "--external-grpc-address",
    "https://Bind.Example.com:443/",
    "--tls-cert-file",
    "tls.crt",
    "--tls-key-file",
    "tls.key",
];
const PLAIN: [&str; 3] = ["--external-grpc-address", "http://127.0.0.1:8443", "--allow-plaintext"];

fn parsed(base: &[&str], more: &[&str]) -> Result<Args, clap::Error> {
    Args::try_parse_from(["bindery-server"].iter().chain(base).chain(more))
}

fn config() -> Config {
    Config::new("https://api.internal:6443/".parse().expect("a URL"))
}

#[track_caller]
fn settings(base: &[&str], more: &[&str]) -> Settings {
    parsed(base, more)
        .expect("flags")
        .settings(&config(), None)
        .expect("settings")
}

#[track_caller]
fn check_refused(base: &[&str], more: &[&str], complaint: &str) {
    let error = match parsed(base, more) {
        Ok(args) => args.settings(&config(), None).expect_err("a refusal").to_string(),
        Err(error) => error.to_string(),
    };
    assert!(error.contains(complaint), "{more:?}: {error}");
}

#[test]
fn flags_are_sound() {
    Args::command().debug_assert();
}

#[test]
fn defaults_are_those_of_the_documentation() {
    let settings = settings(&TLS, &[]);
    assert_eq!(settings.isolation, Isolation::Prefixed);
    assert_eq!(settings.informer_scope, InformerScope::Namespaced);
    assert_eq!(settings.namespace_prefix, "kube-bind-");
    assert_eq!(settings.grpc.address, "https://bind.example.com");
    assert_eq!(settings.kubernetes.address, "https://api.internal:6443");
    assert_eq!(settings.token_lifetime, Duration::from_hours(1));
    assert_eq!(settings.renewal_lifetime, Duration::from_hours(168));
    assert!(settings.install_crds);
    assert!(settings.grpc.reflection);
    let limits = settings.connections;
    assert_eq!((limits.all, limits.per_peer, limits.strangers()), (16_384, 1024, 8_192));
    let times = [limits.handshake, limits.first_request, limits.idle, limits.age];
    assert_eq!(times.map(|time| time.as_secs()), [10, 10, 300, 3_600]);
}

#[test]
fn limits_of_connections_leave_room_for_clients() {
    let set = |flag: &str, value: &str| settings(&TLS, &[flag, value]).connections;
    assert_eq!(set("--max-connections-per-peer", "5").per_peer, 5);
    let few = set("--max-connections", "1");
    assert_eq!((few.all, few.strangers()), (1, 1));
    assert_eq!(set("--handshake-timeout", "1s").handshake.as_secs(), 1);
    assert_eq!(set("--first-request-timeout", "2s").first_request.as_secs(), 2);
    assert_eq!(set("--connection-idle-timeout", "3s").idle.as_secs(), 3);
    assert_eq!(set("--max-connection-age", "1m").age.as_secs(), 60);
    for flag in ["--max-connections", "--max-connections-per-peer"] {
        check_refused(&TLS, &[flag, "0"], "invalid value");
    }
    for flag in [
        "--handshake-timeout",
        "--first-request-timeout",
        "--connection-idle-timeout",
        "--max-connection-age",
    ] {
        check_refused(&TLS, &[flag, "999ms"], "at least 1s");
    }
}

#[test]
fn values_are_taken_in_any_case_and_unknown_ones_are_errors() {
    let set = settings(
        &TLS,
        &[
            "--isolation",
            "NONE",
            "--consumer-scope",
            "Cluster",
            "--install-crds=false",
        ],
    );
    assert_eq!(
        (set.isolation, set.informer_scope),
        (Isolation::None, InformerScope::Cluster)
    );
    assert!(!set.install_crds);
    assert!(settings(&TLS, &["--install-crds"]).install_crds);
    assert!(!self::settings(&TLS, &["--grpc-reflection=false"]).grpc.reflection);
    check_refused(&TLS, &["--isolation", "shared"], "invalid value");
    check_refused(&TLS, &["--consumer-scope", "all"], "invalid value");
    check_refused(&TLS, &["--install-crds=maybe"], "invalid value");
}

#[test]
fn the_kubernetes_api_is_https_and_may_have_a_path() {
    let address = |text: &str| settings(&TLS, &["--external-address", text]).kubernetes.address;
    assert_eq!(address("https://API.example.com:443/"), "https://api.example.com");
    assert_eq!(
        address("https://api.example.com/clusters/one/"),
        "https://api.example.com/clusters/one"
    );
    check_refused(
        &TLS,
        &["--external-address", "http://api.example.com"],
        "must begin with https://",
    );
    check_refused(
        &TLS,
        &["--external-address", "https://me@api.example.com"],
        "names a user",
    );
}

#[test]
fn tokens_for_former_addresses_are_taken_after_those_for_the_new_one() {
    let former = |address| ["--former-grpc-address", address];
    let more = [
        former("https://OLD.example.com:443/"),
        former("https://older.example.com:8443"),
    ]
    .concat();
    let audiences = settings(&TLS, &more).grpc.audiences();
    let expect = [
        "https://bind.example.com",
        "https://old.example.com",
        "https://older.example.com:8443",
    ];
    assert_eq!(audiences, expect);
    assert_eq!(settings(&TLS, &[]).grpc.audiences(), expect[..1]);
    check_refused(&TLS, &former("https://me@old.example.com"), "--former-grpc-address");
}

#[test]
fn pages_of_other_origins_may_call_only_if_a_flag_names_them() {
    assert!(settings(&TLS, &[]).grpc.allowed_origins.is_empty());
    let more = ["--cors-allowed-origins=https://a.example.com,https://b.example.com:8443"];
    assert_eq!(
        settings(&TLS, &more).grpc.allowed_origins,
        ["https://a.example.com", "https://b.example.com:8443"]
    );
    check_refused(&TLS, &["--cors-allowed-origins=*"], "every site");
    check_refused(
        &TLS,
        &["--cors-allowed-origins=https://a.example.com/"],
        "write https://a.example.com",
    );
}

#[test]
fn an_address_may_have_a_path_below_which_a_proxy_serves_it() {
    let more = ["--former-grpc-address", "https://old.example.com/b"];
    let grpc = settings(
        &[
            "--external-grpc-address",
            "https://Example.com/a/",
            "--tls-cert-file",
            "c",
            "--tls-key-file",
            "k",
        ],
        &more,
    )
    .grpc;
    assert_eq!(grpc.audiences(), ["https://example.com/a", "https://old.example.com/b"]);
    assert_eq!(grpc.prefixes(), ["/a", "/b"]);
    assert_eq!(settings(&TLS, &[]).grpc.prefixes(), [""; 0]);
}

#[test]
fn plaintext_stays_on_loopback() {
    let set = settings(&PLAIN, &[]);
    assert_eq!(set.grpc.address, "http://127.0.0.1:8443");
    check_refused(
        &PLAIN,
        &["--listen-address", "0.0.0.0:8443"],
        "needs a loopback --listen-address",
    );
    check_refused(
        &["--external-grpc-address", "http://127.0.0.1:8443"],
        &[],
        "must begin with https://",
    );
    check_refused(
        &["--external-grpc-address", "https://a.example"],
        &["--allow-plaintext"],
        "http:// URL of loopback",
    );
    check_refused(
        &["--external-grpc-address", "http://a.example"],
        &["--allow-plaintext"],
        "http:// URL of loopback",
    );
    let tls = ["--tls-cert-file", "a", "--tls-key-file", "b"];
    check_refused(
        &["--external-grpc-address", "http://127.0.0.1:1"],
        &tls,
        "must begin with https://",
    );
    check_refused(&PLAIN, &tls, "cannot be used with");
    check_refused(&[], &["--allow-plaintext"], "--external-grpc-address");
}

/// What the server makes certificates by, if no files are given.
fn managed(more: &[&str]) -> ManagedSettings {
    let base = ["--external-grpc-address", "https://Bind.Example.com"];
    match parsed(&base, more).expect("flags").tls() {
        Ok(TlsSource::Managed(managed)) => managed,
        other => panic!("{other:?}"),
    }
}

#[test]
fn without_files_the_server_makes_a_certificate_for_all_its_names() {
    let names = |more: &[&str]| managed(more).policy.names.into_iter().collect::<Vec<_>>();
    let service = "bindery-server.kube-bind.svc";
    let in_cluster = format!("{service}.cluster.local");
    assert_eq!(names(&[]), ["bind.example.com", service, &in_cluster, "localhost"]);
    let more = [
        "--namespace",
        "prod",
        "--tls-service",
        "grpc",
        "--tls-name",
        "A.example.com,2001:DB8:0::7",
    ];
    let expect = [
        "2001:db8::7",
        "a.example.com",
        "bind.example.com",
        "grpc.prod.svc",
        "grpc.prod.svc.cluster.local",
        "localhost",
    ];
    assert_eq!(names(&more), expect);
    let by_address = parsed(&["--external-grpc-address", "https://[2001:db8::1]:8443"], &[]).expect("flags");
    let Ok(TlsSource::Managed(by_address)) = by_address.tls() else {
        panic!("no certificate is made");
    };
    assert!(by_address.policy.names.contains("2001:db8::1"), "{by_address:?}");
}

#[test]
fn lifetimes_of_certificates_leave_time_to_rotate() {
    let defaults = managed(&[]);
    assert_eq!(
        (&*defaults.namespace, &*defaults.name),
        ("kube-bind", "bindery-server-tls")
    );
    assert_eq!(defaults.policy.serving_lifetime, Duration::from_hours(90 * 24));
    assert_eq!(defaults.policy.ca_lifetime, Duration::from_hours(10 * 365 * 24));
    let base = ["--external-grpc-address", "https://a.example"];
    check_refused(&base, &["--tls-ca-lifetime", "6479h"], "a third of --tls-ca-lifetime");
    assert_eq!(
        managed(&["--tls-ca-lifetime", "6480h"]).policy.ca_lifetime,
        Duration::from_hours(6480)
    );
    check_refused(&base, &["--tls-lifetime", "9s"], "at least 10s");
    check_refused(&base, &["--tls-ca-lifetime", "87601h"], "at most ten years");
    check_refused(
        &base,
        &["--tls-name", "*.example.com"],
        "neither a DNS name nor an IP address",
    );
    check_refused(
        &base,
        &["--tls-name", "a.example."],
        "neither a DNS name nor an IP address",
    );
    let made = [
        ("--tls-secret", "x"),
        ("--tls-service", "x"),
        ("--tls-name", "x"),
        ("--tls-lifetime", "1h"),
        ("--tls-ca-lifetime", "100h"),
    ];
    for (flag, value) in made {
        check_refused(&TLS, &[flag, value], "cannot be used with");
        check_refused(&PLAIN, &[flag, value], "cannot be used with");
    }
    check_refused(&base, &["--tls-service", "no_name/"], "no certificate can be made for");
    check_refused(&PLAIN, &["--client-ca-file", "ca.crt"], "cannot be used with");
}

#[test]
fn the_kubernetes_api_is_looked_up_only_where_the_own_url_is_for_pods() {
    let needs = |more: &[&str], url: &str, service_host: Option<&str>| {
        let config = Config::new(url.parse().expect("a URL"));
        parsed(&TLS, more)
            .expect("flags")
            .needs_cluster_info(&config, service_host)
    };
    assert!(needs(&[], "https://kubernetes.default.svc/", None));
    assert!(needs(&[], "https://Kubernetes.default.svc.cluster.local:443/", None));
    assert!(needs(&[], "https://10.96.0.1:443/", Some("10.96.0.1")));
    assert!(needs(&[], "https://[fd00::1]:443/", Some("fd00::1")));
    assert!(!needs(&[], "https://api.example.com:6443/", Some("10.96.0.1")));
    assert!(!needs(&[], "https://10.96.0.1:443/", None));
    let given = ["--external-address", "https://api.example.com"];
    assert!(!needs(&given, "https://10.96.0.1:443/", Some("10.96.0.1")));
}

#[test]
fn what_the_cluster_says_of_itself_is_used_and_flags_win() {
    let found = || {
        Some(KubernetesEndpoint {
            address: "https://Public.example.com:6443/".to_owned(),
            ca: Some(b"its CA".to_vec()),
            server_name: None,
        })
    };
    let endpoint = |more: &[&str]| {
        let args = parsed(&TLS, more).expect("flags");
        args.settings(&config(), found()).expect("settings").kubernetes
    };
    assert_eq!(endpoint(&[]).address, "https://public.example.com:6443");
    assert_eq!(endpoint(&[]).ca, Some(b"its CA".to_vec()));
    assert_eq!(
        endpoint(&["--external-server-name", "api"]).server_name.as_deref(),
        Some("api")
    );
    let given = endpoint(&["--external-address", "https://api.example.com"]);
    assert_eq!((&*given.address, given.ca), ("https://api.example.com", None));
}

#[test]
fn nonsense_is_refused_with_the_flag_s_name() {
    check_refused(&TLS, &["--namespace-prefix", "Kube"], "--namespace-prefix");
    check_refused(&TLS, &["--namespace-prefix=-x"], "--namespace-prefix");
    check_refused(&TLS, &["--namespace-prefix", "kube"], "end with a dash");
    let long = |length: usize| format!("{}-", "x".repeat(length - 1));
    check_refused(&TLS, &["--namespace-prefix", &long(36)], "at most 35 characters");
    assert_eq!(
        settings(&TLS, &["--namespace-prefix", &long(35)]).namespace_prefix,
        long(35)
    );
    check_refused(&TLS, &["--pretty-name", " "], "--pretty-name");
    check_refused(&TLS, &["--token-lifetime", "9m"], "at least 10m");
    check_refused(&TLS, &["--token-lifetime", "soon"], "is not a duration");
    check_refused(&TLS, &["--token-lifetime", "200h"], "--renewal-lifetime");
    check_refused(&TLS, &["--external-ca-file", "/no/such/file"], "--external-ca-file");
}

#[test]
fn the_server_s_own_ca_goes_to_consumers() {
    let folder = tempfile::tempdir().expect("a folder");
    let issued = rcgen::generate_simple_self_signed(vec!["api".to_owned()]).expect("a certificate");
    let path = folder.path().join("ca.crt");
    fs::write(&path, issued.cert.pem()).expect("a file");
    let args = parsed(&TLS, &[]).expect("flags");
    let ca = |config: &Config| args.settings(config, None).expect("settings").kubernetes.ca;

    let mut by_file = config();
    by_file.root_cert_file = Some(path.clone());
    let of_file = ca(&by_file);
    assert_eq!(of_file, Some(issued.cert.pem().into_bytes()));
    let mut by_data = config();
    by_data.root_cert = Some(vec![issued.cert.der().to_vec()]);
    let of_data = ca(&by_data);
    let normal = |pem: Option<Vec<u8>>| {
        String::from_utf8(pem.expect("a CA"))
            .expect("text")
            .replace("\r\n", "\n")
    };
    assert_eq!(normal(of_data), normal(of_file));
    assert_eq!(ca(&config()), None);

    fs::write(&path, "nonsense").expect("a file");
    check_refused(
        &TLS,
        &["--external-ca-file", path.to_str().expect("a path")],
        "no certificate in PEM",
    );
}

#[test]
fn what_is_valuable_is_a_list_of_resources_of_groups() {
    let valuable = |more: &[&str]| {
        let set = settings(&TLS, more).valuable_resources;
        set.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert!(valuable(&[]).is_empty());
    let flag = "--valuable-resources";
    assert_eq!(
        valuable(&[
            flag,
            "backups.bank.dev,leases.coordination.k8s.io",
            flag,
            "horses.wildwest.dev"
        ]),
        ["backups.bank.dev", "leases.coordination.k8s.io", "horses.wildwest.dev"]
    );
    check_refused(&TLS, &[flag, "secrets"], "must name a group");
    check_refused(&TLS, &[flag, "Backups.bank.dev"], "is no resource");
}

#[test]
fn what_may_be_claimed_is_a_list_of_custom_resources() {
    let claimable = |more: &[&str]| {
        let set = settings(&TLS, more).claimable_resources;
        set.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert!(claimable(&[]).is_empty());
    let flag = "--claimable-resources";
    assert_eq!(
        claimable(&[flag, "horses.wildwest.dev,safes.bank.dev", flag, "cows.wildwest.dev"]),
        ["safes.bank.dev", "cows.wildwest.dev", "horses.wildwest.dev"]
    );
    check_refused(&TLS, &[flag, "secrets"], "must name a group");
    check_refused(
        &TLS,
        &[flag, "leases.coordination.k8s.io"],
        "belongs to Kubernetes itself",
    );
    check_refused(&TLS, &[flag, "deployments.apps"], "belongs to Kubernetes itself");
    check_refused(
        &TLS,
        &[flag, "boundschemas.kube-bind.io"],
        "belongs to kube-bind itself",
    );
    check_refused(&TLS, &[flag, "*.wildwest.dev"], "is no resource");
    check_refused(&TLS, &[flag, ""], "must name a group");
}

#[test]
fn renewals_go_on_without_end_unless_told_otherwise() {
    assert_eq!(settings(&TLS, &[]).renewal_max_age, None);
    assert_eq!(settings(&TLS, &["--renewal-max-age", "0"]).renewal_max_age, None);
    let set = settings(&TLS, &["--renewal-max-age", "2160h"]);
    assert_eq!(set.renewal_max_age, Some(Duration::from_hours(2160)));
    check_refused(&TLS, &["--renewal-max-age", "9m"], "at least 10m");
}

#[test]
fn consumers_are_limited_and_secrets_stay_home_unless_told_otherwise() {
    let set = settings(&TLS, &[]);
    assert_eq!((set.limits.namespaces, set.cluster_wide_secret_claims), (1000, false));
    let more = [
        "--max-namespaces-per-contract",
        "2",
        "--dangerous-cluster-wide-secret-claims",
    ];
    let set = settings(&TLS, &more);
    assert_eq!((set.limits.namespaces, set.cluster_wide_secret_claims), (2, true));
    assert_eq!(settings(&TLS, &[]).limits, crate::limits::Limits::default());
    for name in crate::limits::LimitName::ALL {
        assert_eq!(settings(&TLS, &[name.flag(), "7"]).limits.get(name), 7, "{name}");
    }
    check_refused(&TLS, &["--max-namespaces-per-contract", "0"], "invalid value");
}

proptest! {
    /// Whatever prefix is admitted: names of namespaces fit, and lead back to their contract.
    #[test]
    fn every_admitted_prefix_leaves_room_for_all_names(
        prefix in "[a-z0-9-]{0,40}-?",
        identity in "[a-f0-9]{8}",
        namespace in "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?",
    ) {
        prop_assume!(is_prefix(&prefix));
        let contract = names::contract_namespace(&prefix, &identity);
        let mapped = names::provider_namespace(&contract, &namespace);
        prop_assert!(names::is_label(&contract) && names::is_label(&mapped), "{contract} {mapped}");
        let own_prefix = format!("{contract}-");
        prop_assert!(mapped.starts_with(&own_prefix), "{mapped}");
        // As the admission policy tells it.
        prop_assert_eq!(&contract[..=contract.rfind('-').unwrap_or_default()], prefix);
    }
}

#[test]
fn issuers_come_from_a_file_or_from_flags() {
    use crate::oidc::source::{IssuerFlags, IssuerSource};

    let source = |more: &[&str]| parsed(&TLS, more).expect("flags").authentication.source();
    assert!(source(&[]).is_empty());
    let file = source(&[
        "--authentication-config",
        "issuers.yaml",
        "--issuer-keys",
        "https://a=keys.json",
    ]);
    assert_eq!(file.issuers, IssuerSource::File("issuers.yaml".into()));
    assert_eq!(file.keys, [("https://a".to_owned(), "keys.json".into())]);
    let one = ["--oidc-issuer-url", "https://a", "--oidc-client-id", "bindery"];
    let flags = IssuerFlags {
        url: "https://a".to_owned(),
        client_id: "bindery".to_owned(),
        username_claim: "sub".to_owned(),
        ..IssuerFlags::default()
    };
    assert_eq!(source(&one).issuers, IssuerSource::Flags(flags));

    for (more, complaint) in [
        (&["--oidc-issuer-url", "https://a"][..], "--oidc-client-id"),
        (&["--oidc-client-id", "a"], "--oidc-issuer-url"),
        (&["--oidc-groups-claim", "groups"], "--oidc-issuer-url"),
        (&["--oidc-username-claim", "email"], "--oidc-issuer-url"),
        (&["--issuer-keys", "keys.json"], "must be the issuer's URL"),
        (&["--issuer-keys", "https://a="], "must be the issuer's URL"),
        (&["--login-scopes", "open id"], "is no scope"),
    ] {
        check_refused(&TLS, more, complaint);
    }
    let both = [&["--authentication-config", "issuers.yaml"][..], &one].concat();
    check_refused(&TLS, &both, "cannot be used with");
    check_refused(
        &TLS,
        &[&one[..], &["--oidc-groups-prefix", "a"]].concat(),
        "--oidc-groups-claim",
    );
}

#[test]
fn a_login_always_asks_for_an_id_token() {
    let scopes = |more: &[&str]| settings(&TLS, more).login_scopes;
    assert_eq!(scopes(&[]), ["openid", "profile", "email", "groups", "offline_access"]);
    assert_eq!(scopes(&["--login-scopes", "groups"]), ["openid", "groups"]);
    assert_eq!(scopes(&["--login-scopes", "groups,openid"]), ["openid", "groups"]);
}
