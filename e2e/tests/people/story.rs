//! The whole story of a developer: log in, see what the group may use, bind it, lose the group, log out.

use anyhow::{Context as _, Result, ensure};
use bindery_api::names;
use bindery_e2e::{
    Provider, eventually_ok,
    issuers::CLIENT,
    wildwest::{self, Cowboys, SOON},
};
use kube::Api;

use crate::{
    developer::Developer,
    oidc::Oidc,
    world::{PREFIX, RANCHERS, World, with_world},
};

#[test]
fn a_person_binds_what_the_group_may_and_loses_no_more_than_the_group() -> Result<()> {
    with_world(async |world| {
        for issuer in &world.issuers {
            let belle = Developer::new(world, issuer, "belle", &[RANCHERS]).await?;
            belle.log_in().await?;
            let listed = belle.ok(&["templates", "-o", "name"]).await?;
            ensure!(listed.contains("cowboys") && !listed.contains("sheriffs"), "{listed}");
            let namespace = format!("of-{}", belle.user.name);
            wildwest::namespace(world.consumer.plane.client(), &namespace).await?;
            // Each issuer's developer has a contract, although they use one cluster.
            let copies = names::provider_namespace(&Provider::contract(&namespace), &namespace);
            let cowboys = Cowboys {
                ours: Api::namespaced_with(world.consumer.plane.client(), &namespace, &wildwest::resource()),
                copies: Api::namespaced_with(world.provider.plane.client(), &copies, &wildwest::resource()),
            };
            belle.ok(&["cowboys", "--cluster-identity", &namespace]).await?;
            cowboys.create("billy", "ride").await?;
            cowboys.copied("billy", "ride").await?;
            loses_the_group(world, &belle, &cowboys).await?;
            logs_out(&belle, &cowboys).await?;
            belle.ok(&["unbind", "cowboys", "--delete-objects"]).await?;
            belle.ok(&["server", "remove", &belle.server]).await?;
            let said = belle.fails(&["templates"], 2).await?;
            ensure!(said.contains("no server is given"), "{said}");
        }
        Ok(())
    })
}

/// The issuer takes the group away: templates vanish with the next refresh, what is bound goes on, and the next bind is refused.
async fn loses_the_group(world: &World, belle: &Developer, cowboys: &Cowboys) -> Result<()> {
    belle.issuer.set_groups(&belle.user.name, &["drifters"]).await?;
    eventually_ok("the templates to vanish", SOON, async || {
        let listed = belle.ok(&["templates", "-o", "name"]).await?;
        ensure!(listed.trim().is_empty(), "{listed}");
        Ok(())
    })
    .await?;
    cowboys.intend("billy", "rest").await?;
    cowboys.copied("billy", "rest").await?;
    cowboys.report("billy", "rests").await?;
    cowboys.reported("billy", "rests").await?;
    let bind = ["cowboys", "--name", "riders", "--cluster-identity", "elsewhere"];
    let said = belle.fails(&bind, 3).await?;
    let group = format!("{PREFIX}drifters");
    for part in ["verb bind", &belle.username(), &group, "kind: ClusterRoleBinding"] {
        ensure!(said.contains(part), "no {part:?} in: {said}");
    }
    // What the refusal prints is what an admin pastes.
    let pasted = said.split_once("apiVersion:").context("no manifest")?.1;
    world.provider.plane.apply(&format!("apiVersion:{pasted}")).await?;
    eventually_ok("the pasted right to take effect", SOON, async || {
        let listed = belle.ok(&["templates", "-o", "name"]).await?;
        ensure!(listed.contains("cowboys"), "{listed}");
        Ok(())
    })
    .await
}

/// After the logout, the next call says so, the issuer refuses the refresh token, and what is bound goes on.
async fn logs_out(belle: &Developer, cowboys: &Cowboys) -> Result<()> {
    let refresh_token = belle.refresh_token()?;
    let said = belle.ok(&["logout"]).await?;
    ensure!(said.contains(&format!("Logged out of {}", belle.server)), "{said}");
    for args in [&["templates"][..], &["whoami"], &["token"], &["cowboys"]] {
        let said = belle.fails(args, 3).await?;
        let mend = format!("kubectl bind login {}", belle.server);
        ensure!(said.contains("you are logged out of") && said.contains(&mend), "{said}");
    }
    let refused = Oidc::of(belle.issuer, CLIENT)?.refresh(&refresh_token).await?.err();
    ensure!(refused.as_deref() == Some("invalid_grant"), "{refused:?}");
    let said = belle.ok(&["logout"]).await?;
    ensure!(said.contains("logged out already"), "{said}");
    cowboys.intend("billy", "sleep").await?;
    cowboys.copied("billy", "sleep").await.map(drop)
}
