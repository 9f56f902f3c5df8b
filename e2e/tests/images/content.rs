//! What is in an image, and that the same sources give the same image.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::images;
use bindery_image::{Built, Image, Options, Profile, Program, Workspace, build};

/// The files of the image of a program, with their permissions and owners.
fn expected(name: &str) -> BTreeMap<String, (u32, u32)> {
    let shared = [
        ("/etc/group", 0o644, 0),
        ("/etc/nsswitch.conf", 0o644, 0),
        ("/etc/os-release", 0o644, 0),
        ("/etc/passwd", 0o644, 0),
        ("/etc/ssl/certs/ca-certificates.crt", 0o644, 0),
        ("/home/nonroot/", 0o700, 65532),
        ("/lib/x86_64-linux-gnu/libc.so.6", 0o644, 0),
        ("/lib/x86_64-linux-gnu/libgcc_s.so.1", 0o644, 0),
        ("/lib/x86_64-linux-gnu/libm.so.6", 0o644, 0),
        ("/lib64/ld-linux-x86-64.so.2", 0o755, 0),
        ("/tmp/", 0o1777, 0),
        ("/usr/share/common-licenses/Artistic", 0o644, 0),
        ("/usr/share/common-licenses/GFDL-1.2", 0o644, 0),
        ("/usr/share/common-licenses/GPL", 0o644, 0),
        ("/usr/share/common-licenses/GPL-2", 0o644, 0),
        ("/usr/share/common-licenses/GPL-3", 0o644, 0),
        ("/usr/share/common-licenses/LGPL", 0o644, 0),
        ("/usr/share/common-licenses/LGPL-2.1", 0o644, 0),
        ("/usr/share/doc/libc6/copyright", 0o644, 0),
        ("/usr/share/doc/libgcc-s1/copyright", 0o644, 0),
        ("/var/lib/dpkg/status.d/libc6", 0o644, 0),
        ("/var/lib/dpkg/status.d/libgcc-s1", 0o644, 0),
    ];
    let own = [
        (format!("/usr/bin/{name}"), 0o755),
        (format!("/usr/share/licenses/{name}/LICENSE"), 0o644),
        (format!("/usr/share/licenses/{name}/THIRD-PARTY-NOTICES"), 0o644),
        (format!("/usr/share/sbom/{name}.cdx.json"), 0o644),
    ];
    shared
        .map(|(path, mode, owner)| (path.to_owned(), (mode, owner)))
        .into_iter()
        .chain(own.map(|(path, mode)| (path, (mode, 0))))
        .collect()
}

/// Adds what is below a folder: files, and folders that are empty, these with a slash behind them.
fn list(root: &Path, folder: &Path, found: &mut BTreeMap<String, (u32, u32)>) -> Result<()> {
    let entries = fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()?;
    for entry in &entries {
        let path = entry.path();
        let data = path.symlink_metadata()?;
        let is_empty_folder = data.is_dir() && fs::read_dir(&path)?.next().is_none();
        if data.is_dir() && !is_empty_folder {
            ensure!(data.permissions().mode() & 0o7777 == 0o755, "{}", path.display());
            list(root, &path, found)?;
            continue;
        }
        let slash = if is_empty_folder { "/" } else { "" };
        let name = format!("/{}{slash}", path.strip_prefix(root)?.display());
        found.insert(name, (data.permissions().mode() & 0o7777, data.uid()));
    }
    Ok(())
}

#[test]
fn an_image_holds_its_program_and_nothing_else_that_could_run() -> Result<()> {
    for program in Program::ALL {
        let root = tempfile::tempdir()?;
        images::unpack(&images::open(program.name)?, root.path())?;
        let mut found = BTreeMap::new();
        list(root.path(), root.path(), &mut found)?;
        assert_eq!(found, expected(program.name));
        let headers = readelf("--program-headers", &root.path().join("usr/bin").join(program.name))?;
        ensure!(headers.contains("LOAD"), "no program: {headers}");
        ensure!(
            headers.contains("[Requesting program interpreter: /lib64/ld-linux-x86-64.so.2]"),
            "{headers}"
        );
    }
    Ok(())
}

#[test]
fn an_image_says_what_it_is_and_runs_as_a_user_without_rights() -> Result<()> {
    let head = Command::new("git").args(["rev-parse", "HEAD"]).output()?;
    ensure!(head.status.success(), "git tells no commit");
    let head = String::from_utf8(head.stdout)?;
    for program in Program::ALL {
        let image = images::open(program.name)?;
        let config = image.configuration().config().as_ref().context("no configuration")?;
        assert_eq!(config.user().as_deref(), Some("65532:65532"));
        assert_eq!(
            config.entrypoint().as_deref(),
            Some(&[format!("/usr/bin/{}", program.name)][..])
        );
        let label = |name: &str| {
            let value = image.label(&format!("org.opencontainers.image.{name}"));
            value.with_context(|| format!("no label {name}"))
        };
        assert_eq!(label("title")?, program.name);
        assert_eq!(label("description")?, program.description);
        assert_eq!(label("version")?, env!("CARGO_PKG_VERSION"));
        for license in ["Apache-2.0", "LGPL-2.1-or-later", "CDLA-Permissive-2.0"] {
            ensure!(label("licenses")?.contains(license), "{}", label("licenses")?);
        }
        ensure!(
            label("revision")?.starts_with(head.trim()),
            "built from another commit: build it again"
        );
    }
    Ok(())
}

#[test]
fn the_same_sources_give_the_same_image_wherever_it_is_written() -> Result<()> {
    let workspace = Workspace::read()?;
    let synk = Program::named("synk")?;
    let assemble = |output: &Path| -> Result<Built> {
        let options = Options {
            profile: Profile::Dev,
            output: output.to_owned(),
            source: Some("https://git.example.com/bindery".to_owned()),
        };
        let built = build::assemble(&workspace, &[synk], &options)?;
        built.into_iter().next().context("no image was built")
    };
    let folders = [tempfile::tempdir()?, tempfile::tempdir()?];
    let (one, two) = (assemble(folders[0].path())?, assemble(folders[1].path())?);
    assert_eq!(one.digest, two.digest);
    let image = Image::open(&one.layout)?;
    assert_eq!(
        image.label("org.opencontainers.image.source"),
        Some("https://git.example.com/bindery")
    );
    Ok(())
}

#[test]
fn debug_information_lies_beside_the_image_and_belongs_to_its_program() -> Result<()> {
    let program = Program::ALL[0];
    let root = tempfile::tempdir()?;
    images::unpack(&images::open(program.name)?, root.path())?;
    let stripped = root.path().join("usr/bin").join(program.name);
    let debug = images::folder()?.join(format!("{}.debug", program.name));
    ensure!(
        readelf("--section-headers", &debug)?.contains(".debug_line"),
        "no debug information"
    );
    ensure!(
        !readelf("--section-headers", &stripped)?.contains(".debug_line"),
        "not stripped"
    );
    ensure!(
        readelf("--section-headers", &stripped)?.contains(".gnu_debuglink"),
        "no link"
    );
    assert_eq!(build_id(&stripped)?, build_id(&debug)?);
    Ok(())
}

fn build_id(path: &Path) -> Result<String> {
    let notes = readelf("--notes", path)?;
    let id = notes.lines().find_map(|line| line.split_once("Build ID: "));
    let (_, id) = id.with_context(|| format!("{} has no build ID", path.display()))?;
    Ok(id.trim().to_owned())
}

fn readelf(what: &str, path: &Path) -> Result<String> {
    let output = Command::new("readelf").args([what, "--wide"]).arg(path).output()?;
    Ok(String::from_utf8(output.stdout)?)
}
