//! Asks the provider's API server whether it accepts the ID token of the user's login.

use std::time::Duration;

use bindery_runtime::{
    client::{self, Clients},
    errors,
};
use bindery_sdk::Address;
use k8s_openapi::api::authentication::v1::SelfSubjectReview;
use kube::{Api, api::PostParams, config::AuthInfo};
use secrecy::SecretString;
use tokio::time::timeout;

use super::read;
use crate::{
    args::{
        KubeContext,
        settings::{self, Settings},
    },
    check::facts::{Fact, Facts, LoginFacts},
    errors::Failure,
    login::source::StoredLogin,
};

/// The user that a request without a valid credential is made as, where the API server allows anonymous requests.
const ANONYMOUS: &str = "system:anonymous";

/// Sends the ID token of the login at the provider's backend to the API server that the flags name. It is sent to no API server
/// that only the kubeconfig of a binding names: such a kubeconfig says itself which backend it belongs to, and one of a malicious provider
/// could name the backend of another one.
pub(super) async fn facts(
    cluster: KubeContext<'_>,
    settings: &Settings,
    facts: &Facts,
    limit: Duration,
) -> Result<LoginFacts, Failure> {
    let (backend, login) = match login(settings, facts) {
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
        accepted_as: accepted_as(cluster, tokens.id_token, limit).await?,
    })
}

/// The login at the provider's backend, or why there is none.
fn login(settings: &Settings, facts: &Facts) -> Result<(Address, StoredLogin), String> {
    let backend = if let Some(typed) = settings.typed_backend() {
        typed.address.clone()
    } else {
        let named = facts
            .provider_backend()
            .ok_or("no ID token is tried: it is not known which backend is the provider's; name it with --server")?;
        settings::address(named).map_err(|failure| failure.to_string())?
    };
    let servers = settings.folder.servers().map_err(|error| error.to_string())?;
    let known = servers.get(&backend.to_string());
    let known = known.ok_or_else(|| format!("no ID token is tried: you have not logged in to {backend}"))?;
    let file = settings.folder.tokens(&backend).map_err(|error| error.to_string())?;
    Ok((backend, StoredLogin::new(file, known.issuer.clone())))
}

/// The username as which the API server accepts the token; none if it refuses the token. The request has no other credential.
async fn accepted_as(
    cluster: KubeContext<'_>,
    token: SecretString,
    limit: Duration,
) -> Result<Fact<Option<String>>, Failure> {
    let mut config = client::config(cluster.kubeconfig, cluster.context).await?;
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

    #[test]
    fn the_user_that_is_forbidden_something_is_known() {
        let message =
            r#"selfsubjectreviews.authentication.k8s.io is forbidden: User "oidc:jane" cannot create resource"#;
        assert_eq!(forbidden_user(message), Some("oidc:jane"));
        assert_eq!(forbidden_user("forbidden"), None);
    }
}
