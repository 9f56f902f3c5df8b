use serde_json::{Value, json};

use super::*;
use crate::oidc::{
    Issuers,
    config::{Configuration, InlineKeys, Surroundings},
    tests_support::{FakeIssuer, ISSUER, SigningKey, claims},
};

/// An issuer in memory, and the server's side of it.
struct World {
    fake: Arc<FakeIssuer>,
    issuer: Arc<Issuer>,
    _issuers: Issuers,
}

fn world(fake: FakeIssuer, surroundings: &Surroundings) -> World {
    let fake = Arc::new(fake);
    let served = Arc::clone(&fake);
    let issuers = Issuers::new(Arc::new(move |_| served.clone()), OidcMetrics::default(), None);
    let text = format!(
        "apiVersion: apiserver.config.k8s.io/v1\nkind: AuthenticationConfiguration\njwt:\n- issuer: {{url: \"{ISSUER}\", audiences: \
         [bindery]}}\n  claimMappings: {{username: {{claim: email, prefix: \"\"}}, groups: {{claim: groups, prefix: \"\"}}}}\n"
    );
    issuers.replace(Configuration::parse(&text, surroundings).expect("a configuration"));
    World {
        fake,
        issuer: issuers.get(ISSUER).expect("an issuer"),
        _issuers: issuers,
    }
}

fn with_keys(keys: &[&SigningKey]) -> World {
    let fake = FakeIssuer::default();
    fake.publish(keys);
    world(fake, &Surroundings::default())
}

impl World {
    async fn refused(&self, token: &str, expect: &TokenRefusal) {
        let refusal = self
            .issuer
            .verify(token)
            .await
            .expect("a verdict")
            .expect_err("a refusal");
        assert_eq!(&refusal, expect);
        let said = refusal.to_string();
        let parts = token.split('.').filter(|part| part.len() > 8);
        for part in parts.chain(["1234", "jane@example.com"]) {
            assert!(!said.contains(part), "{said}");
        }
    }

    async fn accepted(&self, token: &str) -> VerifiedUser {
        self.issuer.verify(token).await.expect("a verdict").expect("a user")
    }
}

#[tokio::test(start_paused = true)]
async fn tokens_of_each_kind_of_key_are_accepted_and_cost_no_request() {
    let keys = [SigningKey::rsa("r"), SigningKey::ec("e"), SigningKey::ed("d")];
    let world = with_keys(&keys.each_ref());
    for key in &keys {
        let verified = world.accepted(&key.token(&claims(&json!({})))).await;
        assert_eq!(verified.user.username, "jane@example.com");
        assert_eq!(verified.user.groups, ["team-a", "team-b"]);
        assert_eq!((verified.issuer.as_str(), verified.subject.as_str()), (ISSUER, "1234"));
    }
    assert_eq!(world.fake.requests(), 2, "one discovery document and one key set");
    for _ in 0..100 {
        world.accepted(&keys[1].token(&claims(&json!({})))).await;
    }
    assert_eq!(world.fake.requests(), 2);
}

#[tokio::test(start_paused = true)]
async fn forged_tokens_are_refused() {
    let (rsa, stranger) = (SigningKey::rsa("r"), SigningKey::rsa("r"));
    let world = with_keys(&[&rsa]);
    let good = rsa.token(&claims(&json!({})));
    world.accepted(&good).await;

    let (message, signature) = good.rsplit_once('.').expect("a JWT");
    let unsigned = |header: &Value| {
        use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
        let (_, payload) = message.split_once('.').expect("a JWT");
        format!("{}.{payload}.", URL_SAFE_NO_PAD.encode(header.to_string()))
    };
    world
        .refused(&unsigned(&json!({"alg": "none"})), &TokenRefusal::Algorithm)
        .await;
    // The public key as the secret of an HMAC, in the form that everybody can read.
    let secret = jsonwebtoken::EncodingKey::from_secret(rsa.jwk()["n"].as_str().expect("n").as_bytes());
    let mut header = jsonwebtoken::Header::new(jsonwebtoken::Algorithm::HS256);
    header.kid = Some("r".to_owned());
    let hmac = jsonwebtoken::encode(&header, &claims(&json!({})), &secret).expect("a token");
    world.refused(&hmac, &TokenRefusal::Algorithm).await;

    world
        .refused(&stranger.token(&claims(&json!({}))), &TokenRefusal::Signature)
        .await;
    let other = rsa.token(&claims(&json!({"sub": "5678"})));
    let (other, _) = other.rsplit_once('.').expect("a JWT");
    world
        .refused(&format!("{other}.{signature}"), &TokenRefusal::Signature)
        .await;
    world.refused(&format!("{message}."), &TokenRefusal::Signature).await;
    world.refused(&format!("{message}.!"), &TokenRefusal::Signature).await;
    let unknown = SigningKey::rsa("x").token(&claims(&json!({})));
    world.refused(&unknown, &TokenRefusal::KeyUnknown).await;
}

#[tokio::test(start_paused = true)]
async fn tokens_for_others_or_of_other_times_are_refused() {
    let key = SigningKey::ec("e");
    let world = with_keys(&[&key]);
    let now = Timestamp::now().as_second();
    let expected = || vec!["bindery".to_owned()];
    let claim = |text: &'static str| TokenRefusal::Claim(text.into());
    for (change, refusal) in [
        (
            json!({"aud": "other-client"}),
            TokenRefusal::Audience { expected: expected() },
        ),
        (json!({"aud": null}), TokenRefusal::Audience { expected: expected() }),
        (
            json!({"azp": "other-client"}),
            TokenRefusal::OtherClient { expected: expected() },
        ),
        (json!({"exp": now - 1}), TokenRefusal::Expired),
        (json!({"exp": null}), TokenRefusal::NoExpiry),
        (json!({"nbf": now + 3600}), TokenRefusal::NotYetValid),
        (json!({"sub": null}), claim("it has no subject (sub)")),
        (json!({"sub": 1}), claim("it has no subject (sub)")),
        (json!({"iss": "https://other.example.com"}), TokenRefusal::Malformed),
    ] {
        world.refused(&key.token(&claims(&change)), &refusal).await;
    }
    let access = key.token_with(|header| header.typ = Some("at+jwt".to_owned()), &claims(&json!({})));
    world.refused(&access, &TokenRefusal::Type).await;
}

#[tokio::test(start_paused = true)]
async fn a_token_without_a_key_id_is_tried_with_each_key() {
    let (one, other) = (SigningKey::ec("1"), SigningKey::ec("2"));
    let world = with_keys(&[&one, &other]);
    let token = other.token_with(|header| header.kid = None, &claims(&json!({})));
    world.accepted(&token).await;
}

#[tokio::test(start_paused = true)]
async fn a_new_key_is_fetched_when_a_token_is_signed_with_it() {
    let (old, new) = (SigningKey::ec("old"), SigningKey::ec("new"));
    let world = with_keys(&[&old]);
    world.accepted(&old.token(&claims(&json!({})))).await;
    tokio::time::sleep(std::time::Duration::from_secs(20)).await;
    world.fake.publish(&[&new]);
    world.accepted(&new.token(&claims(&json!({})))).await;
    world
        .refused(&old.token(&claims(&json!({}))), &TokenRefusal::KeyUnknown)
        .await;
    assert_eq!(world.fake.requests(), 4);
}

#[tokio::test(start_paused = true)]
async fn the_keys_of_an_issuer_that_is_down_stay_in_use() {
    let (key, new) = (SigningKey::ec("e"), SigningKey::ec("new"));
    let world = with_keys(&[&key]);
    world.accepted(&key.token(&claims(&json!({})))).await;
    world.fake.set_down(true);
    tokio::time::sleep(std::time::Duration::from_hours(2)).await;
    world.accepted(&key.token(&claims(&json!({})))).await;
    let unreachable = Err(IssuerUnreachable(ISSUER.to_owned()));
    assert_eq!(world.issuer.verify(&new.token(&claims(&json!({})))).await, unreachable);
}

#[tokio::test(start_paused = true)]
async fn an_issuer_that_is_dead_or_slow_at_the_start_is_taken_when_it_answers() {
    let key = SigningKey::ec("e");
    let fake = FakeIssuer::default();
    fake.publish(&[&key]);
    fake.set_down(true);
    let world = world(fake, &Surroundings::default());
    let token = key.token(&claims(&json!({})));
    let unreachable = Err(IssuerUnreachable(ISSUER.to_owned()));
    assert_eq!(world.issuer.verify(&token).await, unreachable);
    world.fake.set_down(false);
    tokio::time::sleep(std::time::Duration::from_secs(3)).await;
    world.accepted(&token).await;

    let slow = with_keys(&[&key]);
    slow.fake.set_delay(std::time::Duration::from_secs(8));
    let before = tokio::time::Instant::now();
    assert_eq!(slow.issuer.verify(&token).await, unreachable);
    assert!(
        before.elapsed() < std::time::Duration::from_secs(4),
        "a call does not wait for a slow issuer"
    );
    tokio::time::sleep(std::time::Duration::from_secs(20)).await;
    slow.accepted(&token).await;
}

#[tokio::test(start_paused = true)]
async fn inline_keys_make_no_request_at_all() {
    let (key, stranger) = (SigningKey::rsa("r"), SigningKey::rsa("x"));
    let text = json!({"keys": [key.jwk()]}).to_string().into_bytes();
    let surroundings = Surroundings {
        keys: vec![(ISSUER.to_owned(), InlineKeys::parse(text).expect("keys"))],
        own_issuer: None,
    };
    let world = world(FakeIssuer::default(), &surroundings);
    world.accepted(&key.token(&claims(&json!({})))).await;
    world
        .refused(&stranger.token(&claims(&json!({}))), &TokenRefusal::KeyUnknown)
        .await;
    tokio::time::sleep(std::time::Duration::from_hours(1)).await;
    assert_eq!(world.fake.requests(), 0);
}
