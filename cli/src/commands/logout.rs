//! `logout`: ends a login at the issuer and on this machine.

use std::io::Write;

use super::Context;
use crate::{
    args::{LogoutArgs, settings},
    errors::Failure,
    login::{
        error::LoginError,
        issuer::Issuer,
        store::{Folder, IssuerPin, KnownServer, StoredTokens},
    },
    render::steps::Steps,
};

/// `kubectl bind logout [URL]`
pub(crate) async fn run<W: Write>(context: &mut Context<W>, args: &LogoutArgs) -> Result<(), Failure> {
    let servers = context.settings.folder.servers()?;
    let known = match &args.url {
        Some(url) => {
            let address = settings::address(url)?.to_string();
            let known = servers.get(&address).cloned();
            Some(known.ok_or(Failure::UnknownServer(address))?)
        }
        None => servers.current().cloned(),
    };
    let known = known.ok_or_else(|| Failure::Usage("name the server: kubectl bind logout URL".to_owned()))?;
    let ended = end(&context.settings.folder, &known, &context.steps).await?;
    let text = if ended {
        "Logged out of"
    } else {
        "You were logged out already of"
    };
    context.printer.text(&format!("{text} {}\n", known.address))
}

/// Makes the refresh token void and deletes the tokens. Returns whether there were any.
pub(super) async fn end(folder: &Folder, known: &KnownServer, steps: &Steps) -> Result<bool, Failure> {
    let file = folder.tokens(&settings::address(&known.address)?)?;
    // No other process refreshes meanwhile, which would yield a refresh token that stays valid.
    let _lock = file.lock().await?;
    match file.read() {
        Ok(Some(tokens)) => match revoke(known, &tokens).await {
            Ok(true) => {}
            Ok(false) => steps.note("the issuer cannot make tokens void: they stay valid until they expire"),
            Err(error) => steps.note(&format!("the tokens stay valid until they expire: {error}")),
        },
        Ok(None) => {}
        Err(error) => steps.note(&format!(
            "the tokens are deleted, but stay valid until they expire: {error}"
        )),
    }
    Ok(file.delete()?)
}

/// Makes the refresh token of a login void that a new one has replaced, if it was of another user, issuer or client. That of the same
/// user stays: many issuers end all logins of the user at this client with it, the new one too.
pub(super) async fn revoke_former(known: &KnownServer, former: &StoredTokens, new: &StoredTokens, steps: &mut Steps) {
    let of = |tokens: &StoredTokens| [&tokens.issuer, &tokens.client_id, &tokens.subject].map(String::clone);
    if former.refresh_token.is_none() || of(former) == of(new) {
        return;
    }
    match revoke(known, former).await {
        Ok(true) => steps.done("the login that this one replaces is revoked at its issuer"),
        Ok(false) => steps.note(
            "the issuer of the login that this one replaces cannot revoke it: its tokens stay valid until they expire",
        ),
        Err(error) => steps.note(&format!(
            "the tokens of the login that this one replaces stay valid until they expire: {error}"
        )),
    }
}

/// Makes the refresh token void at the issuer that gave it. Returns whether the issuer can do so.
async fn revoke(known: &KnownServer, tokens: &StoredTokens) -> Result<bool, LoginError> {
    let Some(refresh_token) = &tokens.refresh_token else {
        return Ok(false);
    };
    let pin = IssuerPin {
        url: tokens.issuer.clone(),
        client_id: tokens.client_id.clone(),
        certificate_authority: known.issuer.certificate_authority.clone(),
    };
    Issuer::discover(&pin).await?.revoke(refresh_token).await
}
