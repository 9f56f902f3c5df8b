//! Helm, the charts of `deploy/charts`, and the files of the project that are made of them.

mod deploy;
mod reference;

use std::{
    path::{Path, PathBuf},
    process::{Command, Output},
    time::Duration,
};

use anyhow::{Context as _, Result};
use serde_json::Value;

use crate::{ControlPlane, Workdir, binaries, manifests, process};

/// The charts, which have the names of their programs' images.
pub const CHARTS: [&str; 2] = ["bindery-server", "bindery-konnector"];

/// The longest time for a command that changes a cluster. Some of them wait for Pods.
const LIMIT: Duration = Duration::from_mins(5);

/// Helm, with configuration and caches of its own.
#[derive(Debug)]
pub struct Helm {
    path: PathBuf,
    home: Workdir,
}

/// A release, as the commands of Helm name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release<'a> {
    /// The folder of the chart below `deploy/charts`.
    pub chart: &'a str,
    /// Name of the release.
    pub name: &'a str,
    /// Namespace of the release.
    pub namespace: &'a str,
}

/// The release of the server whose rendering is `deploy/server`.
pub const SERVER: Release<'static> = Release {
    chart: "bindery-server",
    name: "bindery-server",
    namespace: "kube-bind",
};
/// The release of the konnector whose rendering is `deploy/konnector`, and what `kubectl bind deploy` installs.
pub const KONNECTOR: Release<'static> = Release {
    chart: "bindery-konnector",
    name: "konnector",
    namespace: "kube-bind",
};

impl Helm {
    /// Finds Helm, as [`Helm::locate`] does, beside what else the runtime does.
    pub async fn get() -> Result<Self> {
        tokio::task::spawn_blocking(Self::locate).await?
    }

    /// Finds Helm. The first call of a user builds it, which takes minutes and blocks.
    pub fn locate() -> Result<Self> {
        Ok(Self {
            path: binaries::helm()?,
            home: Workdir::new("helm")?,
        })
    }

    /// A command of Helm. It knows no cluster unless the caller names a kubeconfig.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(&self.path);
        command.args(args).env("KUBECONFIG", "/dev/null");
        for name in ["HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME"] {
            command.env(name, self.home.path().join(name));
        }
        command
    }

    /// Runs a command of Helm on a cluster and returns what it prints, or the error that it ends with.
    pub async fn run(&self, plane: &ControlPlane, args: &[&str]) -> Result<String> {
        let mut command = self.command(args);
        command.env("KUBECONFIG", plane.kubeconfig_path());
        let output = process::run(command, LIMIT).await?;
        process::stdout(&output).with_context(|| format!("helm {}", args.join(" ")))
    }

    /// Runs `helm install` or `helm upgrade` of a release. Objects are applied by the server, which refuses unknown fields.
    pub async fn apply(
        &self,
        plane: &ControlPlane,
        command: &str,
        release: Release<'_>,
        args: &[&str],
    ) -> Result<String> {
        let folder = folder(release.chart);
        let folder = folder.to_str().context("a path in UTF-8")?;
        let first = [
            command,
            release.name,
            folder,
            "--namespace",
            release.namespace,
            "--server-side=true",
        ];
        self.run(plane, &[&first[..], args].concat()).await
    }

    /// Runs `helm template` without a cluster. `args` are flags, such as `--set`. Blocks for a second.
    pub fn template(&self, release: Release<'_>, args: &[&str]) -> Result<String> {
        let output = self.try_template(release, args)?;
        process::stdout(&output).with_context(|| format!("helm template {} {}", release.chart, args.join(" ")))
    }

    /// As [`Helm::template`], with the output of a failure.
    pub fn try_template(&self, release: Release<'_>, args: &[&str]) -> Result<Output> {
        let mut command = self.command(&["template", release.name]);
        command
            .arg(folder(release.chart))
            .args(["--namespace", release.namespace])
            .args(args);
        command.output().context("cannot run helm")
    }

    /// The objects that a chart renders.
    pub fn objects(&self, release: Release<'_>, args: &[&str]) -> Result<Vec<Value>> {
        manifests::documents(&self.template(release, args)?)
    }
}

/// The folder of a chart.
pub fn folder(chart: &str) -> PathBuf {
    manifests::deploy().join("charts").join(chart)
}

/// The files that are made of the charts, by their path from the folder of the project: those of `deploy/server` and
/// `deploy/konnector`, and the reference of the values.
pub fn generated(helm: &Helm) -> Result<Vec<(PathBuf, String)>> {
    let mut files = deploy::files(helm)?;
    files.push((Path::new("docs/reference/charts.md").to_owned(), reference::page()?));
    Ok(files)
}
