//! The real command against a real cluster. The backend is scripted and the konnector is played by the test, so that
//! every answer and every silence of theirs can be tried.

mod accept;
mod automated;
mod backend;
mod claims;
mod completion;
mod deploy;
mod orphans;
mod policy;
mod undeploy;
mod whole;
mod why;

use std::{path::Path, process::Stdio, time::Duration};

use anyhow::{Context as _, Result, ensure};
use backend::Backend;
use bindery_api::v1alpha2::APIServiceBinding;
use bindery_e2e::{ControlPlane, Process, run};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, ResourceExt as _,
    api::{Patch, PatchParams},
};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};

/// How long a command may take.
const LIMIT: Duration = Duration::from_mins(2);

/// A cluster where bindings are served, and a backend.
struct World {
    plane: ControlPlane,
    backend: Backend,
}

/// How a command ended.
#[derive(Debug)]
struct Ended {
    code: i32,
    stdout: String,
    stderr: String,
}

impl Ended {
    fn expect(self, code: i32, says: &[&str]) -> Result<Self> {
        let all = format!("{}{}", self.stdout, self.stderr);
        ensure!(self.code == code, "exit code {} instead of {code}:\n{all}", self.code);
        for part in says {
            ensure!(all.contains(part), "{part:?} is missing in:\n{all}");
        }
        Ok(self)
    }

    fn json(&self) -> Result<Value> {
        serde_json::from_str(&self.stdout).with_context(|| self.stdout.clone())
    }
}

fn login(server: &str) -> [&str; 5] {
    ["--server", server, "--token", "t", "--allow-plaintext"]
}

fn command(kubeconfig: &Path, args: &[&str]) -> Result<std::process::Command> {
    let mut command = Process::cargo_bin("kubectl-bind")?;
    command.env("KUBECONFIG", kubeconfig).args(args);
    Ok(command)
}

impl World {
    async fn start(name: &str) -> Result<Self> {
        Self::on(ControlPlane::start(name).await?).await
    }

    async fn on(plane: ControlPlane) -> Result<Self> {
        plane
            .apply(&bindery_e2e::manifests::file(
                "crds/kube-bind.io_apiservicebindings.yaml",
            )?)
            .await?;
        Ok(Self {
            plane,
            backend: Backend::start().await?,
        })
    }

    async fn bind(&self, args: &[&str]) -> Result<Ended> {
        self.bind_at(&self.backend.url(), args).await
    }

    async fn bind_at(&self, server: &str, args: &[&str]) -> Result<Ended> {
        self.run(self.plane.kubeconfig_path(), &[&login(server)[..], args].concat())
            .await
    }

    /// Runs the command, and does something meanwhile, once it has said that.
    async fn bind_meanwhile(&self, args: &[&str], says: &str, then: impl Future<Output = Result<()>>) -> Result<Ended> {
        let server = self.backend.url();
        let args = [&login(&server)[..], args].concat();
        let mut command = tokio::process::Command::from(command(self.plane.kubeconfig_path(), &args)?);
        command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        let ended = async {
            let mut child = command.spawn()?;
            let mut lines = BufReader::new(child.stderr.take().context("no stderr")?).lines();
            let (mut stderr, mut then) = (String::new(), Some(then));
            while let Some(line) = lines.next_line().await? {
                stderr = stderr + &line + "\n";
                if let Some(then) = then.take_if(|_| line.contains(says)) {
                    then.await?;
                }
            }
            ensure!(then.is_none(), "{says:?} is missing in:\n{stderr}");
            let output = child.wait_with_output().await?;
            Ok(Ended {
                code: output.status.code().context("an exit code")?,
                stdout: String::from_utf8(output.stdout)?,
                stderr,
            })
        };
        tokio::time::timeout(LIMIT, ended).await?
    }

    /// Runs the command with a kubeconfig.
    async fn run(&self, kubeconfig: &Path, args: &[&str]) -> Result<Ended> {
        let output = bindery_e2e::process::run(command(kubeconfig, args)?, LIMIT).await?;
        Ok(Ended {
            code: output.status.code().context("an exit code")?,
            stdout: String::from_utf8(output.stdout)?,
            stderr: String::from_utf8(output.stderr)?,
        })
    }

    /// Plays the konnector: reports a binding as ready as soon as it is there.
    async fn report_ready(&self, name: &str) -> Result<()> {
        let bindings = Api::<APIServiceBinding>::all(self.plane.client());
        bindery_e2e::eventually("the binding", LIMIT, || async {
            Ok(bindings.get_opt(name).await?.map(drop))
        })
        .await?;
        let time = "2026-01-01T00:00:00Z";
        let status = json!({ "status": {
            "providerPrettyName": "Wild West Inc.",
            "providerNamespace": "kube-bind-x",
            "contractUID": "uid-1",
            "boundSchemas": [{ "group": "wildwest.dev", "resource": "cowboys" }],
            "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": time }],
        } });
        bindings
            .patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
            .await?;
        Ok(())
    }

    /// Resource versions of everything that a bind installs.
    async fn versions(&self) -> Result<String> {
        let columns = "custom-columns=K:.kind,N:.metadata.name,V:.metadata.resourceVersion";
        let mut versions = String::new();
        for kind in [
            "namespaces",
            "clusterroles",
            "clusterrolebindings",
            "apiservicebindings",
        ] {
            versions += &self.plane.kubectl(&["get", kind, "-o", columns]).await?;
        }
        Ok(versions
            + &self
                .plane
                .kubectl(&["get", "secrets", "-n", "kube-bind", "-o", columns])
                .await?)
    }

    async fn is_untouched(&self) -> Result<()> {
        let names = self
            .plane
            .kubectl(&[
                "get",
                "ns,clusterroles,clusterrolebindings,apiservicebindings",
                "-o",
                "name",
            ])
            .await?;
        let ours: Vec<_> = names.lines().filter(|name| name.contains("kube-bind")).collect();
        ensure!(ours.is_empty(), "installed: {ours:?}");
        Ok(())
    }

    async fn kubeconfig(&self, name: &str) -> Result<Vec<u8>> {
        let secrets = Api::<Secret>::namespaced(self.plane.client(), "kube-bind");
        let secret = secrets.get(name).await?;
        Ok(secret
            .data
            .context("data")?
            .remove("kubeconfig")
            .context("a kubeconfig")?
            .0)
    }
}

#[test]
fn a_binding_from_beginning_to_end() -> Result<()> {
    run(async {
        let world = World::start("cli-life").await?;
        dry_runs_write_nothing(&world).await?;
        binds(&world).await?;
        binding_again_changes_nothing(&world).await?;
        shows_status(&world).await?;
        completion::through_kubectl(&world).await?;
        another_provider_is_refused(&world).await?;
        renews(&world).await?;
        unbinds(&world).await?;
        a_slow_unbind_goes_on(&world).await
    })
}

#[test]
fn completion_knows_every_command() -> Result<()> {
    run(async {
        for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
            let completion = command(Path::new("/dev/null"), &["completion", shell])?;
            let output = bindery_e2e::process::run(completion, LIMIT).await?;
            let script = bindery_e2e::process::stdout(&output)?;
            for word in ["kubectl-bind", "templates", "deploy", "why", "unbind", "dry-run"] {
                ensure!(script.contains(word), "{shell}: {word:?} is missing in:\n{script}");
            }
        }
        let unknown = command(Path::new("/dev/null"), &["completion", "csh"])?;
        let output = bindery_e2e::process::run(unknown, LIMIT).await?;
        ensure!(output.status.code() == Some(2), "{output:?}");
        Ok(())
    })
}

async fn dry_runs_write_nothing(world: &World) -> Result<()> {
    let ended = world
        .bind(&["cowboys", "--dry-run"])
        .await?
        .expect(0, &["would create ClusterRole kube-bind-konnector-cowboys"])?;
    ensure!(
        ended.stdout.matches("\n---\n").count() == 4,
        "five documents: {}",
        ended.stdout
    );
    ensure!(!ended.stdout.contains("e30."), "a token: {}", ended.stdout);
    let list = world
        .bind(&["cowboys", "--dry-run", "-o", "json"])
        .await?
        .expect(0, &[])?
        .json()?;
    ensure!(list["items"].as_array().map(Vec::len) == Some(5), "{list}");
    ensure!(
        world.backend.script.lock().binds == 0,
        "the backend was asked for more than a preview"
    );
    world.is_untouched().await
}

async fn binds(world: &World) -> Result<()> {
    let (bound, ready) = tokio::join!(world.bind(&["cowboys", "-o", "json"]), world.report_ready("cowboys"));
    ready?;
    let bound = bound?.expect(
        0,
        &[
            "created Secret kube-bind/kubeconfig-cowboys",
            "APIServiceBinding cowboys is ready",
        ],
    )?;
    let binding = bound.json()?;
    ensure!(
        binding["kind"] == "APIServiceBinding" && binding["metadata"]["name"] == "cowboys",
        "{binding}"
    );
    let subject = world
        .plane
        .kubectl(&[
            "get",
            "clusterrolebinding",
            "kube-bind-konnector-cowboys",
            "-o",
            "jsonpath={.subjects[0].name}",
        ])
        .await?;
    ensure!(subject == "konnector", "{subject}");
    Ok(())
}

async fn binding_again_changes_nothing(world: &World) -> Result<()> {
    let before = world.versions().await?;
    world
        .bind(&["apiservice", "cowboys"])
        .await?
        .expect(0, &["everything is installed already", "Wild West Inc."])?;
    let after = world.versions().await?;
    ensure!(before == after, "before:\n{before}\nafter:\n{after}");
    Ok(())
}

async fn shows_status(world: &World) -> Result<()> {
    world.bind(&["status"]).await?.expect(
        0,
        &[
            "Wild West Inc., contract kube-bind-x at https://api.example.com:6443",
            "└─ ✓ cowboys  ready",
            "expires in",
        ],
    )?;
    let status = world.bind(&["status", "-o", "json"]).await?.expect(0, &[])?.json()?;
    ensure!(
        status["items"][0]["credential"]["secret"] == "kube-bind/kubeconfig-cowboys",
        "{status}"
    );
    world
        .bind(&["status", "sheriffs"])
        .await?
        .expect(4, &["\"sheriffs\""])?;
    Ok(())
}

async fn another_provider_is_refused(world: &World) -> Result<()> {
    let other = Backend::start().await?;
    let before = world.versions().await?;
    world
        .bind_at(&other.url(), &["cowboys"])
        .await?
        .expect(1, &[&world.backend.url(), &other.url(), "--name"])?;
    ensure!(other.script.lock().binds == 0, "the other provider made something");
    ensure!(before == world.versions().await?, "something was written");
    Ok(())
}

async fn renews(world: &World) -> Result<()> {
    let binds = world.backend.script.lock().binds;
    // Only a revocation takes a new bind.
    for (stopped, bound) in [(false, 0), (true, 1)] {
        world.backend.script.lock().renewal_stopped = stopped;
        let before = world.kubeconfig("kubeconfig-cowboys").await?;
        world
            .bind(&["renew", "cowboys"])
            .await?
            .expect(0, &["changed Secret kube-bind/kubeconfig-cowboys"])?;
        ensure!(
            before != world.kubeconfig("kubeconfig-cowboys").await?,
            "the kubeconfig is the old one"
        );
        ensure!(world.backend.script.lock().binds == binds + bound, "bound again");
    }
    world.backend.script.lock().renewal_stopped = false;
    world.bind(&["renew", "sheriffs"]).await?.expect(4, &[])?;
    Ok(())
}

async fn unbinds(world: &World) -> Result<()> {
    world.bind(&["unbind", "cowboys"]).await?.expect(
        0,
        &["of cowboys.wildwest.dev; the provider keeps its copies", "unbound"],
    )?;
    let left = world.versions().await?;
    ensure!(!left.contains("cowboys"), "{left}");
    world.bind(&["unbind", "cowboys"]).await?.expect(4, &["\"cowboys\""])?;
    world
        .bind(&["unbind", "cowboys", "--ignore-not-found"])
        .await?
        .expect(0, &[])?;
    Ok(())
}

async fn a_slow_unbind_goes_on(world: &World) -> Result<()> {
    world
        .bind(&["cowboys", "--wait=false", "--quiet"])
        .await?
        .expect(0, &["cowboys"])?;
    let bindings = Api::<APIServiceBinding>::all(world.plane.client());
    let patch = async |patch: Value| {
        bindings
            .patch("cowboys", &PatchParams::default(), &Patch::Merge(patch))
            .await
    };
    patch(json!({ "metadata": { "finalizers": ["example.com/held"] } })).await?;
    let draining = json!({ "type": "Draining", "status": "False", "message": "3 objects are left",
        "lastTransitionTime": "2026-01-01T00:00:00Z" });
    let status = json!({ "status": { "conditions": [draining] } });
    bindings
        .patch_status("cowboys", &PatchParams::default(), &Patch::Merge(&status))
        .await?;
    let forced = ["unbind", "cowboys", "--force", "--timeout", "2s"];
    world
        .bind(&forced)
        .await?
        .expect(5, &["is not gone after 2 s: 3 objects are left"])?;
    let held = bindings.get("cowboys").await?;
    ensure!(
        held.annotations().contains_key("kube-bind.io/force-unbind"),
        "{:?}",
        held.annotations()
    );
    world.bind(&["cowboys"]).await?.expect(1, &["is being deleted"])?;
    world
        .bind(&["renew", "cowboys"])
        .await?
        .expect(1, &["is being deleted"])?;
    // Its kubeconfig is there as long as the konnector may need it; the garbage collector takes it with the binding,
    // or whoever waits does.
    let secrets = Api::<Secret>::namespaced(world.plane.client(), "kube-bind");
    let owners = secrets.get("kubeconfig-cowboys").await?.owner_references().to_vec();
    ensure!(
        owners.len() == 1 && Some(&owners[0].uid) == held.uid().as_ref(),
        "{owners:?}"
    );
    let unheld = async {
        bindery_e2e::holds_for("the Secret to stay", Duration::from_secs(1), async || {
            world.kubeconfig("kubeconfig-cowboys").await.map(drop)
        })
        .await?;
        patch(json!({ "metadata": { "finalizers": null } })).await?;
        anyhow::Ok(())
    };
    let unbind = ["unbind", "cowboys", "--delete-objects", "-o", "json"];
    let unbound = world.bind_meanwhile(&unbind, "3 objects are left", unheld).await?;
    let unbound = unbound.expect(0, &[])?.json()?;
    ensure!(unbound["unbound"] == true, "{unbound}");
    ensure!(unbound["providerObjects"] == "deleted", "{unbound}");
    ensure!(
        secrets.get_opt("kubeconfig-cowboys").await?.is_none(),
        "the Secret is still there"
    );
    Ok(())
}

#[test]
fn what_is_refused_leaves_no_trace() -> Result<()> {
    run(async {
        let world = World::start("cli-refused").await?;
        world.bind(&["templates"]).await?.expect(0, &["cowboys.wildwest.dev"])?;
        world
            .bind(&["templates", "sheriffs"])
            .await?
            .expect(3, &[r#"resourceNames: ["sheriffs"]"#, "verbs: [bind]"])?;
        world
            .bind(&["sheriffs"])
            .await?
            .expect(3, &[r#"resourceNames: ["sheriffs"]"#])?;
        world.bind(&["collections", "none"]).await?.expect(4, &[])?;
        greedy_rules(&world).await?;
        foreign_api(&world).await?;
        dangerous_kubeconfig(&world).await?;
        world.is_untouched().await?;
        no_konnector(&world).await
    })
}

async fn greedy_rules(world: &World) -> Result<()> {
    let greedy = bindery_proto::v1alpha2::ConsumerRule {
        api_groups: vec![String::new()],
        resources: vec!["secrets".to_owned()],
        verbs: vec!["get".to_owned()],
        resource_names: Vec::new(),
    };
    world.backend.script.lock().rules.push(greedy);
    world
        .bind(&["cowboys"])
        .await?
        .expect(1, &["rights on secrets", "Nothing was installed"])?;
    world.backend.script.lock().rules.clear();
    ensure!(
        world.backend.script.lock().binds == 0,
        "refused only after the provider made something"
    );
    Ok(())
}

async fn foreign_api(world: &World) -> Result<()> {
    let crd = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "cowboys.wildwest.dev" },
        "spec": { "group": "wildwest.dev", "scope": "Namespaced",
            "names": { "plural": "cowboys", "singular": "cowboy", "kind": "Cowboy" },
            "versions": [{ "name": "v1", "served": true, "storage": true, "schema": { "openAPIV3Schema": { "type": "object" } } }] },
    });
    world.plane.apply(&crd.to_string()).await?;
    world
        .bind(&["cowboys"])
        .await?
        .expect(1, &["cowboys.wildwest.dev", "belongs to somebody else"])?;
    world.plane.kubectl(&["delete", "crd", "cowboys.wildwest.dev"]).await?;
    Ok(())
}

async fn dangerous_kubeconfig(world: &World) -> Result<()> {
    let exec =
        json!({ "apiVersion": "client.authentication.k8s.io/v1", "command": "true", "interactiveMode": "Never" });
    world.backend.script.lock().user.insert("exec".to_owned(), exec);
    world
        .bind(&["cowboys"])
        .await?
        .expect(1, &["uses exec, which runs a program"])?;
    world.backend.script.lock().user.clear();
    Ok(())
}

async fn no_konnector(world: &World) -> Result<()> {
    world
        .bind(&["cowboys", "--timeout", "10s"])
        .await?
        .expect(5, &["does it run?", "kubectl bind status"])?;
    let bindings = Api::<APIServiceBinding>::all(world.plane.client());
    ensure!(bindings.get("cowboys").await?.name_any() == "cowboys");
    // What was begun goes on: the konnector comes up, and the same command finds the binding ready.
    world.report_ready("cowboys").await?;
    world
        .bind(&["cowboys", "--timeout", "30s", "-o", "name"])
        .await?
        .expect(0, &["apiservicebinding.kube-bind.io/cowboys\n"])?;
    world
        .plane
        .kubectl(&["delete", "crd", "apiservicebindings.kube-bind.io"])
        .await?;
    world
        .bind(&["status"])
        .await?
        .expect(1, &["does not serve APIServiceBindings", "konnector"])?;
    Ok(())
}

#[test]
fn a_reader_that_goes_away_is_no_failure() -> Result<()> {
    let mut child = Process::cargo_bin("kubectl-bind")?
        .args(["completion", "bash"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()?;
    drop(child.stdout.take());
    let output = child.wait_with_output()?;
    ensure!(output.status.code() == Some(0), "{output:?}");
    ensure!(output.stderr.is_empty(), "{output:?}");
    Ok(())
}

#[test]
fn help_teaches_and_usage_errors_are_told_apart() -> Result<()> {
    let help = Process::cargo_bin("kubectl-bind")?.arg("--help").output()?;
    let text = String::from_utf8(help.stdout)?;
    ensure!(help.status.code() == Some(0));
    for part in [
        "Examples:",
        "Exit codes:",
        "kubectl bind apiservice status",
        "KUBECTL_BIND_SERVER",
    ] {
        ensure!(text.contains(part), "{part:?} is missing in:\n{text}");
    }
    for args in [
        &["--no-such-flag"][..],
        &["templates"],
        &["statsu"],
        &["cowboys", "sheriffs"],
    ] {
        let output = Process::cargo_bin("kubectl-bind")?
            .args(args)
            .env_remove("KUBECTL_BIND_SERVER")
            .output()?;
        ensure!(output.status.code() == Some(2), "{args:?}: {output:?}");
    }
    Ok(())
}
