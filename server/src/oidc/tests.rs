use serde_json::json;

use super::*;
use tests_support::{FakeIssuer, ISSUER, SigningKey, claims};

const URL: &str = "https://bind.example.com:443";

fn issuers(fake: &Arc<FakeIssuer>) -> Issuers {
    let served = Arc::clone(fake);
    Issuers::new(Arc::new(move |_| served.clone()), OidcMetrics::default(), None)
}

/// A configuration with issuers as URL and audiences.
fn configuration(all: &[(&str, &[&str])], prefix: &str) -> Configuration {
    let jwt: Vec<_> = all
        .iter()
        .map(|(url, audiences)| {
            json!({
                "issuer": {"url": url, "audiences": audiences, "audienceMatchPolicy": "MatchAny"},
                "claimMappings": {"username": {"claim": "sub", "prefix": prefix}},
            })
        })
        .collect();
    let file = json!({"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthenticationConfiguration", "jwt": jwt});
    Configuration::parse(&file.to_string(), &Surroundings::default()).expect("a configuration")
}

#[tokio::test(start_paused = true)]
async fn another_configuration_counts_at_once_and_keeps_the_keys_that_are_known() {
    let (fake, key) = (Arc::new(FakeIssuer::default()), SigningKey::ec("e"));
    fake.publish(&[&key]);
    let issuers = issuers(&fake);
    let username = async |issuers: &Issuers| {
        let issuer = issuers.get(ISSUER).expect("an issuer");
        let verified = issuer.verify(&key.token(&claims(&json!({})))).await;
        verified.expect("a verdict").expect("a user").user.username
    };
    assert!(issuers.is_empty());
    issuers.replace(configuration(&[(ISSUER, &["bindery"])], "a:"));
    assert_eq!(username(&issuers).await, "a:1234");
    let before = issuers.generation();
    fake.set_down(true);
    issuers.replace(configuration(&[(ISSUER, &["bindery"])], "b:"));
    assert_ne!(issuers.generation(), before);
    assert_eq!(
        username(&issuers).await,
        "b:1234",
        "the keys are known, though the issuer is down"
    );
    assert_eq!(fake.requests(), 2);
    issuers.replace(configuration(&[("https://other.example.com", &["bindery"])], "c:"));
    assert!(issuers.get(ISSUER).is_none());
}

#[tokio::test(start_paused = true)]
async fn people_log_in_where_the_audience_is_a_client_and_programs_where_it_is_the_url() {
    let fake = Arc::new(FakeIssuer::default());
    let issuers = issuers(&fake);
    let consumer = "https://consumer.example.com";
    issuers.replace(configuration(
        &[(ISSUER, &[URL, "bindery", "ci"]), (consumer, &[URL])],
        "",
    ));
    let own = [URL.to_owned()];
    let both = Login {
        issuer: ISSUER.to_owned(),
        client_id: "bindery".to_owned(),
        authorization_code: true,
        device_code: true,
    };
    assert_eq!(
        issuers.logins(&own),
        std::slice::from_ref(&both),
        "both flows, until the issuer was asked"
    );
    assert_eq!(issuers.of_service_accounts(&own), [ISSUER, consumer]);
    let document = json!({
        "issuer": ISSUER, "jwks_uri": format!("{ISSUER}/keys"), "authorization_endpoint": format!("{ISSUER}/auth"),
    });
    fake.publish(&[&SigningKey::ec("e")]);
    fake.serve(&discovery::url(ISSUER), &document.to_string());
    tokio::time::sleep(std::time::Duration::from_secs(5)).await;
    let browser = Login {
        device_code: false,
        ..both
    };
    assert_eq!(issuers.logins(&own), [browser]);
}

#[tokio::test(start_paused = true)]
async fn metrics_count_by_issuer_and_outcome() {
    let (fake, key) = (Arc::new(FakeIssuer::default()), SigningKey::ec("e"));
    fake.publish(&[&key]);
    let metrics = OidcMetrics::default();
    let mut registry = bindery_runtime::telemetry::registry();
    metrics.register(&mut registry);
    let served = Arc::clone(&fake);
    let issuers = Issuers::new(Arc::new(move |_| served.clone()), metrics.clone(), None);
    issuers.replace(configuration(&[(ISSUER, &["bindery"])], ""));
    metrics.loaded(true);
    let issuer = issuers.get(ISSUER).expect("an issuer");
    for changes in [json!({}), json!({"aud": "x"}), json!({"exp": 1})] {
        let _ = issuer.verify(&key.token(&claims(&changes))).await;
    }
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).expect("text");
    for line in [
        format!(r#"bindery_oidc_verifications_total{{issuer="{ISSUER}",outcome="accepted"}} 1"#),
        format!(r#"bindery_oidc_verifications_total{{issuer="{ISSUER}",outcome="audience"}} 1"#),
        format!(r#"bindery_oidc_verifications_total{{issuer="{ISSUER}",outcome="expired"}} 1"#),
        format!(r#"bindery_oidc_key_fetches_total{{issuer="{ISSUER}",outcome="ok"}} 1"#),
        format!(r#"bindery_oidc_keys{{issuer="{ISSUER}"}} 1"#),
        r#"bindery_oidc_config_loads_total{outcome="ok"} 1"#.to_owned(),
    ] {
        assert!(text.lines().any(|found| found == line), "{line} is missing in\n{text}");
    }
}
