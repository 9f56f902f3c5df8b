//! Proves that the policy on the konnector's account is in force, before the account gets any right.

use std::time::Duration;

use bindery_api::names;
use bindery_runtime::{errors, policy::konnector};
use bindery_synk::Proof;
use http::{Request, header::CONTENT_TYPE};
use kube::Client;
use serde_json::Value;
use tokio::time::{Instant, sleep};

/// How long an API server may take to notice the policy.
const PATIENCE: Duration = Duration::from_mins(1);
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(500);

/// The proof on the cluster of this client. A user without the right to impersonate the konnector's account cannot try the policy: then
/// the proof holds without a try.
pub(super) fn of_policies(client: Client) -> Proof {
    Proof::new(move || prove(client.clone()))
}

/// Tries the policy on the account. The other policies on the konnector are applied with it.
async fn prove(client: Client) -> Result<(), String> {
    let (probe, words) = konnector::account(konnector::BASE_NAME, names::KUBE_BIND_NAMESPACE);
    let start = Instant::now();
    loop {
        let why = match create(&client, &probe.object).await {
            Ok(_) => "what it forbids was admitted".to_owned(),
            Err(error) if errors::is_policy_denial(&error, &probe.policy, &words) || may_not_try(&error) => {
                return Ok(());
            }
            Err(error) => errors::explain(&error),
        };
        if start.elapsed() >= PATIENCE {
            return Err(format!("ValidatingAdmissionPolicy {}: {why}", probe.policy));
        }
        sleep(PAUSE).await;
    }
}

/// Creates a Secret by a dry run, as the account and with rights that it will never have, so that nothing but a policy refuses.
async fn create(client: &Client, secret: &Value) -> kube::Result<Value> {
    let path = format!("/api/v1/namespaces/{}/secrets?dryRun=All", names::KUBE_BIND_NAMESPACE);
    let account = format!(
        "system:serviceaccount:{}:{}",
        names::KUBE_BIND_NAMESPACE,
        names::KONNECTOR
    );
    let request = Request::post(path)
        .header(CONTENT_TYPE, "application/json")
        .header("impersonate-user", account)
        .header("impersonate-group", "system:masters")
        .body(secret.to_string().into_bytes())
        .map_err(kube::Error::HttpError)?;
    client.request(request).await
}

fn may_not_try(error: &kube::Error) -> bool {
    errors::is_forbidden(error) && errors::explain(error).contains("impersonate")
}

#[cfg(test)]
mod tests {
    use std::{
        convert::Infallible,
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
    };

    use http::Response;
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    const DENIAL: &str = "ValidatingAdmissionPolicy 'kube-bind-konnector-account' with binding 'kube-bind-konnector-account' denied request: policy.probe is refused by kube-bind-konnector-account, revision 1";

    /// An API server that admits the first `admits` attempts, and answers each later one with 403 and the body `then`. The counter tells how
    /// many attempts there were.
    fn server(admits: usize, then: Value) -> (Client, Arc<AtomicUsize>) {
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let service = tower::service_fn(move |request: Request<Body>| {
            assert_eq!(request.headers()["impersonate-group"], "system:masters");
            let answer = if count.fetch_add(1, Ordering::Relaxed) < admits {
                Response::new(Body::from(b"{}".to_vec()))
            } else {
                let mut answer = Response::new(Body::from(then.to_string().into_bytes()));
                *answer.status_mut() = http::StatusCode::FORBIDDEN;
                answer
            };
            std::future::ready(Ok::<_, Infallible>(answer))
        });
        (Client::new(service, "default"), asked)
    }

    fn forbidden(message: &str, causes: &[&str]) -> Value {
        let causes: Vec<_> = causes.iter().map(|cause| json!({"message": cause})).collect();
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 403, "reason": "Forbidden",
            "message": message, "details": {"causes": causes},
        })
    }

    #[tokio::test(start_paused = true)]
    async fn the_policy_is_waited_for_and_not_for_ever() {
        let (client, asked) = server(3, forbidden("denied", &[DENIAL]));
        assert_eq!(prove(client).await, Ok(()));
        assert_eq!(asked.load(Ordering::Relaxed), 4);

        let (client, _) = server(usize::MAX, Value::Null);
        let failed = prove(client).await.unwrap_err();
        assert!(
            failed.contains("kube-bind-konnector-account") && failed.contains("admitted"),
            "{failed}"
        );

        let (client, _) = server(
            0,
            forbidden("another policy", &[&DENIAL.replace("konnector-account", "other")]),
        );
        assert!(prove(client).await.is_err());

        let (client, _) = server(
            0,
            forbidden("an older one", &[&DENIAL.replace("revision 1", "revision 0")]),
        );
        assert!(prove(client).await.is_err());
    }

    #[tokio::test(start_paused = true)]
    async fn who_may_not_impersonate_goes_on() {
        let (client, asked) = server(
            0,
            forbidden(
                "users \"…\" is forbidden: User \"jane\" cannot impersonate resource",
                &[],
            ),
        );
        assert_eq!(prove(client).await, Ok(()));
        assert_eq!(asked.load(Ordering::Relaxed), 1);
    }
}
