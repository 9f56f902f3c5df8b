//! The issuer of the first login is remembered: a server that names another one gets nobody's token.

use anyhow::{Result, ensure};
use bindery_e2e::{eventually_ok, wildwest::SOON};
use bindery_proto::v1alpha2::authentication_method::Method;
use bindery_sdk::Client;

use crate::{
    developer::{Developer, PASTED},
    world::{RANCHERS, with_quiet_world},
};

/// The issuers at which a server lets people log in.
async fn offered(client: &Client) -> Result<Vec<String>> {
    let methods = client.get_provider().await?.authentication_methods;
    let issuers = methods.into_iter().filter_map(|method| match method.method {
        Some(Method::Oidc(oidc)) => Some(oidc.issuer),
        _ => None,
    });
    Ok(issuers.collect())
}

#[test]
fn a_server_that_names_another_issuer_is_refused_until_the_person_confirms_it() -> Result<()> {
    with_quiet_world(async |world| {
        let [known, attackers] = &world.issuers;
        let mut pia = Developer::new(world, known, "pia", &[RANCHERS]).await?;
        pia.server = world.provider.replica_address(1);
        pia.log_in().await?;
        pia.ok(&["templates"]).await?;

        world.move_to(attackers)?;
        let client = Client::builder(pia.server.clone())
            .ca_pem(world.provider.plane.ca_pem())
            .build()?;
        eventually_ok("the server to name another issuer", SOON, async || {
            let offered = offered(&client).await?;
            ensure!(offered == [attackers.url()], "{offered:?}");
            Ok(())
        })
        .await?;
        attackers.forget_requests();
        for flags in [&["--no-browser"][..], &["--device"], &["--prompt", "login"]] {
            let said = pia.fails(&[&["login"][..], flags].concat(), 3).await?;
            for part in [
                &*format!("names issuer {}", attackers.url()),
                &*known.url(),
                "Nothing was sent",
                "--issuer",
            ] {
                ensure!(said.contains(part), "no {part:?} in: {said}");
            }
        }
        // The login goes on, at the issuer that it is of, whatever the server says.
        let said = pia.fails(&["templates"], 3).await?;
        ensure!(said.contains("issuer is not trusted"), "{said}");
        let seen = attackers.requests();
        ensure!(seen.is_empty(), "the attacker's issuer got {seen:?}");
        ensure!(
            pia.stored()?["issuer"] == known.url().as_str(),
            "the login was replaced"
        );

        // The same person, confirmed: the former issuer's tokens are not sent to the new one.
        let moved = Developer::named(world, attackers, pia.user.clone()).await?;
        let ca = attackers.ca_file().display().to_string();
        let url = attackers.url();
        let confirm = ["login", "--issuer", &url, "--issuer-ca", &ca];
        let mut login = pia.begin_again(&[&confirm[..], &PASTED].concat())?;
        let url = login.url("Open ").await?;
        login.paste(&moved.sign_in_elsewhere(&url).await?).await?;
        login.end().await?.success()?;
        ensure!(pia.stored()?["issuer"] == attackers.url().as_str());
        pia.ok(&["templates"]).await.map(drop)
    })
}
