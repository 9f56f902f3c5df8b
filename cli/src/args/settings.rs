//! Settings of all commands, checked.

use std::time::Duration;

use bindery_sdk::Address;

use crate::{
    args::{ClusterArgs, DisplayArgs, ProviderArgs},
    errors::Failure,
    provider::{Authority, Backend, Login, Provider},
    render::output::Format,
};

/// The settings that all commands share.
pub(crate) struct Settings {
    pub(crate) cluster: ClusterArgs,
    pub(crate) format: Format,
    pub(crate) quiet: bool,
    pub(crate) timeout: Option<Duration>,
    backend: Option<Backend>,
}

impl Settings {
    /// Checks what was typed. Commands that need a backend demand it later.
    pub(crate) fn new(cluster: ClusterArgs, provider: ProviderArgs, display: &DisplayArgs) -> Result<Self, Failure> {
        Ok(Self {
            cluster,
            format: display.output,
            quiet: display.quiet,
            timeout: display.timeout,
            backend: provider
                .server
                .clone()
                .map(|server| backend(&server, provider))
                .transpose()?,
        })
    }

    /// The backend, if flags or environment name one.
    pub(crate) fn any_backend(&self) -> Option<&Backend> {
        self.backend.as_ref()
    }

    /// A client of the backend; fails as [`Self::backend`] does.
    pub(crate) fn provider(&self) -> Result<Provider<'_>, Failure> {
        Ok(Provider::new(self.backend()?, self.timeout)?)
    }

    /// The backend; fails if none is named, or if there is no token for it.
    pub(crate) fn backend(&self) -> Result<&Backend, Failure> {
        let backend = self.backend.as_ref().ok_or_else(|| {
            Failure::Usage("no backend is given: add --server URL, or set KUBECTL_BIND_SERVER".to_owned())
        })?;
        if matches!(backend.login, Login::None) {
            return Err(Failure::Usage(format!(
                "no token is given: add --token-file FILE, or set KUBECTL_BIND_TOKEN_FILE\n\n\
                 The token must be for the audience {0}. On the provider's cluster,\n\
                 `kubectl create token NAME --audience {0}` makes one for a ServiceAccount.",
                backend.address
            )));
        }
        Ok(backend)
    }

    /// The same settings for a command that runs as a step of another one: it prints no progress, and calls this backend.
    pub(crate) fn silent_with(&self, backend: Option<Backend>) -> Self {
        Self {
            cluster: self.cluster.clone(),
            format: Format::Name,
            quiet: true,
            timeout: self.timeout,
            backend,
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

fn backend(server: &str, typed: ProviderArgs) -> Result<Backend, Failure> {
    let address: Address = server
        .parse()
        .map_err(|error: bindery_sdk::AddressError| Failure::Usage(error.to_string()))?;
    let login = match (typed.token, typed.token_file) {
        (Some(token), _) => Login::Token(token),
        (None, Some(file)) => Login::File(file),
        (None, None) => Login::None,
    };
    Ok(Backend {
        address,
        login,
        client_certificate: typed.client_certificate.zip(typed.client_key),
        certificate_authority: typed.certificate_authority.map(Authority::File),
        allow_plaintext: typed.allow_plaintext,
    })
}

#[cfg(test)]
mod tests;
