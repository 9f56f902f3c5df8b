//! Builds missing programs with the Go toolchain, in one process of the user at a time.

use std::{
    env, fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context, Result, bail};

use super::{
    Program,
    once::{self, progress},
};

/// A Go module that pins programs as tools, or is a program itself.
pub(super) struct Module {
    /// What its programs are, in messages.
    what: &'static str,
    go_mod: &'static str,
    go_sum: &'static str,
    /// The source files of a module that is a program, with their names.
    sources: &'static [(&'static str, &'static str)],
    programs: &'static [Program],
}

/// The programs of a control plane.
pub(super) const CONTROL_PLANE: Module = Module {
    what: "the control plane's binaries",
    go_mod: include_str!("../../controlplane/go.mod"),
    go_sum: include_str!("../../controlplane/go.sum"),
    sources: &[],
    programs: &Program::CONTROL_PLANE,
};
/// Helm, whose libraries have other versions than those of the control plane.
pub(super) const HELM: Module = Module {
    what: "Helm",
    go_mod: include_str!("../../helm/go.mod"),
    go_sum: include_str!("../../helm/go.sum"),
    sources: &[],
    programs: &[Program::Helm],
};

/// crane, which needs a newer Go than the control plane.
pub(super) const CRANE: Module = Module {
    what: "crane",
    go_mod: include_str!("../../crane/go.mod"),
    go_sum: include_str!("../../crane/go.sum"),
    sources: &[],
    programs: &[Program::Crane],
};

/// The issuer of the tests that is made of a Go package.
pub(super) const ZITADEL_ISSUER: Module = Module {
    what: "the issuer",
    go_mod: include_str!("../../issuers/go/go.mod"),
    go_sum: include_str!("../../issuers/go/go.sum"),
    sources: &[
        ("client.go", include_str!("../../issuers/go/client.go")),
        ("control.go", include_str!("../../issuers/go/control.go")),
        ("device.go", include_str!("../../issuers/go/device.go")),
        ("issuer.go", include_str!("../../issuers/go/issuer.go")),
        ("keys.go", include_str!("../../issuers/go/keys.go")),
        ("main.go", include_str!("../../issuers/go/main.go")),
        ("pages.go", include_str!("../../issuers/go/pages.go")),
        ("requests.go", include_str!("../../issuers/go/requests.go")),
        ("settings.go", include_str!("../../issuers/go/settings.go")),
        ("store.go", include_str!("../../issuers/go/store.go")),
        ("tokens.go", include_str!("../../issuers/go/tokens.go")),
    ],
    programs: &[Program::ZitadelIssuer],
};

/// buf, whose libraries have other versions than those of the plug-ins.
pub(super) const BUF: Module = Module {
    what: "buf",
    go_mod: include_str!("../../generators/buf/go.mod"),
    go_sum: include_str!("../../generators/buf/go.sum"),
    sources: &[],
    programs: &[Program::Buf],
};

/// The plug-ins of protoc for Go.
pub(super) const GO_PLUGINS: Module = Module {
    what: "the plug-ins for Go",
    go_mod: include_str!("../../generators/go/go.mod"),
    go_sum: include_str!("../../generators/go/go.sum"),
    sources: &[],
    programs: &[Program::ProtocGenGo, Program::ProtocGenGoGrpc],
};

/// The oldest and the newest minor of Kubernetes on which the soak runs.
pub(super) const MINORS: [(&str, Module); 2] = [
    (
        "1.30",
        Module {
            what: "the programs of Kubernetes 1.30",
            go_mod: include_str!("../../minors/1.30/go.mod"),
            go_sum: include_str!("../../minors/1.30/go.sum"),
            sources: &[],
            programs: &Program::KUBERNETES,
        },
    ),
    (
        "1.37",
        Module {
            what: "the programs of Kubernetes 1.37",
            go_mod: include_str!("../../minors/1.37/go.mod"),
            go_sum: include_str!("../../minors/1.37/go.sum"),
            sources: &[],
            programs: &Program::KUBERNETES,
        },
    ),
];

const FLAGS: [&str; 3] = ["-mod=readonly", "-buildvcs=false", "-trimpath"];

/// The name of the cache folder: a hash of all that decides what the programs are.
pub(super) fn key(module: &Module) -> String {
    let arguments = module
        .programs
        .iter()
        .map(|program| module.arguments(*program).join(" "));
    let texts = [module.go_mod, module.go_sum, env::consts::OS, env::consts::ARCH];
    let sources = module.sources.iter().map(|(_, source)| *source);
    once::key(texts.into_iter().chain(sources), arguments)
}

/// Builds those programs of a module whose files are missing, into `cache`. `paths` are the files of its programs, in their
/// order. Other processes wait for the lock file of the cache.
pub(super) fn missing(module: &Module, cache: &Path, paths: &[PathBuf]) -> Result<()> {
    let absent = || -> Vec<Program> {
        let programs = module.programs.iter().zip(paths);
        programs
            .filter_map(|(program, path)| (!path.is_file()).then_some(*program))
            .collect()
    };
    once::make(
        module.what,
        cache,
        || absent().is_empty(),
        || {
            let folder = cache.join(".module");
            // A build that was killed leaves its folder.
            let _ = fs::remove_dir_all(&folder);
            fs::create_dir(&folder)?;
            fs::write(folder.join("go.mod"), module.go_mod)?;
            fs::write(folder.join("go.sum"), module.go_sum)?;
            for (name, source) in module.sources {
                fs::write(folder.join(name), source)?;
            }
            let absent = absent();
            for (index, program) in absent.iter().enumerate() {
                let position = (index + 1, absent.len());
                build(module, *program, position, &folder, &cache.join(program.name()))?;
            }
            fs::remove_dir_all(&folder)?;
            Ok(())
        },
    )
}

fn build(
    module: &Module,
    program: Program,
    (index, total): (usize, usize),
    folder: &Path,
    target: &Path,
) -> Result<()> {
    let start = Instant::now();
    progress(format_args!(
        "building {} {} ({index} of {total}) ... ",
        program.name(),
        module.version(program)
    ));
    // Built under another name: whoever finds the file under its own may run it.
    let unfinished = folder.join(program.name());
    let outcome = Command::new("go")
        .arg("build")
        .args(module.arguments(program))
        .arg("-o")
        .arg(&unfinished)
        .arg(program.package())
        .current_dir(folder)
        .envs([
            ("CGO_ENABLED", "0"),
            ("GOFLAGS", ""),
            ("GOWORK", "off"),
            ("GO111MODULE", "on"),
        ])
        .env_remove("GOOS")
        .env_remove("GOARCH")
        .stdin(Stdio::null())
        .output();
    let output = match outcome {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            progress(format_args!("no Go toolchain\n"));
            bail!("{}", module.go_needed());
        }
        outcome => outcome.context("cannot run go build")?,
    };
    if !output.status.success() {
        progress(format_args!("failed\n"));
        let message = String::from_utf8_lossy(&output.stderr);
        bail!(
            "go build {} failed; {}\n{}",
            program.package(),
            module.go_needed(),
            message.trim_end()
        );
    }
    fs::rename(&unfinished, target).with_context(|| format!("cannot write {}", target.display()))?;
    progress(format_args!("done in {} s\n", start.elapsed().as_secs()));
    Ok(())
}

// === impl Module ===

impl Module {
    pub(super) fn programs(&self) -> &'static [Program] {
        self.programs
    }

    /// The error for a missing Go toolchain.
    fn go_needed(&self) -> String {
        let names: Vec<_> = self.programs.iter().map(|program| program.name()).collect();
        format!(
            "{} from source, which needs Go {} or newer: install Go and put `go` into PATH, or set KUBEBUILDER_ASSETS to a \
             folder that holds {}",
            match names.len() {
                1 => format!("{} is built", self.what),
                _ => format!("{} are built", self.what),
            },
            self.go_version(),
            names.join(", ")
        )
    }

    /// The oldest version of Go that builds the module.
    fn go_version(&self) -> &'static str {
        let mut lines = self.go_mod.lines();
        lines.find_map(|line| line.strip_prefix("go ")).unwrap_or("unknown")
    }

    fn arguments(&self, program: Program) -> Vec<String> {
        let mut arguments: Vec<String> = FLAGS.map(str::to_owned).into();
        arguments.push(format!("-ldflags=-s -w{}", self.version_flags(program)));
        arguments
    }

    /// The linker flags that give a program its version. Without it, clients cannot parse the version of the API server.
    fn version_flags(&self, program: Program) -> String {
        let version = self.version(program);
        match program {
            Program::Etcd | Program::ZitadelIssuer | Program::Buf | Program::ProtocGenGo | Program::ProtocGenGoGrpc => {
                String::new()
            }
            Program::Grpcurl => format!(" -X main.version={version}"),
            Program::Helm => format!(" -X helm.sh/helm/v4/internal/version.version={version}"),
            Program::Crane => format!(" -X github.com/google/go-containerregistry/cmd/crane/cmd.Version={version}"),
            Program::KubeApiserver | Program::KubeControllerManager | Program::Kubectl => {
                let mut numbers = version.trim_start_matches('v').split('.');
                let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
                let variable = "k8s.io/component-base/version.git";
                format!(" -X {variable}Version={version} -X {variable}Major={major} -X {variable}Minor={minor}")
            }
        }
    }

    /// Returns the version that `go.mod` pins for a program.
    fn version(&self, program: Program) -> &'static str {
        let mut lines = self.go_mod.lines().filter(|line| !line.contains("=>"));
        lines
            .find_map(|line| {
                let line = line.trim();
                let mut words = line.strip_prefix("require ").unwrap_or(line).split(' ');
                (words.next() == Some(program.module())).then(|| words.next()).flatten()
            })
            .unwrap_or("unknown")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_file_of_the_issuer_is_built() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("issuers/go");
        let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        let mut files: Vec<_> = files.filter_map(|name| name.into_string().ok()).collect();
        files.retain(|name| !name.starts_with("go."));
        files.sort();
        let built: Vec<_> = ZITADEL_ISSUER.sources.iter().map(|(name, _)| *name).collect();
        assert_eq!(built, files);
    }

    #[test]
    fn every_program_has_a_pinned_version() {
        let minors = MINORS.map(|(_, module)| module);
        for module in [CONTROL_PLANE, HELM, CRANE, BUF, GO_PLUGINS].into_iter().chain(minors) {
            for program in module.programs {
                let version = module.version(*program);
                assert!(version.starts_with('v'), "{} is not pinned", program.name());
                let mut lines = module.go_mod.lines();
                assert!(
                    lines.any(|line| line.trim().trim_start_matches("tool ") == program.package()),
                    "{} is no tool",
                    program.name()
                );
            }
            assert!(module.go_version().starts_with("1."), "{}", module.go_version());
        }
        assert!(ZITADEL_ISSUER.version(Program::ZitadelIssuer).starts_with('v'));
        let flags = CONTROL_PLANE.version_flags(Program::Kubectl);
        assert!(flags.ends_with("gitMajor=1 -X k8s.io/component-base/version.gitMinor=34"));
    }
}
