//! The pages on which people log in, with real issuers and a real browser.

use std::{
    collections::{BTreeMap, VecDeque},
    fs,
    net::SocketAddr,
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use bindery_e2e::{
    Workdir,
    browser::{Browser, Consent},
    issuers::{Issuer, IssuerMake, IssuerUser},
    run,
};
use tokio::time::sleep;

use crate::world::World;

/// How often the test looks whether a page has opened the browser.
const LOOK: Duration = Duration::from_millis(100);
/// Hands its one argument over to the test, which signs in.
const OPENER: &str = "#!/bin/sh\nprintf %s \"$1\" >\"$0.new\" && mv \"$0.new\" \"$0.opened\"\n";

/// Issuers, and the people who log in at them while a page is followed.
struct People {
    issuers: Vec<Issuer>,
    browser: Browser,
    /// Who logs in, in this order.
    queue: VecDeque<IssuerUser>,
    desk: Workdir,
}

impl People {
    /// Starts issuers. People are users of the first one, but for those with the number of another.
    async fn start(makes: &[IssuerMake], people: &[(usize, IssuerUser)]) -> Result<Self> {
        let mut issuers = Vec::new();
        for (number, make) in makes.iter().enumerate() {
            let own = people.iter().filter(|(at, _)| *at == number);
            let own: Vec<_> = own.map(|(_, user)| user.clone()).collect();
            issuers.push(Issuer::start(*make, &own).await?);
        }
        let trusted: Vec<_> = issuers.iter().map(Issuer::identity).collect();
        let desk = Workdir::new("browser")?;
        let opener = desk.write("browser", OPENER)?;
        fs::set_permissions(&opener, fs::Permissions::from_mode(0o700))?;
        Ok(Self {
            browser: Browser::start(&trusted).await?,
            queue: people.iter().map(|(_, user)| user.clone()).collect(),
            issuers,
            desk,
        })
    }

    fn addresses(&self) -> Result<Vec<SocketAddr>> {
        let address = |issuer: &Issuer| -> Result<SocketAddr> {
            let url = issuer.url();
            Ok(url.strip_prefix("https://").context("an issuer without TLS")?.parse()?)
        };
        self.issuers.iter().map(address).collect()
    }

    fn opener(&self) -> PathBuf {
        self.desk.path().join("browser")
    }

    /// Signs people in, each when a page opens the browser. Ends with the last one.
    async fn sign_in(&mut self) -> Result<()> {
        let opened = self.desk.path().join("browser.opened");
        while let Some(user) = self.queue.front() {
            let Ok(url) = fs::read_to_string(&opened) else {
                sleep(LOOK).await;
                continue;
            };
            fs::remove_file(&opened)?;
            let page = self.browser.page().await?;
            let text = page.sign_in(&url, user, Consent::Allow).await?;
            ensure!(text.contains("You can close this page"), "{}: {text}", user.name);
            self.queue.pop_front();
        }
        Ok(())
    }
}

/// Follows a page on which all these people log in.
async fn follow(name: &str, page: &str, mut people: People) -> Result<()> {
    let world = World::start(name).await?;
    let mut given = BTreeMap::from([
        ("BIND_URL", world.provider.address()),
        ("CA_FILE", world.provider.ca_path().display().to_string()),
        ("BROWSER", people.opener().display().to_string()),
    ]);
    let names = [("ISSUER_URL", "ISSUER_CA"), ("PARTNER_URL", "PARTNER_CA")];
    for ((url, ca), issuer) in names.into_iter().zip(&people.issuers) {
        given.extend([(url, issuer.url()), (ca, issuer.ca_file().display().to_string())]);
    }
    let addresses = people.addresses()?;
    let follow = world.follow_reaching(page, given, addresses);
    let signed_in = async {
        people.sign_in().await?;
        // The page goes on.
        std::future::pending::<Result<()>>().await
    };
    tokio::select! {
        outcome = follow => outcome?,
        failed = signed_in => failed?,
    }
    if let Some(user) = people.queue.front() {
        bail!("{} has not logged in", user.name);
    }
    Ok(())
}

#[test]
fn people_with_openid_connect() -> Result<()> {
    run(async {
        let jane = IssuerUser::new("jane", &["ranchers"]);
        let peter = IssuerUser::new("peter", &["ranchers"]);
        let people = People::start(&IssuerMake::ALL, &[(0, jane), (1, peter)]).await?;
        follow("guide-oidc", "people-with-oidc.md", people).await
    })
}

#[test]
fn teams_and_groups() -> Result<()> {
    run(async {
        let people = ["jane", "john"].map(|name| (0, IssuerUser::new(name, &["ranchers"])));
        let mary = (0, IssuerUser::new("mary", &["support"]));
        let people: Vec<_> = people.into_iter().chain([mary]).collect();
        let people = People::start(&[IssuerMake::Zitadel], &people).await?;
        follow("guide-teams", "teams-and-groups.md", people).await
    })
}

#[test]
fn headless_beside_people() -> Result<()> {
    run(async {
        let jane = IssuerUser::new("jane", &["ranchers"]);
        let people = People::start(&[IssuerMake::OidcProvider], &[(0, jane)]).await?;
        follow("guide-headless", "headless-beside-people.md", people).await
    })
}
