//! Certificates of the backend that no client accepts.

use anyhow::Result;
use bindery_e2e::{
    eventually_ok,
    pki::{Authority, Identity},
};
use jiff::{Timestamp, ToSpan as _, civil::date, tz::TimeZone};

use crate::world::{SOON, World};

/// The names of the server's own certificate.
const NAMES: [&str; 2] = ["127.0.0.1", "localhost"];
const CHECK: &str = "backend-certificate";

pub(crate) async fn of_another_ca(world: &World) -> Result<()> {
    let identity = Authority::new("another")?.server(&NAMES)?;
    let says = [
        "a CA that is not in the kubeconfig of Secret kube-bind/kubeconfig-cowboys",
        "kubectl bind renew cowboys",
    ];
    served(world, &identity, &says).await
}

pub(crate) async fn expired(world: &World) -> Result<()> {
    let authority = world.bound.provider.plane.authority();
    let identity = authority.server_until(&NAMES, date(2020, 1, 1))?;
    served(
        world,
        &identity,
        &["expired at 2020-01-01T00:00:00Z", "--tls-cert-file"],
    )
    .await
}

/// A certificate that expires within days is a warning.
pub(crate) async fn about_to_expire(world: &World) -> Result<()> {
    let provider = &world.bound.provider;
    let soon = Timestamp::now().to_zoned(TimeZone::UTC).date().checked_add(3.days())?;
    provider.serve_certificate(&provider.plane.authority().server_until(&NAMES, soon)?)?;
    eventually_ok("a warning", SOON, async || {
        let says = [
            "WARN the certificate of the backend",
            "expires in ",
            "It works, warnings: 1",
        ];
        world.run(world.check_command()?).await?.expect(0, &says)?;
        Ok(())
    })
    .await?;
    provider.serve_certificate(&provider.plane.authority().server(&NAMES)?)?;
    world.all_is_well().await
}

pub(crate) async fn for_another_name(world: &World) -> Result<()> {
    let identity = world.bound.provider.plane.authority().server(&["bind.example.com"])?;
    let says = ["bind.example.com", "and not for 127.0.0.1", "that names 127.0.0.1"];
    served(world, &identity, &says).await
}

/// Serves a certificate until the fault is found, and then a good one again.
async fn served(world: &World, identity: &Identity, says: &[&str]) -> Result<()> {
    let provider = &world.bound.provider;
    provider.serve_certificate(identity)?;
    world.finds(&[CHECK], says).await?;
    provider.serve_certificate(&provider.plane.authority().server(&NAMES)?)?;
    world.all_is_well().await
}
