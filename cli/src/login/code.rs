//! The code flow: a browser shows the issuer's page and comes back to the loopback of this machine with a code, which is good
//! once and only together with what this process keeps (PKCE).

mod entry;
pub(crate) mod loopback;
mod paste;
mod redirect;

use std::time::Duration;

use openidconnect::{
    AuthenticationFlow, AuthorizationRequest, CsrfToken, Nonce, PkceCodeChallenge, PkceCodeVerifier, RedirectUrl,
    core::{CoreAuthPrompt, CoreResponseType},
    url::Url,
};
use tokio::{sync::mpsc, time::timeout};

use super::{
    choice::Offer,
    error::LoginError,
    issuer::{Issuer, of_token_request},
    store::StoredTokens,
};
pub(crate) use loopback::{Loopback, RedirectAddress};
pub(crate) use paste::pasted_lines;
use redirect::{Expected, Redirect};

/// A login that waits for its redirect.
pub(crate) struct Attempt<'a> {
    issuer: &'a Issuer,
    url: Url,
    state: CsrfToken,
    nonce: Nonce,
    verifier: PkceCodeVerifier,
    redirect: RedirectUrl,
}

/// A redirect that is not the one of this login, in words for the user.
pub(crate) type Ignored = String;

impl<'a> Attempt<'a> {
    /// Makes the URL that the user opens. `prompt` is what the issuer is asked to show, by the word of OpenID Connect; without it,
    /// the issuer asks for consent where the login is to be refreshed later, as OpenID Connect demands.
    pub(crate) fn new(
        issuer: &'a Issuer,
        offer: &Offer,
        redirect: &str,
        prompt: Option<&str>,
    ) -> Result<Self, LoginError> {
        let redirect = RedirectUrl::new(redirect.to_owned()).map_err(|_| LoginError::RedirectUrl {
            url: redirect.to_owned(),
        })?;
        let (challenge, verifier) = PkceCodeChallenge::new_random_sha256();
        let flow = AuthenticationFlow::<CoreResponseType>::AuthorizationCode;
        let scopes = issuer.scopes(&offer.scopes);
        let refreshed_later = scopes.iter().any(|scope| scope.as_str() == "offline_access");
        let prompts = match prompt {
            Some(prompt) => prompt.split_whitespace().map(prompt_of).collect(),
            None if refreshed_later => vec![CoreAuthPrompt::Consent],
            None => Vec::new(),
        };
        let request = issuer
            .client
            .authorize_url(flow, CsrfToken::new_random, Nonce::new_random);
        let request = request
            .add_scopes(scopes)
            .set_pkce_challenge(challenge)
            .set_redirect_uri(std::borrow::Cow::Borrowed(&redirect));
        let request = prompts.into_iter().fold(request, AuthorizationRequest::add_prompt);
        let (url, state, nonce) = request.url();
        Ok(Self {
            issuer,
            url,
            state,
            nonce,
            verifier,
            redirect,
        })
    }

    /// The URL that the user opens. It holds no secret that yields a token, but whoever knows it can answer the login as somebody
    /// else: it is printed, and is no argument of a program.
    pub(crate) fn url(&self) -> &str {
        self.url.as_str()
    }

    /// Waits for the redirect at the loopback or among the lines that the user pastes, and exchanges its code for tokens.
    /// `ignored` gets redirects that are not the one of this login.
    pub(crate) async fn finish(
        self,
        server: &str,
        (mut loopback, mut pasted): (Loopback, mpsc::UnboundedReceiver<String>),
        patience: Duration,
        mut ignored: impl FnMut(&Ignored),
    ) -> Result<StoredTokens, LoginError> {
        let mut count = 0;
        let expected = Expected {
            state: self.state.secret(),
            issuer: self.issuer.url(),
        };
        let code = timeout(patience, async {
            loop {
                let (query, arrival) = tokio::select! {
                    Some(arrival) = loopback.next() => (arrival.query.clone(), Some(arrival)),
                    Some(line) = pasted.recv() => (line, None),
                    // The loopback never ends, and a closed standard input is no answer.
                    else => std::future::pending().await,
                };
                let redirect = redirect::read(&query, &expected);
                if let Some(arrival) = arrival {
                    arrival.answer(&redirect);
                }
                match redirect {
                    Redirect::Code(code) => return Ok(code),
                    Redirect::Failed(error) => return Err(error),
                    Redirect::Foreign(why) => {
                        count += 1;
                        ignored(&why);
                    }
                }
            }
        });
        let code = code.await.unwrap_or_else(|_| {
            Err(LoginError::TimedOut {
                issuer: self.issuer.url().to_owned(),
                waited: patience,
                ignored: count,
            })
        })?;
        // The browser has its page before the listener goes.
        loopback.close().await;
        let secrets = [code.secret().clone(), self.verifier.secret().clone()];
        let request = self.issuer.client.exchange_code(code).set_pkce_verifier(self.verifier);
        let request = request.set_redirect_uri(std::borrow::Cow::Borrowed(&self.redirect));
        let answer = request.request_async(&self.issuer.http).await;
        let secrets = secrets.each_ref().map(String::as_str);
        let answer = answer.map_err(|error| of_token_request(self.issuer.url(), &error, &secrets))?;
        self.issuer.tokens(server, &answer, &self.nonce)
    }
}

impl std::fmt::Debug for Attempt<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Attempt")
            .field("issuer", &self.issuer.url())
            .finish_non_exhaustive()
    }
}

fn prompt_of(word: &str) -> CoreAuthPrompt {
    match word {
        "none" => CoreAuthPrompt::None,
        "login" => CoreAuthPrompt::Login,
        "consent" => CoreAuthPrompt::Consent,
        "select_account" => CoreAuthPrompt::SelectAccount,
        other => CoreAuthPrompt::Extension(other.to_owned()),
    }
}
