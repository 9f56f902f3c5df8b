//! Why a login, its refresh or its end failed. No message and no Debug output holds a token, a code or any other secret.

mod mend;

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
    /// The server names the client of another server.
    #[error(
        "{server} names client {client_id:?} of issuer {issuer}, which is the client of {other} too: with your token, {server} could \
         act as you at {other}"
    )]
    ClientOfOther {
        server: String,
        other: String,
        issuer: String,
        client_id: String,
    },
    /// The server does not name the client that the user chose.
    #[error("{server} does not let you log in with client {client_id:?}, but with {}", clients.join(", "))]
    OtherClient {
        server: String,
        client_id: String,
        clients: Vec<String>,
    },
    /// The server names a client that no issuer can have.
    #[error("{server} names client {client_id:?}, which is empty or has other characters than printable ASCII")]
    ClientId { server: String, client_id: String },
    /// It is the first login to the server, and there is no terminal to ask the user on.
    #[error(
        "you have not logged in to {server} before, and there is no terminal to ask whether you want to log in at {issuer} (host \
         {host}), client {client_id:?}"
    )]
    Unconfirmed {
        server: String,
        issuer: String,
        host: String,
        client_id: String,
    },
    /// The user does not want to log in at the issuer that the server names.
    #[error("you did not confirm the login to {server}")]
    Declined { server: String },
    /// The URL of an issuer is none, or is not fit to be one.
    #[error("the URL of the issuer {url:?} is not an https:// URL of a host and a path alone")]
    IssuerUrl { url: String },
    /// A URL of the issuer is not one of TLS.
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
            | Self::OtherClient { .. }
            | Self::Unconfirmed { .. }
            | Self::FlowNotOffered { .. }
            | Self::NoDeviceFlow { .. }
            | Self::RedirectUrl { .. } => Exit::Usage,
            Self::IssuerChanged { .. }
            | Self::ClientChanged { .. }
            | Self::ClientOfOther { .. }
            | Self::Declined { .. }
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
}

#[cfg(test)]
mod tests;
