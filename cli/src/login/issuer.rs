//! One issuer: what it publishes about itself, the check of its ID tokens, refresh and revocation.

mod answer;
mod redact;

use jiff::{SignedDuration, Timestamp};
use openidconnect::{
    AdditionalProviderMetadata, ClientId, DeviceAuthorizationUrl, DiscoveryError, EndpointNotSet, EndpointSet,
    IssuerUrl, Nonce, NonceVerifier, OAuth2TokenResponse as _, ProviderMetadata, RefreshToken, RequestTokenError,
    RevocationUrl, Scope, TokenResponse as _, TokenUrl,
    core::{
        CoreAuthDisplay, CoreClaimName, CoreClaimType, CoreClient, CoreClientAuthMethod, CoreGrantType, CoreJsonWebKey,
        CoreJweContentEncryptionAlgorithm, CoreJweKeyManagementAlgorithm, CoreJwsSigningAlgorithm, CoreResponseMode,
        CoreResponseType, CoreRevocableToken, CoreSubjectIdentifierType, CoreTokenResponse,
    },
    url::Url,
};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize};

use super::{
    choice::checked_url,
    error::LoginError,
    http::{HttpError, IssuerHttp},
    store::{IssuerPin, StoredTokens},
};
pub(super) use answer::of_token_request;
pub(super) use redact::redacted;

/// Algorithms of signatures by a key pair. With a shared secret, everybody who knows the client could sign.
const ALGORITHMS: [CoreJwsSigningAlgorithm; 9] = [
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha256,
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha384,
    CoreJwsSigningAlgorithm::RsaSsaPkcs1V15Sha512,
    CoreJwsSigningAlgorithm::RsaSsaPssSha256,
    CoreJwsSigningAlgorithm::RsaSsaPssSha384,
    CoreJwsSigningAlgorithm::RsaSsaPssSha512,
    CoreJwsSigningAlgorithm::EcdsaP256Sha256,
    CoreJwsSigningAlgorithm::EcdsaP384Sha384,
    CoreJwsSigningAlgorithm::EdDsa,
];

/// Scopes that a server names unless its admin says otherwise, beside `openid`.
const DEFAULT_SCOPES: [&str; 4] = ["profile", "email", "groups", "offline_access"];

/// A refresh begins this long before the token expires, or after three quarters of a shorter life.
const REFRESH_BEFORE: SignedDuration = SignedDuration::from_secs(60);

/// An issuer whose configuration and keys were read, and the client that the user logs in to.
#[derive(Debug)]
pub(crate) struct Issuer {
    pub(super) http: IssuerHttp,
    pub(super) client: LoginClient,
    url: String,
    client_id: String,
    device: Option<DeviceAuthorizationUrl>,
    revocation: Option<RevocationUrl>,
    /// The scopes that the issuer publishes; empty if it publishes none.
    scopes: Vec<Scope>,
}

/// Why a refresh failed.
#[derive(Debug)]
pub(crate) struct RefreshFailure {
    pub(crate) error: LoginError,
    /// The former tokens with the refresh token that the issuer gave with an answer which is refused. They have to be kept, because
    /// the issuer may have made the former refresh token void.
    pub(crate) rotated: Option<Box<StoredTokens>>,
}

impl From<LoginError> for RefreshFailure {
    /// A failure without an answer of the issuer.
    fn from(error: LoginError) -> Self {
        Self { error, rotated: None }
    }
}

/// A client with the endpoints of each login.
pub(super) type LoginClient =
    CoreClient<EndpointSet, EndpointNotSet, EndpointNotSet, EndpointNotSet, EndpointSet, EndpointNotSet>;

/// Endpoints that OpenID Connect Discovery itself does not name.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct OtherEndpoints {
    #[serde(default)]
    device_authorization_endpoint: Option<DeviceAuthorizationUrl>,
    #[serde(default)]
    revocation_endpoint: Option<RevocationUrl>,
}

impl AdditionalProviderMetadata for OtherEndpoints {}

type Metadata = ProviderMetadata<
    OtherEndpoints,
    CoreAuthDisplay,
    CoreClientAuthMethod,
    CoreClaimName,
    CoreClaimType,
    CoreGrantType,
    CoreJweContentEncryptionAlgorithm,
    CoreJweKeyManagementAlgorithm,
    CoreJsonWebKey,
    CoreResponseMode,
    CoreResponseType,
    CoreSubjectIdentifierType,
>;

impl Issuer {
    /// Reads configuration and keys of an issuer.
    pub(crate) async fn discover(pin: &IssuerPin) -> Result<Self, LoginError> {
        let url = checked_url(&pin.url)?;
        let at = |source| LoginError::Http {
            issuer: pin.url.clone(),
            source,
        };
        let http = IssuerHttp::new(pin.certificate_authority.as_deref()).map_err(at)?;
        let metadata = Metadata::discover_async(url.clone(), &http).await;
        let metadata = metadata.map_err(|error| discovery_error(&pin.url, error))?;
        Self::new(http, &url, &pin.client_id, &metadata)
    }

    fn new(http: IssuerHttp, url: &IssuerUrl, client_id: &str, metadata: &Metadata) -> Result<Self, LoginError> {
        let token_uri: &TokenUrl = metadata.token_endpoint().ok_or_else(|| LoginError::Discovery {
            issuer: url.to_string(),
            fault: "it names no token endpoint".to_owned(),
        })?;
        let other = metadata.additional_metadata();
        let endpoints = [
            (
                "the authorization endpoint",
                Some(metadata.authorization_endpoint().url()),
            ),
            ("the token endpoint", Some(token_uri.url())),
            (
                "the device endpoint",
                other
                    .device_authorization_endpoint
                    .as_ref()
                    .map(DeviceAuthorizationUrl::url),
            ),
            (
                "the revocation endpoint",
                other.revocation_endpoint.as_ref().map(RevocationUrl::url),
            ),
        ];
        for (what, endpoint) in endpoints {
            check_endpoint(what, endpoint)?;
        }
        let id = ClientId::new(client_id.to_owned());
        let client = CoreClient::new(id, url.clone(), metadata.jwks().clone())
            .set_auth_uri(metadata.authorization_endpoint().clone())
            .set_token_uri(token_uri.clone());
        Ok(Self {
            http,
            client,
            url: url.as_str().to_owned(),
            client_id: client_id.to_owned(),
            device: other.device_authorization_endpoint.clone(),
            revocation: other.revocation_endpoint.clone(),
            scopes: metadata.scopes_supported().cloned().unwrap_or_default(),
        })
    }

    /// URL of the issuer.
    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The endpoint of the device flow, if the issuer has one.
    pub(crate) fn device_endpoint(&self) -> Option<&DeviceAuthorizationUrl> {
        self.device.as_ref()
    }

    /// The scopes to ask for, of those that the server names. [`DEFAULT_SCOPES`] that a published list does not have are left out,
    /// because issuers refuse a login with an unknown one. Other scopes are asked for in any case: the provider's admin chose them
    /// for the issuer, which may support more than it publishes.
    pub(super) fn scopes(&self, names: &[String]) -> Vec<Scope> {
        let has = |name: &str| self.scopes.iter().any(|scope| scope.as_str() == name);
        let names = names
            .iter()
            .filter(|name| self.scopes.is_empty() || !DEFAULT_SCOPES.contains(&name.as_str()) || has(name));
        names.cloned().map(Scope::new).collect()
    }

    /// Checks the ID token of an answer: its signature, issuer, audience, times and nonce. `server` is what the tokens are for.
    pub(super) fn tokens(
        &self,
        server: &str,
        answer: &CoreTokenResponse,
        nonce: impl NonceVerifier,
    ) -> Result<StoredTokens, LoginError> {
        let issuer = || self.url.clone();
        let id_token = answer
            .id_token()
            .ok_or_else(|| LoginError::NoIdToken { issuer: issuer() })?;
        // Other audiences are for the server to judge, which gets the token.
        let verifier = self.client.id_token_verifier().set_allowed_algs(ALGORITHMS);
        let verifier = verifier.set_other_audience_verifier_fn(|_| true);
        let claims = id_token.claims(&verifier, nonce).map_err(|error| LoginError::IdToken {
            issuer: issuer(),
            fault: answer::id_token_fault(&error),
        })?;
        let (from, until) = (claims.issue_time().timestamp(), claims.expiration().timestamp());
        let times = Times::new(Timestamp::now(), from, until).ok_or_else(|| LoginError::IdToken {
            issuer: issuer(),
            fault: "its times are out of range".to_owned(),
        })?;
        Ok(StoredTokens {
            server: server.to_owned(),
            issuer: issuer(),
            client_id: self.client_id.clone(),
            subject: claims.subject().to_string(),
            expires_at: times.expires_at,
            refresh_at: times.refresh_at,
            id_token: SecretString::from(id_token.to_string()),
            refresh_token: answer
                .refresh_token()
                .map(|token| SecretString::from(token.secret().as_str())),
        })
    }

    /// Asks for new tokens. An issuer may make the former refresh token void with that.
    pub(crate) async fn refresh(&self, former: &StoredTokens) -> Result<StoredTokens, RefreshFailure> {
        let answer = self.ask_to_refresh(former).await?;
        self.refreshed(former, &answer).map_err(|error| {
            let given = answer
                .refresh_token()
                .map(|token| SecretString::from(token.secret().as_str()));
            // The refresh token of another user is none of this login.
            let given = given.filter(|_| !matches!(error, LoginError::OtherUser { .. }));
            let rotated = given.map(|refresh_token| {
                Box::new(StoredTokens {
                    refresh_token: Some(refresh_token),
                    ..former.clone()
                })
            });
            RefreshFailure { error, rotated }
        })
    }

    async fn ask_to_refresh(&self, former: &StoredTokens) -> Result<CoreTokenResponse, LoginError> {
        let ended = |why: String| LoginError::Ended {
            server: former.server.clone(),
            why,
        };
        let Some(secret) = &former.refresh_token else {
            return Err(ended(format!(
                "issuer {} gave no refresh token, and the ID token has expired",
                self.url
            )));
        };
        let refresh_token = RefreshToken::new(secret.expose_secret().to_owned());
        let asked = self
            .client
            .exchange_refresh_token(&refresh_token)
            .request_async(&self.http)
            .await;
        asked.map_err(|error| match &error {
            RequestTokenError::ServerResponse(refused) if answer::is_invalid_grant(refused) => {
                let text = redacted(&refused.to_string(), &[secret.expose_secret()]);
                ended(format!("issuer {} does not refresh it any more ({text})", self.url))
            }
            _ => of_token_request(&self.url, &error, &[secret.expose_secret()]),
        })
    }

    /// Checks the answer to a refresh.
    fn refreshed(&self, former: &StoredTokens, answer: &CoreTokenResponse) -> Result<StoredTokens, LoginError> {
        let mut tokens = match self.tokens(&former.server, answer, |_: Option<&Nonce>| Ok(())) {
            Err(LoginError::NoIdToken { .. }) => {
                return Err(LoginError::Ended {
                    server: former.server.clone(),
                    why: format!("issuer {} refreshes it without an ID token", self.url),
                });
            }
            tokens => tokens?,
        };
        if tokens.subject != former.subject {
            return Err(LoginError::OtherUser {
                issuer: self.url.clone(),
            });
        }
        // An issuer that gives no new refresh token means the former one to go on.
        tokens.refresh_token = tokens.refresh_token.or_else(|| former.refresh_token.clone());
        Ok(tokens)
    }

    /// Makes the refresh token void. Returns whether the issuer has an endpoint for that.
    pub(crate) async fn revoke(&self, refresh_token: &SecretString) -> Result<bool, LoginError> {
        let Some(endpoint) = &self.revocation else {
            return Ok(false);
        };
        let client = self.client.clone().set_revocation_url(endpoint.clone());
        let secret = refresh_token.expose_secret();
        let token = CoreRevocableToken::from(RefreshToken::new(secret.to_owned()));
        let request = client.revoke_token(token).map_err(|_| LoginError::Url {
            what: "the revocation endpoint",
            url: endpoint.to_string(),
        })?;
        let answer = request.request_async(&self.http).await;
        answer.map_err(|error| of_token_request(&self.url, &error, &[secret]))?;
        Ok(true)
    }
}

/// When a token expires and is to be refreshed, by the clock of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Times {
    expires_at: Timestamp,
    refresh_at: Timestamp,
}

impl Times {
    /// The times of a token that was received now, by seconds that the issuer's clock shows. The clock of this machine may be
    /// behind: then the token expires when its lifetime has passed here.
    fn new(now: Timestamp, issued: i64, expires: i64) -> Option<Self> {
        let lifetime = expires.checked_sub(issued).filter(|lifetime| *lifetime > 0);
        let by_clock = Timestamp::from_second(expires).ok()?;
        let by_lifetime = lifetime.and_then(|seconds| now.checked_add(SignedDuration::from_secs(seconds)).ok());
        let expires_at = by_lifetime.map_or(by_clock, |by_lifetime| by_lifetime.min(by_clock));
        let before = REFRESH_BEFORE.min(expires_at.duration_since(now) / 4);
        Some(Self {
            expires_at,
            refresh_at: expires_at.checked_sub(before).ok()?,
        })
    }
}

fn check_endpoint(what: &'static str, endpoint: Option<&Url>) -> Result<(), LoginError> {
    match endpoint {
        Some(endpoint) if endpoint.scheme() != "https" => Err(LoginError::Url {
            what,
            url: endpoint.to_string(),
        }),
        _ => Ok(()),
    }
}

fn discovery_error(issuer: &str, error: DiscoveryError<HttpError>) -> LoginError {
    let issuer = issuer.to_owned();
    let fault = match error {
        DiscoveryError::Request(source) => return LoginError::Http { issuer, source },
        DiscoveryError::Parse(error) => {
            let error = redacted(&error.to_string(), &[]);
            format!("its configuration or its keys are not valid: {error}")
        }
        DiscoveryError::Response(_, _, message)
        | DiscoveryError::Validation(message)
        | DiscoveryError::Other(message) => redacted(&message, &[]),
        _ => "its configuration cannot be read".to_owned(),
    };
    LoginError::Discovery { issuer, fault }
}

#[cfg(test)]
mod tests;
