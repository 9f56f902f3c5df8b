//! Finds the programs of a control plane in the folder `KUBEBUILDER_ASSETS`, or builds them once per user.
//!
//! The Go module in `controlplane/` pins their versions. The name of the cache folder is a hash of that module and of the build
//! flags, so that a change of either builds new programs beside the old ones.

mod build;

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use tokio::sync::OnceCell;

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
}

/// The paths of all [`Program`]s.
#[derive(Debug)]
pub struct Binaries {
    paths: [PathBuf; Program::ALL.len()],
}

impl Program {
    /// All programs, in the order in which they are built.
    pub const ALL: [Self; 5] = [
        Self::Etcd,
        Self::KubeApiserver,
        Self::KubeControllerManager,
        Self::Kubectl,
        Self::Grpcurl,
    ];

    /// The file name of the program.
    pub fn name(self) -> &'static str {
        match self {
            Self::Etcd => "etcd",
            Self::KubeApiserver => "kube-apiserver",
            Self::KubeControllerManager => "kube-controller-manager",
            Self::Kubectl => "kubectl",
            Self::Grpcurl => "grpcurl",
        }
    }

    fn package(self) -> &'static str {
        match self {
            Self::Etcd => "go.etcd.io/etcd/server/v3",
            Self::KubeApiserver => "k8s.io/kubernetes/cmd/kube-apiserver",
            Self::KubeControllerManager => "k8s.io/kubernetes/cmd/kube-controller-manager",
            Self::Kubectl => "k8s.io/kubernetes/cmd/kubectl",
            Self::Grpcurl => "github.com/fullstorydev/grpcurl/cmd/grpcurl",
        }
    }

    fn module(self) -> &'static str {
        match self {
            Self::Etcd => "go.etcd.io/etcd/server/v3",
            Self::KubeApiserver | Self::KubeControllerManager | Self::Kubectl => "k8s.io/kubernetes",
            Self::Grpcurl => "github.com/fullstorydev/grpcurl",
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
        let assets = env::var_os("KUBEBUILDER_ASSETS").map(PathBuf::from);
        let cache = cache_folder()?.join("controlplane").join(build::key());
        let paths = choose(assets.as_deref(), &cache);
        build::missing(&cache, &paths)?;
        Ok(Self { paths })
    }

    /// The path of a program.
    pub fn path(&self, program: Program) -> &Path {
        &self.paths[program as usize]
    }
}

/// Returns the path of each program: in `assets` if it has the file, else in the cache.
fn choose(assets: Option<&Path>, cache: &Path) -> [PathBuf; Program::ALL.len()] {
    Program::ALL.map(|program| {
        assets
            .map(|assets| assets.join(program.name()))
            .filter(|path| path.is_file())
            .unwrap_or_else(|| cache.join(program.name()))
    })
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
        let chosen = choose(Some(assets.path()), cache);
        for program in Program::ALL {
            let expect = match program {
                Program::Etcd | Program::Kubectl => assets.path(),
                _ => cache,
            };
            assert_eq!(chosen[program as usize], expect.join(program.name()));
        }
        assert_eq!(
            choose(None, cache),
            Program::ALL.map(|program| cache.join(program.name()))
        );
    }
}
