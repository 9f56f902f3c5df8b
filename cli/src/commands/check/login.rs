//! Asks the provider's API server whether it accepts the ID token of the user's login.

use std::time::Duration;

use bindery_runtime::{
    client::{self, Clients},
    errors,
};
use bindery_sdk::Address;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::{Api, Config, api::PostParams, config::AuthInfo};
use secrecy::SecretString;
use tokio::time::timeout;

use super::{cluster, read};
use crate::{
    args::{KubeContext, settings::Settings},
    check::facts::{Fact, LoginFacts},
    errors::Failure,
    login::source::StoredLogin,
};

/// The user that a request without a valid credential is made as, where the API server allows anonymous requests.
const ANONYMOUS: &str = "system:anonymous";

/// Sends the ID token of the login at the backend that the user names to the API server that the user names as the same
/// provider's. Neither address is taken from the kubeconfig of a binding: it is the provider's answer, and a malicious provider could
/// name the backend of another one there, to get the token for that one.
pub(super) async fn facts(
    cluster: KubeContext<'_>,
    settings: &Settings,
    limit: Duration,
) -> Result<LoginFacts, Failure> {
    let config = client::config(cluster.kubeconfig, cluster.context).await?;
    let found = check_verified(&config).and_then(|()| login(settings));
    let (backend, login) = match found {
        Ok(found) => found,
        Err(why) => return Ok(LoginFacts::NotTried(why)),
    };
    let tokens = match timeout(limit, login.tokens()).await {
        Ok(Ok(tokens)) => tokens,
        Ok(Err(error)) => return Ok(LoginFacts::NotTried(error.to_string())),
        Err(_) => {
            let why = format!(
                "the login at {backend} could not be refreshed within {} s",
                limit.as_secs()
            );
            return Ok(LoginFacts::NotTried(why));
        }
    };
    Ok(LoginFacts::Tried {
        backend: backend.to_string(),
        issuer: tokens.issuer,
        client_id: tokens.client_id,
        accepted_as: accepted_as(config, tokens.id_token, limit).await?,
    })
}

/// Refuses an API server that could be anybody: one without TLS, or whose certificate is not verified.
fn check_verified(config: &Config) -> Result<(), String> {
    let url = cluster::server(config);
    if config.accept_invalid_certs {
        Err(format!(
            "no ID token is tried: the kubeconfig says not to verify the certificate of {url}"
        ))
    } else if config.cluster_url.scheme_str() == Some("https") {
        Ok(())
    } else {
        Err(format!("no ID token is tried: {url} is not an https:// URL"))
    }
}

/// The login at the backend that flags or environment name, or why there is none.
fn login(settings: &Settings) -> Result<(Address, StoredLogin), String> {
    let typed = settings
        .typed_backend()
        .ok_or("no ID token is tried: name the provider's backend with --server")?;
    let backend = typed.address.clone();
    let servers = settings.folder.servers().map_err(|error| error.to_string())?;
    let known = servers.get(&backend.to_string());
    let known = known.ok_or_else(|| format!("no ID token is tried: you have not logged in to {backend}"))?;
    let file = settings.folder.tokens(&backend).map_err(|error| error.to_string())?;
    Ok((backend, StoredLogin::new(file, known.issuer.clone())))
}

/// The username as which the API server accepts the token; none if it refuses the token. The request has no other credential.
async fn accepted_as(
    mut config: Config,
    token: SecretString,
    limit: Duration,
) -> Result<Fact<Option<String>>, Failure> {
    config.auth_info = AuthInfo {
        token: Some(token),
        ..AuthInfo::default()
    };
    let reviews: Api<SelfSubjectReview> = Api::all(Clients::new(&config, 1)?.write);
    let (params, review) = (PostParams::default(), SelfSubjectReview::default());
    let Ok(answer) = timeout(limit, reviews.create(&params, &review)).await else {
        return Ok(Err(read::silent(limit)));
    };
    let username = match answer {
        Ok(review) => review.status.and_then(|status| status.user_info?.username),
        Err(error) => match errors::code(&error) {
            Some(401) => None,
            // Who is forbidden something was authenticated before.
            Some(403) => Some(forbidden_user(&error.to_string()).unwrap_or("<unknown>").to_owned()),
            _ => return Ok(Err(read::unread(&error))),
        },
    };
    Ok(Ok(username.filter(|username| username != ANONYMOUS)))
}

/// The user in the message of an API server that forbids a request.
fn forbidden_user(message: &str) -> Option<&str> {
    let (_, rest) = message.split_once("User \"")?;
    rest.split_once('"').map(|(user, _)| user)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{args, login::store::Folder};

    #[test]
    fn a_token_goes_only_to_an_api_server_whose_certificate_is_verified() {
        for (url, is_unverified, expect) in [
            ("https://10.0.0.1:6443", false, None),
            (
                "https://10.0.0.1:6443",
                true,
                Some("not to verify the certificate of https://10.0.0.1:6443"),
            ),
            (
                "http://127.0.0.1:8080",
                false,
                Some("http://127.0.0.1:8080 is not an https:// URL"),
            ),
        ] {
            let mut config = Config::new(url.parse().unwrap());
            config.accept_invalid_certs = is_unverified;
            let refused = check_verified(&config).err();
            assert_eq!(refused.is_some(), expect.is_some(), "{refused:?}");
            assert!(
                refused.unwrap_or_default().contains(expect.unwrap_or_default()),
                "{url}"
            );
        }
    }

    #[test]
    fn only_the_login_of_a_backend_that_the_user_names_is_tried() {
        for (line, expect) in [
            ("kubectl-bind check", "with --server"),
            (
                "kubectl-bind check --server https://b",
                "you have not logged in to https://b",
            ),
        ] {
            let args = args::parse(line.split_whitespace().map(Into::into).collect()).unwrap();
            let provider = args.command.provider(args.provider);
            let folder = Folder::new("/nonexistent");
            let settings = Settings::new(args.cluster, provider, &args.display, folder).unwrap();
            let why = login(&settings).err().unwrap();
            assert!(why.contains(expect), "{why}");
        }
    }

    #[test]
    fn the_user_that_is_forbidden_something_is_known() {
        let message =
            r#"selfsubjectreviews.authentication.k8s.io is forbidden: User "oidc:jane" cannot create resource"#;
        assert_eq!(forbidden_user(message), Some("oidc:jane"));
        assert_eq!(forbidden_user("forbidden"), None);
    }
}
