//! `cargo xtask gen`: files that are made of the code and of the charts.

use std::fs;

use anyhow::{Context as _, Result};
use bindery_e2e::charts::{self, Helm};

use crate::cargo;

pub(crate) fn run() -> Result<()> {
    let folder = cargo::root().join("deploy/crds");
    fs::create_dir_all(&folder)?;
    for (name, content) in bindery_api::crds::yaml_files()? {
        let path = folder.join(name);
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
    }
    for (path, content) in charts::generated(&Helm::locate()?)? {
        let path = cargo::root().join(path);
        fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}
