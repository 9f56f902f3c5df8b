//! Settings of all commands, checked.

use std::time::Duration;

use bindery_sdk::{Address, AddressError};

use crate::{
    args::{ClusterArgs, DisplayArgs, ProviderArgs},
    errors::Failure,
    login::{
        error::LoginError,
        source::StoredLogin,
        store::{Folder, KnownServer, Servers, StoreError},
    },
    provider::{Authority, Backend, Login, Provider},
    render::output::Format,
};

/// The settings that all commands share.
pub(crate) struct Settings {
    pub(crate) cluster: ClusterArgs,
    pub(crate) format: Format,
    pub(crate) quiet: bool,
    pub(crate) timeout: Option<Duration>,
    /// Where logins are kept.
    pub(crate) folder: Folder,
    backend: Option<Backend>,
    /// Whether flags or environment name the backend.
    is_typed: bool,
    /// Whether flags or environment give a token.
    has_token: bool,
    /// Why the stored logins cannot be read.
    fault: Option<StoreError>,
}

impl Settings {
    /// Checks what was typed. Commands that need a backend demand it later.
    pub(crate) fn new(
        cluster: ClusterArgs,
        provider: ProviderArgs,
        display: &DisplayArgs,
        folder: Folder,
    ) -> Result<Self, Failure> {
        let has_token = provider.token.is_some() || provider.token_file.is_some();
        // A token that was typed goes to a server that was typed, and to no stored one: it may be for another server.
        let (servers, fault) = match folder.servers() {
            _ if has_token => (Servers::default(), None),
            Ok(servers) => (servers, None),
            Err(fault) => (Servers::default(), Some(fault)),
        };
        let is_typed = provider.server.is_some();
        Ok(Self {
            cluster,
            format: display.output,
            quiet: display.quiet,
            timeout: display.timeout,
            backend: backend(provider, &servers, &folder)?,
            is_typed,
            has_token,
            folder,
            fault,
        })
    }

    /// The backend, if flags, environment or a login name one.
    pub(crate) fn any_backend(&self) -> Option<&Backend> {
        self.backend.as_ref()
    }

    /// The backend, if flags or environment name one.
    pub(crate) fn typed_backend(&self) -> Option<&Backend> {
        self.backend.as_ref().filter(|_| self.is_typed)
    }

    /// A client of the backend; fails as [`Self::backend`] does.
    pub(crate) fn provider(&self) -> Result<Provider<'_>, Failure> {
        Ok(Provider::new(self.backend()?, self.timeout)?)
    }

    /// The backend; fails if none is named, or if there is no token for it.
    pub(crate) fn backend(&self) -> Result<&Backend, Failure> {
        let fault = || -> Result<(), Failure> { self.fault.clone().map_or(Ok(()), |fault| Err(fault.into())) };
        let Some(backend) = &self.backend else {
            fault()?;
            let message = if self.has_token {
                "a token is given by --token, --token-file or KUBECTL_BIND_TOKEN_FILE, and no server that it is for: name the server with \
                 --server URL or KUBECTL_BIND_SERVER, or give no token to use your login"
            } else {
                "no server is given: log in with `kubectl bind login URL`, or name it with --server URL or KUBECTL_BIND_SERVER"
            };
            return Err(Failure::Usage(message.to_owned()));
        };
        match &backend.login {
            Login::None => {
                fault()?;
                Err(Failure::Usage(format!(
                    "you have not logged in to {0}, and no token is given: run `kubectl bind login {0}`, or add --token-file FILE, \
                     or set KUBECTL_BIND_TOKEN_FILE\n\n\
                     A token must be for the audience {0}. On the provider's cluster,\n\
                     `kubectl create token NAME --audience {0}` makes one for a ServiceAccount.",
                    backend.address
                )))
            }
            Login::Stored(login) if !login.file().path().exists() => Err(LoginError::LoggedOut {
                server: backend.address.to_string(),
            }
            .into()),
            _ => Ok(backend),
        }
    }

    /// The same settings for a command that runs as a step of another one: it prints no progress, and calls this backend.
    pub(crate) fn silent_with(&self, backend: Option<Backend>) -> Self {
        Self {
            cluster: self.cluster.clone(),
            format: Format::Name,
            quiet: true,
            timeout: self.timeout,
            folder: self.folder.clone(),
            backend,
            is_typed: true,
            has_token: false,
            fault: None,
        }
    }

    /// The same settings for a command that runs as a step of another one, on this cluster and for this time.
    pub(crate) fn silent_at(&self, cluster: ClusterArgs, timeout: Duration) -> Self {
        Self {
            cluster,
            timeout: Some(timeout),
            ..self.silent_with(None)
        }
    }

    /// How long to wait: `--timeout`, or else the default of the command.
    pub(crate) fn patience(&self, default: Duration) -> Duration {
        self.timeout.unwrap_or(default)
    }
}

/// The backend that is named, or else the current one of the logins, with what is known of it.
fn backend(typed: ProviderArgs, servers: &Servers, folder: &Folder) -> Result<Option<Backend>, Failure> {
    let named = typed.server.as_deref().map(address).transpose()?;
    let known = match &named {
        Some(address) => servers.get(&address.to_string()),
        None => servers.current(),
    };
    let Some(address) = named.map_or_else(
        || known.map(|known| address(&known.address)).transpose(),
        |named| Ok(Some(named)),
    )?
    else {
        return Ok(None);
    };
    let login = match (typed.token, typed.token_file, known) {
        (Some(token), _, _) => Login::Token(token),
        (None, Some(file), _) => Login::File(file),
        (None, None, Some(known)) => Login::Stored(StoredLogin::new(folder.tokens(&address)?, known.issuer.clone())),
        (None, None, None) => Login::None,
    };
    let of_known = |get: fn(&KnownServer) -> Option<&std::path::PathBuf>| known.and_then(get).cloned();
    let certificate = typed.client_certificate.zip(typed.client_key);
    let authority = typed
        .certificate_authority
        .or_else(|| of_known(|known| known.certificate_authority.as_ref()));
    Ok(Some(Backend {
        address,
        login,
        client_certificate: certificate.or_else(|| {
            of_known(|known| known.client_certificate.as_ref()).zip(of_known(|known| known.client_key.as_ref()))
        }),
        certificate_authority: authority.map(Authority::File),
        allow_plaintext: typed.allow_plaintext || known.is_some_and(|known| known.allow_plaintext),
    }))
}

/// Reads the address of a server.
pub(crate) fn address(text: &str) -> Result<Address, Failure> {
    text.parse()
        .map_err(|error: AddressError| Failure::Usage(error.to_string()))
}

#[cfg(test)]
mod tests;
