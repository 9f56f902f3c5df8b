//! `deploy/examples/headless` as it stands: a ServiceAccount of the provider with its one right and a projected token binds
//! by the program in Rust, and again by grpcurl; the rest is `kubectl apply`.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command, time::Duration};

use anyhow::{Context as _, Result, ensure};
use bindery_api::{
    Conditions as _,
    v1alpha2::{APIServiceBinding, APIServiceBindingBundle},
};
use bindery_e2e::{
    NAMESPACE, Provider, eventually_ok, manifests, process,
    wildwest::{self, Cowboys, SOON},
};
use k8s_openapi::api::{
    authorization::v1::{SelfSubjectRulesReview, SelfSubjectRulesReviewSpec},
    batch::v1::Job,
    core::v1::{Secret, Volume},
};
use kube::{Api, ResourceExt as _, api::PostParams};
use serde_json::Value;

use crate::world::{World, with_world};

const LIMIT: Duration = Duration::from_mins(2);
const README: &str = include_str!("../../../deploy/examples/headless/README.md");
/// The address in the manifests and the commands.
const ADDRESS: &str = "https://bind.example.com";
const PLACE: &str = "headless";
const ACCOUNT: &str = "cowboy-binder";
const SECRET: &str = "wildwest";

/// The program in Rust, which `cargo xtask test` builds.
fn example() -> Result<Command> {
    let path = process::cargo_bin_path("examples/headless");
    let path = path.context("build it: cargo build -p bindery-sdk --example headless")?;
    Ok(Command::new(path))
}

/// What the manifest of the Job says of the program.
struct Pod {
    env: Vec<(String, String)>,
    audience: String,
    token_path: String,
}

impl Pod {
    fn read() -> Result<Self> {
        let job: Job = serde_saphyr::from_str(&manifests::file("examples/headless/job/job.yaml")?)?;
        ensure!(job.namespace().as_deref() == Some(PLACE), "{job:?}");
        let spec = job.spec.and_then(|spec| spec.template.spec).context("no pod")?;
        ensure!(
            spec.service_account_name.as_deref() == Some(ACCOUNT),
            "{:?}",
            spec.service_account_name
        );
        // Nothing else opens the API server.
        ensure!(
            spec.automount_service_account_token == Some(false),
            "it mounts another token"
        );
        let token = spec
            .volumes
            .iter()
            .flatten()
            .find_map(projected_token)
            .context("no token")?;
        let bind = spec.init_containers.unwrap_or_default();
        let bind = bind
            .into_iter()
            .find(|container| container.name == "bind")
            .context("no container")?;
        let env = bind.env.unwrap_or_default().into_iter();
        Ok(Self {
            env: env
                .map(|variable| (variable.name, variable.value.unwrap_or_default()))
                .collect(),
            audience: token.0,
            token_path: token.1,
        })
    }

    /// Runs the program as a kubelet would, and gives the file that it wrote.
    async fn run(&self, world: &World, folder: &Path) -> Result<std::path::PathBuf> {
        let (provider, output) = (&world.provider, folder.join("secret.json"));
        let identity = world.consumer.identity().await?;
        let address = provider.address();
        let path = |path: &Path| path.display().to_string();
        let mut command = example()?;
        for (name, value) in &self.env {
            let here = match name.as_str() {
                "BIND_SERVER" => address.clone(),
                "BIND_CA_FILE" => path(&provider.ca_path()),
                "BIND_TOKEN_FILE" => {
                    ensure!(value.ends_with(&format!("/{}", self.token_path)), "it reads {value}");
                    path(&folder.join("token"))
                }
                "BIND_CLUSTER_IDENTITY" => identity.clone(),
                "BIND_OUTPUT" => path(&output),
                _ => value.clone(),
            };
            command.env(name, here);
        }
        let run = process::run(command, LIMIT).await?;
        let printed = process::stdout(&run)?;
        ensure!(
            printed.is_empty() && run.stderr.is_empty(),
            "a pod's output is a log: {printed}"
        );
        Ok(output)
    }
}

fn projected_token(volume: &Volume) -> Option<(String, String)> {
    let mut sources = volume.projected.iter().flat_map(|it| it.sources.iter().flatten());
    let token = sources.find_map(|source| source.service_account_token.clone())?;
    Some((token.audience.unwrap_or_default(), token.path))
}

/// A folder with what the kubelet projects: a token for that audience, and the CA.
async fn project(provider: &Provider, audience: &str) -> Result<std::path::PathBuf> {
    let folder = provider.plane.workdir().path().join("headless");
    fs::create_dir(&folder)?;
    let audience = audience.replace(ADDRESS, &provider.address());
    let token = provider.plane.token_for(PLACE, ACCOUNT, &[&audience], 3600).await?;
    fs::write(folder.join("token"), token)?;
    fs::copy(provider.ca_path(), folder.join("ca.crt"))?;
    Ok(folder)
}

/// The account may bind the template, and has no other right than everybody.
async fn has_one_right(provider: &Provider) -> Result<()> {
    let client = provider.plane.service_account_client(PLACE, ACCOUNT).await?;
    let spec = SelfSubjectRulesReviewSpec {
        namespace: Some(PLACE.to_owned()),
    };
    let review = SelfSubjectRulesReview {
        spec,
        ..SelfSubjectRulesReview::default()
    };
    let reviews: Api<SelfSubjectRulesReview> = Api::all(client);
    let status = reviews
        .create(&PostParams::default(), &review)
        .await?
        .status
        .context("no answer")?;
    let own: Vec<_> = status
        .resource_rules
        .iter()
        .filter(|rule| {
            !rule
                .resources
                .iter()
                .flatten()
                .any(|resource| resource.starts_with("selfsubject"))
        })
        .collect();
    let [rule] = own.as_slice() else {
        anyhow::bail!("other rights: {own:?}");
    };
    ensure!(
        rule.verbs == ["bind"] && rule.resource_names.as_deref() == Some(&["cowboys".to_owned()]),
        "{rule:?}"
    );
    Ok(())
}

/// The commands of the README with the addresses of here, run by who may write the consumer's Secrets.
async fn shell(world: &World, folder: &Path) -> Result<String> {
    let (_, section) = README.split_once("## With grpcurl").context("the section")?;
    let (_, script) = section.split_once("```sh\n").context("its commands")?;
    let (script, _) = script.split_once("```").context("their end")?;
    let authority = world.provider.address().replace("https://", "");
    let here = script.replace("bind.example.com:443", &authority);
    ensure!(here != script, "the address stands nowhere: {script}");
    let tools = world.provider.plane.grpcurl_path().parent().context("a folder")?;
    let kubectl = world.consumer.plane.kubectl_path().parent().context("a folder")?;
    let path = std::env::join_paths([tools, kubectl, Path::new("/usr/bin"), Path::new("/bin")])?;
    let mut shell = world
        .consumer
        .plane
        .kubectl_command(world.consumer.plane.kubeconfig_path());
    let env: Vec<_> = shell
        .get_envs()
        .filter_map(|(name, value)| Some((name.to_owned(), value?.to_owned())))
        .collect();
    shell = Command::new("sh");
    shell
        .envs(env)
        .env("PATH", path)
        .current_dir(folder)
        .args(["-euc", &here]);
    process::stdout(&process::run(shell, LIMIT).await?)
}

/// Waits until the bundle has bound what there is, and that works.
async fn bundled(world: &World) -> Result<()> {
    let bundles: Api<APIServiceBindingBundle> = Api::all(world.consumer.plane.client());
    let bindings: Api<APIServiceBinding> = Api::all(world.consumer.plane.client());
    eventually_ok("the bundle to be ready", SOON, async || {
        let bundle = bundles.get(SECRET).await?;
        ensure!(bundle.is_condition_true("Ready"), "{:?}", bundle.conditions());
        let status = bundle.status.unwrap_or_default();
        ensure!(status.bound_services == Some(1), "{status:?}");
        let binding = bindings.get("cowboys").await?;
        ensure!(binding.is_condition_true("Ready"), "{:?}", binding.conditions());
        Ok(())
    })
    .await
}

#[test]
fn the_examples_bind_as_a_service_account_with_its_one_right() -> Result<()> {
    with_world(async |world| {
        let (provider, consumer) = (&world.provider, &world.consumer);
        // The consumer first, which waits for the rest.
        let rights = ["--bundle-resource", "cowboys.wildwest.dev"];
        ensure!(
            README.contains(&format!("kubectl bind deploy {}\n", rights.join(" "))),
            "the README says otherwise"
        );
        world.deploy(&rights, String::new()).await?;
        consumer
            .plane
            .apply(&manifests::folder("examples/headless/consumer")?)
            .await?;
        provider
            .plane
            .apply(&manifests::folder("examples/headless/provider")?)
            .await?;
        provider
            .plane
            .apply(&manifests::folder("examples/headless/job")?)
            .await?;
        has_one_right(provider).await?;

        let pod = Pod::read()?;
        let folder = project(provider, &pod.audience).await?;
        let secret = pod.run(world, &folder).await?;
        ensure!(
            fs::metadata(&secret)?.permissions().mode() & 0o777 == 0o600,
            "others can read it"
        );
        let deliverer = consumer.plane.service_account_kubeconfig(NAMESPACE, "headless").await?;
        let mut deliver = consumer.plane.kubectl_command(&deliverer);
        deliver.args(["apply", "--server-side", "--filename"]).arg(&secret);
        process::stdout(&process::run(deliver, LIMIT).await?).context("delivering")?;
        bundled(world).await?;
        wildwest::namespace(consumer.plane.client(), "wild-west").await?;
        let cowboys = Cowboys::of(provider, consumer, "wild-west").await?;
        cowboys.create("billy", "ride").await?;
        cowboys.copied("billy", "ride").await?;
        cowboys.report("billy", "rode").await?;
        cowboys.reported("billy", "rode").await?;

        // The same again in a shell: the answer is what is there, with a fresh kubeconfig.
        let secrets: Api<Secret> = Api::namespaced(consumer.plane.client(), NAMESPACE);
        let before = secrets.get(SECRET).await?;
        let printed = shell(world, &folder).await?;
        ensure!(printed.contains(SECRET), "{printed}");
        ensure!(secrets.get(SECRET).await?.data != before.data, "the same kubeconfig");
        cowboys.intend("billy", "rest").await?;
        cowboys.copied("billy", "rest").await?;
        bundled(world).await
    })
}

#[test]
fn the_example_says_why_it_cannot_bind() -> Result<()> {
    with_world(async |world| {
        let token = world.provider.principal("headless-refused", &[]).await?;
        let mut command = example()?;
        let output = world.provider.plane.workdir().path().join("refused.json");
        command.env("BIND_SERVER", world.provider.address());
        command.env("BIND_CA_FILE", world.provider.ca_path());
        command.env("BIND_TOKEN_FILE", token).env("BIND_TEMPLATE", "cowboys");
        command
            .env("BIND_CLUSTER_IDENTITY", "refused")
            .env("BIND_SECRET", "refused");
        command.env("BIND_OUTPUT", &output);
        let run = process::run(command, LIMIT).await?;
        let told = String::from_utf8_lossy(&run.stderr);
        ensure!(!run.status.success() && !output.exists(), "{told}");
        ensure!(told.contains("may not bind") && told.contains("cowboys"), "{told}");
        Ok(())
    })
}

#[test]
fn the_manifests_name_what_the_commands_and_the_backend_know() -> Result<()> {
    let pod = Pod::read()?;
    let said = |name: &str| {
        pod.env
            .iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value.as_str())
    };
    assert_eq!(said("BIND_SERVER"), Some(ADDRESS));
    assert_eq!(pod.audience, bindery_sdk::audience(ADDRESS)?);
    let bundle: Value = serde_saphyr::from_str(&manifests::file("examples/headless/consumer/bundle.yaml")?)?;
    let named = &bundle["spec"]["kubeconfigSecretRef"];
    assert_eq!(said("BIND_SECRET"), named["name"].as_str());
    assert_eq!(
        (&named["namespace"], &named["key"]),
        (&NAMESPACE.into(), &"kubeconfig".into())
    );
    Ok(())
}
