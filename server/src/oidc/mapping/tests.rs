use crate::oidc::config::{Configuration, Surroundings};

use super::*;

fn mapping(rest: &str) -> Mapping {
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n- issuer: {{url: \"https://a.example.com\", \
         audiences: [bindery]}}\n{rest}"
    );
    let read = Configuration::parse(&text, &Surroundings::default()).expect("a configuration");
    read.issuers.into_iter().next().expect("an issuer").mapping
}

fn by_claims() -> Mapping {
    mapping(
        "  claimMappings: {username: {claim: email, prefix: 'oidc:'}, groups: {claim: groups, prefix: 'team:'}, uid: {claim: sub}}\n",
    )
}

fn user(mapping: &Mapping, claims: &Value) -> Result<User, String> {
    let refused = |refusal: TokenRefusal| refusal.to_string();
    mapping.user(claims.as_object().expect("claims")).map_err(refused)
}

#[track_caller]
fn check_refused(mapping: &Mapping, claims: &Value, reason: &str) {
    let refusal = user(mapping, claims).expect_err("a refusal");
    assert!(refusal.contains(reason), "{refusal}");
}

#[test]
fn a_user_is_read_from_claims_with_prefixes() {
    let jane = json!({"sub": "1", "email": "jane@example.com", "email_verified": true, "groups": ["a", "b"]});
    let expect = User {
        username: "oidc:jane@example.com".to_owned(),
        uid: Some("1".to_owned()),
        groups: vec!["team:a".to_owned(), "team:b".to_owned()],
        extra: BTreeMap::new(),
    };
    assert_eq!(user(&by_claims(), &jane), Ok(expect));
}

#[test]
fn groups_may_be_absent_one_or_many_but_not_too_many() {
    let with = |groups: Value| {
        let mut claims = json!({"sub": "1", "email": "jane@example.com"});
        claims["groups"] = groups;
        claims
    };
    let groups = |found: Value| user(&by_claims(), &with(found)).map(|user| user.groups);
    let without = json!({"sub": "1", "email": "jane@example.com"});
    assert_eq!(user(&by_claims(), &without).map(|user| user.groups), Ok(Vec::new()));
    assert_eq!(groups(json!(null)), Ok(Vec::new()));
    assert_eq!(groups(json!([])), Ok(Vec::new()));
    assert_eq!(groups(json!("a")), Ok(vec!["team:a".to_owned()]));
    check_refused(
        &by_claims(),
        &with(json!({"a": true})),
        "groups is neither a text nor a list of texts",
    );
    check_refused(
        &by_claims(),
        &with(json!(["a", 1])),
        "groups is neither a text nor a list of texts",
    );
    assert_eq!(groups(json!(vec!["a"; 1_000])).map(|groups| groups.len()), Ok(1_000));
    check_refused(
        &by_claims(),
        &with(json!(vec!["a"; 10_000])),
        "it has 10000 groups, and 1000 are the most",
    );
}

#[test]
fn an_address_counts_only_if_it_is_verified() {
    let with = |verified: Value| json!({"sub": "1", "email": "jane@example.com", "email_verified": verified});
    check_refused(&by_claims(), &with(json!(false)), "email is not verified");
    check_refused(&by_claims(), &with(json!("true")), "email is not verified");
    check_refused(
        &by_claims(),
        &json!({"sub": "1"}),
        "it has no claim email; ask for the scope",
    );
    check_refused(&by_claims(), &json!({"sub": "1", "email": ""}), "it has no claim email");
    check_refused(
        &by_claims(),
        &json!({"sub": "1", "email": ["secret"]}),
        "its claim email is not a text",
    );
}

#[test]
fn groups_that_are_elsewhere_are_not_taken_for_none() {
    let claims = json!({"sub": "1", "email": "jane@example.com", "_claim_names": {"groups": "src1"}});
    check_refused(&by_claims(), &claims, "distributed claims");
    let other = json!({"sub": "1", "email": "jane@example.com", "_claim_names": {"address": "src1"}});
    assert!(user(&by_claims(), &other).is_ok());
}

#[test]
fn expressions_and_rules_make_and_refuse_users() {
    let mapping = mapping(
        r#"  claimValidationRules:
  - {claim: hd, requiredValue: example.com}
  - {expression: "claims.exp - claims.iat <= 86400", message: "tokens live for a day at most"}
  claimMappings:
    username: {expression: "claims.sub + '@' + claims.hd"}
    groups: {expression: "claims.roles.split(',').map(role, 'role:' + role)"}
    extra:
    - {key: example.com/tenant, valueExpression: "claims.?tenant.orValue('')"}
  userValidationRules:
  - {expression: "user.groups.exists(group, group == 'role:dev')"}
  - {expression: "!('example.com/tenant' in user.extra) || user.extra['example.com/tenant'][0] != 'x'", message: "x has left"}
"#,
    );
    let with = |change: Value| {
        let mut claims =
            json!({"sub": "jane", "hd": "example.com", "exp": 200, "iat": 100, "roles": "dev,ops", "tenant": "t"});
        let fields = claims.as_object_mut().expect("claims");
        fields.extend(change.as_object().expect("changes").clone());
        claims
    };
    let jane = user(&mapping, &with(json!({}))).expect("a user");
    assert_eq!(
        (jane.username.as_str(), jane.groups),
        ("jane@example.com", vec!["role:dev".to_owned(), "role:ops".to_owned()])
    );
    assert_eq!(jane.extra["example.com/tenant"], ["t"]);
    assert!(
        user(&mapping, &with(json!({"tenant": ""})))
            .expect("a user")
            .extra
            .is_empty()
    );
    check_refused(
        &mapping,
        &with(json!({"hd": "other.com"})),
        "its claim hd must be \"example.com\"",
    );
    check_refused(
        &mapping,
        &with(json!({"exp": 100_000})),
        "tokens live for a day at most",
    );
    check_refused(
        &mapping,
        &with(json!({"roles": "ops"})),
        "the provider's rule user.groups.exists",
    );
    check_refused(&mapping, &with(json!({"tenant": "x"})), "x has left");
    check_refused(
        &mapping,
        &with(json!({"roles": ["secret-role"]})),
        "cannot be evaluated",
    );
}
