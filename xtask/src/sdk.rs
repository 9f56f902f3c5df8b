//! `cargo xtask sdk`: checks the .proto files with buf, and writes the generated code of the SDKs.

use std::{
    collections::BTreeSet,
    env,
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail, ensure};
use bindery_e2e::binaries;

use crate::cargo::root;

/// The template of buf, for Go and TypeScript.
const TEMPLATE: &str = "sdk/buf.gen.yaml";
/// The template for details of errors, which TypeScript has no package for.
const DETAILS_TEMPLATE: &str = r#"{"version": "v2", "plugins": [{"local": "protoc-gen-es", "out": "sdk/typescript/src/gen",
    "opt": ["target=ts", "import_extension=js"]}]}"#;
/// The folders with code that buf writes, and how the names of generated files end there.
const GENERATED: [(&str, &str); 2] = [("sdk/go", ".pb.go"), ("sdk/typescript/src/gen", "_pb.ts")];

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Writes nothing, and fails if a file is not current.
    #[arg(long)]
    check: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let buf = Buf::provide()?;
    buf.check()?;
    let made = root().join("target/sdk-generated");
    // An earlier run leaves its files.
    let _ = fs::remove_dir_all(&made);
    buf.generate(&made)?;
    let mut stale = Vec::new();
    for (folder, suffix) in GENERATED {
        if !root().join(folder).is_dir() {
            continue;
        }
        let (new, old) = (files(&made.join(folder), suffix)?, files(&root().join(folder), suffix)?);
        for name in &new {
            let content = fs::read(made.join(folder).join(name))?;
            let path = root().join(folder).join(name);
            if fs::read(&path).is_ok_and(|old| old == content) {
                continue;
            }
            stale.push(path.clone());
            if !args.check {
                fs::create_dir_all(path.parent().context("a file has a folder")?)?;
                fs::write(&path, content)?;
            }
        }
        for name in old.difference(&new) {
            let path = root().join(folder).join(name);
            if !args.check {
                fs::remove_file(&path)?;
            }
            stale.push(path);
        }
    }
    if args.check && !stale.is_empty() {
        bail!("run `cargo xtask sdk`: not current are {stale:#?}");
    }
    python(args.check)
}

/// Runs the program that writes the generated code of Python, or checks that it is current.
fn python(check: bool) -> Result<()> {
    let folder = root().join("sdk/python");
    if !folder.join("tools/generate.py").is_file() {
        return Ok(());
    }
    let mut command = Command::new(binaries::python_plugins()?);
    command.arg("tools/generate.py").current_dir(folder);
    if check {
        command.arg("--check");
    }
    call(&mut command)
}

/// buf, and where it finds the plug-ins.
struct Buf {
    program: PathBuf,
    path: OsString,
}

impl Buf {
    fn provide() -> Result<Self> {
        let es = binaries::es_plugin()?;
        let es = es.parent().context("the plug-in has a folder")?;
        let folders = [binaries::go_plugins()?, es.to_owned()];
        let own = env::var_os("PATH").unwrap_or_default();
        let path = env::join_paths(folders.into_iter().chain(env::split_paths(&own)))?;
        Ok(Self {
            program: binaries::buf()?,
            path,
        })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.env("PATH", &self.path).current_dir(root());
        command
    }

    /// Checks the style of the .proto files, and that they break no client of a release.
    fn check(&self) -> Result<()> {
        call(self.command().args(["lint", "proto"]))?;
        let mut releases = 0;
        for entry in fs::read_dir(root().join("proto/released"))? {
            let path = entry?.path();
            call(self.command().args(["breaking", "proto", "--against"]).arg(path))?;
            releases += 1;
        }
        ensure!(releases > 0, "proto/released is empty");
        Ok(())
    }

    fn generate(&self, folder: &Path) -> Result<()> {
        let generate = |more: &[&str]| call(self.command().arg("generate").args(more).arg("-o").arg(folder));
        generate(&["--template", TEMPLATE])?;
        if root().join("sdk/typescript/proto").is_dir() {
            generate(&["sdk/typescript/proto", "--template", DETAILS_TEMPLATE])?;
        }
        Ok(())
    }
}

fn call(command: &mut Command) -> Result<()> {
    let program = command.get_program().to_string_lossy().into_owned();
    let status = command.status().with_context(|| format!("cannot run {program}"))?;
    ensure!(status.success(), "{program} failed: {status}");
    Ok(())
}

/// The files below a folder whose names end so, relative to it.
fn files(folder: &Path, suffix: &str) -> Result<BTreeSet<PathBuf>> {
    let mut found = BTreeSet::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(&next).with_context(|| format!("cannot read {}", next.display()))? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.to_string_lossy().ends_with(suffix) {
                found.insert(path.strip_prefix(folder)?.to_owned());
            }
        }
    }
    Ok(found)
}
