//! Why a login, its refresh or its end failed. No message and no Debug output holds a token, a code or any other secret.

use std::time::Duration;

use bindery_runtime::terminal::Exit;

use super::{http::HttpError, store::StoreError};

/// Why there is no login.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum LoginError {
    /// The files of logins cannot be used.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The server offers no login for people.
    #[error("{server} offers no login with an identity provider")]
    NotOffered { server: String },
    /// The server offers several issuers, and the user chose none.
    #[error("{server} lets you log in at several issuers: {}", issuers.join(", "))]
    Several { server: String, issuers: Vec<String> },
    /// The server does not offer the issuer that the user chose.
    #[error("{server} does not let you log in at {issuer}, but at {}", issuers.join(", "))]
    OtherIssuer {
        server: String,
        issuer: String,
        issuers: Vec<String>,
    },
    /// The server names another issuer than at the first login.
    #[error("{server} names issuer {now}, but you first logged in at {pinned}: a token of yours could be stolen")]
    IssuerChanged {
        server: String,
        pinned: String,
        now: String,
    },
    /// The server names another client of the issuer than at the first login.
    #[error(
        "{server} names client {now:?} of issuer {issuer}, but you first logged in to client {pinned:?}: a token of yours \
         could be stolen"
    )]
    ClientChanged {
        server: String,
        issuer: String,
        pinned: String,
        now: String,
    },
    /// A URL of the issuer is none, or not one of TLS.
    #[error("{what} {url:?} is not an https:// URL")]
    Url { what: &'static str, url: String },
    /// The issuer cannot be reached.
    #[error("issuer {issuer}: {source}")]
    Http { issuer: String, source: HttpError },
    /// What the issuer publishes about itself is not valid.
    #[error("issuer {issuer} is not set up for OpenID Connect: {fault}")]
    Discovery { issuer: String, fault: String },
    /// The issuer has no device flow.
    #[error("issuer {issuer} has no login by device code")]
    NoDeviceFlow { issuer: String },
    /// The server does not offer the flow.
    #[error("{server} does not offer a login by {flow}")]
    FlowNotOffered { server: String, flow: &'static str },
    /// No loopback port for the redirect is free.
    #[error("no address for the redirect of the browser is free: {fault}")]
    Loopback { fault: String },
    /// A redirect URL of the flags is not one of this machine.
    #[error("{url:?} is no redirect URL of this machine: write one such as http://127.0.0.1:8000/callback")]
    RedirectUrl { url: String },
    /// The user refused the login at the issuer.
    #[error("the login was refused at {issuer}")]
    Denied { issuer: String },
    /// The issuer answered with an error.
    #[error("issuer {issuer} refused the login: {answer}")]
    Refused { issuer: String, answer: String },
    /// The device code expired before the user entered it.
    #[error("the code was not entered at {issuer} in time, and has expired")]
    CodeExpired { issuer: String },
    /// The user did not log in in time.
    #[error("nobody logged in at {issuer} within {} s{}", .waited.as_secs(), other_answers(*.ignored))]
    TimedOut {
        issuer: String,
        waited: Duration,
        /// How many redirects of another login came meanwhile.
        ignored: usize,
    },
    /// The answer of the issuer is not one to a token request.
    #[error("issuer {issuer} answers what no issuer should: {fault}")]
    Answer { issuer: String, fault: String },
    /// The issuer gave no ID token.
    #[error("issuer {issuer} gave no ID token")]
    NoIdToken { issuer: String },
    /// The ID token is not valid.
    #[error("the ID token of issuer {issuer} is refused: {fault}")]
    IdToken { issuer: String, fault: String },
    /// A refresh yielded the token of another user.
    #[error("issuer {issuer} refreshed the login with a token of another user")]
    OtherUser { issuer: String },
    /// There are no tokens for the server.
    #[error("you are logged out of {server}")]
    LoggedOut { server: String },
    /// The issuer does not refresh the login any more.
    #[error("your login at {server} has ended: {why}")]
    Ended { server: String, why: String },
    /// The server refused the token of a login that had just succeeded.
    #[error("{server} refuses the login at {issuer}: {message}")]
    ServerRefused {
        server: String,
        issuer: String,
        message: String,
    },
}

fn other_answers(count: usize) -> String {
    match count {
        0 => String::new(),
        count => format!("; {count} answers of other logins were ignored"),
    }
}

impl LoginError {
    /// The exit code of a command that fails for this reason.
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Self::Several { .. }
            | Self::OtherIssuer { .. }
            | Self::FlowNotOffered { .. }
            | Self::NoDeviceFlow { .. }
            | Self::RedirectUrl { .. } => Exit::Usage,
            Self::IssuerChanged { .. }
            | Self::ClientChanged { .. }
            | Self::Denied { .. }
            | Self::Refused { .. }
            | Self::LoggedOut { .. }
            | Self::Ended { .. }
            | Self::ServerRefused { .. } => Exit::Denied,
            Self::TimedOut { .. } | Self::CodeExpired { .. } => Exit::TimedOut,
            _ => Exit::Failed,
        }
    }

    /// Whether no refresh can succeed until the user logs in again or mends a file.
    pub(crate) fn is_final(&self) -> bool {
        match self {
            Self::Store(error) => !matches!(error, StoreError::Locked { .. }),
            Self::LoggedOut { .. } | Self::Ended { .. } | Self::OtherUser { .. } => true,
            _ => false,
        }
    }

    /// Whether the user has logged out.
    pub(crate) fn is_logged_out(&self) -> bool {
        matches!(self, Self::LoggedOut { .. })
    }

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
                format!("Choose one, such as: kubectl bind login {server} --issuer {issuer}")
            }
            Self::OtherIssuer { server, .. } => format!("Leave --issuer out: kubectl bind login {server}"),
            Self::IssuerChanged { server, now, .. } => confirm(server, now),
            Self::ClientChanged { server, issuer, .. } => confirm(server, issuer),
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
            Self::Discovery { .. } | Self::Answer { .. } | Self::NoIdToken { .. } | Self::Url { .. } => {
                "Tell the provider's admin: the issuer, or what the server says of it, has to be mended.".to_owned()
            }
            Self::ServerRefused { .. } => "Nothing was kept of the login. Show this message to the provider's admin.".to_owned(),
            Self::LoggedOut { server } | Self::Ended { server, .. } => format!("kubectl bind login {server}"),
            Self::Denied { .. } | Self::CodeExpired { .. } | Self::TimedOut { .. } | Self::OtherUser { .. } => {
                "Log in again: kubectl bind login".to_owned()
            }
            Self::Http { .. } | Self::RedirectUrl { .. } | Self::Refused { .. } => return None,
        };
        Some(text)
    }
}

fn confirm(server: &str, issuer: &str) -> String {
    format!(
        "Nothing was sent. If the provider's admin tells you that the change is right, confirm it:\n\
         kubectl bind login {server} --issuer {issuer}"
    )
}
