//! A plain OpenID Connect client, written for these tests alone: it shares no code with the programs of the project.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use bindery_e2e::{
    browser::{Browser, Consent},
    issuers::{Issuer, IssuerUser},
};
use jsonwebtoken::{DecodingKey, Validation, decode, decode_header, jwk::JwkSet};
use rand::distr::{Alphanumeric, SampleString as _};
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, sleep};

use crate::redirect::Loopback;

/// What the tests ask for.
pub(crate) const SCOPES: &str = "openid profile email groups offline_access";
/// How long a device asks whether its person has answered.
const DEVICE_LIMIT: Duration = Duration::from_mins(1);
/// How long a device waits between two questions if the issuer does not say (RFC 8628, section 3.2).
const DEVICE_INTERVAL: u64 = 5;

/// A client of an issuer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Oidc<'a> {
    issuer: &'a Issuer,
    client: &'a str,
}

/// The answer of the token endpoint.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Tokens {
    #[serde(rename = "id_token")]
    pub(crate) id: String,
    #[serde(rename = "access_token")]
    pub(crate) access: String,
    #[serde(rename = "refresh_token")]
    refresh: Option<String>,
}

/// The answer of the device authorization endpoint.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Device {
    #[serde(rename = "device_code")]
    code: String,
    pub(crate) verification_uri_complete: String,
    interval: Option<u64>,
}

/// A login by the code flow that has begun.
#[derive(Clone, Debug)]
pub(crate) struct CodeLogin {
    /// The URL that the browser opens.
    pub(crate) url: String,
    redirect: String,
    verifier: String,
    state: String,
    pub(crate) nonce: String,
}

#[derive(Deserialize)]
struct Refusal {
    error: String,
}

/// The tokens, or the error code of OAuth 2.0.
pub(crate) type Outcome = Result<Tokens, String>;

impl Tokens {
    pub(crate) fn refresh(&self) -> Result<&str> {
        self.refresh.as_deref().context("there is no refresh token")
    }
}

impl<'a> Oidc<'a> {
    pub(crate) fn of(issuer: &'a Issuer, client: &'a str) -> Result<Self> {
        let named = issuer.discovery()["issuer"].as_str();
        ensure!(
            named == Some(issuer.url().as_str()),
            "the issuer calls itself {named:?}"
        );
        Ok(Self { issuer, client })
    }

    /// The whole code flow, with a person in a browser who consents.
    pub(crate) async fn login(self, browser: &Browser, user: &IssuerUser) -> Result<Tokens> {
        let loopback = Loopback::listen().await?;
        let login = self.begin(&loopback.url())?;
        let page = browser.page().await?;
        let sign_in = page.sign_in(&login.url, user, Consent::Allow);
        let (_, query) = tokio::try_join!(sign_in, loopback.redirected())?;
        let code = login.code(&query)?;
        let tokens = self.exchange(&login, &code).await?;
        tokens.map_err(|error| anyhow::anyhow!("the code is refused: {error}"))
    }

    /// Begins the code flow.
    pub(crate) fn begin(self, redirect: &str) -> Result<CodeLogin> {
        let [verifier, state, nonce] = [(); 3].map(|()| Alphanumeric.sample_string(&mut rand::rng(), 43));
        let challenge = URL_SAFE_NO_PAD.encode(Sha256::digest(&verifier));
        let query = form_urlencoded::Serializer::new(String::new())
            .extend_pairs([
                ("response_type", "code"),
                ("client_id", self.client),
                ("redirect_uri", redirect),
                ("scope", SCOPES),
                ("prompt", "consent"),
                ("state", &state),
                ("nonce", &nonce),
                ("code_challenge", &challenge),
                ("code_challenge_method", "S256"),
            ])
            .finish();
        Ok(CodeLogin {
            url: format!("{}?{query}", self.issuer.endpoint("authorization_endpoint")?),
            redirect: redirect.to_owned(),
            verifier,
            state,
            nonce,
        })
    }

    /// Exchanges a code for tokens.
    pub(crate) async fn exchange(self, login: &CodeLogin, code: &str) -> Result<Outcome> {
        self.token(&[
            ("grant_type", "authorization_code"),
            ("client_id", self.client),
            ("code", code),
            ("redirect_uri", &login.redirect),
            ("code_verifier", &login.verifier),
        ])
        .await
    }

    /// Exchanges a refresh token for tokens.
    pub(crate) async fn refresh(self, token: &str) -> Result<Outcome> {
        self.token(&[
            ("grant_type", "refresh_token"),
            ("client_id", self.client),
            ("refresh_token", token),
        ])
        .await
    }

    /// Revokes a refresh token.
    pub(crate) async fn revoke(self, token: &str) -> Result<()> {
        let url = self.issuer.endpoint("revocation_endpoint")?;
        let fields = [("client_id", self.client), ("token", token)];
        self.issuer.https().post_form(&url, &fields).await?.success()?;
        Ok(())
    }

    /// Begins the device flow.
    pub(crate) async fn device(self) -> Result<Device> {
        let url = self.issuer.endpoint("device_authorization_endpoint")?;
        let fields = [("client_id", self.client), ("scope", SCOPES)];
        self.issuer.https().post_form(&url, &fields).await?.success()?.json()
    }

    /// Asks once whether the person has answered.
    pub(crate) async fn poll(self, device: &Device) -> Result<Outcome> {
        self.token(&[
            ("grant_type", "urn:ietf:params:oauth:grant-type:device_code"),
            ("client_id", self.client),
            ("device_code", &device.code),
        ])
        .await
    }

    /// Asks until the person has answered, as often as the issuer permits.
    pub(crate) async fn wait_for_person(self, device: &Device) -> Result<Outcome> {
        let deadline = Instant::now() + DEVICE_LIMIT;
        let interval = Duration::from_secs(device.interval.unwrap_or(DEVICE_INTERVAL));
        while Instant::now() < deadline {
            match self.poll(device).await? {
                Err(error) if error == "authorization_pending" => sleep(interval).await,
                outcome => return Ok(outcome),
            }
        }
        bail!("nobody has answered for {DEVICE_LIMIT:?}")
    }

    /// Verifies an ID token with the keys that the issuer publishes now, and returns its claims.
    pub(crate) async fn verify(self, token: &str) -> Result<Value> {
        let keys = self.issuer.endpoint("jwks_uri")?;
        let keys: JwkSet = self.issuer.https().get(&keys).await?.success()?.json()?;
        let header = decode_header(token)?;
        let kid = header.kid.context("the token has no kid")?;
        let key = keys.find(&kid).with_context(|| format!("key {kid} is not published"))?;
        let mut validation = Validation::new(header.alg);
        validation.set_audience(&[self.client]);
        validation.set_issuer(&[self.issuer.url()]);
        Ok(decode(token, &DecodingKey::from_jwk(key)?, &validation)?.claims)
    }

    async fn token(self, fields: &[(&str, &str)]) -> Result<Outcome> {
        let url = self.issuer.endpoint("token_endpoint")?;
        let answer = self.issuer.https().post_form(&url, fields).await?;
        if answer.status.is_success() {
            return Ok(Ok(answer.json()?));
        }
        Ok(Err(answer.json::<Refusal>()?.error))
    }
}

impl CodeLogin {
    /// The code that the issuer has sent with the redirect, for this login.
    pub(crate) fn code(&self, query: &[(String, String)]) -> Result<String> {
        let value = |name: &str| {
            query
                .iter()
                .find(|(key, _)| key == name)
                .map(|(_, value)| value.clone())
        };
        ensure!(
            value("state").as_ref() == Some(&self.state),
            "the state is another's: {query:?}"
        );
        if let Some(error) = value("error") {
            bail!(error);
        }
        value("code").context("the redirect has no code")
    }
}
