//! Decides without I/O where and how the user logs in: the issuer among those that the server names, what the user has to confirm
//! first, and the flow.

use std::path::Path;

use bindery_proto::v1alpha2::{OidcAuthentication, OidcFlow, Provider, authentication_method::Method};
use openidconnect::IssuerUrl;

use super::{
    browser::Surroundings,
    error::LoginError,
    store::{IssuerPin, Servers},
};

/// Where the user logs in.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Offer {
    /// The issuer and the client, as they are kept for the next login.
    pub(crate) pin: IssuerPin,
    /// The host of the issuer, in ASCII.
    pub(crate) host: String,
    /// The scopes to ask for, without `openid`, which is always asked for.
    pub(crate) scopes: Vec<String>,
    /// The flows that the server offers; empty if it does not say.
    flows: Vec<OidcFlow>,
}

/// What the user names on the command line. Each choice confirms a change of its own kind alone.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Named<'a> {
    /// URL of the issuer.
    pub(crate) issuer: Option<&'a str>,
    /// The client at the issuer.
    pub(crate) client_id: Option<&'a str>,
    /// File with the CA of the issuer's certificate.
    pub(crate) authority: Option<&'a Path>,
}

/// Whether the user agrees to a login at this issuer with this client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Consent {
    /// The user has logged in so before, or has named what the server names.
    Given,
    /// The user is asked.
    Ask,
    /// The user would have to be asked, and there is no terminal.
    Missing,
}

/// How the user logs in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Authorization code, with a browser that reaches the loopback of this machine, or with its redirect pasted.
    Code,
    /// Device code, on any other device.
    Device,
}

/// Chooses the issuer: the one of the first login, or the one that the user names. A server that names another issuer or another
/// client than at the first login is refused unless the user names it. So is one that names the client of another server, because
/// its tokens open that server too.
pub(crate) fn issuer(
    server: &str,
    provider: &Provider,
    servers: &Servers,
    named: Named<'_>,
) -> Result<Offer, LoginError> {
    let pinned = servers.get(server).map(|known| &known.issuer);
    let found = found(server, &offered(server, provider)?, pinned, named)?;
    let host = host_of(&checked_url(&found.issuer)?);
    if let (None, Some(pin)) = (named.client_id, pinned)
        && pin.client_id != found.client_id
    {
        return Err(LoginError::ClientChanged {
            server: server.to_owned(),
            issuer: found.issuer.clone(),
            pinned: pin.client_id.clone(),
            now: found.client_id.clone(),
        });
    }
    let is_pinned = pinned.is_some_and(|pin| is_of(pin, found));
    let other = servers
        .servers
        .iter()
        .find(|other| other.address != server && is_of(&other.issuer, found));
    if let (None, false, Some(other)) = (named.client_id, is_pinned, other) {
        return Err(LoginError::ClientOfOther {
            server: server.to_owned(),
            other: other.address.clone(),
            issuer: found.issuer.clone(),
            client_id: found.client_id.clone(),
        });
    }
    // A CA that was given for this issuer before goes on being used.
    let kept = pinned.filter(|pin| pin.url == found.issuer);
    let kept = kept.and_then(|pin| pin.certificate_authority.clone());
    Ok(Offer {
        pin: IssuerPin {
            url: found.issuer.clone(),
            client_id: found.client_id.clone(),
            certificate_authority: named.authority.map(Path::to_owned).or(kept),
        },
        host,
        scopes: found
            .scopes
            .iter()
            .filter(|scope| *scope != "openid")
            .cloned()
            .collect(),
        flows: found.flows().filter(|flow| *flow != OidcFlow::Unspecified).collect(),
    })
}

/// Whether the user has to confirm issuer and client. `is_known` says whether the user has logged in to the server before: then
/// [`issuer`] has refused what the user has not confirmed. Without a terminal, the name of the issuer is enough.
pub(crate) fn consent(is_known: bool, named: Named<'_>, is_terminal: bool) -> Consent {
    match (named.issuer, named.client_id) {
        _ if is_known => Consent::Given,
        (Some(_), Some(_)) => Consent::Given,
        _ if is_terminal => Consent::Ask,
        (Some(_), None) => Consent::Given,
        (None, _) => Consent::Missing,
    }
}

/// The issuers that a server lets people log in at, best first, without those that no login can be made at.
fn offered<'a>(server: &str, provider: &'a Provider) -> Result<Vec<&'a OidcAuthentication>, LoginError> {
    let methods = provider.authentication_methods.iter();
    let oidc = methods.filter_map(|method| match &method.method {
        Some(Method::Oidc(oidc)) => Some(oidc),
        _ => None,
    });
    let mut refused = LoginError::NotOffered {
        server: server.to_owned(),
    };
    let mut usable = Vec::new();
    for oidc in oidc {
        match checked_url(&oidc.issuer).and_then(|_| check_client_id(server, &oidc.client_id)) {
            Ok(()) => usable.push(oidc),
            Err(error) => refused = error,
        }
    }
    if usable.is_empty() { Err(refused) } else { Ok(usable) }
}

/// The one of the offered issuers that the user names or has logged in at, or else the only one.
fn found<'a>(
    server: &str,
    offered: &[&'a OidcAuthentication],
    pinned: Option<&IssuerPin>,
    named: Named<'_>,
) -> Result<&'a OidcAuthentication, LoginError> {
    let server = || server.to_owned();
    let issuers = || offered.iter().map(|oidc| oidc.issuer.clone()).collect();
    let wanted = named.issuer.or_else(|| pinned.map(|pin| pin.url.as_str()));
    let of_issuer = |oidc: &&&OidcAuthentication| wanted.is_none_or(|wanted| oidc.issuer == wanted);
    let at_issuer: Vec<_> = offered.iter().filter(of_issuer).copied().collect();
    if at_issuer.is_empty() {
        return Err(match (named.issuer, pinned) {
            (None, Some(pin)) => LoginError::IssuerChanged {
                server: server(),
                pinned: pin.url.clone(),
                now: offered.first().map(|oidc| oidc.issuer.clone()).unwrap_or_default(),
            },
            _ => LoginError::OtherIssuer {
                server: server(),
                issuer: named.issuer.unwrap_or_default().to_owned(),
                issuers: issuers(),
            },
        });
    }
    let with_client = |client_id: &str| at_issuer.iter().find(|oidc| oidc.client_id == client_id);
    match (named.client_id, pinned, at_issuer.as_slice()) {
        (Some(client_id), _, _) => with_client(client_id).copied().ok_or_else(|| LoginError::OtherClient {
            server: server(),
            client_id: client_id.to_owned(),
            clients: at_issuer.iter().map(|oidc| oidc.client_id.clone()).collect(),
        }),
        (None, None, [_, _, ..]) if wanted.is_none() => Err(LoginError::Several {
            server: server(),
            issuers: issuers(),
        }),
        (None, pinned, _) => {
            let of_pin = pinned.and_then(|pin| with_client(&pin.client_id));
            of_pin
                .or_else(|| at_issuer.first())
                .copied()
                .ok_or_else(|| LoginError::NotOffered { server: server() })
        }
    }
}

fn is_of(pin: &IssuerPin, oidc: &OidcAuthentication) -> bool {
    pin.url == oidc.issuer && pin.client_id == oidc.client_id
}

/// The URL of an issuer: one of TLS, with a host and a path alone. The text of a server must not hide where it leads, so it has
/// neither a user nor a password, and no white space or control character, which parsers of URLs drop.
pub(crate) fn checked_url(url: &str) -> Result<IssuerUrl, LoginError> {
    let is_hidden = |char: char| char.is_control() || char.is_whitespace() || char == '\\';
    let parsed = IssuerUrl::new(url.to_owned()).ok();
    let usable = parsed.filter(|parsed| {
        let parsed = parsed.url();
        parsed.scheme() == "https"
            && parsed.has_host()
            && parsed.username().is_empty()
            && parsed.password().is_none()
            && parsed.query().is_none()
            && parsed.fragment().is_none()
            && !url.contains(is_hidden)
    });
    usable.ok_or_else(|| LoginError::IssuerUrl { url: url.to_owned() })
}

/// The host of an issuer in ASCII, so that letters which look alike are told apart, with the port if it is not 443.
fn host_of(url: &IssuerUrl) -> String {
    let url = url.url();
    let host = url.host_str().unwrap_or_default();
    match url.port() {
        None => host.to_owned(),
        Some(port) => format!("{host}:{port}"),
    }
}

/// Refuses what is no client of any issuer (RFC 6749, appendix A.1).
fn check_client_id(server: &str, client_id: &str) -> Result<(), LoginError> {
    if !client_id.is_empty() && client_id.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
        return Ok(());
    }
    Err(LoginError::ClientId {
        server: server.to_owned(),
        client_id: client_id.to_owned(),
    })
}

/// Chooses the flow: what the user asks for with flags (by device code, or by a browser), or else by device code where a browser would
/// open on no display of the user's. `has_device_flow` says whether the issuer has a flow by device code.
pub(crate) fn flow(
    server: &str,
    offer: &Offer,
    has_device_flow: bool,
    (device, browser): (bool, bool),
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
    match (device, browser) {
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
