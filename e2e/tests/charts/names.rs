//! Releases with names and namespaces of the user's choice: two konnectors on one cluster, each with a contract of its own, and
//! one server.

use anyhow::{Context as _, Result, ensure};
use bindery_api::{Conditions as _, v1alpha2::APIServiceBinding};
use bindery_e2e::{
    charts::{KONNECTOR, Release, SERVER},
    eventually_ok,
    offer::Offer,
    process::Programs,
    run,
    wildwest::SOON,
};
use kube::Api;

use crate::world::{NAMESPACE, World, make_namespace};

const BACKEND: Release<'static> = Release {
    name: "prod",
    namespace: "bind",
    ..SERVER
};
const EAST: Release<'static> = Release {
    name: "east",
    namespace: "konnectors-e",
    ..KONNECTOR
};
const WEST: Release<'static> = Release {
    name: "west",
    namespace: "konnectors-w",
    ..KONNECTOR
};
/// The server has a certificate that it did not make.
const OWN_CERTIFICATE: &str = "tls.mode=secret,tls.secretName=grpc,tls.privateCa=true";
const OWN: [&str; 3] = ["--create-namespace", "--set", "onlyOwnBindings=true"];

#[test]
fn names_and_namespaces_are_free() -> Result<()> {
    run(async {
        let world = Box::pin(World::start("names")).await?;
        world.during(BACKEND, two_konnectors(&world)).await
    })
}

async fn two_konnectors(world: &World) -> Result<()> {
    world.give_certificate(BACKEND.namespace).await?;
    world.install_server(BACKEND, &["--set", OWN_CERTIFICATE]).await?;
    a_second_server_is_refused(world).await?;
    let (east, west) = (Offer::new("east"), Offer::new("west"));
    for offer in [east, west] {
        world.offer(offer).await?;
    }
    make_namespace(&world.clusters.consumer, NAMESPACE).await?;

    install_two(world).await?;
    bind(world, EAST, &[]).await?;
    bind(world, WEST, &["--cluster-identity", "the-west"]).await?;
    let east = world.widgets(east, None).await?;
    let west = world.widgets(west, Some("the-west")).await?;
    east.create("one").await?;
    west.create("one").await?;
    east.change("one", "blue").await?;
    west.change("one", "green").await?;
    one_contract_has_one_konnector(world).await
}

/// No konnector is installed beside one that serves all bindings, nor one that would serve all, nor one in its namespace.
async fn install_two(world: &World) -> Result<()> {
    let consumer = &world.clusters.consumer;
    let all = ["--create-namespace"];
    let refused = async |release: Release<'_>, args: &[&str], says: &[&str]| {
        let refused = world.apply(consumer, "install", release, args).await;
        let refused = refused
            .err()
            .with_context(|| format!("{} is installed with {args:?}", release.name))?;
        let refused = format!("{refused:#}");
        ensure!(says.iter().all(|says| refused.contains(says)), "{refused}");
        anyhow::Ok(())
    };
    let both = ["onlyOwnBindings=true for both", "konnectors-e/east"];
    world.apply(consumer, "install", EAST, &all).await?;
    refused(WEST, &OWN, &both).await?;
    let deploy = world.kubectl_bind(&["deploy"]).await;
    let deploy = format!(
        "{:#}",
        deploy
            .err()
            .context("kubectl bind deploy installs a second konnector")?
    );
    ensure!(deploy.contains("konnectors-e/east"), "{deploy}");
    world.apply(consumer, "upgrade", EAST, &OWN).await?;
    refused(WEST, &all, &both).await?;
    let beside = Release {
        namespace: EAST.namespace,
        ..WEST
    };
    refused(beside, &OWN, &["a namespace of its own"]).await?;
    world.apply(consumer, "install", WEST, &OWN).await?;
    Ok(())
}

/// A cluster has one server: the roles of consumers have one name, so that Helm finds them taken. The first stays as it is.
async fn a_second_server_is_refused(world: &World) -> Result<()> {
    let before = world.left(&world.clusters.provider, BACKEND).await?;
    let second = Release {
        name: "second",
        namespace: "elsewhere",
        ..SERVER
    };
    let refused = world.install_server(second, &[]).await;
    let refused = format!("{:#}", refused.err().context("a second server is installed")?);
    for says in [
        "cannot be imported into the current release",
        "release-namespace",
        "bind",
    ] {
        ensure!(refused.contains(says), "{refused}");
    }
    let after = world.left(&world.clusters.provider, BACKEND).await?;
    ensure!(before == after && !before.is_empty(), "{before:?} became {after:?}");
    Ok(())
}

async fn bind(world: &World, release: Release<'_>, args: &[&str]) -> Result<String> {
    let konnector = [
        "--konnector-namespace",
        release.namespace,
        "--konnector-service-account",
        release.name,
    ];
    let args = [&konnector[..], args].concat();
    world.bind(&Programs::default(), release.name, &args).await
}

/// A binding that would share the contract of the other konnector writes nothing and says why.
async fn one_contract_has_one_konnector(world: &World) -> Result<()> {
    let common = Offer::new("common");
    world.offer(common).await?;
    let konnector = [
        "--konnector-namespace",
        WEST.namespace,
        "--konnector-service-account",
        WEST.name,
    ];
    world
        .bind(
            &Programs::default(),
            "common",
            &[&konnector[..], &["--wait=false"]].concat(),
        )
        .await?;
    let bindings: Api<APIServiceBinding> = Api::all(world.clusters.consumer.client());
    eventually_ok("the binding to name the other konnector", SOON, async || {
        let binding = bindings.get("common").await?;
        let says = format!("the konnector of namespace {} serves", EAST.namespace);
        let mut conditions = binding.conditions().iter();
        ensure!(
            conditions.any(|condition| condition.type_ == "SecretValid" && condition.message.contains(&says)),
            "{:?}",
            binding.conditions()
        );
        ensure!(binding.contract_uid().is_none(), "the binding is pinned");
        Ok(())
    })
    .await
}
