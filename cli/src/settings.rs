//! What was meant by what was typed.

use std::{path::PathBuf, time::Duration};

use bindery_sdk::Address;
use secrecy::SecretString;

use crate::{
    args::{ClusterArgs, DisplayArgs, ProviderArgs},
    errors::Failure,
    output::Format,
};

/// Who is asking.
pub(crate) enum Login {
    Token(SecretString),
    File(PathBuf),
    /// Only what is open to all can be asked.
    Nobody,
}

/// Which backend, and how to reach it.
pub(crate) struct Backend {
    pub(crate) address: Address,
    pub(crate) login: Login,
    pub(crate) certificate_authority: Option<PathBuf>,
    pub(crate) allow_plaintext: bool,
}

/// Everything but the command itself.
pub(crate) struct Settings {
    pub(crate) cluster: ClusterArgs,
    pub(crate) format: Format,
    pub(crate) quiet: bool,
    pub(crate) timeout: Option<Duration>,
    backend: Option<Backend>,
}

impl Settings {
    /// Works out what was meant. A backend is demanded later, by the commands that need one.
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

    /// The backend, where one is given.
    pub(crate) fn any_backend(&self) -> Option<&Backend> {
        self.backend.as_ref()
    }

    /// The backend with somebody who asks.
    pub(crate) fn backend(&self) -> Result<&Backend, Failure> {
        let backend = self.backend.as_ref().ok_or_else(|| {
            Failure::Usage("no backend is given: add --server URL, or set KUBECTL_BIND_SERVER".to_owned())
        })?;
        if matches!(backend.login, Login::Nobody) {
            return Err(Failure::Usage(format!(
                "no token is given: add --token-file FILE, or set KUBECTL_BIND_TOKEN_FILE\n\n\
                 The token must be for the audience {0}. On the provider's cluster,\n\
                 `kubectl create token NAME --audience {0}` makes one for a ServiceAccount.",
                backend.address
            )));
        }
        Ok(backend)
    }

    /// How long to wait: what was asked for, else the command's own choice.
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
        (None, None) => Login::Nobody,
    };
    Ok(Backend {
        address,
        login,
        certificate_authority: typed.certificate_authority,
        allow_plaintext: typed.allow_plaintext,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(line: &str) -> Result<Settings, Failure> {
        let words = line.split_whitespace().map(Into::into).collect();
        let args = crate::args::parse(words).unwrap();
        Settings::new(args.cluster, args.provider, &args.display)
    }

    #[track_caller]
    fn check_usage(line: &str, expect: &str) {
        let Err(Failure::Usage(message)) = settings(line).and_then(|settings| settings.backend().map(|_| ())) else {
            panic!("{line:?} is a usage error");
        };
        assert!(message.contains(expect), "{message}");
    }

    #[test]
    fn a_backend_needs_an_address_and_a_token() {
        check_usage("kubectl-bind --token x templates", "--server");
        check_usage(
            "kubectl-bind --server https://b.example.com:443/ templates",
            "--audience https://b.example.com`",
        );
        check_usage("kubectl-bind --server https://b/api --token x templates", "a path");
    }

    #[test]
    fn a_token_is_preferred_to_a_file() {
        let settings = settings("kubectl-bind --server b --token-file f --token x templates").unwrap();
        assert!(matches!(settings.backend().unwrap().login, Login::Token(_)));
    }

    #[test]
    fn commands_without_a_provider_need_none() {
        assert!(settings("kubectl-bind status").unwrap().any_backend().is_none());
    }
}
