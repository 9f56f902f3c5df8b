//! The device flow (RFC 8628): the user enters a short code on any device with a browser.

use std::time::Duration;

use openidconnect::{
    DeviceAuthorizationUrl, DeviceCodeErrorResponseType, Nonce, RequestTokenError,
    core::CoreDeviceAuthorizationResponse,
};
use tokio::time::timeout;

use super::{
    choice::Offer,
    error::LoginError,
    issuer::{Issuer, of_token_request},
    store::StoredTokens,
};

/// The issuer is not asked more often than this, whatever it allows.
const INTERVAL_MIN: Duration = Duration::from_secs(1);
/// The user has at most this long, whatever the issuer allows.
const EXPIRY_MAX: Duration = Duration::from_mins(30);

/// What the user has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Instructions {
    /// Page to open.
    pub(crate) url: String,
    /// Code to enter there.
    pub(crate) code: String,
    /// Page that knows the code already, if the issuer has one.
    pub(crate) complete_url: Option<String>,
}

/// How the wait between two requests passes. Tests wait shorter.
pub(crate) type Sleep = fn(Duration) -> futures::future::BoxFuture<'static, ()>;

/// Waits as long as it is told.
pub(crate) fn sleep(time: Duration) -> futures::future::BoxFuture<'static, ()> {
    Box::pin(tokio::time::sleep(time))
}

/// Logs in by device code. `show` gets what the user has to do. The user has until the code expires, or `patience` if that is
/// shorter.
pub(crate) async fn log_in(
    issuer: &Issuer,
    server: &str,
    offer: &Offer,
    patience: Option<Duration>,
    (show, sleep): (impl FnOnce(&Instructions), Sleep),
) -> Result<StoredTokens, LoginError> {
    let url = || issuer.url().to_owned();
    let endpoint: &DeviceAuthorizationUrl = issuer
        .device_endpoint()
        .ok_or_else(|| LoginError::NoDeviceFlow { issuer: url() })?;
    let client = issuer.client.clone().set_device_authorization_url(endpoint.clone());
    let asked = client.exchange_device_code().add_scopes(issuer.scopes(&offer.scopes));
    let asked: Result<CoreDeviceAuthorizationResponse, _> = asked.request_async(&issuer.http).await;
    let device = asked.map_err(|error| of_token_request(issuer.url(), &error, &[]))?;
    show(&Instructions {
        url: device.verification_uri().to_string(),
        code: device.user_code().secret().clone(),
        complete_url: device.verification_uri_complete().map(|url| url.secret().clone()),
    });
    let limit = device.expires_in().min(EXPIRY_MAX);
    let polls = client.exchange_device_access_token(&device);
    let polls = polls.request_async(&issuer.http, move |time| sleep(time.max(INTERVAL_MIN)), Some(limit));
    let limit = patience.map_or(limit, |patience| patience.min(limit));
    let Ok(answer) = timeout(limit, polls).await else {
        return Err(match patience {
            Some(waited) if waited == limit => LoginError::TimedOut {
                issuer: url(),
                waited,
                ignored: 0,
            },
            _ => LoginError::CodeExpired { issuer: url() },
        });
    };
    let answer = answer.map_err(|error| match &error {
        RequestTokenError::ServerResponse(refused) => match refused.error() {
            DeviceCodeErrorResponseType::AccessDenied => LoginError::Denied { issuer: url() },
            DeviceCodeErrorResponseType::ExpiredToken => LoginError::CodeExpired { issuer: url() },
            _ => of_token_request(issuer.url(), &error, &[device.device_code().secret()]),
        },
        _ => of_token_request(issuer.url(), &error, &[device.device_code().secret()]),
    })?;
    // The request of a device has no nonce.
    issuer.tokens(server, &answer, |_: Option<&Nonce>| Ok(()))
}
