//! Asks the API server for the rights that the server needs to renew its certificates.

use bindery_api::v1alpha2::GroupResource;
use kube::Client;

use crate::rights;

/// The verbs that the server needs on the Secret with its certificates.
const VERBS: [&str; 4] = ["get", "list", "update", "watch"];
/// The verb that the server needs on all Secrets of its namespace, since RBAC cannot limit it to a name.
const CREATE: &str = "create";

/// Returns the verbs that the server lacks on its Secret.
pub(super) async fn missing_verbs(
    client: &Client,
    namespace: &str,
    name: &str,
) -> Result<Vec<&'static str>, kube::Error> {
    let secrets = GroupResource::new("", "secrets");
    let questions = VERBS.map(|verb| (verb, Some(name)));
    let mut missing = Vec::new();
    for (verb, name) in questions.into_iter().chain([(CREATE, None)]) {
        if !rights::is_allowed(client, verb, &secrets, Some(namespace), name).await? {
            missing.push(verb);
        }
    }
    Ok(missing)
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    /// An API server where the server has these verbs on Secret `mine`, and these on all Secrets of namespace `here`.
    fn api_server(named: &'static [&str], all: &'static [&str]) -> Client {
        let service = tower::service_fn(move |request: http::Request<Body>| async move {
            let body = request.into_body().collect_bytes().await.expect("a body");
            let review: Value = serde_json::from_slice(&body).expect("a review");
            let asked = &review["spec"]["resourceAttributes"];
            let verb = asked["verb"].as_str().expect("a verb");
            let in_namespace = asked["namespace"] == "here" && asked["resource"] == "secrets";
            let allowed = in_namespace && (all.contains(&verb) || (asked["name"] == "mine" && named.contains(&verb)));
            let answer = json!({
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectAccessReview",
                "spec": review["spec"],
                "status": { "allowed": allowed },
            });
            Ok::<_, Infallible>(http::Response::new(Body::from(answer.to_string().into_bytes())))
        });
        Client::new(service, "default")
    }

    #[tokio::test]
    async fn each_right_that_is_missing_is_named() {
        let missing = async |named, all| {
            let missing = missing_verbs(&api_server(named, all), "here", "mine").await;
            missing.expect("an answer")
        };
        assert!(missing(&VERBS, &[CREATE]).await.is_empty());
        // What responses-role.yaml gives alone.
        assert_eq!(
            missing(&[], &[CREATE, "get", "patch"]).await,
            ["list", "update", "watch"]
        );
        assert_eq!(
            missing(&[CREATE, "get", "list", "update", "watch"], &[]).await,
            [CREATE]
        );
        let other = missing_verbs(&api_server(&VERBS, &[CREATE]), "here", "other").await;
        assert_eq!(other.expect("an answer"), VERBS);
    }
}
