use std::sync::Arc;

use bindery_proto::v1alpha2::ErrorReason;
use http::{HeaderMap, header::AUTHORIZATION};
use serde_json::{Value, json};

use super::*;
use crate::{
    front::{Failure, auth::Authenticators, auth::Caller},
    oidc::{
        Configuration, OidcMetrics, Surroundings,
        tests_support::{FakeIssuer, ISSUER, SigningKey, claims},
    },
    principal::Principal,
};

struct World {
    fake: Arc<FakeIssuer>,
    issuers: Issuers,
    authenticators: Authenticators,
}

fn configuration(prefix: &str) -> Configuration {
    let file = json!({
        "apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration",
        "jwt": [{
            "issuer": {"url": ISSUER, "audiences": ["bindery"]},
            "claimMappings": {
                "username": {"claim": "email", "prefix": prefix},
                "groups": {"claim": "groups", "prefix": ""},
            },
        }],
    });
    Configuration::parse(&file.to_string(), &Surroundings::default()).expect("a configuration")
}

fn world(key: &SigningKey) -> World {
    let fake = Arc::new(FakeIssuer::default());
    fake.publish(&[key]);
    let served = Arc::clone(&fake);
    let issuers = Issuers::new(Arc::new(move |_| served.clone()), OidcMetrics::default(), None);
    issuers.replace(configuration(""));
    let authenticators = Authenticators::new(vec![Arc::new(IdTokenVerifier::new(issuers.clone()))]);
    World {
        fake,
        issuers,
        authenticators,
    }
}

fn presented(token: &str) -> Presented {
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, format!("Bearer {token}").parse().expect("a header"));
    Presented::read(&headers).expect("a token")
}

impl World {
    async fn authenticate(&self, token: &str) -> Result<Identity, Failure> {
        self.authenticators.authenticate(&presented(token)).await
    }
}

#[tokio::test(start_paused = true)]
async fn a_thousand_calls_cost_the_issuer_no_request() {
    let key = SigningKey::ec("e");
    let world = world(&key);
    let token = key.token(&claims(&json!({})));
    for _ in 0..1_000 {
        let identity = world.authenticate(&token).await.expect("an identity");
        assert_eq!(identity.groups, ["team-a", "team-b"]);
    }
    assert!(world.authenticators.is_known(&presented(&token)));
    assert_eq!(world.fake.requests(), 2, "discovery and keys, once");
}

#[tokio::test(start_paused = true)]
async fn each_refusal_has_its_reason_and_shows_no_part_of_the_token() {
    let key = SigningKey::ec("e");
    let world = world(&key);
    for (changes, reason) in [
        (
            json!({"iss": "https://other.example.com"}),
            ErrorReason::IssuerUntrusted,
        ),
        (json!({"iss": null}), ErrorReason::IssuerUntrusted),
        (json!({"aud": "other"}), ErrorReason::TokenAudienceWrong),
        (json!({"azp": "other"}), ErrorReason::TokenAudienceWrong),
        (json!({"exp": 1}), ErrorReason::TokenExpired),
        (json!({"exp": null}), ErrorReason::TokenInvalid),
        (json!({"email": null}), ErrorReason::TokenInvalid),
        (json!({"email": "system:admin"}), ErrorReason::TokenInvalid),
        (json!({"groups": ["system:masters"]}), ErrorReason::TokenInvalid),
    ] {
        let token = key.token(&claims(&changes));
        let failure = world.authenticate(&token).await.expect_err("a refusal");
        assert_eq!(failure.reason(), reason, "{changes}");
        assert!(
            token.split('.').all(|part| !failure.message().contains(part)),
            "{failure:?}"
        );
    }
    world.fake.set_down(true);
    tokio::time::sleep(std::time::Duration::from_mins(1)).await;
    let unknown = SigningKey::ec("new").token(&claims(&json!({})));
    let failure = world.authenticate(&unknown).await.expect_err("a refusal");
    assert_eq!(failure.reason(), ErrorReason::IssuerUnreachable);
}

#[tokio::test(start_paused = true)]
async fn a_token_with_thousands_of_groups_is_refused_before_it_is_checked() {
    let key = SigningKey::ec("e");
    let groups: Vec<_> = (0..10_000).map(|number| format!("group-{number}")).collect();
    let token = key.token(&claims(&json!({"groups": groups})));
    let mut headers = HeaderMap::new();
    headers.insert(AUTHORIZATION, format!("Bearer {token}").parse().expect("a header"));
    let denial = Presented::read(&headers).expect_err("a refusal");
    assert_eq!(denial.reason(), ErrorReason::TokenInvalid);
    assert!(
        denial.to_string().contains("have the issuer put fewer groups"),
        "{denial}"
    );
}

#[tokio::test(start_paused = true)]
async fn verdicts_of_a_former_configuration_do_not_count() {
    let key = SigningKey::ec("e");
    let world = world(&key);
    let token = key.token(&claims(&json!({})));
    let name = async || world.authenticate(&token).await.expect("an identity").username;
    assert_eq!(name().await, "jane@example.com");
    world.issuers.replace(configuration("oidc:"));
    assert!(!world.authenticators.is_known(&presented(&token)));
    assert_eq!(name().await, "oidc:jane@example.com");
    world.issuers.replace(Configuration::default());
    let failure = world.authenticate(&token).await.expect_err("a refusal");
    assert_eq!(failure.reason(), ErrorReason::IssuerUntrusted);
}

#[tokio::test(start_paused = true)]
async fn a_name_with_another_subject_is_another_principal() {
    let key = SigningKey::ec("e");
    let world = world(&key);
    let principal = async |changes: Value| {
        let identity = world
            .authenticate(&key.token(&claims(&changes)))
            .await
            .expect("an identity");
        Caller::new(identity, |_| true).principal()
    };
    let jane = principal(json!({})).await;
    assert_eq!(jane.username, "jane@example.com");
    assert_eq!(
        (jane.issuer.as_deref(), jane.subject.as_deref()),
        (Some(ISSUER), Some("1234"))
    );
    assert!(jane.is(&principal(json!({"groups": []})).await));
    assert!(!jane.is(&principal(json!({"sub": "5678"})).await));
    assert!(Principal::named("jane@example.com").is(&jane));
}
