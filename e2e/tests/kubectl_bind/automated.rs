//! The path of automation with everything real: a request on the provider, one command on the consumer, and what would be
//! adopted.

use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use bindery_api::{names, v1alpha2::BindableResourcesRequest};
use bindery_e2e::{
    Consumer, ControlPlane, Process, Provider, eventually_ok, lease, manifests, process, run,
    wildwest::{self, Cowboys, SOON},
};
use kube::{
    Api, ResourceExt,
    api::{DynamicObject, PostParams},
};
use serde_json::{Value, json};

const NAMESPACE: &str = "wild-west";
const TEAM: &str = "team-a";
const SECRET: &str = "cowboys-binding-response";
/// A cluster-scoped API whose objects carry the contract's name in front, and one whose consumers share names.
const SHERIFFS: [&str; 2] = ["sheriffs", "sheriffs-shared"];

struct World {
    provider: Provider,
    consumer: Consumer,
    /// The contract namespace.
    contract: String,
}

#[test]
fn a_request_becomes_a_binding_by_one_command() -> Result<()> {
    run(async {
        let (provider, plane) = tokio::try_join!(
            Provider::start_with("automated-p", &lease::PATIENT),
            ControlPlane::start("automated-c")
        )?;
        kubectl_bind(&plane, &["deploy"]).await?;
        // It runs with what the command has installed, and nothing else.
        let consumer = Consumer::start_installed(process::Programs::default(), plane, &[]).await?;
        let world = World {
            contract: Provider::contract(&consumer.identity().await?),
            provider,
            consumer,
        };
        world.let_the_server_respond().await?;
        world.request("cowboys").await?;
        bound_by_one_command(&world).await?;
        the_same_again_changes_nothing(&world).await?;
        cluster_scoped_ones_would_be_adopted(&world).await?;
        would_be_adopted(world).await
    })
}

/// Runs the command as the admin of a consumer.
async fn kubectl_bind(plane: &ControlPlane, args: &[&str]) -> Result<String> {
    let mut command = Process::cargo_bin("kubectl-bind")?;
    command.env("KUBECONFIG", plane.kubeconfig_path()).args(args);
    let output = process::run(command, 2 * SOON).await?;
    ensure!(
        output.status.success(),
        "kubectl-bind {} failed: {}",
        args.join(" "),
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(output.stdout)? + &String::from_utf8(output.stderr)?)
}

impl World {
    async fn bind(&self, args: &[&str]) -> Result<String> {
        kubectl_bind(&self.consumer.plane, args).await
    }

    fn provider_kubeconfig(&self) -> Result<String> {
        let path = self.provider.plane.kubeconfig_path();
        Ok(path.to_str().context("a path in UTF-8")?.to_owned())
    }

    async fn let_the_server_respond(&self) -> Result<()> {
        let plane = &self.provider.plane;
        plane.kubectl(&["create", "namespace", TEAM]).await?;
        let grant = [
            "create",
            "rolebinding",
            "responses",
            "-n",
            TEAM,
            "--clusterrole=bindery-server-responses",
            "--serviceaccount=kube-bind:bindery-server",
        ];
        plane.kubectl(&grant).await.map(drop)
    }

    /// Asks for a template, as an admin of the provider does for a team.
    async fn request(&self, template: &str) -> Result<()> {
        let plane = &self.provider.plane;
        let identity = self.consumer.identity().await?;
        let request = json!({
            "apiVersion": "kube-bind.io/v1alpha2", "kind": "BindableResourcesRequest",
            "metadata": { "name": template, "namespace": TEAM },
            "spec": { "templateRef": { "name": template }, "clusterIdentity": { "identity": identity },
                "author": format!("system:serviceaccount:{TEAM}:binder") },
        });
        let requests: Api<BindableResourcesRequest> = Api::namespaced(plane.client(), TEAM);
        eventually_ok("the request to be answered", 2 * SOON, async || {
            let seen = requests.get_opt(template).await?;
            if let Some(status) = seen.as_ref().and_then(|seen| seen.status.as_ref())
                && status
                    .conditions
                    .iter()
                    .any(|it| it.type_ == "Ready" && it.status == "True")
            {
                return Ok(());
            }
            // One that was made before the policy was in force is not served.
            let stale = |seen: &BindableResourcesRequest| json!(seen).to_string().contains("MadeBeforePolicy");
            if seen.as_ref().is_some_and(stale) {
                plane
                    .kubectl(&["delete", "bindableresourcesrequest", template, "-n", TEAM])
                    .await?;
            }
            plane.apply(&request.to_string()).await?;
            anyhow::bail!("{:?}", seen.and_then(|seen| seen.status))
        })
        .await
    }
}

async fn bound_by_one_command(world: &World) -> Result<()> {
    let (kubeconfig, secret) = (world.provider_kubeconfig()?, format!("{TEAM}/{SECRET}"));
    let told = world
        .bind(&["deploy", "--provider-kubeconfig", &kubeconfig, "--secret", &secret])
        .await?;
    ensure!(
        told.contains("apiservicebinding.kube-bind.io/cowboys created"),
        "{told}"
    );
    let wait = [
        "wait",
        "--for=condition=Ready",
        "apiservicebinding/cowboys",
        "--timeout=2m",
    ];
    world.consumer.plane.kubectl(&wait).await?;
    wildwest::namespace(world.consumer.plane.client(), NAMESPACE).await?;
    let cowboys = Cowboys::of(&world.provider, &world.consumer, NAMESPACE).await?;
    eventually_ok("cowboys to be served", SOON, async || {
        cowboys.create("billy", "ride").await.map(drop)
    })
    .await?;
    cowboys.copied("billy", "ride").await?;
    cowboys.report("billy", "rode").await?;
    cowboys.reported("billy", "rode").await.map(drop)
}

/// Also from the Secret as kubectl prints it.
async fn the_same_again_changes_nothing(world: &World) -> Result<()> {
    let yaml = ["get", "secret", SECRET, "-n", TEAM, "-o", "yaml"];
    let yaml = world.provider.plane.kubectl(&yaml).await?;
    let file: PathBuf = world.consumer.plane.workdir().write("response.yaml", yaml)?;
    let told = world
        .bind(&["deploy", "-f", file.to_str().context("a path in UTF-8")?])
        .await?;
    let changed: Vec<_> = told
        .lines()
        .filter(|line| line.ends_with(" configured") || line.ends_with(" created"))
        .collect();
    ensure!(changed.is_empty(), "{changed:?}");
    ensure!(told.contains("secret/kubeconfig-cowboys unchanged"), "{told}");
    Ok(())
}

/// Names of a provider's sheriffs with their annotations; and what would become of those that are seen under opt-in, all.
type Sheriffs = (
    &'static [(&'static str, &'static [(&'static str, &'static str)])],
    &'static [(&'static str, &'static str)],
);

/// `C` stands for the contract.
fn sheriffs(template: &str) -> Sheriffs {
    const OPT_IN: (&str, &str) = ("kube-bind.io/autoadopt", "true");
    if template == SHERIFFS[0] {
        return (&[("C-wyatt", &[OPT_IN]), ("D-ike", &[OPT_IN])], &[("wyatt", "Adopt")]);
    }
    (
        &[
            ("wyatt", &[OPT_IN, ("kube-bind.io/cluster-namespace", "C")]),
            ("ike", &[OPT_IN, ("kube-bind.io/cluster-namespace", "D")]),
            ("doc", &[OPT_IN]),
        ],
        &[("doc", "Nothing"), ("ike", "Nothing"), ("wyatt", "Adopt")],
    )
}

async fn cluster_scoped_ones_would_be_adopted(world: &World) -> Result<()> {
    let plane = &world.provider.plane;
    plane.apply(&manifests::folder("examples/sheriffs/provider")?).await?;
    let kubeconfig = world.provider_kubeconfig()?;
    for template in SHERIFFS {
        world.request(template).await?;
        let secret = format!("{TEAM}/{template}-binding-response");
        world
            .bind(&["deploy", "--provider-kubeconfig", &kubeconfig, "--secret", &secret])
            .await?;
        let ready = format!("apiservicebinding/{template}");
        let wait = ["wait", "--for=condition=Ready", &ready, "--timeout=2m"];
        world.consumer.plane.kubectl(&wait).await?;
        let (made, expected) = sheriffs(template);
        let ours = |text: &str| text.replacen('C', &world.contract, 1);
        for (name, notes) in made {
            let notes: serde_json::Map<_, _> = notes
                .iter()
                .map(|(key, value)| ((*key).to_owned(), json!(ours(value))))
                .collect();
            let sheriff = json!({ "apiVersion": "wildwest.dev/v1alpha1", "kind": "Sheriff", "spec": {},
                "metadata": { "name": ours(name).to_lowercase(), "annotations": notes } });
            plane.apply(&sheriff.to_string()).await?;
        }
        let list: Value = serde_json::from_str(&quiet(world, &["adopt", "--dry-run", template, "-o", "json"]).await?)?;
        let items = list["items"].as_array().context("items")?;
        let mut seen: Vec<_> = items
            .iter()
            .filter_map(|item| Some((item["name"].as_str()?, item["all"].as_str()?)))
            .collect();
        seen.sort_unstable();
        ensure!(seen == expected, "{list}");
        plane.kubectl(&["delete", "sheriffs", "--all"]).await?;
        world.bind(&["unbind", template, "--delete-objects"]).await?;
    }
    Ok(())
}

/// What would be adopted, and then is.
async fn would_be_adopted(mut world: World) -> Result<()> {
    let there = names::provider_namespace(&world.contract, NAMESPACE);
    let copies: Api<DynamicObject> = Api::namespaced_with(world.provider.plane.client(), &there, &wildwest::resource());
    for (name, notes) in [
        ("annie", json!({ "kube-bind.io/autoadopt": "true" })),
        ("calamity", json!({})),
    ] {
        let mut cowboy = wildwest::cowboy(name, &json!({ "intent": "shoot" }));
        cowboy.metadata.annotations = Some(serde_json::from_value(notes)?);
        copies.create(&PostParams::default(), &cowboy).await?;
    }
    let before = world
        .consumer
        .plane
        .kubectl(&["get", "cowboys", "-A", "-o", "name"])
        .await?;
    let list: Value = eventually_ok("all to be seen", SOON, async || {
        let list: Value = serde_json::from_str(&quiet(&world, &["adopt", "--dry-run", "-q", "-o", "json"]).await?)?;
        ensure!(list["items"].as_array().map(Vec::len) == Some(3), "{list}");
        Ok(list)
    })
    .await?;
    for (name, opt_in, all) in [
        ("annie", "Adopt", "Adopt"),
        ("calamity", "Nothing", "Adopt"),
        ("billy", "Nothing", "Nothing"),
    ] {
        let items = list["items"].as_array().context("items")?;
        let item = items.iter().find(|item| item["name"] == name).context(name)?;
        ensure!(item["optIn"] == opt_in && item["all"] == all, "{item}");
        ensure!(
            item["namespace"] == NAMESPACE && item["makesNamespace"] == false,
            "{item}"
        );
    }
    let table = world.bind(&["adopt", "--dry-run", "cowboys"]).await?;
    ensure!(table.contains("OPT-IN") && table.contains("wild-west/annie"), "{table}");
    let after = world
        .consumer
        .plane
        .kubectl(&["get", "cowboys", "-A", "-o", "name"])
        .await?;
    ensure!(before == after, "it was said to be dry: {after}");

    world.bind(&["deploy", "--adoption", "opt-in"]).await?;
    world.consumer.set_flag("--adoption", "opt-in");
    world.consumer.konnectors.clear();
    world.consumer.start_konnector().await?;
    let cowboys = Cowboys::of(&world.provider, &world.consumer, NAMESPACE).await?;
    let annie = wildwest::wait("annie to be adopted", &cowboys.ours, "annie", |_| true).await?;
    ensure!(annie.data["spec"]["intent"] == "shoot", "{annie:?}");
    eventually_ok("annie to be marked", SOON, async || {
        let list: Value = serde_json::from_str(&quiet(&world, &["adopt", "--dry-run", "-q", "-o", "json"]).await?)?;
        let items = list["items"].as_array().context("items")?;
        let annie = items.iter().find(|item| item["name"] == "annie").context("annie")?;
        ensure!(
            annie["all"] == "Nothing" && annie["why"].to_string().contains("counterpart"),
            "{annie}"
        );
        Ok(())
    })
    .await?;
    let ours = cowboys.ours.list(&kube::api::ListParams::default()).await?;
    let ours: Vec<_> = ours.iter().map(ResourceExt::name_any).collect();
    ensure!(ours == ["annie", "billy"], "{ours:?}");
    Ok(())
}

/// Standard output alone.
async fn quiet(world: &World, args: &[&str]) -> Result<String> {
    let mut command = world.consumer.bind_command()?;
    command.args(args);
    process::stdout(&process::run(command, 2 * SOON).await?)
}
