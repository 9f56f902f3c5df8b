//! Requests that are answered and not stored: reviews of tokens and access, and tokens of ServiceAccounts.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Call, Replied, Reply, Result};
use crate::{ApiServer, auth, endpoint::Endpoint, meta, status::StatusError, strategy};

/// Kind of the review that a resource takes.
fn kind(group: &str, resource: &str) -> Option<&'static str> {
    Some(match (group, resource) {
        ("authentication.k8s.io", "tokenreviews") => "TokenReview",
        ("authentication.k8s.io", "selfsubjectreviews") => "SelfSubjectReview",
        ("authorization.k8s.io", "selfsubjectaccessreviews") => "SelfSubjectAccessReview",
        ("authorization.k8s.io", "subjectaccessreviews") => "SubjectAccessReview",
        ("authorization.k8s.io", "localsubjectaccessreviews") => "LocalSubjectAccessReview",
        ("authorization.k8s.io", "selfsubjectrulesreviews") => "SelfSubjectRulesReview",
        _ => return None,
    })
}

/// Answers a review, if the request is one.
pub(super) fn answer(server: &ApiServer, call: &Call) -> Option<Result<Reply>> {
    let info = &call.info;
    let kind = kind(&info.group, &info.resource).filter(|_| info.version == "v1")?;
    if info.verb != "create" || !info.name.is_empty() {
        return Some(Err(ApiServer::not_allowed()));
    }
    Some(review(server, call, kind))
}

fn review(server: &ApiServer, call: &Call, kind: &str) -> Result<Reply> {
    let mut sent = call.json(kind)?;
    if let Some(spec) = sent.get_mut("spec") {
        drop_empty(spec);
    }
    sent["kind"] = kind.into();
    sent["apiVersion"] = format!("{}/{}", call.info.group, call.info.version).into();
    let answer = if kind == "TokenReview" {
        server
            .tokens
            .review(call.now, &server.store, &server.settings.tokens, &sent)?
    } else {
        auth::review(&server.store, &call.user, kind, &call.info.namespace, &sent)?
    };
    let mut answer = answer;
    if kind == "SelfSubjectReview" {
        answer["metadata"] = serde_json::json!({"creationTimestamp": meta::time(call.now)});
    }
    Ok(Reply::Json(201, answer))
}

/// Leaves out empty texts and lists, as Go's types do.
fn drop_empty(value: &mut Value) {
    if let Value::Object(fields) = value {
        fields.retain(|_, value| value.is_object() || !strategy::is_empty(value));
        fields.values_mut().for_each(drop_empty);
    }
}

impl ApiServer {
    pub(super) fn create_token(&mut self, call: &Call, endpoint: &Arc<Endpoint>) -> Result<Replied> {
        let mut request: Value = call.json("TokenRequest")?;
        request["kind"] = "TokenRequest".into();
        request["apiVersion"] = "authentication.k8s.io/v1".into();
        // The API server reads the request into its type, which always has metadata: admission sees them, sent or not.
        if request["metadata"].is_null() {
            request["metadata"] = json!({ "creationTimestamp": null });
        }
        self.check_lifecycle(call, endpoint, &call.info.name)?;
        let account = self.store.get(&call.key(endpoint)).cloned();
        let account = account.ok_or_else(|| StatusError::not_found(call.about()))?;
        let dry_run = call.parameters.is_dry_run("CreateOptions")?;
        let warnings = self.admit(call, endpoint, "CREATE", Some(&request), None, dry_run)?;
        let granted = self.tokens.request(call.now, &self.store, &account.value, &request)?;
        Ok(Replied {
            reply: Reply::Json(201, granted),
            warnings,
        })
    }
}
