use futures::future::join_all;

use super::*;
use crate::oidc::{
    config::{Configuration, Surroundings},
    tests_support::{FakeIssuer, ISSUER, SigningKey},
};

fn cache(fake: &Arc<FakeIssuer>) -> KeyCache {
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n- issuer: {{url: \"{ISSUER}\", audiences: \
         [bindery]}}\n  claimMappings: {{username: {{claim: sub, prefix: \"\"}}}}\n"
    );
    let read = Configuration::parse(&text, &Surroundings::default()).expect("a configuration");
    let fetch: Arc<dyn Fetch> = fake.clone();
    KeyCache::start(&read.issuers[0].keys, &fetch, &OidcMetrics::default())
}

#[tokio::test(start_paused = true)]
async fn a_crowd_of_unknown_keys_costs_few_fetches() {
    let fake = Arc::new(FakeIssuer::default());
    fake.publish(&[&SigningKey::ec("e")]);
    let cache = cache(&fake);
    join_all((0..1_000).map(|_| cache.refreshed())).await;
    assert_eq!(fake.requests(), 2, "one fetch for all");
    for _ in 0..600 {
        cache.refreshed().await;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // A minute, in which a fetch begins every ten seconds at most.
    assert!((10..=14).contains(&fake.requests()), "{}", fake.requests());
}

#[tokio::test(start_paused = true)]
async fn keys_are_fetched_again_though_nobody_asks() {
    let fake = Arc::new(FakeIssuer::default());
    fake.publish(&[&SigningKey::ec("e")]);
    let cache = cache(&fake);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(cache.current().map(|keys| keys.len()), Some(1));
    fake.publish(&[&SigningKey::ec("e"), &SigningKey::ec("f")]);
    tokio::time::sleep(FETCH_EVERY).await;
    assert_eq!(cache.current().map(|keys| keys.len()), Some(2));
    assert_eq!(fake.requests(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_dead_issuer_is_tried_less_and_less_and_delays_nobody() {
    let fake = Arc::new(FakeIssuer::default());
    fake.set_down(true);
    let cache = cache(&fake);
    tokio::time::sleep(Duration::from_mins(10)).await;
    // 2, 4, 8, 16 and 32 s, then a minute each.
    assert!((13..=19).contains(&fake.requests()), "{}", fake.requests());
    let before = Instant::now();
    assert!(matches!(cache.refreshed().await, Refreshed::Failed));
    assert!(before.elapsed() < Duration::from_millis(1));
    fake.publish(&[&SigningKey::ec("e")]);
    fake.set_down(false);
    tokio::time::sleep(RETRY_MAX).await;
    assert!(cache.current().is_some());
    let requests = fake.requests();
    drop(cache);
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(fake.requests(), requests, "the task ends with the cache");
}

#[tokio::test(start_paused = true)]
async fn a_key_set_that_is_wrong_later_does_not_replace_a_good_one() {
    let fake = Arc::new(FakeIssuer::default());
    let key = SigningKey::ec("e");
    fake.publish(&[&key]);
    let cache = cache(&fake);
    tokio::time::sleep(Duration::from_secs(1)).await;
    for wrong in [
        String::new(),
        "{\"keys\": [".to_owned(),
        serde_json::json!({"keys": vec![key.jwk(); 10_000]}).to_string(),
        serde_json::json!({"keys": []}).to_string(),
    ] {
        fake.serve(&format!("{ISSUER}/keys"), &wrong);
        let before = fake.requests();
        tokio::time::sleep(FETCH_EVERY).await;
        assert!(fake.requests() > before);
        assert_eq!(cache.current().map(|keys| keys.len()), Some(1));
    }
}
