//! Finds the programs of a control plane, Helm and crane, in the folder `KUBEBUILDER_ASSETS`, or builds them once per user. Builds and
//! installs the issuers of ID tokens, and Chromium. Unpacks nginx and Prometheus.
//!
//! The Go modules in `controlplane/`, `helm/`, `crane/`, `generators/` and `issuers/go/`, and the npm packages in `issuers/node/`,
//! `generators/es/` and `chromium/`, pin their versions. The name of a cache folder is a hash of the module or package and of the build flags, so that a change of either
//! builds new programs beside the old ones.

mod build;
mod debian;
mod npm;
mod once;
mod venv;

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use tokio::sync::OnceCell;

use self::build::{BUF, CONTROL_PLANE, CRANE, GO_PLUGINS, HELM, MINORS, Module, ZITADEL_ISSUER};
pub use self::{
    debian::{nginx, prometheus},
    npm::{chromium, es_plugin, node_issuer, npm_packages},
    venv::{python_plugins, venv},
};

static BINARIES: OnceCell<Binaries> = OnceCell::const_new();

/// A program that the tests run, and that is not of this project.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// etcd, the store of the API server.
    Etcd,
    /// The Kubernetes API server.
    KubeApiserver,
    /// The controllers of Kubernetes, such as the garbage collector.
    KubeControllerManager,
    /// kubectl.
    Kubectl,
    /// grpcurl, a gRPC client that works by reflection.
    Grpcurl,
    /// Helm, which installs charts.
    Helm,
    /// crane, which pushes, reads and checks images.
    Crane,
    /// An issuer of ID tokens, made of a Go package.
    ZitadelIssuer,
    /// buf, which checks the .proto files and runs plug-ins.
    Buf,
    /// The plug-in for messages in Go.
    ProtocGenGo,
    /// The plug-in for stubs in Go.
    ProtocGenGoGrpc,
}

/// The paths of the programs of a control plane.
#[derive(Debug)]
pub struct Binaries {
    paths: Vec<PathBuf>,
}

impl Program {
    /// The programs of a control plane, and those that its tests use everywhere, in the order in which they are built.
    pub const CONTROL_PLANE: [Self; 5] = [
        Self::Etcd,
        Self::KubeApiserver,
        Self::KubeControllerManager,
        Self::Kubectl,
        Self::Grpcurl,
    ];

    /// The programs that are of one minor of Kubernetes.
    pub const KUBERNETES: [Self; 3] = [Self::KubeApiserver, Self::KubeControllerManager, Self::Kubectl];

    /// The file name of the program.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::Kubectl => "kubectl",
            Self::Grpcurl => "grpcurl",
            Self::Helm => "helm",
            Self::Crane => "crane",
            Self::ZitadelIssuer => "zitadel-issuer",
            Self::Buf => "buf",
            Self::ProtocGenGo => "protoc-gen-go",
            Self::ProtocGenGoGrpc => "protoc-gen-go-grpc",
        }
    }

    fn package(self) -> &'static str {
        match self {
            Self::Etcd => "go.etcd.io/etcd/server/v3",
            Self::KubeApiserver => "k8s.io/kubernetes/cmd/kube-apiserver",
            Self::KubeControllerManager => "k8s.io/kubernetes/cmd/kube-controller-manager",
            Self::Kubectl => "k8s.io/kubernetes/cmd/kubectl",
            Self::Grpcurl => "github.com/fullstorydev/grpcurl/cmd/grpcurl",
            Self::Helm => "helm.sh/helm/v4/cmd/helm",
            Self::Crane => "github.com/google/go-containerregistry/cmd/crane",
            // The module itself.
            Self::ZitadelIssuer => ".",
            Self::Buf => "github.com/bufbuild/buf/cmd/buf",
            Self::ProtocGenGo => "google.golang.org/protobuf/cmd/protoc-gen-go",
            Self::ProtocGenGoGrpc => "google.golang.org/grpc/cmd/protoc-gen-go-grpc",
        }
    }

    fn module(self) -> &'static str {
        match self {
            Self::Etcd => "go.etcd.io/etcd/server/v3",
            Self::KubeApiserver | Self::KubeControllerManager | Self::Kubectl => "k8s.io/kubernetes",
            Self::Grpcurl => "github.com/fullstorydev/grpcurl",
            Self::Helm => "helm.sh/helm/v4",
            Self::Crane => "github.com/google/go-containerregistry",
            Self::ZitadelIssuer => "github.com/zitadel/oidc/v3",
            Self::Buf => "github.com/bufbuild/buf",
            Self::ProtocGenGo => "google.golang.org/protobuf",
            Self::ProtocGenGoGrpc => "google.golang.org/grpc/cmd/protoc-gen-go-grpc",
        }
    }
}

impl Binaries {
    /// Returns the programs for this process. The first call of a user builds them, which takes minutes.
    pub async fn get() -> Result<&'static Self> {
        BINARIES
            .get_or_try_init(async || tokio::task::spawn_blocking(Self::locate).await?)
            .await
    }

    /// Finds the programs and builds those that are missing, which blocks for minutes.
    pub fn locate() -> Result<Self> {
        let paths = locate(&CONTROL_PLANE, "controlplane")?;
        Ok(Self { paths })
    }

    /// The path of a program of the control plane.
    pub fn path(&self, program: Program) -> &Path {
        &self.paths[program as usize]
    }
}

/// Finds Helm, or builds it, which blocks for minutes. The control planes do not need it.
pub fn helm() -> Result<PathBuf> {
    let mut paths = locate(&HELM, "helm")?;
    paths.pop().context("the module of Helm has one program")
}

/// Finds crane, or builds it, which blocks for a minute. The control planes do not need it.
pub fn crane() -> Result<PathBuf> {
    let mut paths = locate(&CRANE, "crane")?;
    paths.pop().context("the module of crane has one program")
}

/// Finds the issuer that is made of a Go package, or builds it, which blocks for a minute.
pub fn zitadel_issuer() -> Result<PathBuf> {
    let mut paths = locate(&ZITADEL_ISSUER, "issuer")?;
    paths.pop().context("the module of the issuer has one program")
}

/// Finds buf, or builds it, which blocks for minutes.
pub fn buf() -> Result<PathBuf> {
    let mut paths = locate(&BUF, "buf")?;
    paths.pop().context("the module of buf has one program")
}

/// Finds the plug-ins of protoc for Go, or builds them; returns their folder.
pub fn go_plugins() -> Result<PathBuf> {
    let paths = locate(&GO_PLUGINS, "go-plugins")?;
    let folder = paths.first().and_then(|path| path.parent());
    folder.map(Path::to_owned).context("the plug-ins have no folder")
}

/// The oldest and the newest minor of Kubernetes on which the soak runs, such as `1.30`.
pub fn minors() -> impl Iterator<Item = &'static str> {
    MINORS.into_iter().map(|(minor, _)| minor)
}

/// Builds API server, controller manager and kubectl of a minor, if they are not built yet, which blocks for minutes. Returns their
/// folder, to be given as `KUBEBUILDER_ASSETS`.
pub fn of_minor(minor: &str) -> Result<PathBuf> {
    let mut minors = MINORS.into_iter();
    let (_, module) = minors
        .find(|(name, _)| *name == minor)
        .with_context(|| format!("Kubernetes {minor} has no folder in e2e/minors"))?;
    let cache = cache_folder()?.join("minors").join(build::key(&module));
    let paths = choose(module.programs(), None, &cache);
    build::missing(&module, &cache, &paths)?;
    Ok(cache)
}

/// Finds the programs of a module and builds those that are missing, into a cache folder of that name.
fn locate(module: &Module, folder: &str) -> Result<Vec<PathBuf>> {
    let assets = env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
    let cache = cache_folder()?.join(folder).join(build::key(module));
    let paths = choose(module.programs(), assets.as_deref(), &cache);
    build::missing(module, &cache, &paths)?;
    Ok(paths)
}

/// Returns the path of each program: in `assets` if it has the file, else in the cache.
fn choose(programs: &[Program], assets: Option<&Path>, cache: &Path) -> Vec<PathBuf> {
    let path = |program: &Program| {
        assets
            .map(|assets| assets.join(program.name()))
            .filter(|path| path.is_file())
            .unwrap_or_else(|| cache.join(program.name()))
    };
    programs.iter().map(path).collect()
}

/// The folder in which a user's builds of other projects' programs are kept between test runs.
pub fn cache_folder() -> Result<PathBuf> {
    env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| env::home_dir().map(|home| home.join(".cache")))
        .map(|caches| caches.join("bindery"))
        .context("there is no folder to cache built programs in: set HOME or XDG_CACHE_HOME")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn assets_are_taken_program_by_program() {
        let assets = tempfile::tempdir().unwrap();
        fs::write(assets.path().join("etcd"), "").unwrap();
        fs::write(assets.path().join("kubectl"), "").unwrap();
        let cache = Path::new("/cache");
        let programs = Program::CONTROL_PLANE;
        let chosen = choose(&programs, Some(assets.path()), cache);
        for program in programs {
            let expect = match program {
                Program::Etcd | Program::Kubectl => assets.path(),
                _ => cache,
            };
            assert_eq!(chosen[program as usize], expect.join(program.name()));
        }
        assert_eq!(
            choose(&programs, None, cache),
            programs.map(|program| cache.join(program.name()))
        );
    }
}
