//! Decides without I/O where and how the user logs in: the issuer among those that the server names, and the flow.

use std::path::Path;

use bindery_proto::v1alpha2::{OidcAuthentication, OidcFlow, Provider, authentication_method::Method};
use openidconnect::IssuerUrl;

use super::{
    browser::Surroundings,
    error::LoginError,
    store::{IssuerPin, KnownServer},
};

/// Where the user logs in.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Offer {
    /// The issuer and the client, as they are kept for the next login.
    pub(crate) pin: IssuerPin,
    /// The scopes to ask for, without `openid`, which is always asked for.
    pub(crate) scopes: Vec<String>,
    /// The flows that the server offers; empty if it does not say.
    flows: Vec<OidcFlow>,
}

/// How the user logs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Authorization code, with a browser that reaches the loopback of this machine, or with its redirect pasted.
    Code,
    /// Device code, on any other device.
    Device,
}

/// The issuers that a server lets people log in at, best first.
fn offered(provider: &Provider) -> Vec<&OidcAuthentication> {
    let methods = provider.authentication_methods.iter();
    let oidc = methods.filter_map(|method| match &method.method {
        Some(Method::Oidc(oidc)) => Some(oidc),
        _ => None,
    });
    oidc.collect()
}

/// Chooses the issuer: the one of the first login, or the one that the user names with `--issuer`. A server that names another
/// issuer or client than at the first login is refused unless the user names the issuer.
pub(crate) fn issuer(
    server: &str,
    provider: &Provider,
    known: Option<&KnownServer>,
    (named, authority): (Option<&str>, Option<&Path>),
) -> Result<Offer, LoginError> {
    let offered = offered(provider);
    let server = || server.to_owned();
    let issuers = || offered.iter().map(|oidc| oidc.issuer.clone()).collect();
    let pinned = known.map(|known| &known.issuer);
    let wanted = named.or_else(|| pinned.map(|pin| pin.url.as_str()));
    let found = match (offered.as_slice(), wanted) {
        ([], _) => return Err(LoginError::NotOffered { server: server() }),
        (all, Some(wanted)) => all.iter().find(|oidc| oidc.issuer == wanted),
        ([only], None) => Some(only),
        (_, None) => {
            return Err(LoginError::Several {
                server: server(),
                issuers: issuers(),
            });
        }
    };
    let Some(found) = found else {
        return Err(match (named, pinned) {
            (None, Some(pin)) => LoginError::IssuerChanged {
                server: server(),
                pinned: pin.url.clone(),
                now: offered.first().map(|oidc| oidc.issuer.clone()).unwrap_or_default(),
            },
            _ => LoginError::OtherIssuer {
                server: server(),
                issuer: named.unwrap_or_default().to_owned(),
                issuers: issuers(),
            },
        });
    };
    if let (None, Some(pin)) = (named, pinned)
        && pin.client_id != found.client_id
    {
        return Err(LoginError::ClientChanged {
            server: server(),
            issuer: pin.url.clone(),
            pinned: pin.client_id.clone(),
            now: found.client_id.clone(),
        });
    }
    // A CA that was given for this issuer before goes on being used.
    let kept = pinned.filter(|pin| pin.url == found.issuer);
    let kept = kept.and_then(|pin| pin.certificate_authority.clone());
    checked_url(&found.issuer)?;
    Ok(Offer {
        pin: IssuerPin {
            url: found.issuer.clone(),
            client_id: found.client_id.clone(),
            certificate_authority: authority.map(Path::to_owned).or(kept),
        },
        scopes: found
            .scopes
            .iter()
            .filter(|scope| *scope != "openid")
            .cloned()
            .collect(),
        flows: found.flows().filter(|flow| *flow != OidcFlow::Unspecified).collect(),
    })
}

/// The URL of an issuer, which must be one of TLS.
pub(crate) fn checked_url(url: &str) -> Result<IssuerUrl, LoginError> {
    let parsed = IssuerUrl::new(url.to_owned()).ok();
    let usable = parsed.filter(|parsed| parsed.url().scheme() == "https" && parsed.url().username().is_empty());
    usable.ok_or_else(|| LoginError::Url {
        what: "the URL of the issuer",
        url: url.to_owned(),
    })
}

/// Chooses the flow: what the user asks for, or else by device code where a browser would open on no display of the user's.
/// `has_device_flow` says whether the issuer has one.
pub(crate) fn flow(
    server: &str,
    offer: &Offer,
    has_device_flow: bool,
    (device, no_browser): (bool, bool),
    surroundings: &Surroundings,
) -> Result<Flow, LoginError> {
    let offers = |flow| offer.flows.is_empty() || offer.flows.contains(&flow);
    let not_offered = |flow| LoginError::FlowNotOffered {
        server: server.to_owned(),
        flow,
    };
    let no_device_flow = || LoginError::NoDeviceFlow {
        issuer: offer.pin.url.clone(),
    };
    let by_device = offers(OidcFlow::DeviceCode) && has_device_flow;
    let by_code = offers(OidcFlow::AuthorizationCode);
    match (device, no_browser) {
        (true, _) if by_device => Ok(Flow::Device),
        (true, _) if has_device_flow => Err(not_offered("device code")),
        (false, true) if !by_code => Err(not_offered("browser")),
        (false, false) if by_device && !(by_code && surroundings.has_display()) => Ok(Flow::Device),
        (false, _) if by_code => Ok(Flow::Code),
        _ => Err(no_device_flow()),
    }
}

#[cfg(test)]
mod tests;
