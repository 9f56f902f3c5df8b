//! Completion as kubectl itself asks for it.

use std::{fs, os::unix::fs::PermissionsExt as _};

use anyhow::{Result, ensure};
use bindery_e2e::process;

use crate::{LIMIT, World, command, login};

/// What kubectl shows for a command line: a candidate a line, with a description after a tab, and the directive.
struct Completed {
    lines: Vec<String>,
}

impl Completed {
    fn values(&self) -> Vec<&str> {
        let values = self
            .lines
            .iter()
            .map(|line| line.split('\t').next().unwrap_or_default());
        values.filter(|value| !value.starts_with(':')).collect()
    }
}

/// Asks kubectl to complete `kubectl bind ARGS`.
struct Kubectl<'a> {
    world: &'a World,
    /// The folder that is the PATH: kubectl-bind and what completes it.
    path: tempfile::TempDir,
}

impl Kubectl<'_> {
    async fn completes(&self, args: &[&str]) -> Result<Completed> {
        let plane = &self.world.plane;
        let mut kubectl = plane.kubectl_command(plane.kubeconfig_path());
        let path = format!("{}:/usr/bin:/bin", self.path.path().display());
        kubectl.args(["__complete", "bind"]).args(args).env("PATH", path);
        let output = process::run(kubectl, LIMIT).await?;
        let text = process::stdout(&output)?;
        let lines: Vec<_> = text.lines().map(str::to_owned).collect();
        let directive = lines.last().map(String::as_str).unwrap_or_default();
        ensure!(directive == ":4", "{args:?}: {text}");
        // kubectl itself says how it ended, and nobody else says anything.
        let stderr = String::from_utf8_lossy(&output.stderr);
        let said = stderr.lines().filter(|line| !line.starts_with("[Debug]"));
        ensure!(said.count() <= 1, "{args:?}: {stderr}");
        Ok(Completed { lines })
    }

    async fn expect(&self, args: &[&str], values: &[&str]) -> Result<()> {
        let completed = self.completes(args).await?;
        ensure!(completed.values() == values, "{args:?}: {:?}", completed.lines);
        Ok(())
    }
}

pub(crate) async fn through_kubectl(world: &World) -> Result<()> {
    let path = tempfile::tempdir()?;
    let program = command(world.plane.kubeconfig_path(), &[])?;
    std::os::unix::fs::symlink(program.get_program(), path.path().join("kubectl-bind"))?;
    let script = command(world.plane.kubeconfig_path(), &["completion", "kubectl"])?;
    let script = process::stdout(&process::run(script, LIMIT).await?)?;
    let file = path.path().join("kubectl_complete-bind");
    fs::write(&file, script)?;
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755))?;
    let kubectl = Kubectl { world, path };

    let unbind = kubectl.completes(&["unb"]).await?;
    ensure!(
        unbind.lines[0] == "unbind\tEnd a binding and its objects on this cluster",
        "{:?}",
        unbind.lines
    );
    kubectl.expect(&["unbind", "cow"], &["cowboys"]).await?;
    kubectl.expect(&["status", ""], &["cowboys"]).await?;
    kubectl
        .expect(&["why", "cowboy/billy", "-n", "kube-sys"], &["kube-system"])
        .await?;
    kubectl.expect(&["status", "-o", "y"], &["yaml"]).await?;
    let url = world.backend.url();
    let server = login(&url);
    let at = |rest: &[&'static str]| [&server[..], rest].concat();
    kubectl.expect(&at(&["templates", ""]), &["cowboys"]).await?;
    kubectl.expect(&at(&["cow"]), &["cowboys"]).await?;
    kubectl
        .expect(&at(&["cowboys", "--reject"]), &["--reject-claim"])
        .await?;
    // What cannot be found is left out: nobody listens there, and nobody is logged in.
    let away = [
        "--server",
        "http://127.0.0.1:1",
        "--token",
        "t",
        "--allow-plaintext",
        "templates",
        "",
    ];
    kubectl.expect(&away, &[]).await?;
    kubectl.expect(&["templates", ""], &[]).await?;
    kubectl.expect(&["--context", "no-such", "unbind", ""], &[]).await
}
