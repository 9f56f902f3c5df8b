//! Builds missing programs with the Go toolchain, in one process of the user at a time.

use std::{
    env, fmt,
    fs::{self, File},
    io::{self, ErrorKind, Write},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Instant,
};

use anyhow::{Context, Result, bail};
use sha2::{Digest, Sha256};

use super::Program;

const GO_MOD: &str = include_str!("../../controlplane/go.mod");
const GO_SUM: &str = include_str!("../../controlplane/go.sum");
const FLAGS: [&str; 3] = ["-mod=readonly", "-buildvcs=false", "-trimpath"];

/// The error for a missing Go toolchain.
const GO_NEEDED: &str = "the control plane's binaries are built from source, which needs Go 1.24 or newer: \
     install Go and put `go` into PATH, or set KUBEBUILDER_ASSETS to a folder that holds \
     etcd, kube-apiserver, kube-controller-manager, kubectl and grpcurl";

/// The name of the cache folder: a hash of all that decides what the programs are.
pub(super) fn key() -> String {
    let mut hash = Sha256::new();
    for part in [GO_MOD, GO_SUM, env::consts::OS, env::consts::ARCH] {
        hash.update(part);
        hash.update([0]);
    }
    for program in Program::ALL {
        hash.update(arguments(program).join(" "));
    }
    let number = hash.finalize()[..6]
        .iter()
        .fold(0, |number, byte| number << 8 | u64::from(*byte));
    format!("{number:012x}")
}

/// Builds those of `paths` that are missing, into `cache`. Other processes wait for the lock file of the cache.
pub(super) fn missing(cache: &Path, paths: &[PathBuf]) -> Result<()> {
    let absent = || -> Vec<Program> {
        let is_absent = |program: &Program| !paths[*program as usize].is_file();
        Program::ALL.into_iter().filter(is_absent).collect()
    };
    if absent().is_empty() {
        return Ok(());
    }
    fs::create_dir_all(cache).with_context(|| format!("cannot create the cache folder {}", cache.display()))?;
    let lock = File::create(cache.join(".lock"))?;
    if lock.try_lock().is_err() {
        progress(format_args!(
            "another process builds the control plane's binaries; waiting for it\n"
        ));
        lock.lock()
            .with_context(|| format!("cannot lock {}", cache.display()))?;
    }
    // Asked again under the lock: another process may have built them meanwhile.
    let absent = absent();
    if absent.is_empty() {
        return Ok(());
    }
    let module = cache.join(".module");
    // A build that was killed leaves its folder.
    let _ = fs::remove_dir_all(&module);
    fs::create_dir(&module)?;
    fs::write(module.join("go.mod"), GO_MOD)?;
    fs::write(module.join("go.sum"), GO_SUM)?;
    for (index, program) in absent.iter().enumerate() {
        let position = (index + 1, absent.len());
        build(*program, position, &module, &cache.join(program.name()))?;
    }
    fs::remove_dir_all(&module)?;
    Ok(())
}

fn build(program: Program, (index, total): (usize, usize), module: &Path, target: &Path) -> Result<()> {
    let start = Instant::now();
    progress(format_args!(
        "building {} {} ({index} of {total}) ... ",
        program.name(),
        version(program)
    ));
    // Built under another name: whoever finds the file under its own may run it.
    let unfinished = module.join(program.name());
    let outcome = Command::new("go")
        .arg("build")
        .args(arguments(program))
        .arg("-o")
        .arg(&unfinished)
        .arg(program.package())
        .current_dir(module)
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
            bail!("{GO_NEEDED}");
        }
        outcome => outcome.context("cannot run go build")?,
    };
    if !output.status.success() {
        progress(format_args!("failed\n"));
        let message = String::from_utf8_lossy(&output.stderr);
        bail!(
            "go build {} failed; {GO_NEEDED}\n{}",
            program.package(),
            message.trim_end()
        );
    }
    fs::rename(&unfinished, target).with_context(|| format!("cannot write {}", target.display()))?;
    progress(format_args!("done in {} s\n", start.elapsed().as_secs()));
    Ok(())
}

/// Prints progress to the terminal at once: libtest holds back what macros print until a test has failed.
fn progress(message: fmt::Arguments<'_>) {
    let mut stderr = io::stderr().lock();
    // Progress that cannot be shown is no reason to fail.
    let _ = stderr.write_fmt(message).and_then(|()| stderr.flush());
}

fn arguments(program: Program) -> Vec<String> {
    let mut arguments: Vec<String> = FLAGS.map(str::to_owned).into();
    arguments.push(format!("-ldflags=-s -w{}", version_flags(program)));
    arguments
}

/// The linker flags that give a program its version. Without it, clients cannot parse the version of the API server.
fn version_flags(program: Program) -> String {
    let version = version(program);
    match program {
        Program::Etcd => String::new(),
        Program::Grpcurl => format!(" -X main.version={version}"),
        Program::KubeApiserver | Program::KubeControllerManager | Program::Kubectl => {
            let mut numbers = version.trim_start_matches('v').split('.');
            let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
            let variable = "k8s.io/component-base/version.git";
            format!(" -X {variable}Version={version} -X {variable}Major={major} -X {variable}Minor={minor}")
        }
    }
}

/// Returns the version that `go.mod` pins for a program.
fn version(program: Program) -> &'static str {
    GO_MOD
        .lines()
        .filter(|line| !line.contains("=>"))
        .find_map(|line| {
            let mut words = line.trim().split(' ');
            (words.next() == Some(program.module())).then(|| words.next()).flatten()
        })
        .unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_has_a_pinned_version() {
        for program in Program::ALL {
            assert!(version(program).starts_with('v'), "{} is not pinned", program.name());
            assert!(
                GO_MOD.contains(&format!("\t{}\n", program.package())),
                "{} is no tool",
                program.name()
            );
        }
        assert!(version_flags(Program::Kubectl).ends_with("gitMajor=1 -X k8s.io/component-base/version.gitMinor=34"));
    }
}
