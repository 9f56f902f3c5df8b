//! Logins that are mixed up or forged: two at once, a redirect of another login, a code that was used.

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::https::HttpsClient;

use crate::{
    developer::{Developer, PASTED},
    world::{RANCHERS, with_world},
};

/// The value of a parameter in the query of a URL.
fn parameter(url: &str, name: &str) -> Result<String> {
    let query = url.split_once('?').map_or("", |(_, query)| query);
    let mut pairs = form_urlencoded::parse(query.as_bytes());
    let found = pairs.find(|(key, _)| key == name);
    Ok(found.with_context(|| format!("no {name} in the URL"))?.1.into_owned())
}

#[test]
fn two_logins_at_once_do_not_take_each_others_redirects() -> Result<()> {
    with_world(async |world| {
        for issuer in &world.issuers {
            let tess = Developer::new(world, issuer, "tess", &[RANCHERS]).await?;
            let (mut first, mut second) = (tess.begin(&PASTED, &[])?, tess.begin(&PASTED, &[])?);
            let (of_first, of_second) = (first.url("Open ").await?, second.url("Open ").await?);
            // The issuer's answer to the first login reaches the second one, by the loopback and by the keyboard.
            let answer = tess.sign_in_elsewhere(&of_first).await?;
            let (_, query) = answer.split_once('?').context("no query")?;
            let listener = parameter(&of_second, "redirect_uri")?;
            let page = HttpsClient::new(&issuer.ca())?
                .get(&format!("{listener}?{query}"))
                .await?;
            ensure!(page.status == 400, "{}: {}", page.status, page.text());
            second.paste(&answer).await?;
            for _ in 0..2 {
                second
                    .line("An answer was ignored: it is the answer to another login")
                    .await?;
            }
            second.paste(&tess.sign_in_elsewhere(&of_second).await?).await?;
            second.end().await?.success()?;
            first.paste(&answer).await?;
            first.end().await?.success()?;
            let who = tess.whoami().await?;
            ensure!(who["username"] == tess.username().as_str(), "{who}");
        }
        Ok(())
    })
}

#[test]
fn a_code_that_was_used_logs_nobody_in() -> Result<()> {
    with_world(async |world| {
        for issuer in &world.issuers {
            let rosa = Developer::new(world, issuer, "rosa", &[RANCHERS]).await?;
            let mut login = rosa.begin(&PASTED, &[])?;
            let answer = rosa.sign_in_elsewhere(&login.url("Open ").await?).await?;
            login.paste(&answer).await?;
            login.end().await?.success()?;
            let before = rosa.refresh_token()?;
            // A thief brings the code to a login of their own, with its state.
            let mut login = rosa.begin(&PASTED, &[])?;
            let state = parameter(&login.url("Open ").await?, "state")?;
            let forged = answer.replace(&parameter(&answer, "state")?, &state);
            ensure!(
                forged != answer,
                "{}: the state is not as it was sent",
                issuer.make().name()
            );
            login.paste(&forged).await?;
            let said = login.end().await?.failure(3)?;
            ensure!(
                said.contains("refused the login") && said.contains("invalid_grant"),
                "{said}"
            );
            ensure!(!said.contains(&parameter(&answer, "code")?), "the code is printed");
            ensure!(rosa.refresh_token()? == before, "the former login was replaced");
        }
        Ok(())
    })
}
