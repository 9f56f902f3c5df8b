//! Judges whether the ID token of a login is good for more than the backend that it was issued for.

use super::{
    Check,
    facts::{LoginFacts, ProviderFacts},
    finding::Findings,
};

pub(super) fn judge(provider: &ProviderFacts, found: &mut Findings) {
    let check = Check::LoginToken;
    let server = &provider.cluster.server;
    let (backend, issuer, client_id, accepted_as) = match &provider.login {
        LoginFacts::NotTried(why) => return found.skip(check, why.clone()),
        LoginFacts::Tried {
            backend,
            issuer,
            client_id,
            accepted_as,
        } => (backend, issuer, client_id, accepted_as),
    };
    match accepted_as {
        Ok(None) => found.passed(
            check,
            format!("the provider's API server {server} refuses the ID token of your login at {backend}"),
        ),
        Ok(Some(username)) => found.warn(
            check,
            format!(
                "the provider's API server {server} accepts the ID token of your login at {backend}, as user {username}: whoever gets \
                 such a token, as the backend does, can act there as you"
            ),
            format!(
                "register a public client of Bindery's own with issuer {issuer}, configure the server with its id instead of {client_id} \
                 (--oidc-client-id, or audiences in the file of --authentication-config), and log in again; or have the API server \
                 accept another client only"
            ),
        ),
        Err(unread) => found.unread(
            check,
            &format!("ask the provider's API server {server} with the ID token of your login"),
            unread,
            "create selfsubjectreviews.authentication.k8s.io",
        ),
    }
}
