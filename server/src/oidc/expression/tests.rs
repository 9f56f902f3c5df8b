use serde_json::json;

use super::*;

fn input(json: &Json) -> Input {
    Input::new(json.as_object().expect("an object"))
}

#[track_caller]
fn check_refused(source: &str, variable: Variable, expected: Expected, reason: &str) {
    let error = Expression::parse(source, variable, expected).expect_err(source);
    assert!(error.contains(reason), "{source}: {error}");
}

#[test]
fn what_cannot_be_evaluated_is_refused_when_it_is_read() {
    use Expected::{Bool, String as Text, Strings};
    use Variable::{Claims, User};
    check_refused("claims.", Claims, Bool, "no CEL expression");
    check_refused("", Claims, Bool, "no CEL expression");
    check_refused(
        "user.username == 'a'",
        Claims,
        Bool,
        "uses user, which does not exist here",
    );
    check_refused("claims.sub == 'a'", User, Bool, "the only variable is user");
    check_refused("claims.groups.all(g, g in h)", Claims, Bool, "uses h");
    check_refused(
        "ip(claims.address).family() == 4",
        Claims,
        Bool,
        "a function that this server does not have",
    );
    check_refused(
        "strings.reverse(claims.a) == ''",
        Claims,
        Bool,
        "calls strings.reverse()",
    );
    check_refused("user.name == 'a'", User, Bool, "reads user.name");
    check_refused("user.?name.hasValue()", User, Bool, "reads user.name");
    check_refused("claims.sub == 'a'", Claims, Text, "must evaluate to a string");
    check_refused("claims.sub + ':x'", Claims, Bool, "must evaluate to true or false");
    check_refused("claims.sub + 1", Claims, Text, "must evaluate to a string");
    check_refused("size(claims.groups)", Claims, Strings, "a list of strings");
    check_refused("[claims.sub]", Claims, Text, "must evaluate to a string");
    check_refused("Pod{}", Claims, Bool, "makes a Pod");
    check_refused(
        &format!("'{}' == ''", "x".repeat(BYTES_MAX)),
        Claims,
        Bool,
        "longer than",
    );
}

#[track_caller]
fn check_true(source: &str, claims: &Json) {
    let expression = Expression::parse(source, Variable::Claims, Expected::Bool).expect(source);
    assert_eq!(expression.is_true(&input(claims)), Ok(true), "{source}");
}

#[test]
fn expressions_of_the_kubernetes_documentation_are_evaluated() {
    let claims = json!({
        "sub": "1", "exp": 1_700_003_600, "nbf": 1_700_000_000, "hd": "example.com", "email": "jane@example.com",
        "email_verified": true, "roles": "admin,dev", "groups": ["a", "b"], "level": 3,
        "nested": {"tenant": {"id": "t-1"}}, "other.example.com/x": "y",
    });
    check_true("claims.hd == 'example.com'", &claims);
    check_true("claims.exp - claims.nbf <= 86400", &claims);
    check_true("claims.level == 3 && claims.level < 4", &claims);
    check_true("claims.?email_verified.orValue(true) == true", &claims);
    check_true("claims.?absent.orValue('x') == 'x'", &claims);
    check_true("!has(claims.absent) && has(claims.email)", &claims);
    check_true("claims.groups.exists(g, g.startsWith('a'))", &claims);
    check_true("claims.groups.all(group, group != 'system:masters')", &claims);
    check_true("claims.roles.split(',')[1] == 'dev' && 'b' in claims.groups", &claims);
    check_true("claims.email.lowerAscii().endsWith('@example.com')", &claims);
    check_true("claims.email.matches('^[a-z]+@example[.]com$')", &claims);
    check_true("claims.nested.tenant.id == 't-1'", &claims);
    check_true("claims['other.example.com/x'] == 'y'", &claims);
    check_true("claims.groups.map(g, 'x:' + g) == ['x:a', 'x:b']", &claims);
}

#[test]
fn strings_come_as_one_as_a_list_or_not_at_all() {
    let strings = |source: &str, claims: Json| {
        Expression::parse(source, Variable::Claims, Expected::Strings)
            .expect(source)
            .strings(&input(&claims))
    };
    let list = |list: &[&str]| Ok(list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
    assert_eq!(strings("claims.g", json!({"g": ["a", "", "b"]})), list(&["a", "b"]));
    assert_eq!(strings("claims.g", json!({"g": "a"})), list(&["a"]));
    assert_eq!(strings("claims.g", json!({"g": null})), list(&[]));
    assert_eq!(strings("claims.?g.orValue([])", json!({})), list(&[]));
    assert_eq!(
        strings("claims.g.map(g, 'team:' + g)", json!({"g": ["a"]})),
        list(&["team:a"])
    );
    assert!(strings("claims.g", json!({"g": [1]})).is_err());
    assert!(strings("claims.g", json!({"g": 1})).is_err());
}

#[test]
fn an_error_names_a_missing_claim_and_no_value() {
    let string = |source: &str, claims: Json| {
        Expression::parse(source, Variable::Claims, Expected::String)
            .expect(source)
            .string(&input(&claims))
            .expect_err("an error")
    };
    assert!(string("claims.upn", json!({"sub": "x"})).contains("upn"));
    let error = string("claims.map[claims.key]", json!({"map": {}, "key": "secret-value"}));
    assert!(!error.contains("secret-value"), "{error}");
    let error = string("claims.sub + claims.level", json!({"sub": "secret-value", "level": 1}));
    assert!(!error.contains("secret-value"), "{error}");
    let error = string("claims.sub", json!({"sub": ["secret-value"]}));
    assert!(
        error.contains("gives a list") && !error.contains("secret-value"),
        "{error}"
    );
}

#[test]
fn a_claim_is_read_by_its_name_wherever_it_stands() {
    let reads = |source: &str, claim: &str| {
        Expression::parse(source, Variable::Claims, Expected::Strings)
            .expect(source)
            .reads_claim(claim)
    };
    assert!(reads("claims.email", "email"));
    assert!(reads("has(claims.x) ? claims.x : claims.?email.orValue('')", "email"));
    assert!(reads("claims['email']", "email"));
    assert!(!reads("claims.user.email", "email"));
    assert!(!reads("claims.email_verified == true ? 'a' : 'b'", "email"));
}
