//! The authenticator of tokens of the provider cluster, which asks its API server by TokenReviews.

use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus};
use kube::{Api, Client, api::PostParams};

use crate::front::auth::{Authenticator, CheckError, Claims, Denial, Identity, Presented, Verdict};

/// How much clocks may differ. A token that expired longer ago is refused without a TokenReview.
const CLOCK_SKEW: SignedDuration = SignedDuration::from_secs(60);

/// Checks tokens by TokenReviews. It is responsible for any token, so it must be the last authenticator.
pub(crate) struct TokenReviewer {
    api: Api<TokenReview>,
    audiences: Vec<String>,
    own_issuer: Option<String>,
}

impl TokenReviewer {
    /// Checks tokens for these audiences. Errors name the first one. `own_issuer` is that of the cluster's ServiceAccounts, if it
    /// is known: refused tokens of others are told that their issuer is not trusted.
    pub(crate) fn new(client: Client, audiences: Vec<String>, own_issuer: Option<String>) -> Self {
        Self {
            api: Api::all(client),
            audiences,
            own_issuer,
        }
    }

    /// Says of a token of another issuer that this is why it is refused. An API server may have several issuers, of which it
    /// names the first; so the issuer is never the reason to refuse.
    fn explained(&self, claims: &Claims, denial: Denial) -> Denial {
        match (&self.own_issuer, &claims.issuer) {
            (Some(own), Some(issuer)) if own != issuer && denial != Denial::Expired => Denial::Issuer,
            _ => denial,
        }
    }
}

impl std::fmt::Debug for TokenReviewer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenReviewer")
            .field("audiences", &self.audiences)
            .finish_non_exhaustive()
    }
}

impl Authenticator for TokenReviewer {
    fn is_for(&self, _: &Claims) -> bool {
        true
    }

    fn precheck(&self, token: &Presented) -> Result<(), Denial> {
        let claims = token.claims();
        precheck(claims, &self.audiences, Timestamp::now()).map_err(|denial| self.explained(claims, denial))
    }

    fn check<'a>(&'a self, token: &'a Presented) -> BoxFuture<'a, Result<Verdict, CheckError>> {
        Box::pin(async {
            let review = TokenReview {
                spec: TokenReviewSpec {
                    token: Some(token.expose().to_owned()),
                    audiences: Some(self.audiences.clone()),
                },
                ..TokenReview::default()
            };
            let answer = self.api.create(&PostParams::default(), &review).await?;
            let (status, claims) = (answer.status.unwrap_or_default(), token.claims());
            let verdict = verdict(status, claims, &self.audiences, Timestamp::now());
            Ok(verdict.map_err(|denial| self.explained(claims, denial)))
        })
    }

    fn may_name_system(&self) -> bool {
        true
    }
}

fn audience_wrong(audiences: &[String]) -> Denial {
    Denial::Audience {
        expected: audiences.first().cloned().unwrap_or_default(),
    }
}

/// Refuses expired tokens, and tokens for other audiences: the API server, which might accept those, must not see them.
fn precheck(claims: &Claims, audiences: &[String], now: Timestamp) -> Result<(), Denial> {
    if !claims.audiences.iter().any(|audience| audiences.contains(audience)) {
        return Err(audience_wrong(audiences));
    }
    match claims.expires_at() {
        Some(end) if now.duration_since(end) > CLOCK_SKEW => Err(Denial::Expired),
        _ => Ok(()),
    }
}

fn verdict(status: TokenReviewStatus, claims: &Claims, audiences: &[String], now: Timestamp) -> Verdict {
    if status.authenticated != Some(true) {
        let expired = claims.expires_at().is_some_and(|end| end <= now);
        return Err(if expired {
            Denial::Expired
        } else {
            Denial::Invalid("the provider's API server refuses it".into())
        });
    }
    // An API server without support for audiences answers without them, which does not mean that they match.
    let granted = status.audiences.unwrap_or_default();
    if !granted.iter().any(|audience| audiences.contains(audience)) {
        return Err(audience_wrong(audiences));
    }
    let user = status.user.unwrap_or_default();
    let username = user.username.filter(|name| !name.is_empty());
    Ok(Identity {
        username: username.ok_or_else(|| Denial::Invalid("it belongs to nobody".into()))?,
        uid: user.uid.filter(|uid| !uid.is_empty()),
        groups: user.groups.unwrap_or_default(),
        extra: user.extra.unwrap_or_default(),
        expires_at: claims.expires_at(),
        source: None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::front::auth::bearer::tests::token;

    fn ours() -> Vec<String> {
        vec![
            "https://bind.example.com".to_owned(),
            "https://old.example.com".to_owned(),
        ]
    }

    fn now() -> Timestamp {
        Timestamp::from_second(1_000_000).expect("a time")
    }

    #[track_caller]
    fn check_before(claims: &Value, expect: Result<(), &Denial>) {
        let outcome = precheck(token(claims).claims(), &ours(), now());
        assert_eq!(outcome.as_ref().copied(), expect, "{claims}");
    }

    #[test]
    fn what_cannot_be_for_us_is_never_shown_to_the_api_server() {
        let wrong = audience_wrong(&ours());
        check_before(&json!({"aud": ["https://bind.example.com"]}), Ok(()));
        check_before(&json!({"aud": "https://old.example.com"}), Ok(()));
        check_before(&json!({"aud": ["x", "https://bind.example.com"]}), Ok(()));
        check_before(&json!({"aud": "https://kubernetes.default.svc"}), Err(&wrong));
        check_before(&json!({"aud": "https://bind.example.com/"}), Err(&wrong));
        check_before(&json!({}), Err(&wrong));
        let at = |exp: i64| json!({"aud": "https://bind.example.com", "exp": exp});
        check_before(&at(1_000_000 - 59), Ok(()));
        check_before(&at(1_000_000 - 61), Err(&Denial::Expired));
    }

    #[track_caller]
    fn check_after(status: Value, exp: i64, expect: Result<&str, &Denial>) {
        let status: TokenReviewStatus = serde_json::from_value(status).expect("a status");
        let outcome = verdict(status, token(&json!({"exp": exp})).claims(), &ours(), now());
        assert_eq!(outcome.as_ref().map(|identity| identity.username.as_str()), expect);
    }

    #[test]
    fn only_an_answer_that_names_our_audience_is_a_yes() {
        let user = json!({"username": "alice", "groups": ["team"]});
        let later = 2_000_000;
        let yes = json!({"authenticated": true, "audiences": ["https://bind.example.com"], "user": user});
        check_after(yes, later, Ok("alice"));
        let wrong = audience_wrong(&ours());
        check_after(json!({"authenticated": true, "user": user}), later, Err(&wrong));
        check_after(
            json!({"authenticated": true, "audiences": ["other"], "user": user}),
            later,
            Err(&wrong),
        );
        let refused = Denial::Invalid("the provider's API server refuses it".into());
        check_after(json!({"authenticated": false, "error": "why"}), later, Err(&refused));
        check_after(json!({}), later, Err(&refused));
        check_after(json!({}), 999_999, Err(&Denial::Expired));
        let nobody = json!({"authenticated": true, "audiences": ["https://bind.example.com"], "user": {}});
        check_after(nobody, later, Err(&Denial::Invalid("it belongs to nobody".into())));
    }

    #[tokio::test]
    async fn a_refused_token_of_another_issuer_is_told_so() {
        let config = kube::Config::new("https://kubernetes.example.com".parse().expect("a URL"));
        let told = |own: Option<&str>, claims: Value, denial: Denial| {
            let client = Client::try_from(config.clone()).expect("a client");
            let reviewer = TokenReviewer::new(client, ours(), own.map(ToOwned::to_owned));
            reviewer.explained(token(&claims).claims(), denial)
        };
        let wrong = || audience_wrong(&ours());
        let (own, stranger) = (json!({"iss": "https://own"}), json!({"iss": "https://other"}));
        assert_eq!(told(Some("https://own"), own, wrong()), wrong());
        assert_eq!(told(Some("https://own"), stranger.clone(), wrong()), Denial::Issuer);
        assert_eq!(
            told(Some("https://own"), stranger.clone(), Denial::Expired),
            Denial::Expired
        );
        assert_eq!(told(Some("https://own"), json!({}), wrong()), wrong());
        assert_eq!(told(None, stranger, wrong()), wrong());
    }
}
