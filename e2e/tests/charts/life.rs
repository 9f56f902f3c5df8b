//! The life of two releases, from what a former `kubectl bind deploy` installed to an installation over what an uninstalled
//! release left. At each step objects are in sync, and none is lost, made anew or written.

use anyhow::{Context as _, Result, ensure};
use bindery_api::{ConditionStatus, Conditions as _, v1alpha2::APIServiceBinding};
use bindery_e2e::{
    ControlPlane, Process,
    charts::{self, KONNECTOR, Release, SERVER},
    eventually_ok, former, free_port,
    offer::Offer,
    process,
    remains::COLLECTED,
    run,
    wildwest::SOON,
};
use kube::Api;

use crate::world::{LIMIT, NAMESPACE, Widgets, World, make_namespace};

/// An object that changes in each step.
const CHANGED: &str = "changed";

#[test]
fn releases_come_change_and_go_and_every_object_stays() -> Result<()> {
    run(async {
        let world = Box::pin(World::start("charts")).await?;
        world.during(SERVER, life(&world)).await
    })
}

async fn life(world: &World) -> Result<()> {
    server_taken_over(world)
        .await
        .context("the server taken over by Helm")?;
    let offer = Offer::new("life");
    world.offer(offer).await?;
    make_namespace(&world.clusters.consumer, NAMESPACE).await?;

    let konnector = by_the_former_command(world).await?;
    let mut widgets = world.widgets(offer, None).await?;
    widgets.keep(&["kept-1", "kept-2", "kept-3"]).await?;
    widgets.create(CHANGED).await?;
    taken_over(world, &widgets, konnector)
        .await
        .context("taken over by Helm")?;
    upgraded(world, &widgets).await.context("upgrade")?;
    rolled_back(world, &widgets).await.context("rollback")?;
    uninstalled(world, &widgets).await.context("uninstall")?;
    installed_again(world, &widgets).await.context("install again")
}

/// What was applied from `deploy/server` becomes a release, and no object is made anew.
async fn server_taken_over(world: &World) -> Result<()> {
    let plane = &world.clusters.provider;
    let folder = charts::folder(SERVER.chart).join("../../server");
    let folder = folder.to_str().context("a path in UTF-8")?;
    // The namespace is the first file that the other files need.
    plane
        .kubectl(&["apply", "-f", &format!("{folder}/namespace.yaml")])
        .await?;
    plane.kubectl(&["apply", "-f", folder]).await?;
    let uids = r#"jsonpath={range .items[*]}{.kind}/{.metadata.name} {.metadata.uid}{"\n"}{end}"#;
    let before = plane.kubectl(&["get", "-f", folder, "-o", uids]).await?;
    let refused = world.install_server(SERVER, &[]).await;
    let refused = format!("{:#}", refused.err().context("Helm takes what is not its own")?);
    ensure!(
        refused.contains("cannot be imported into the current release"),
        "{refused}"
    );
    world
        .install_server(SERVER, &["--take-ownership", "--force-conflicts", "--wait"])
        .await?;
    let after = plane.kubectl(&["get", "-f", folder, "-o", uids]).await?;
    ensure!(
        before == after && before.lines().count() > 10,
        "{before}\nbecame\n{after}"
    );
    Ok(())
}

/// The konnector of a former version, installed by its own command, with a binding. There is no image of that version, so that it
/// runs beside its Pod.
async fn by_the_former_command(world: &World) -> Result<Process> {
    let former = tokio::task::spawn_blocking(former::locate).await??;
    let mut command = former.command("kubectl-bind")?;
    command.env("KUBECONFIG", world.clusters.consumer.kubeconfig_path());
    command.args([
        "deploy",
        "--konnector-image",
        "registry.example.com/bindery-konnector:1",
    ]);
    process::stdout(&process::run(command, SOON).await?).context("the former kubectl bind deploy")?;
    let namespace = KONNECTOR.namespace;
    let mut command = former.command("bindery-konnector")?;
    let kubeconfig = world
        .clusters
        .consumer
        .service_account_kubeconfig(namespace, KONNECTOR.name)
        .await?;
    command.arg("--kubeconfig").arg(kubeconfig);
    command.args(["--namespace", namespace, "--lease-namespace", namespace]);
    command.arg(format!("--server-address=127.0.0.1:{}", free_port()?));
    let konnector = Process::spawn("former-konnector", &command)?;
    world.bind(&former, "life", &[]).await?;
    Ok(konnector)
}

/// Helm takes the set over: without the flag it refuses, and the set can then be forgotten without losing an object.
async fn taken_over(world: &World, widgets: &Widgets, mut former: Process) -> Result<()> {
    let plane = &world.clusters.consumer;
    let refused = world.apply(plane, "install", KONNECTOR, &[]).await;
    let refused = format!("{:#}", refused.err().context("Helm takes what is not its own")?);
    ensure!(
        refused.contains("cannot be imported into the current release"),
        "{refused}"
    );

    let take = ["--take-ownership", "--force-conflicts", "--wait"];
    world.apply(plane, "install", KONNECTOR, &take).await?;
    former.terminate(SOON).await?;
    former.hush();
    widgets.are_kept("takeover").await?;
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
    widgets.change(CHANGED, "blue").await?;

    let refused = world.kubectl_bind(&["deploy"]).await;
    let refused = format!("{:#}", refused.err().context("kubectl bind deploy works against Helm")?);
    ensure!(refused.contains("helm upgrade konnector"), "{refused}");
    Ok(())
}

/// The API server says which field of a free-form value it does not know.
async fn an_unknown_field_is_refused(world: &World) -> Result<()> {
    let args = ["--set", "affinity.nodes=1"];
    let refused = world.apply(&world.clusters.consumer, "upgrade", KONNECTOR, &args).await;
    let refused = format!("{:#}", refused.err().context("an unknown field is dropped")?);
    ensure!(
        refused.contains("affinity.nodes") && refused.contains("not declared in schema"),
        "{refused}"
    );
    Ok(())
}

/// Helm neither drops a flag that somebody set by hand nor keeps it silently. The flag becomes a value.
async fn a_flag_set_by_hand_is_a_conflict(world: &World) -> Result<()> {
    let plane = &world.clusters.consumer;
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

async fn upgraded(world: &World, widgets: &Widgets) -> Result<()> {
    an_unknown_field_is_refused(world).await?;
    a_flag_set_by_hand_is_a_conflict(world).await?;
    let [server, konnector] = [SERVER, KONNECTOR].map(|release| charts::folder(release.chart).join("values-ha.yaml"));
    let file = |path: &std::path::Path| path.to_str().map(str::to_owned).context("a path in UTF-8");
    let values = world.server_values();
    let (server, konnector) = (file(&server)?, file(&konnector)?);
    world
        .apply(
            &world.clusters.provider,
            "upgrade",
            SERVER,
            &["--values", &server, "--set", &values, "--wait"],
        )
        .await?;
    let set = "pollingInterval=5s,bundleResources={widgets.life.example.dev}";
    world
        .apply(
            &world.clusters.consumer,
            "upgrade",
            KONNECTOR,
            &["--values", &konnector, "--set", set, "--force-conflicts", "--wait"],
        )
        .await?;
    widgets.are_kept("upgrade").await?;
    widgets.change(CHANGED, "green").await
}

async fn rolled_back(world: &World, widgets: &Widgets) -> Result<()> {
    for (plane, release) in [
        (&world.clusters.provider, SERVER),
        (&world.clusters.consumer, KONNECTOR),
    ] {
        let args = ["rollback", release.name, "--namespace", release.namespace, "--wait"];
        world.helm(plane, &args).await?;
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
    widgets.are_kept("rollback").await?;
    widgets.change(CHANGED, "white").await
}

/// What belongs to users, the CRDs, and what limits consumers stay. All else of the releases goes. The konnector runs while the
/// provider's roles go, and loses its access.
async fn uninstalled(world: &World, widgets: &Widgets) -> Result<()> {
    uninstall(world, &world.clusters.provider, SERVER).await?;
    widgets.set(CHANGED, "black").await?;
    let bindings: Api<APIServiceBinding> = Api::all(world.clusters.consumer.client());
    eventually_ok("the binding to say that the provider refuses", LIMIT, async || {
        let binding = bindings.get("life").await?;
        let mut conditions = binding.conditions().iter();
        ensure!(
            conditions
                .any(|condition| condition.status == ConditionStatus::False
                    && condition.message.contains("lacks rights")),
            "{:?}",
            binding.conditions()
        );
        Ok(())
    })
    .await?;
    widgets.are_as_before("the server's uninstallation").await?;
    uninstall(world, &world.clusters.consumer, KONNECTOR).await?;
    let binding = world
        .clusters
        .consumer
        .kubectl(&["get", "apiservicebindings", "-o", "name"])
        .await?;
    ensure!(binding.contains("/life"), "{binding}");
    for (plane, release, policies) in [
        (
            &world.clusters.provider,
            SERVER,
            ["kube-bind-binder", "kube-bind-requests", "kube-bind-server"],
        ),
        (
            &world.clusters.consumer,
            KONNECTOR,
            [
                "kube-bind-konnector",
                "kube-bind-konnector-account",
                "kube-bind-konnector-claims",
            ],
        ),
    ] {
        let kinds = ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"];
        let expect = kinds.map(|kind| policies.map(|name| format!("{kind} {name}"))).concat();
        // The garbage collector takes the Pods.
        eventually_ok(format!("{} to be gone", release.name), COLLECTED, async || {
            let left = world.left(plane, release).await?;
            ensure!(left == expect, "left on {}: {left:?}", plane.name());
            Ok(())
        })
        .await?;
    }
    widgets.are_as_before("uninstalling").await
}

async fn uninstall(world: &World, plane: &ControlPlane, release: Release<'_>) -> Result<String> {
    let args = ["uninstall", release.name, "--namespace", release.namespace];
    world.helm(plane, &args).await
}

async fn installed_again(world: &World, widgets: &Widgets) -> Result<()> {
    world.install_server(SERVER, &["--wait"]).await?;
    world
        .apply(&world.clusters.consumer, "install", KONNECTOR, &["--wait"])
        .await?;
    // What was changed meanwhile.
    widgets.is_copied(CHANGED, "black").await?;
    widgets.create("of-the-second-time").await?;
    widgets
        .ours
        .delete("of-the-second-time", &kube::api::DeleteParams::default())
        .await?;
    eventually_ok("the object to be gone on both sides", SOON, async || {
        let left = [
            widgets.ours.get_opt("of-the-second-time").await?,
            widgets.copies.get_opt("of-the-second-time").await?,
        ];
        ensure!(left.iter().all(Option::is_none), "{left:?}");
        Ok(())
    })
    .await?;
    widgets.are_kept("second-install").await?;
    widgets.change(CHANGED, "white").await
}
