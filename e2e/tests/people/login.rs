//! `kubectl bind login` through a real browser, by both flows, at each issuer.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{browser::Consent, eventually, wildwest::SOON};
use serde_json::json;

use crate::{
    developer::{Developer, PASTED},
    world::{ID_TOKEN, PREFIX, RANCHERS, with_world},
};

/// What the page of a login says that has ended well.
const FAREWELL: &str = "Go back to the terminal";

/// That the server knows a developer, and lets them bind what their group may.
async fn is_known(developer: &Developer) -> Result<()> {
    let who = developer.whoami().await?;
    let group = format!("{PREFIX}{RANCHERS}");
    ensure!(who["username"] == developer.username().as_str(), "{who}");
    ensure!(
        who["issuer"] == developer.issuer.url().as_str() && who["refreshed"] == true,
        "{who}"
    );
    ensure!(
        who["groups"]
            .as_array()
            .is_some_and(|groups| groups.contains(&json!(group))),
        "{who}"
    );
    let templates = who["templates"].as_array().context("no templates")?;
    ensure!(templates.len() == 1 && templates[0]["name"] == "cowboys", "{who}");
    let granted_by = templates[0]["grantedBy"].as_str().unwrap_or_default();
    ensure!(granted_by.contains(&group), "{who}");
    let left = who["expiresInSeconds"].as_u64();
    ensure!(left.is_some_and(|left| left <= ID_TOKEN.as_secs()), "{who}");
    Ok(())
}

/// That the developer alone can read what was kept.
fn is_private(developer: &Developer) -> Result<()> {
    let mode = |path: &Path| -> Result<u32> { Ok(fs::metadata(path)?.permissions().mode() & 0o777) };
    let file = developer.token_file()?;
    let folder = file.parent().context("a file is in a folder")?;
    ensure!(
        mode(&file)? == 0o600 && mode(folder)? == 0o700,
        "others can read {}",
        file.display()
    );
    Ok(())
}

#[test]
fn a_person_logs_in_with_the_browser_that_the_command_opens() -> Result<()> {
    with_world(async |world| {
        for issuer in &world.issuers {
            let jane = Developer::new(world, issuer, "jane", &[RANCHERS]).await?;
            // A browser that hands its one argument over to the test.
            let opened = jane.desk().path().join("opened");
            let script = format!(
                "#!/bin/sh\nprintf %s \"$*\" >\"$0.new\" && mv \"$0.new\" '{}'\n",
                opened.display()
            );
            let browser = jane.desk().write("browser", script)?;
            fs::set_permissions(&browser, fs::Permissions::from_mode(0o700))?;
            let browser = browser.to_str().context("a path in UTF-8")?;
            let mut login = jane.begin(&[], &[("BROWSER", browser)])?;
            let opened = eventually("the browser to be opened", SOON, async || {
                Ok(fs::read_to_string(&opened).ok())
            })
            .await?;
            // Other users of the machine see the argument: it leads to the issuer, and tells nothing of the login.
            let printed = login.url("Your browser opens").await?;
            ensure!(
                printed.starts_with(&issuer.url()) && opened.starts_with("http://127.0.0.1:") && !opened.contains('?'),
                "{printed} is printed and {opened} opened"
            );
            let page = world.browser.page().await?;
            let text = page.sign_in(&opened, &jane.user, Consent::Allow).await?;
            ensure!(text.contains(FAREWELL), "{text}");
            let said = login.end().await?.success()?;
            ensure!(said.contains(&jane.username()) && said.contains(RANCHERS), "{said}");
            is_private(&jane)?;
            is_known(&jane).await?;
            let listed = jane.ok(&["server", "list", "-o", "json"]).await?;
            ensure!(
                listed.contains("\"Refreshed\"") && listed.contains(&issuer.url()),
                "{listed}"
            );
        }
        Ok(())
    })
}

#[test]
fn a_person_pastes_the_address_that_a_browser_elsewhere_ends_at() -> Result<()> {
    with_world(async |world| {
        for issuer in &world.issuers {
            let paul = Developer::new(world, issuer, "paul", &[RANCHERS]).await?;
            paul.log_in().await?;
            is_known(&paul).await?;
            // The same person logs in again, at the current server and the remembered issuer.
            let mut login = paul.begin_again(&[&["login"][..], &PASTED].concat())?;
            let url = login.url("Open ").await?;
            login.paste(&paul.sign_in_elsewhere(&url).await?).await?;
            login.end().await?.success()?;
            is_known(&paul).await?;
        }
        Ok(())
    })
}

#[test]
fn a_person_without_a_display_confirms_a_code_elsewhere() -> Result<()> {
    with_world(async |world| {
        for (issuer, flags) in world.issuers.iter().zip([&["--device"][..], &[]]) {
            let dora = Developer::new(world, issuer, "dora", &[RANCHERS]).await?;
            let mut login = dora.begin(flags, &[])?;
            let line = login.line("and enter the code").await?;
            let code = line.rsplit(' ').next().unwrap_or_default().to_owned();
            let url = login.url("Or open").await?;
            ensure!(code.len() >= 8 && url.starts_with(&issuer.url()), "{line}\n{url}");
            let page = world.browser.page().await?;
            let text = page.sign_in(&url, &dora.user, Consent::Allow).await?;
            ensure!(text.contains("Return to your device"), "{text}");
            login.end().await?.success()?;
            is_private(&dora)?;
            is_known(&dora).await?;
        }
        Ok(())
    })
}

#[test]
fn a_person_who_denies_is_not_logged_in() -> Result<()> {
    with_world(async |world| {
        for issuer in &world.issuers {
            let nina = Developer::new(world, issuer, "nina", &[RANCHERS]).await?;
            let page = world.browser.page().await?;
            let mut login = nina.begin(&["--no-browser"], &[])?;
            let url = login.url("Open ").await?;
            page.sign_in(&url, &nina.user, Consent::Deny).await?;
            let by_code = login.end().await?.failure(3)?;

            let page = world.browser.page().await?;
            let mut login = nina.begin(&["--device"], &[])?;
            let url = login.url("Or open").await?;
            page.sign_in(&url, &nina.user, Consent::Deny).await?;
            let by_device = login.end().await?.failure(3)?;

            for said in [by_code, by_device] {
                ensure!(
                    said.contains("the login was refused at") && said.contains(&issuer.url()),
                    "{said}"
                );
            }
            ensure!(!nina.config().join("servers.yaml").exists(), "a server is remembered");
            let said = nina.fails(&["templates"], 2).await?;
            ensure!(said.contains("kubectl bind login"), "{said}");
        }
        Ok(())
    })
}

#[test]
fn the_issuer_is_chosen_by_the_person_where_there_are_several() -> Result<()> {
    with_world(async |world| {
        let sam = Developer::new(world, &world.issuers[0], "sam", &[]).await?;
        let ca = world.ca_path();
        let ca = ca.to_str().context("a path in UTF-8")?;
        let login = ["login", &sam.server, "--certificate-authority", ca];
        let said = sam.fails(&login, 2).await?;
        for issuer in &world.issuers {
            ensure!(said.contains(&issuer.url()), "{said}");
        }
        let unknown = [&login[..], &["--issuer", "https://evil.example.com"]].concat();
        let said = sam.fails(&unknown, 2).await?;
        ensure!(
            said.contains("does not let you log in at https://evil.example.com"),
            "{said}"
        );
        // The CA of one issuer does not vouch for the other.
        let wrong = world.issuers[1]
            .ca_file()
            .to_str()
            .context("a path in UTF-8")?
            .to_owned();
        let url = world.issuers[0].url();
        let said = sam
            .fails(&[&login[..], &["--issuer", &url, "--issuer-ca", &wrong]].concat(), 1)
            .await?;
        ensure!(said.contains("cannot be reached"), "{said}");
        Ok(())
    })
}
