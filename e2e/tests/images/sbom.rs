//! What an image says it is made of: to readers of CycloneDX, and to scanners that look into its program.

use std::{collections::BTreeSet, fs, io::Read as _, path::Path, process::Command};

use anyhow::{Context as _, Result, ensure};
use auditable_serde::VersionInfo;
use bindery_e2e::{Workdir, images};
use flate2::read::ZlibDecoder;
use serde_json::Value;

/// Reads the list of crates that is embedded in a program.
fn embedded(program: &Path, work: &Path) -> Result<VersionInfo> {
    let section = work.join("section");
    let dump = format!("--dump-section=.dep-v0={}", section.display());
    let status = Command::new("objcopy")
        .arg(dump)
        .arg(program)
        .arg(work.join("copy"))
        .status()?;
    ensure!(status.success(), "the program has no list of crates");
    let mut json = String::new();
    ZlibDecoder::new(&fs::read(section)?[..]).read_to_string(&mut json)?;
    Ok(json.parse()?)
}

#[test]
fn the_crates_of_a_program_are_known_to_both_kinds_of_readers() -> Result<()> {
    let folder = Workdir::new("image")?;
    let root = folder.path().join("root");
    images::unpack(&images::open("bindery-konnector")?, &root)?;
    let info = embedded(&root.join("usr/bin/bindery-konnector"), folder.path())?;
    let own = info.packages.iter().find(|it| it.root).context("no root")?;
    assert_eq!(own.name, "bindery-agent");
    let bom: Value = serde_json::from_slice(&fs::read(root.join("usr/share/sbom/bindery-konnector.cdx.json"))?)?;
    assert_eq!(bom["metadata"]["component"]["name"], "bindery-agent");
    let components = bom["components"].as_array().context("no components")?;
    let names = |field: &str| -> BTreeSet<&str> { components.iter().filter_map(|it| it[field].as_str()).collect() };
    let documented = names("name");
    for package in info.packages.iter().filter(|it| !it.root) {
        ensure!(
            documented.contains(package.name.as_str()),
            "{} is not documented",
            package.name
        );
    }
    for present in [
        "kube-client",
        "rustls",
        "tikv-jemallocator",
        "rust-std",
        "libc6",
        "libgcc-s1",
        "webpki-root-certs",
    ] {
        ensure!(documented.contains(present), "{present} is missing in {documented:?}");
    }
    let tokio = info.packages.iter().find(|it| it.name == "tokio").context("no tokio")?;
    let address = format!("pkg:cargo/tokio@{}", tokio.version);
    ensure!(names("purl").contains(address.as_str()), "no {address}");
    let debian = |it: &&str| {
        it.starts_with("pkg:deb/") && it.contains("/libc6@") && it.contains("distro=") && it.contains("upstream=glibc")
    };
    ensure!(
        names("purl").iter().any(debian),
        "no package of Debian: {:?}",
        names("purl")
    );
    Ok(())
}
