//! What the user can do about a login that failed.

use super::LoginError;
use crate::login::http::HttpError;

impl LoginError {
    /// What the user can do about the error, where the message does not say it.
    pub(crate) fn mend(&self) -> Option<String> {
        let text = match self {
            Self::Store(error) => error.mend(),
            Self::NotOffered { server } => format!(
                "The provider's admin can configure an issuer. Until then, use a token of a ServiceAccount for the audience {server}, \
                 with --token-file FILE."
            ),
            Self::Several { server, issuers } => {
                let issuer = issuers.first().map_or("URL", String::as_str);
                format!(
                    "Choose one, and run this with the same flags and its URL, such as:\n{}",
                    login(server, Some(issuer), None)
                )
            }
            Self::OtherIssuer { .. } => "Nothing was sent. If one of these is right, name it with --issuer.".to_owned(),
            Self::OtherClient { .. } => "Nothing was sent. If one of these is right, name it with --client-id.".to_owned(),
            Self::Unconfirmed {
                server, issuer, host, ..
            } => format!(
                "If {host} is where you log in to your company, run this with the same flags and the issuer:\n{}",
                login(server, Some(issuer), None)
            ),
            Self::Declined { server } => format!(
                "Nothing was sent. Ask the admin of {server} for the issuer and the client, if you expected others."
            ),
            Self::IssuerChanged { server, now, .. } => confirm(&login(server, Some(now), None)),
            Self::ClientChanged {
                server, issuer, now, ..
            } => confirm(&login(server, Some(issuer), Some(now))),
            Self::ClientOfOther {
                server,
                issuer,
                client_id,
                ..
            } => format!(
                "Nothing was sent. Each server needs a client of its own: tell the provider's admin. If both addresses are those of one \
                 provider that you trust, confirm the client:\n{}",
                login(server, Some(issuer), Some(client_id))
            ),
            Self::Http {
                source: HttpError::Unreachable { .. },
                ..
            } => "Check the network, and that the issuer's URL is right. Give a private CA of the issuer with --issuer-ca FILE."
                .to_owned(),
            Self::NoDeviceFlow { .. } => {
                "Log in with a browser: leave --device out. Where no browser reaches this machine, --no-browser takes the address \
                 that the browser ends at."
                    .to_owned()
            }
            Self::FlowNotOffered { .. } => "Leave the flag out, or ask the provider's admin.".to_owned(),
            Self::Loopback { .. } => "Free a port, or name others with --redirect-url URL.".to_owned(),
            Self::Refused { answer, .. } if answer.starts_with("invalid_scope") => {
                "The provider's admin can change what the server asks of the issuer, by flag --login-scopes of the server.".to_owned()
            }
            Self::IdToken { .. } => "Check the clock of this machine. If it is right, tell the provider's admin.".to_owned(),
            Self::Discovery { .. }
            | Self::Answer { .. }
            | Self::NoIdToken { .. }
            | Self::Url { .. }
            | Self::IssuerUrl { .. }
            | Self::ClientId { .. } => {
                "Tell the provider's admin: the issuer, or what the server says of it, has to be mended.".to_owned()
            }
            Self::ServerRefused { .. } => "Nothing was kept of the login. Show this message to the provider's admin.".to_owned(),
            Self::LoggedOut { server } | Self::Ended { server, .. } => login(server, None, None),
            Self::Denied { .. } | Self::CodeExpired { .. } | Self::TimedOut { .. } | Self::OtherUser { .. } => {
                "Log in again: kubectl bind login".to_owned()
            }
            Self::Http { .. } | Self::RedirectUrl { .. } | Self::Refused { .. } => return None,
        };
        Some(text)
    }
}

fn confirm(command: &str) -> String {
    format!("Nothing was sent. If the provider's admin tells you that the change is right, confirm it:\n{command}")
}

/// The command of a login, fit to be pasted whatever a server names.
fn login(server: &str, issuer: Option<&str>, client_id: Option<&str>) -> String {
    let flags = [("--issuer", issuer), ("--client-id", client_id)];
    let flags = flags
        .iter()
        .filter_map(|(flag, value)| value.map(|value| [*flag, value]));
    let words = ["kubectl", "bind", "login", server].into_iter().chain(flags.flatten());
    // Only a byte 0 cannot be quoted, and neither an address nor what a server may name has one.
    shlex::try_join(words).unwrap_or_default()
}
