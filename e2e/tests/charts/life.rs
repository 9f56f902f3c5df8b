//! The life of two releases, from what a former `kubectl bind deploy` installed to an installation over what an uninstalled
//! release left. At each step objects are in sync, and none is lost, made anew or written.

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{
    Deployed,
    charts::{self, KONNECTOR, SERVER},
    former,
    offer::Offer,
    process::{self, Programs},
    run,
    wildwest::SOON,
};

use crate::world::{NAMESPACE, Widgets, World, make_namespace};

/// Objects that nobody touches.
const KEPT: [&str; 3] = ["kept-1", "kept-2", "kept-3"];

#[test]
fn releases_come_change_and_go_and_every_object_stays() -> Result<()> {
    run(async {
        let world = Box::pin(World::start("charts")).await?;
        Box::pin(life(&world)).await
    })
}

async fn life(world: &World) -> Result<()> {
    world.install_server(SERVER, &[]).await?;
    let server = world.run_server(SERVER).await?;
    let offer = Offer::new("life");
    world.offer(offer).await?;
    make_namespace(&world.consumer, NAMESPACE).await?;

    let konnector = by_the_former_command(world).await?;
    let widgets = world.widgets(offer, None).await?;
    for name in KEPT {
        widgets.create(name).await?;
    }
    let konnector = taken_over(world, &widgets, konnector)
        .await
        .context("taken over by Helm")?;
    let programs = upgraded(world, &widgets, [server, konnector])
        .await
        .context("upgrade")?;
    let programs = rolled_back(world, &widgets, programs).await.context("rollback")?;
    uninstalled(world, &widgets, programs).await.context("uninstall")?;
    installed_again(world, &widgets).await.context("install again")
}

/// The konnector of a former version, installed by its own command, with a binding.
async fn by_the_former_command(world: &World) -> Result<Deployed> {
    let former = tokio::task::spawn_blocking(former::locate).await??;
    let mut command = former.command("kubectl-bind")?;
    command.env("KUBECONFIG", world.consumer.kubeconfig_path());
    command.args([
        "deploy",
        "--konnector-image",
        "registry.example.com/bindery-konnector:1",
    ]);
    process::stdout(&process::run(command, SOON).await?).context("the former kubectl bind deploy")?;
    let konnector = Deployed::start(&world.consumer, &former, KONNECTOR.namespace, KONNECTOR.name).await?;
    world.bind(&former, "life", &[]).await?;
    Ok(konnector)
}

/// Helm takes the set over: without the flag it refuses, and the set can then be forgotten without losing an object.
async fn taken_over(world: &World, widgets: &Widgets, konnector: Deployed) -> Result<Deployed> {
    let plane = &world.consumer;
    let refused = world.apply(plane, "install", KONNECTOR, &[]).await;
    let refused = format!("{:#}", refused.err().context("Helm takes what is not its own")?);
    ensure!(
        refused.contains("cannot be imported into the current release"),
        "{refused}"
    );

    let before = widgets.seen().await?;
    world
        .apply(plane, "install", KONNECTOR, &["--take-ownership", "--force-conflicts"])
        .await?;
    konnector.stop().await?;
    let konnector = world.run_konnector(KONNECTOR).await?;
    before.is_kept(widgets, "the takeover").await?;
    let forgotten = plane
        .kubectl(&[
            "delete",
            "resourcesets",
            "-l",
            "name=konnector",
            "--cascade=orphan",
            "-o",
            "name",
        ])
        .await?;
    ensure!(forgotten.lines().count() == 1, "{forgotten}");
    widgets.change("kept-1", "blue").await?;

    let refused = kubectl_bind(world, &["deploy"]).await;
    let refused = format!("{:#}", refused.err().context("kubectl bind deploy works against Helm")?);
    ensure!(refused.contains("helm upgrade konnector"), "{refused}");
    Ok(konnector)
}

/// The API server says which field of a free-form value it does not know.
async fn an_unknown_field_is_refused(world: &World) -> Result<()> {
    let args = ["--set", "affinity.nodes=1"];
    let refused = world.apply(&world.consumer, "upgrade", KONNECTOR, &args).await;
    let refused = format!("{:#}", refused.err().context("an unknown field is dropped")?);
    ensure!(
        refused.contains("affinity.nodes") && refused.contains("not declared in schema"),
        "{refused}"
    );
    Ok(())
}

/// Helm neither drops a flag that somebody set by hand nor keeps it silently. The flag becomes a value.
async fn a_flag_set_by_hand_is_a_conflict(world: &World) -> Result<()> {
    let plane = &world.consumer;
    let flag = "--heartbeat-interval=1m";
    let add = format!(r#"[{{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "{flag}"}}]"#);
    let deployment = ["deployment", KONNECTOR.name, "-n", KONNECTOR.namespace];
    plane
        .kubectl(&[&["patch"], &deployment[..], &["--type=json", "-p", &add]].concat())
        .await?;
    let refused = world.apply(plane, "upgrade", KONNECTOR, &[]).await;
    let refused = format!("{:#}", refused.err().context("the flag was dropped")?);
    ensure!(refused.contains("conflict") && refused.contains("args"), "{refused}");
    let value = format!("extraArgs={{{flag}}}");
    let args = ["--set", &value, "--force-conflicts"];
    world.apply(plane, "upgrade", KONNECTOR, &args).await?;
    let args = "jsonpath={.spec.template.spec.containers[0].args}";
    let args = plane
        .kubectl(&[&["get"], &deployment[..], &["-o", args]].concat())
        .await?;
    ensure!(args.matches(flag).count() == 1, "{args}");
    Ok(())
}

async fn kubectl_bind(world: &World, args: &[&str]) -> Result<String> {
    let mut command = Programs::default().command("kubectl-bind")?;
    command.env("KUBECONFIG", world.consumer.kubeconfig_path()).args(args);
    process::stdout(&process::run(command, SOON).await?)
}

async fn upgraded(world: &World, widgets: &Widgets, programs: [Deployed; 2]) -> Result<[Deployed; 2]> {
    an_unknown_field_is_refused(world).await?;
    a_flag_set_by_hand_is_a_conflict(world).await?;
    let before = widgets.seen().await?;
    let [server, konnector] = [SERVER, KONNECTOR].map(|release| charts::folder(release.chart).join("values-ha.yaml"));
    let file = |path: &std::path::Path| path.to_str().map(str::to_owned).context("a path in UTF-8");
    let values = world.server_values();
    let (server, konnector) = (file(&server)?, file(&konnector)?);
    world
        .apply(
            &world.provider,
            "upgrade",
            SERVER,
            &["--values", &server, "--set", &values],
        )
        .await?;
    let set = "pollingInterval=5s,bundleResources={widgets.life.example.dev}";
    world
        .apply(
            &world.consumer,
            "upgrade",
            KONNECTOR,
            &["--values", &konnector, "--set", set, "--force-conflicts"],
        )
        .await?;
    let programs = restarted(world, programs).await?;
    before.is_kept(widgets, "the upgrade").await?;
    widgets.change("kept-2", "green").await?;
    widgets.create("of-the-upgrade").await?;
    Ok(programs)
}

async fn rolled_back(world: &World, widgets: &Widgets, programs: [Deployed; 2]) -> Result<[Deployed; 2]> {
    let before = widgets.seen().await?;
    for (plane, release) in [(&world.provider, SERVER), (&world.consumer, KONNECTOR)] {
        world
            .helm(plane, &["rollback", release.name, "--namespace", release.namespace])
            .await?;
        let replicas = [
            "get",
            "deployment",
            release.name,
            "-n",
            release.namespace,
            "-o",
            "jsonpath={.spec.replicas}",
        ];
        ensure!(
            plane.kubectl(&replicas).await? == "1",
            "{} is not as before",
            release.name
        );
    }
    let programs = restarted(world, programs).await?;
    before.is_kept(widgets, "the rollback").await?;
    widgets.change("kept-3", "blue").await?;
    Ok(programs)
}

/// The pods of the former templates end, and those of the present ones start.
async fn restarted(world: &World, programs: [Deployed; 2]) -> Result<[Deployed; 2]> {
    for program in programs {
        program.stop().await?;
    }
    Ok([world.run_server(SERVER).await?, world.run_konnector(KONNECTOR).await?])
}

/// What belongs to users, the CRDs, and what limits consumers stay. All else of the releases goes.
async fn uninstalled(world: &World, widgets: &Widgets, programs: [Deployed; 2]) -> Result<()> {
    let before = widgets.seen().await?;
    for program in programs {
        program.stop().await?;
    }
    for (plane, release) in [(&world.provider, SERVER), (&world.consumer, KONNECTOR)] {
        world
            .helm(plane, &["uninstall", release.name, "--namespace", release.namespace])
            .await?;
    }
    let binding = world
        .consumer
        .kubectl(&["get", "apiservicebindings", "-o", "name"])
        .await?;
    ensure!(binding.contains("/life"), "{binding}");
    let kept = world.left(&world.provider, SERVER).await?;
    let policies: Vec<_> = ["kube-bind-binder", "kube-bind-requests"]
        .iter()
        .flat_map(|name| {
            ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"].map(|kind| format!("{kind} {name}"))
        })
        .collect();
    let is_policy = |name: &String| policies.contains(name);
    ensure!(
        kept.len() == policies.len() && kept.iter().all(is_policy),
        "left on the provider: {kept:?}"
    );
    let kept = world.left(&world.consumer, KONNECTOR).await?;
    ensure!(kept.is_empty(), "left on the consumer: {kept:?}");
    before.is_kept(widgets, "uninstalling").await
}

async fn installed_again(world: &World, widgets: &Widgets) -> Result<()> {
    let before = widgets.seen().await?;
    world.install_server(SERVER, &[]).await?;
    world.apply(&world.consumer, "install", KONNECTOR, &[]).await?;
    let _server = world.run_server(SERVER).await?;
    let _konnector = world.run_konnector(KONNECTOR).await?;
    widgets.create("of-the-second-time").await?;
    widgets
        .ours
        .delete("of-the-second-time", &kube::api::DeleteParams::default())
        .await?;
    bindery_e2e::eventually_ok("the object to be gone on both sides", SOON, async || {
        let left = [
            widgets.ours.get_opt("of-the-second-time").await?,
            widgets.copies.get_opt("of-the-second-time").await?,
        ];
        ensure!(left.iter().all(Option::is_none), "{left:?}");
        Ok(())
    })
    .await?;
    before.is_kept(widgets, "installing again").await?;
    widgets.change("kept-1", "white").await
}
