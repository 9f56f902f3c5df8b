//! The browser itself: whom it trusts, and that nothing of it is left.

use std::{fs, time::Duration};

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{browser::Browser, eventually_ok, run};

use crate::issuers::shared;

const SOON: Duration = Duration::from_secs(10);

#[test]
fn it_trusts_the_certificates_that_it_was_told_of_alone() -> Result<()> {
    run(async {
        let [trusted, unknown] = shared().await?;
        let browser = Browser::start(&[trusted.identity()]).await?;
        let page = browser.page().await?;
        page.open(&trusted.endpoint("discovery")?).await?;
        page.wait_for_text("authorization_endpoint").await?;
        let refused = page.open(&unknown.endpoint("discovery")?).await;
        let message = refused.err().context("it trusts any certificate")?.to_string();
        ensure!(message.contains("ERR_CERT_AUTHORITY_INVALID"), "{message}");
        Ok(())
    })
}

#[test]
fn it_fails_at_once_if_nobody_listens() -> Result<()> {
    run(async {
        let page = crate::issuers::browser().await?.page().await?;
        let refused = page.open("http://127.0.0.1:1/").await;
        let message = refused.err().context("somebody listens at port 1")?.to_string();
        ensure!(message.contains("ERR_"), "{message}");
        Ok(())
    })
}

#[test]
fn all_its_processes_end_with_it() -> Result<()> {
    run(async {
        let browser = Browser::start(&[]).await?;
        let page = browser.page().await?;
        page.open("data:text/html,<p>alive").await?;
        page.wait_for_text("alive").await?;
        let group = browser.id();
        ensure!(members(group)?.len() > 2, "Chromium has one process");
        drop(browser);
        eventually_ok("the end of all processes", SOON, async || {
            let left = members(group)?;
            ensure!(left.is_empty(), "{left:?} run");
            Ok(())
        })
        .await
    })
}

/// The ids of the processes of a group that have not ended.
fn members(group: u32) -> Result<Vec<u32>> {
    let mut members = Vec::new();
    for entry in fs::read_dir("/proc")? {
        let Some(id) = entry?.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // A process may end meanwhile.
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        // After the name, in brackets: state, parent, group.
        let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        let (state, of) = (fields.next(), fields.nth(1));
        if of == Some(group.to_string().as_str()) && state != Some("Z") {
            members.push(id);
        }
    }
    Ok(members)
}
