use proptest::prelude::*;

use super::*;

const HEAD: &str = "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\n";

/// Two issuers, with most of what the kind has.
const GOOD: &str = r#"
apiVersion: apiserver.config.k8s.io/v1beta1
kind: AuthenticationConfiguration
jwt:
- issuer:
    url: https://accounts.example.com
    discoveryURL: https://discovery.example.com/.well-known/openid-configuration
    audiences: [bindery, bindery-ci]
    audienceMatchPolicy: MatchAny
  claimValidationRules:
  - claim: hd
    requiredValue: example.com
  - expression: 'claims.email_verified == true'
    message: verify your address
  claimMappings:
    username: {expression: 'claims.email'}
    groups: {expression: 'claims.?roles.orValue([])'}
    uid: {claim: sub}
    extra:
    - key: example.com/tenant
      valueExpression: claims.tenant
  userValidationRules:
  - expression: "!user.username.startsWith('system:')"
    message: no system names
- issuer:
    url: https://consumer.example.com
    audiences: ["https://bind.example.com:443"]
  claimMappings:
    username: {claim: sub, prefix: "consumer-a:"}
    groups: null
"#;

fn issuer(more: &str) -> String {
    let text = r#"jwt:
- issuer: {url: "https://a.example.com", audiences: [bindery]}
  claimMappings: {username: {claim: sub, prefix: ""}}
"#;
    format!("{HEAD}{text}{more}")
}

#[track_caller]
fn check_refused(text: &str, expect: &str) {
    let error = Configuration::parse(text, &Surroundings::default())
        .expect_err(text)
        .to_string();
    assert!(error.contains(expect), "{error}\nshould have {expect}");
}

#[test]
fn a_file_of_the_api_server_is_read() {
    let read = Configuration::parse(GOOD, &Surroundings::default()).expect("a configuration");
    assert_eq!(
        read.urls().collect::<Vec<_>>(),
        ["https://accounts.example.com", "https://consumer.example.com"]
    );
    let [one, other] = &read.issuers[..] else {
        panic!("two issuers");
    };
    assert_eq!(one.audiences, ["bindery", "bindery-ci"]);
    assert_eq!(
        one.keys.discovery_url().expect("a URL"),
        "https://discovery.example.com/.well-known/openid-configuration"
    );
    assert_eq!(
        other.keys.discovery_url().expect("a URL"),
        "https://consumer.example.com/.well-known/openid-configuration"
    );
    assert_eq!((one.mapping.extra.len(), one.mapping.user_rules.len()), (1, 1));
    let none = Configuration::parse(HEAD, &Surroundings::default()).expect("no issuer");
    assert_eq!(none.urls().count(), 0);
}

#[test]
fn the_file_of_the_documentation_is_read() {
    let page = include_str!("../../../../docs/reference/authentication.md");
    let (_, rest) = page.split_once("```yaml\n").expect("a file");
    let (file, _) = rest.split_once("```").expect("its end");
    let read = Configuration::parse(file, &Surroundings::default()).expect("a configuration");
    assert_eq!(read.urls().count(), 2);
}

#[test]
fn each_fault_is_told_with_the_path_of_its_field() {
    let broken = GOOD
        .replace("https://accounts.example.com", "http://accounts.example.com")
        .replace("audienceMatchPolicy: MatchAny", "audienceMatchPolicy: MatchAll")
        .replace("'claims.email'", "'claim.email'");
    let error = Configuration::parse(&broken, &Surroundings::default()).expect_err("faults");
    let ConfigError::Fields(faults) = error else {
        panic!("{error}");
    };
    let paths: Vec<_> = faults.iter().map(|fault| fault.path.as_str()).collect();
    assert_eq!(
        paths,
        [
            "jwt[0].issuer.url",
            "jwt[0].issuer.audienceMatchPolicy",
            "jwt[0].claimMappings.username.expression"
        ]
    );
}

#[test]
fn what_is_not_of_the_kind_is_refused() {
    check_refused("", "apiVersion: must be");
    check_refused("jwt: [", "cannot be read");
    check_refused("- a", "cannot be read");
    check_refused(
        &GOOD.replace("v1beta1", "v1alpha1"),
        "apiVersion: must be apiserver.config.k8s.io/v1 or",
    );
    check_refused(
        &GOOD.replace("AuthenticationConfiguration", "AuthorizationConfiguration"),
        "kind: must be",
    );
    check_refused(&format!("{HEAD}jwts: []\n"), "unknown field");
    check_refused(
        &GOOD.replace("audiences: [bindery,", "audience: [bindery,"),
        "unknown field",
    );
    check_refused(&GOOD.replace("claimMappings:", "ClaimMappings:"), "unknown field");
    check_refused(&format!("{HEAD}jwt: []\njwt: []\n"), "duplicate");
    check_refused(
        &format!("{HEAD}anonymous: {{enabled: true}}\n"),
        "anonymous: is about the API server",
    );
    let many = "- issuer: {url: x}\n".repeat(65);
    check_refused(&format!("{HEAD}jwt:\n{many}"), "jwt: has more than 64 issuers");
    check_refused(&format!("{HEAD}# {}", "x".repeat(1024 * 1024)), "larger than");
}

#[test]
fn an_issuer_is_an_https_url_with_audiences() {
    let at = |url: &str| GOOD.replace("https://accounts.example.com", url);
    check_refused(
        &at("accounts.example.com"),
        "jwt[0].issuer.url: must begin with https://",
    );
    check_refused(&at("https://a:b@accounts.example.com"), "must not contain a user");
    check_refused(&at("https://accounts.example.com/?a=b"), "must not contain a query");
    check_refused(&at("https://consumer.example.com"), "jwt[1].issuer.url: is there twice");
    check_refused(&at(""), "jwt[0].issuer.url");
    let same = GOOD.replace(
        "https://discovery.example.com/.well-known/openid-configuration",
        "https://accounts.example.com/",
    );
    check_refused(&same, "jwt[0].issuer.discoveryURL: must differ from url");
    check_refused(
        &GOOD.replace("[bindery, bindery-ci]", "[]"),
        "jwt[0].issuer.audiences: must hold",
    );
    check_refused(
        &GOOD.replace("bindery-ci", "bindery"),
        "jwt[0].issuer.audiences[1]: is there twice",
    );
    check_refused(
        &GOOD.replace("    audienceMatchPolicy: MatchAny\n", ""),
        "audienceMatchPolicy: must be MatchAny",
    );
    let egress = GOOD.replace(
        "audienceMatchPolicy: MatchAny",
        "audienceMatchPolicy: MatchAny\n    egressSelectorType: cluster",
    );
    check_refused(&egress, "jwt[0].issuer.egressSelectorType: is not supported");
    let ca = GOOD.replace(
        "audienceMatchPolicy: MatchAny",
        "audienceMatchPolicy: MatchAny\n    certificateAuthority: nonsense",
    );
    check_refused(&ca, "jwt[0].issuer.certificateAuthority: must hold certificates");
    let surroundings = Surroundings {
        own_issuer: Some("https://consumer.example.com".to_owned()),
        ..Surroundings::default()
    };
    let error = Configuration::parse(GOOD, &surroundings)
        .expect_err("the own issuer")
        .to_string();
    assert!(
        error.contains("jwt[1].issuer.url: is the issuer of the provider's own"),
        "{error}"
    );
}

#[test]
fn mappings_follow_the_api_server_s_rules() {
    let username = |text: &str| issuer("").replace(r#"{claim: sub, prefix: ""}"#, text);
    let path = "jwt[0].claimMappings.username";
    check_refused(&username("{claim: sub}"), &format!("{path}.prefix: must be set"));
    check_refused(&username("{}"), &format!("{path}: needs a claim"));
    check_refused(
        &username("{claim: sub, prefix: '', expression: claims.sub}"),
        &format!("{path}: must not have both"),
    );
    check_refused(
        &username("{expression: claims.sub, prefix: ''}"),
        &format!("{path}.prefix: must not be set"),
    );
    check_refused(
        &username("{expression: claims.email}"),
        &format!("{path}.expression: uses claims.email"),
    );
    check_refused(
        &username("{expression: 'claims.sub == 1'}"),
        &format!("{path}.expression: must evaluate to a string"),
    );
    check_refused(
        &username("{claim: sub, prefix: ''}, groups: {prefix: a}"),
        "groups.prefix: needs a claim",
    );
    check_refused(
        &username("{claim: sub, prefix: ''}, groups: {claim: g}"),
        "groups.prefix: must be set",
    );
    check_refused(
        &username("{claim: sub, prefix: ''}, uid: {claim: a, expression: b}"),
        "uid: must not have both",
    );
    for (key, fault) in [
        ("tenant", "a domain and a path"),
        ("example.com/", "a domain and a path"),
        ("example.com/Tenant", "lower case"),
        ("authentication.kubernetes.io/x", "domain of Kubernetes"),
        ("k8s.io/x", "domain of Kubernetes"),
    ] {
        let extra = format!("{{claim: sub, prefix: ''}}, extra: [{{key: {key}, valueExpression: claims.t}}]");
        check_refused(&username(&extra), fault);
    }
    let extra = |list: &str| username(&format!("{{claim: sub, prefix: ''}}, extra: [{list}]"));
    check_refused(&extra("{key: a.b/c}"), "extra[0].valueExpression: must not be empty");
    let twice = "{key: a.b/c, valueExpression: claims.a}";
    check_refused(&extra(&format!("{twice}, {twice}")), "extra[1].key: is there twice");
    assert!(
        Configuration::parse(
            &extra("{key: notk8s.io/c, valueExpression: claims.a}"),
            &Surroundings::default()
        )
        .is_ok()
    );
}

#[test]
fn rules_follow_the_api_server_s_rules() {
    let claims = |rules: &str| issuer(&format!("  claimValidationRules: [{rules}]\n"));
    let path = "jwt[0].claimValidationRules";
    check_refused(&claims("{}"), &format!("{path}[0]: needs a claim or an expression"));
    check_refused(
        &claims("{claim: a, expression: b}"),
        &format!("{path}[0]: must not have both"),
    );
    check_refused(&claims("{claim: a, message: b}"), &format!("{path}[0].message"));
    check_refused(
        &claims("{claim: a}, {claim: a}"),
        &format!("{path}[1].claim: is there twice"),
    );
    check_refused(
        &claims("{expression: claims.a, requiredValue: b}"),
        &format!("{path}[0].requiredValue"),
    );
    check_refused(
        &claims("{expression: claims.a}, {expression: claims.a}"),
        &format!("{path}[1].expression: is there twice"),
    );
    check_refused(
        &claims("{expression: 'claims.a('}"),
        &format!("{path}[0].expression: is no CEL expression"),
    );
    let user = |rules: &str| issuer(&format!("  userValidationRules: [{rules}]\n"));
    check_refused(
        &user("{message: a}"),
        "jwt[0].userValidationRules[0].expression: must not be empty",
    );
    check_refused(
        &user("{expression: 'user.name == \"a\"'}"),
        "jwt[0].userValidationRules[0].expression: reads user.name",
    );
}

#[test]
fn keys_beside_the_file_are_those_of_its_issuers() {
    let key = crate::oidc::tests_support::SigningKey::ec("e");
    let text = serde_json::json!({"keys": [key.jwk()]}).to_string().into_bytes();
    let keys = InlineKeys::parse(text).expect("keys");
    let with = |url: &str| Surroundings {
        keys: vec![(url.to_owned(), keys.clone())],
        own_issuer: None,
    };
    let read = Configuration::parse(GOOD, &with("https://consumer.example.com")).expect("a configuration");
    assert_eq!(read.issuers[1].keys.inline.as_ref(), Some(&keys));
    let error = Configuration::parse(GOOD, &with("https://other.example.com")).expect_err("a stranger");
    assert!(
        error
            .to_string()
            .starts_with("--issuer-keys: names issuer https://other.example.com"),
        "{error}"
    );
    assert!(InlineKeys::parse(b"{}".to_vec()).is_err());
}

/// Lines of the good file, some left out, doubled, cut or replaced by nonsense.
fn mutated() -> impl Strategy<Value = String> {
    let line = (0..GOOD.lines().count(), 0..5_u8, "[ -~]{0,40}");
    proptest::collection::vec(line, 1..6).prop_map(|changes| {
        let mut lines: Vec<_> = GOOD.lines().map(ToOwned::to_owned).collect();
        for (at, change, noise) in changes {
            let line = lines[at].clone();
            lines[at] = match change {
                0 => String::new(),
                1 => format!("{line}\n{line}"),
                2 => line.chars().take(line.len() / 2).collect(),
                3 => format!("{line} {noise}"),
                _ => line
                    .split(':')
                    .next()
                    .map_or_else(|| noise.clone(), |name| format!("{name}: {noise}")),
            };
        }
        lines.join("\n")
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_file_says_it_is_read_or_refused(text in prop_oneof![mutated(), "\\PC{0,400}"]) {
        match Configuration::parse(&text, &Surroundings::default()) {
            Ok(configuration) => for issuer in configuration.issuers {
                prop_assert!(issuer.url.starts_with("https://"), "{}", issuer.url);
                prop_assert!(!issuer.audiences.is_empty());
            },
            Err(error) => prop_assert!(!error.to_string().is_empty()),
        }
    }

    #[test]
    fn whatever_an_expression_says_it_is_read_or_refused(text in "[a-z.()\\[\\]{}?:+!&|'\" 0-9]{0,120}") {
        use crate::oidc::expression::{Expected, Expression, Input, Variable};
        if let Ok(expression) = Expression::parse(&text, Variable::Claims, Expected::Strings) {
            let _ = expression.strings(&Input::new(&serde_json::Map::new()));
        }
    }
}
