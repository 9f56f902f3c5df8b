//! `server`: the servers that the user has logged in to, and the current one.

use std::io::Write;

use jiff::Timestamp;
use serde::Serialize;

use super::{Context, logout};
use crate::{
    args::{ServersArgs, ServersCommand, settings},
    errors::Failure,
    login::store::{KnownServer, Servers, StoreError, StoredTokens},
    render::output::{Show, span},
};

/// A server in a list.
#[derive(Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    address: String,
    current: bool,
    issuer: String,
    client_id: String,
    login: LoginState,
    /// Why the tokens cannot be used.
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<String>,
    /// When the ID token expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<Timestamp>,
}

/// Whether a call to the server has a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
enum LoginState {
    /// The login is refreshed for as long as the issuer allows.
    Refreshed,
    /// The token is valid, and the issuer gave none to refresh it.
    Valid,
    /// The token has expired, and the issuer gave none to refresh it.
    Expired,
    LoggedOut,
    /// The file of the tokens cannot be used.
    Unusable,
}

/// `kubectl bind server list|use|remove`
pub(crate) async fn run<W: Write>(context: &mut Context<W>, args: &ServersArgs) -> Result<(), Failure> {
    let folder = context.settings.folder.clone();
    let servers = folder.servers()?;
    match &args.command {
        ServersCommand::List => {
            let now = Timestamp::now();
            let mut list = Vec::with_capacity(servers.servers.len());
            for known in &servers.servers {
                let tokens = folder.tokens(&settings::address(&known.address)?)?.read();
                list.push(Listed::new(known, &servers, tokens, now));
            }
            if list.is_empty() {
                context
                    .steps
                    .note("you have not logged in to any server: kubectl bind login URL");
            }
            context.printer.list(&list, now)
        }
        ServersCommand::Use { url } => {
            let address = find(&servers, url)?.address.clone();
            let current = address.clone();
            folder.change_servers(|servers| servers.current = Some(current)).await?;
            context.printer.text(&format!("The current server is {address}\n"))
        }
        ServersCommand::Remove { url } => {
            let known = find(&servers, url)?;
            logout::end(&folder, known, &context.steps).await?;
            let address = known.address.clone();
            folder.change_servers(|servers| servers.remove(&address)).await?;
            context.printer.text(&format!("Forgot {}\n", known.address))
        }
    }
}

fn find<'a>(servers: &'a Servers, url: &str) -> Result<&'a KnownServer, Failure> {
    let address = settings::address(url)?.to_string();
    servers.get(&address).ok_or(Failure::UnknownServer(address))
}

impl Listed {
    fn new(
        known: &KnownServer,
        servers: &Servers,
        tokens: Result<Option<StoredTokens>, StoreError>,
        now: Timestamp,
    ) -> Self {
        let (login, fault, expires_at) = match tokens {
            Err(error) => (LoginState::Unusable, Some(error.to_string()), None),
            Ok(Some(tokens)) if tokens.is_of(&known.issuer) => {
                let state = match &tokens.refresh_token {
                    Some(_) => LoginState::Refreshed,
                    None if now < tokens.expires_at => LoginState::Valid,
                    None => LoginState::Expired,
                };
                (state, None, Some(tokens.expires_at))
            }
            Ok(_) => (LoginState::LoggedOut, None, None),
        };
        Self {
            address: known.address.clone(),
            current: servers.current.as_deref() == Some(known.address.as_str()),
            issuer: known.issuer.url.clone(),
            client_id: known.issuer.client_id.clone(),
            login,
            fault,
            expires_at,
        }
    }
}

impl Show for Listed {
    const HEADINGS: &'static [&'static str] = &["CURRENT", "ADDRESS", "LOGIN", "ISSUER", "CLIENT"];
    const PLAIN: usize = 4;

    fn cells(&self, now: Timestamp) -> Vec<String> {
        let left = self
            .expires_at
            .map_or(0, |expires_at| expires_at.as_second() - now.as_second());
        let login = match (self.login, &self.fault) {
            (LoginState::Unusable, fault) => fault.clone().unwrap_or_default(),
            (LoginState::Refreshed, _) => "logged in".to_owned(),
            (LoginState::Valid, _) => format!("expires in {}", span(left)),
            (LoginState::Expired, _) => "expired".to_owned(),
            (LoginState::LoggedOut, _) => "logged out".to_owned(),
        };
        vec![
            if self.current { "*" } else { "" }.to_owned(),
            self.address.clone(),
            login,
            self.issuer.clone(),
            self.client_id.clone(),
        ]
    }

    fn reference(&self) -> String {
        format!("server/{}", self.address)
    }
}
