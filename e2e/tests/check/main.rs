//! `kubectl bind check` finds each of twelve planted faults and names its mend, and nothing where all is well; `kubectl bind
//! revoke`, as the owner and as the provider's admin. All faults are planted on one pair of clusters, one after the other: each
//! is mended before the next, as far as that can be done by what the command prints.

mod certificates;
mod end_to_end;
mod faults;
mod login;
mod revoke;
mod world;

use anyhow::{Context as _, Result};
use bindery_e2e::run;
use world::World;

#[test]
fn twelve_faults_are_found_and_nothing_where_all_is_well() -> Result<()> {
    run(async {
        let mut world = World::start("check").await?;
        world.all_is_well().await.context("before the first fault")?;
        end_to_end::an_object_travels(&world).await.context("end to end")?;
        end_to_end::a_stopped_run_leaves_nothing(&world)
            .await
            .context("end to end, stopped")?;
        end_to_end::it_needs_the_provider(&world).await?;
        faults::a_user_without_rights(&world)
            .await
            .context("a user without rights")?;
        certificates::of_another_ca(&world)
            .await
            .context("a certificate of another CA")?;
        certificates::expired(&world).await.context("an expired certificate")?;
        certificates::about_to_expire(&world)
            .await
            .context("a certificate that expires soon")?;
        certificates::for_another_name(&world)
            .await
            .context("a certificate for another name")?;
        faults::policy_gone(&world).await.context("no policy")?;
        faults::policy_binding_gone(&world).await.context("no policy binding")?;
        faults::server_policy_gone(&world)
            .await
            .context("no policy on the provider")?;
        faults::missing_rule(&world).await.context("a missing rule")?;
        faults::clock(&world).await.context("a wrong clock")?;
        faults::versions(&world).await.context("versions too far apart")?;
        login::shared_client_id(&world)
            .await
            .context("a client id that the API server shares")?;
        revoke::by_the_owner(&world).await.context("revoked by the owner")?;
        revoke::by_the_admin(&world)
            .await
            .context("revoked by the provider's admin")?;
        revoke::bad_input(&world).await.context("bad input")?;
        faults::no_lease_holder(&mut world).await.context("no leader")?;
        faults::backend_away(&mut world).await.context("no backend")?;
        faults::api_server_away(&world).await.context("no API server")?;
        faults::api_server_silent(&world)
            .await
            .context("an API server that does not answer")
    })
}
