//! `cargo xtask gen`: files that are made of the code and of the charts.

mod conditions;
mod crds;
mod grpc;
mod markdown;
mod metrics;

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};
use bindery_e2e::{
    charts::{self, Helm},
    flags, observe,
};

use crate::cargo::{TESTED, root, step};

pub(crate) fn run() -> Result<()> {
    let folder = root().join("deploy/crds");
    fs::create_dir_all(&folder)?;
    for (name, content) in bindery_api::crds::yaml_files()? {
        write(&Path::new("deploy/crds").join(name), &content)?;
    }
    for (path, content) in references()? {
        write(&path, &content)?;
    }
    step("programs", &[&["build", "--locked"], &TESTED[..]].concat(), &[])?;
    write(Path::new(flags::PAGE), &flags::page(flags::help)?)?;
    for (path, content) in charts::generated(&Helm::locate()?)? {
        write(&path, &content)?;
    }
    Ok(())
}

/// The files that are made of what is compiled into this program, by their path from the folder of the project.
fn references() -> Result<Vec<(PathBuf, String)>> {
    let page = |name: &str, text| (Path::new("docs/reference").join(name), text);
    let mut files = vec![
        page("grpc-api.md", grpc::page()?),
        page("crds.md", crds::page()?),
        page("conditions.md", conditions::page()),
        page("metrics.md", metrics::page(&root()).map_err(anyhow::Error::msg)?),
    ];
    files.extend(observe::generated()?);
    Ok(files)
}

fn write(path: &Path, content: &str) -> Result<()> {
    let path = root().join(path);
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))
}

#[test]
fn the_references_are_current() -> Result<()> {
    for (path, content) in references()? {
        let known = fs::read_to_string(root().join(&path)).unwrap_or_default();
        anyhow::ensure!(
            known == content,
            "{} is not current: run `cargo xtask gen`",
            path.display()
        );
    }
    Ok(())
}
