#![expect(
    clippy::needless_pass_by_value,
    reason = "cases of tables are read more easily as owned values"
)]

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Attributes, RBAC, TokenIssuer, authorize, review};
use crate::{UserInfo, store::Objects};

/// A store for tests, by group, resource, namespace and name.
#[derive(Default)]
pub(crate) struct Store(BTreeMap<[String; 4], Arc<Value>>);

impl Store {
    pub(crate) fn put(&mut self, group: &str, resource: &str, object: Value) -> &mut Self {
        let part = |field: &str| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let key = [group.to_owned(), resource.to_owned(), part("namespace"), part("name")];
        self.0.insert(key, Arc::new(object));
        self
    }
}

impl Objects for Store {
    fn object(&self, group: &str, resource: &str, namespace: &str, name: &str) -> Option<&Arc<Value>> {
        self.0.get(&[group, resource, namespace, name].map(str::to_owned))
    }

    fn objects_of(
        &self,
        group: &str,
        resource: &str,
        namespace: Option<&str>,
    ) -> Box<dyn Iterator<Item = &Arc<Value>> + '_> {
        let (group, resource, namespace) = (group.to_owned(), resource.to_owned(), namespace.map(str::to_owned));
        Box::new(self.0.iter().filter_map(move |(key, object)| {
            let is_in = namespace.as_ref().is_none_or(|namespace| *namespace == key[2]);
            (key[0] == group && key[1] == resource && is_in).then_some(object)
        }))
    }
}

pub(crate) fn user(name: &str, groups: &[&str]) -> UserInfo {
    UserInfo {
        name: name.to_owned(),
        groups: groups.iter().map(|&group| group.to_owned()).collect(),
        ..UserInfo::default()
    }
}

pub(crate) fn role(namespace: &str, name: &str, rules: Value) -> Value {
    json!({"metadata": {"namespace": namespace, "name": name}, "rules": rules})
}

pub(crate) fn binding(namespace: &str, name: &str, role: (&str, &str), subject: Value) -> Value {
    json!({
        "metadata": {"namespace": namespace, "name": name},
        "roleRef": {"apiGroup": RBAC, "kind": role.0, "name": role.1},
        "subjects": [subject],
    })
}

fn cluster() -> Store {
    let mut store = Store::default();
    let rules = json!([
        {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["mine"]},
        {"apiGroups": ["a.io"], "resources": ["*/status"], "verbs": ["update"]},
        {"apiGroups": ["a.io"], "resources": ["cowboys", "cowboys/scale"], "verbs": ["*"]},
        {"nonResourceURLs": ["/healthz", "/api/*"], "verbs": ["get"]},
    ]);
    store.put(RBAC, "clusterroles", role("", "reader", rules));
    let list = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["list"]}]);
    store.put(RBAC, "roles", role("n", "lister", list));
    let account = json!({"kind": "ServiceAccount", "name": "robot"});
    let robot = binding("n", "robot", ("Role", "lister"), account);
    store.put(RBAC, "rolebindings", robot);
    store.put(
        RBAC,
        "rolebindings",
        binding(
            "m",
            "lost",
            ("ClusterRole", "gone"),
            json!({"kind": "User", "name": "ann"}),
        ),
    );
    let group = json!({"kind": "Group", "name": "devs"});
    store.put(
        RBAC,
        "clusterrolebindings",
        binding("", "devs", ("ClusterRole", "reader"), group),
    );
    store
}

/// Attributes by words: verb, `group/resource/subresource`, `namespace/name`.
fn wants<'a>(verb: &'a str, resource: &'a str, object: &'a str) -> Attributes<'a> {
    let mut resource = resource.split('/');
    let (namespace, name) = object.split_once('/').unwrap_or(("", object));
    Attributes {
        verb,
        group: resource.next().unwrap_or_default(),
        resource: resource.next().unwrap_or_default(),
        subresource: resource.next().unwrap_or_default(),
        namespace,
        name,
        path: "",
    }
}

#[track_caller]
fn check(user: &UserInfo, wants: &Attributes<'_>, expect: Option<&str>) {
    let refusal = authorize(&cluster(), user, wants).err();
    assert_eq!(refusal.as_ref().map(|refusal| refusal.message.as_str()), expect);
    assert!(refusal.is_none_or(|refusal| refusal.code == 403 && refusal.reason == "Forbidden"));
}

#[test]
fn rules_name_verbs_groups_resources_and_objects() {
    let dev = user("joe", &["devs"]);
    check(&dev, &wants("get", "/secrets", "n/mine"), None);
    check(
        &dev,
        &wants("get", "/secrets", "n/yours"),
        Some(
            "secrets \"yours\" is forbidden: User \"joe\" cannot get resource \"secrets\" in API group \"\" in the namespace \"n\"",
        ),
    );
    // A list has no name, so that a rule with names does not cover it.
    check(
        &dev,
        &wants("list", "/secrets", ""),
        Some(
            "secrets is forbidden: User \"joe\" cannot list resource \"secrets\" in API group \"\" at the cluster scope",
        ),
    );
    check(&dev, &wants("update", "a.io/sheriffs/status", "n/x"), None);
    check(&dev, &wants("escalate", "a.io/cowboys", "n/x"), None);
    check(&dev, &wants("update", "a.io/cowboys/scale", "n/x"), None);
    check(
        &dev,
        &wants("get", "a.io/cowboys/exec", "n/x"),
        Some(
            "cowboys.a.io \"x\" is forbidden: User \"joe\" cannot get resource \"cowboys/exec\" in API group \"a.io\" in the \
             namespace \"n\"",
        ),
    );
    check(
        &user("root", &["system:masters"]),
        &wants("delete", "b.io/all", "n/x"),
        None,
    );
}

#[test]
fn bindings_hold_in_their_namespace() {
    let robot = user("system:serviceaccount:n:robot", &[]);
    check(&robot, &wants("list", "/secrets", "n/"), None);
    check(
        &robot,
        &wants("list", "/secrets", "m/"),
        Some(
            "secrets is forbidden: User \"system:serviceaccount:n:robot\" cannot list resource \"secrets\" in API group \"\" in \
             the namespace \"m\"",
        ),
    );
    check(
        &user("ann", &[]),
        &wants("list", "/secrets", "m/"),
        Some(
            "secrets is forbidden: User \"ann\" cannot list resource \"secrets\" in API group \"\" in the namespace \"m\": RBAC: \
             clusterrole.rbac.authorization.k8s.io \"gone\" not found",
        ),
    );
}

#[test]
fn paths_have_rules_too() {
    let path = |path| Attributes {
        verb: "get",
        path,
        ..Attributes::default()
    };
    let dev = user("joe", &["devs"]);
    check(&dev, &path("/api/v1"), None);
    check(&dev, &path("/healthz"), None);
    check(
        &dev,
        &path("/metrics"),
        Some("forbidden: User \"joe\" cannot get path \"/metrics\""),
    );
}

#[track_caller]
fn check_review(kind: &str, spec: Value, expect: Result<Value, &str>) {
    let dev = user("joe", &["devs"]);
    let answer = review(&cluster(), &dev, kind, "n", &json!({ "spec": spec }));
    let answer = answer
        .map(|answer| answer["status"].clone())
        .map_err(|error| error.message);
    assert_eq!(answer, expect.map_err(str::to_owned));
}

#[test]
fn reviews_tell_what_is_allowed_and_why() {
    let secret = json!({"verb": "get", "resource": "secrets", "name": "mine", "namespace": "n"});
    let reason = "RBAC: allowed by ClusterRoleBinding \"devs\" of ClusterRole \"reader\" to Group \"devs\"";
    let yes = json!({"allowed": true, "reason": reason});
    check_review(
        "SelfSubjectAccessReview",
        json!({"resourceAttributes": secret}),
        Ok(yes),
    );
    let list = json!({"verb": "list", "resource": "pods", "namespace": "n"});
    let of = json!({"user": "system:serviceaccount:n:robot", "resourceAttributes": list});
    let reason = "RBAC: allowed by RoleBinding \"robot/n\" of Role \"lister\" to ServiceAccount \"robot/n\"";
    check_review(
        "SubjectAccessReview",
        of.clone(),
        Ok(json!({"allowed": true, "reason": reason})),
    );
    check_review(
        "LocalSubjectAccessReview",
        of,
        Ok(json!({"allowed": true, "reason": reason})),
    );
    check_review(
        "SubjectAccessReview",
        json!({"resourceAttributes": secret}),
        Err(
            ".authorization.k8s.io \"\" is invalid: spec.user: Invalid value: \"\": at least one of user or \
             group must be specified",
        ),
    );
    check_review(
        "SubjectAccessReview",
        json!({"user": "x", "resourceAttributes": secret}),
        Ok(json!({"allowed": false})),
    );
    let rules = json!({
        "resourceRules": [
            {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["mine"]},
            {"apiGroups": ["a.io"], "resources": ["*/status"], "verbs": ["update"]},
            {"apiGroups": ["a.io"], "resources": ["cowboys", "cowboys/scale"], "verbs": ["*"]},
        ],
        "nonResourceRules": [{"nonResourceURLs": ["/healthz", "/api/*"], "verbs": ["get"]}],
        "incomplete": false,
    });
    check_review("SelfSubjectRulesReview", json!({"namespace": "n"}), Ok(rules));
    let me = json!({"userInfo": {"username": "joe", "groups": ["devs"]}});
    check_review("SelfSubjectReview", json!({}), Ok(me));
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn account(uid: &str) -> Value {
    json!({"metadata": {"namespace": "n", "name": "robot", "uid": uid}})
}

fn secret(uid: &str) -> Value {
    json!({"metadata": {"namespace": "n", "name": "s", "uid": uid}})
}

fn accounts() -> Store {
    let mut store = Store::default();
    store
        .put("", "serviceaccounts", account("u1"))
        .put("", "secrets", secret("s1"));
    store
}

fn granted(request: Value) -> Result<String, (u16, String)> {
    let issuer = TokenIssuer::new("provider");
    let answer = issuer.request(at(1000), &accounts(), &account("u1"), &request);
    let answer = answer.map_err(|error| (error.code, error.message))?;
    Ok(answer["status"]["token"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn a_token_is_its_accounts() {
    let token = granted(json!({})).unwrap();
    let issuer = TokenIssuer::new("provider");
    let (user, audiences) = issuer.authenticate(at(1001), &accounts(), &token, &[]).unwrap();
    assert_eq!(
        (user.name.as_str(), user.uid.as_str()),
        ("system:serviceaccount:n:robot", "u1")
    );
    assert_eq!(
        user.groups,
        [
            "system:serviceaccounts",
            "system:serviceaccounts:n",
            "system:authenticated"
        ]
    );
    assert_eq!(audiences, ["https://provider.simulated"]);
    assert_eq!(token.split('.').count(), 3);
    assert!(
        TokenIssuer::new("other")
            .authenticate(at(1001), &accounts(), &token, &[])
            .is_none()
    );
    let forged = format!("{token}x");
    assert!(issuer.authenticate(at(1001), &accounts(), &forged, &[]).is_none());
}

#[track_caller]
fn check_token(request: Value, store: &Store, now: i64, audience: &str, expect: Result<(), &str>) {
    let token = granted(request).unwrap();
    let issuer = TokenIssuer::new("provider");
    let review = json!({"spec": {"token": token, "audiences": [audience]}});
    let answer = issuer.review(at(now), store, &BTreeMap::new(), &review).unwrap();
    let status = &answer["status"];
    match expect {
        Ok(()) => assert_eq!(
            (&status["authenticated"], &status["audiences"]),
            (&json!(true), &json!([audience]))
        ),
        Err(error) => assert_eq!(
            status,
            &json!({"user": {}, "error": format!("[invalid bearer token, {error}]")})
        ),
    }
}

#[test]
fn a_token_ends() {
    let own = "https://provider.simulated";
    let expired = Err("service account token has expired");
    let gone = Err("service account token has been invalidated");
    let short = || json!({"spec": {"expirationSeconds": 600}});
    let bound =
        || json!({"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Secret", "name": "s", "uid": "s1"}}});
    check_token(short(), &accounts(), 1660, own, Ok(()));
    check_token(short(), &accounts(), 1661, own, expired);
    check_token(bound(), &accounts(), 1001, own, Ok(()));
    let mut store = Store::default();
    store.put("", "serviceaccounts", account("u1"));
    check_token(bound(), &store, 1001, own, gone);
    store.put("", "secrets", secret("s2"));
    let other = Err("secret UID (s2) does not match service account secret ref claim (s1)");
    check_token(bound(), &store, 1001, own, other);
    store.put("", "serviceaccounts", account("u2"));
    check_token(
        json!({}),
        &store,
        1001,
        own,
        Err("service account UID (u2) does not match claim (u1)"),
    );
    let aud = || json!({"spec": {"audiences": ["vault"]}});
    check_token(aud(), &accounts(), 1001, "vault", Ok(()));
    let wrong = "token audiences [\"vault\"] is invalid for the target audiences [\"https://provider.simulated\"]";
    check_token(aud(), &accounts(), 1001, own, Err(wrong));
}

#[track_caller]
fn check_refused(request: Value, code: u16, message: &str) {
    assert_eq!(granted(request), Err((code, message.to_owned())));
}

#[test]
fn requests_for_tokens_are_checked() {
    check_refused(
        json!({"spec": {"expirationSeconds": 599}}),
        422,
        "TokenRequest.authentication.k8s.io \"\" is invalid: spec.expirationSeconds: Invalid value: 599: may not specify a \
         duration less than 10 minutes",
    );
    check_refused(
        json!({"metadata": {"uid": "u0"}}),
        409,
        "Operation cannot be fulfilled on TokenRequest.authentication.k8s.io \"robot\": the UID in the token request (u0) does not \
         match the UID of the service account (u1)",
    );
    let bound = |name: &str, uid: &str| json!({"spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Secret", "name": name, "uid": uid}}});
    check_refused(
        bound("s", "s0"),
        409,
        "Operation cannot be fulfilled on Secret \"s\": the UID in the bound object reference (s0) does not match the UID in \
         record. The object might have been deleted and then recreated",
    );
    check_refused(bound("t", ""), 404, "secrets \"t\" not found");
    check_refused(
        json!({"spec": {"boundObjectRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "x"}}}),
        400,
        "cannot bind token to object of type apps/v1, Kind=Deployment",
    );
}

#[test]
fn a_token_in_a_secret_is_good_while_it_is_there() {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    let issuer = TokenIssuer::new("provider");
    let token = issuer.legacy(&account("u1"), &secret("s1"));
    let mut store = accounts();
    assert!(issuer.authenticate(at(1), &store, &token, &[]).is_none());
    let mut full = secret("s1");
    full["data"] = json!({"token": STANDARD.encode(&token)});
    store.put("", "secrets", full);
    let (user, _) = issuer.authenticate(at(1), &store, &token, &[]).unwrap();
    assert_eq!(user.name, "system:serviceaccount:n:robot");
}

#[test]
fn static_tokens_are_reviewed() {
    let issuer = TokenIssuer::new("provider");
    let tokens = BTreeMap::from([("secret".to_owned(), user("admin", &["system:masters"]))]);
    let answer = |token: &str| issuer.review(at(1), &Store::default(), &tokens, &json!({"spec": {"token": token}}));
    let status = answer("secret").unwrap()["status"].clone();
    let expect = json!({"username": "admin", "groups": ["system:masters", "system:authenticated"]});
    assert_eq!((&status["authenticated"], &status["user"]), (&json!(true), &expect));
    assert_eq!(answer("other").unwrap()["status"]["error"], "invalid bearer token");
    assert_eq!(answer("").unwrap_err().code, 400);
}
