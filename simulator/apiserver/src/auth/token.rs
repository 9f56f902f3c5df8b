//! Tokens of ServiceAccounts: the API TokenRequest, tokens in Secrets, and who a token is.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};

use super::{claims::SigningKey, review::user_json};
use crate::{
    UserInfo,
    json::{list, text},
    status::{About, Cause, StatusError},
    store::Objects,
};

/// Issuer of the tokens that Secrets hold.
const LEGACY_ISSUER: &str = "kubernetes/serviceaccount";
/// Lifetime of a token whose request does not say one, in seconds.
const SECONDS_DEFAULT: i64 = 3600;
/// Shortest lifetime of a token, in seconds.
const SECONDS_MIN: i64 = 600;
/// Longest lifetime of a token, in seconds.
const SECONDS_MAX: i64 = 1 << 32;
/// The difference of clocks that Kubernetes allows for: a token is valid for this long after it expires, and for this long after the
/// object that it is bound to was deleted.
const LEEWAY: SignedDuration = SignedDuration::from_secs(60);
/// Attribute of a user that names its token.
const CREDENTIAL: &str = "authentication.kubernetes.io/credential-id";

/// Issues and verifies the tokens of a cluster's ServiceAccounts.
#[derive(Clone, Debug)]
pub(crate) struct TokenIssuer {
    issuer: String,
    key: SigningKey,
}

impl TokenIssuer {
    /// An issuer whose key is derived from the name of the cluster.
    pub(crate) fn new(cluster: &str) -> Self {
        Self {
            issuer: format!("https://{cluster}.simulated"),
            key: SigningKey::of_cluster(cluster),
        }
    }

    /// The document at `/.well-known/openid-configuration`.
    pub(crate) fn discovery(&self) -> Value {
        let issuer = &self.issuer;
        json!({
            "issuer": issuer,
            "jwks_uri": format!("{issuer}/openid/v1/jwks"),
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
        })
    }

    /// Answers a TokenRequest (`serviceaccounts/token`) for an existing ServiceAccount: the TokenRequest with its status.
    pub(crate) fn request(
        &self,
        now: Timestamp,
        objects: &dyn Objects,
        service_account: &Value,
        request: &Value,
    ) -> Result<Value, StatusError> {
        let account = &service_account["metadata"];
        let (namespace, name, uid) = (text(account, "namespace"), text(account, "name"), text(account, "uid"));
        check_meta(&request["metadata"], account)?;
        let spec = &request["spec"];
        let seconds = spec
            .get("expirationSeconds")
            .and_then(Value::as_i64)
            .unwrap_or(SECONDS_DEFAULT);
        check_seconds(seconds)?;
        let audiences = match list(spec, "audiences") {
            [] => json!([self.issuer]),
            some => json!(some),
        };
        let bound = bound_object(objects, &spec["boundObjectRef"], namespace, name)?;

        let issued = now.as_second();
        let mut kubernetes = Map::new();
        kubernetes.insert("namespace".to_owned(), json!(namespace));
        kubernetes.insert("serviceaccount".to_owned(), json!({"name": name, "uid": uid}));
        if let Some((kind, meta)) = bound {
            kubernetes.insert(kind.to_owned(), json!({"name": meta["name"], "uid": meta["uid"]}));
        }
        let claims = json!({
            "iss": self.issuer,
            "sub": subject(namespace, name),
            "aud": audiences,
            "iat": issued,
            "nbf": issued,
            "exp": issued + seconds,
            "jti": self.key.uuid(&format!("{uid} {} {spec}", now.as_nanosecond())),
            "kubernetes.io": kubernetes,
        });
        Ok(json!({
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": {"name": name, "namespace": namespace, "uid": uid, "creationTimestamp": second(issued)},
            "spec": {
                "audiences": audiences,
                "expirationSeconds": seconds,
                "boundObjectRef": spec["boundObjectRef"],
            },
            "status": {"token": self.key.sign(&claims), "expirationTimestamp": second(issued + seconds)},
        }))
    }

    /// The token for a Secret of type `kubernetes.io/service-account-token`.
    pub(crate) fn legacy(&self, service_account: &Value, secret: &Value) -> String {
        let account = &service_account["metadata"];
        let (namespace, name) = (text(account, "namespace"), text(account, "name"));
        self.key.sign(&json!({
            "iss": LEGACY_ISSUER,
            "sub": subject(namespace, name),
            "kubernetes.io/serviceaccount/namespace": namespace,
            "kubernetes.io/serviceaccount/secret.name": secret["metadata"]["name"],
            "kubernetes.io/serviceaccount/service-account.name": name,
            "kubernetes.io/serviceaccount/service-account.uid": account["uid"],
        }))
    }

    /// The user of a bearer token, which must be for one of the audiences (the cluster's own if empty). Second, the
    /// audiences that matched.
    pub(crate) fn authenticate(
        &self,
        now: Timestamp,
        objects: &dyn Objects,
        token: &str,
        audiences: &[String],
    ) -> Option<(UserInfo, Vec<String>)> {
        let own = [self.issuer.clone()];
        let audiences = if audiences.is_empty() { &own } else { audiences };
        self.verify(now, objects, token, audiences).ok()
    }

    fn verify(
        &self,
        now: Timestamp,
        objects: &dyn Objects,
        token: &str,
        audiences: &[String],
    ) -> Result<(UserInfo, Vec<String>), String> {
        let invalid = || "invalid bearer token".to_owned();
        let claims = self.key.verify(token).ok_or_else(invalid)?;
        let own = vec![self.issuer.clone()];
        let is_legacy = text(&claims, "iss") == LEGACY_ISSUER;
        let granted: Vec<String> = if is_legacy {
            own
        } else {
            list(&claims, "aud")
                .iter()
                .filter_map(Value::as_str)
                .map(str::to_owned)
                .collect()
        };
        let matching: Vec<_> = audiences
            .iter()
            .filter(|audience| granted.contains(audience))
            .cloned()
            .collect();
        if matching.is_empty() {
            let message = format!("token audiences {granted:?} is invalid for the target audiences {audiences:?}");
            return Err(format!("[invalid bearer token, {}]", message.replace(", ", " ")));
        }
        let user = if is_legacy {
            legacy_user(now, objects, &claims, token)
        } else {
            bound_user(now, objects, &claims)
        };
        let user = user.map_err(|why| format!("[invalid bearer token, {why}]"))?;
        Ok((user, matching))
    }

    /// Answers a TokenReview: the review with its status.
    pub(crate) fn review(
        &self,
        now: Timestamp,
        objects: &dyn Objects,
        tokens: &BTreeMap<String, UserInfo>,
        review: &Value,
    ) -> Result<Value, StatusError> {
        let spec = &review["spec"];
        let token = text(spec, "token");
        if token.is_empty() {
            let message = "token is required for TokenReview in authentication";
            return Err(StatusError::bad_request(message));
        }
        let asked = list(spec, "audiences").iter().filter_map(Value::as_str);
        let mut audiences: Vec<String> = asked.map(str::to_owned).collect();
        if audiences.is_empty() {
            audiences.push(self.issuer.clone());
        }
        let known = tokens.get(token).map(|user| {
            let own: Vec<_> = audiences
                .iter()
                .filter(|audience| **audience == self.issuer)
                .cloned()
                .collect();
            if own.is_empty() {
                Err("invalid bearer token".to_owned())
            } else {
                Ok((user.clone(), own))
            }
        });
        let found = known.unwrap_or_else(|| self.verify(now, objects, token, &audiences));
        let status = match found {
            Ok((mut user, audiences)) => {
                let authenticated = "system:authenticated";
                if !user.groups.iter().any(|group| group == authenticated) {
                    user.groups.push(authenticated.to_owned());
                }
                json!({"authenticated": true, "user": user_json(&user), "audiences": audiences})
            }
            Err(error) => json!({"user": {}, "error": error}),
        };
        let mut answer = review.clone();
        answer["status"] = status;
        Ok(answer)
    }
}

fn subject(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

fn second(second: i64) -> Value {
    json!(Timestamp::from_second(second).unwrap_or(Timestamp::MAX).to_string())
}

fn check_meta(sent: &Value, account: &Value) -> Result<(), StatusError> {
    let about = |name| About {
        group: "authentication.k8s.io",
        resource: "TokenRequest",
        name,
    };
    let name = text(account, "name");
    for field in ["name", "namespace"] {
        let value = text(sent, field);
        if !value.is_empty() && value != text(account, field) {
            let cause = Cause {
                field: format!("metadata.{field}"),
                reason: "FieldValueInvalid",
                message: format!("Invalid value: {value:?}: must match the service account {field} if specified"),
            };
            return Err(StatusError::invalid(about(name), &[cause]));
        }
    }
    let (asked, uid) = (text(sent, "uid"), text(account, "uid"));
    if asked.is_empty() || asked == uid {
        return Ok(());
    }
    let message =
        format!("the UID in the token request ({asked}) does not match the UID of the service account ({uid})");
    Err(StatusError::conflict(about(name), &message))
}

fn check_seconds(seconds: i64) -> Result<(), StatusError> {
    let detail = if seconds < SECONDS_MIN {
        "may not specify a duration less than 10 minutes"
    } else if seconds > SECONDS_MAX {
        "may not specify a duration larger than 2^32 seconds"
    } else {
        return Ok(());
    };
    let about = About {
        group: "authentication.k8s.io",
        resource: "TokenRequest",
        name: "",
    };
    let cause = Cause {
        field: "spec.expirationSeconds".to_owned(),
        reason: "FieldValueInvalid",
        message: format!("Invalid value: {seconds}: {detail}"),
    };
    Err(StatusError::invalid(about, &[cause]))
}

/// The object that a token is bound to, with its name among the claims.
fn bound_object<'a>(
    objects: &'a dyn Objects,
    reference: &Value,
    namespace: &str,
    account: &str,
) -> Result<Option<(&'static str, &'a Value)>, StatusError> {
    if reference.is_null() {
        return Ok(None);
    }
    let (kind, name, uid) = (text(reference, "kind"), text(reference, "name"), text(reference, "uid"));
    let version = text(reference, "apiVersion");
    let (resource, claim) = match (version, kind) {
        ("v1", "Secret") => ("secrets", "secret"),
        ("v1", "Pod") => ("pods", "pod"),
        _ => {
            let (group, version) = version.split_once('/').unwrap_or(("", version));
            let message = format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
            return Err(StatusError::bad_request(message));
        }
    };
    let about = |resource| About {
        group: "",
        resource,
        name,
    };
    let object = objects.object("", resource, namespace, name);
    let object = object.ok_or_else(|| StatusError::not_found(about(resource)))?;
    if kind == "Pod" && text(&object["spec"], "serviceAccountName") != account {
        return Err(StatusError::bad_request(format!(
            "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount name."
        )));
    }
    if !uid.is_empty() && uid != text(&object["metadata"], "uid") {
        let message = format!(
            "the UID in the bound object reference ({uid}) does not match the UID in record. The object might have been \
             deleted and then recreated"
        );
        return Err(StatusError::conflict(about(kind), &message));
    }
    Ok(Some((claim, &object["metadata"])))
}

/// The user of a token that was requested, or why it is none any more.
fn bound_user(now: Timestamp, objects: &dyn Objects, claims: &Value) -> Result<UserInfo, String> {
    let time = |claim: &str| claims.get(claim).and_then(Value::as_i64);
    let leeway = LEEWAY.as_secs();
    if time("nbf").is_some_and(|from| now.as_second() + leeway < from) {
        return Err("service account token is not valid yet".to_owned());
    }
    if time("exp").is_some_and(|end| now.as_second() - leeway > end) {
        return Err("service account token has expired".to_owned());
    }
    let private = &claims["kubernetes.io"];
    let namespace = text(private, "namespace");
    let account = &private["serviceaccount"];
    let (name, uid) = (text(account, "name"), text(account, "uid"));
    check_account(now, objects, namespace, name, uid)?;
    for (claim, resource) in [("secret", "secrets"), ("pod", "pods")] {
        let Some(bound) = private.get(claim) else { continue };
        let invalidated = || "service account token has been invalidated".to_owned();
        let object = objects
            .object("", resource, namespace, text(bound, "name"))
            .ok_or_else(invalidated)?;
        let (is, was) = (text(&object["metadata"], "uid"), text(bound, "uid"));
        if is != was {
            return Err(format!(
                "{claim} UID ({is}) does not match service account {claim} ref claim ({was})"
            ));
        }
        if is_deleted(now, object) {
            return Err(invalidated());
        }
    }
    let mut user = account_user(namespace, name, uid);
    let credential = format!("JTI={}", text(claims, "jti"));
    user.extra.insert(CREDENTIAL.to_owned(), vec![credential]);
    Ok(user)
}

/// The user of a token from a Secret.
fn legacy_user(now: Timestamp, objects: &dyn Objects, claims: &Value, token: &str) -> Result<UserInfo, String> {
    let claim = |name: &str| text(claims, &format!("kubernetes.io/serviceaccount/{name}")).to_owned();
    let namespace = claim("namespace");
    let invalidated = || "service account token has been invalidated".to_owned();
    let secret = objects
        .object("", "secrets", &namespace, &claim("secret.name"))
        .ok_or_else(invalidated)?;
    let stored = secret["data"]["token"]
        .as_str()
        .and_then(|data| STANDARD.decode(data).ok());
    if is_deleted(now, secret) || stored.as_deref() != Some(token.as_bytes()) {
        return Err(invalidated());
    }
    let (name, uid) = (claim("service-account.name"), claim("service-account.uid"));
    check_account(now, objects, &namespace, &name, &uid)?;
    Ok(account_user(&namespace, &name, &uid))
}

fn check_account(now: Timestamp, objects: &dyn Objects, namespace: &str, name: &str, uid: &str) -> Result<(), String> {
    let account = objects
        .object("", "serviceaccounts", namespace, name)
        .ok_or_else(|| format!("serviceaccounts {name:?} not found"))?;
    let is = text(&account["metadata"], "uid");
    if is != uid {
        return Err(format!("service account UID ({is}) does not match claim ({uid})"));
    }
    if is_deleted(now, account) {
        return Err(format!("service account {namespace}/{name} has been deleted"));
    }
    Ok(())
}

fn is_deleted(now: Timestamp, object: &Value) -> bool {
    let deleted = object["metadata"]["deletionTimestamp"].as_str();
    let deleted: Option<Timestamp> = deleted.and_then(|time| time.parse().ok());
    deleted.is_some_and(|deleted| deleted < now - LEEWAY)
}

fn account_user(namespace: &str, name: &str, uid: &str) -> UserInfo {
    UserInfo {
        name: subject(namespace, name),
        uid: uid.to_owned(),
        groups: vec![
            "system:serviceaccounts".to_owned(),
            format!("system:serviceaccounts:{namespace}"),
            "system:authenticated".to_owned(),
        ],
        extra: BTreeMap::new(),
    }
}
