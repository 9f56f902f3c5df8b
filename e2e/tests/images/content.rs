//! What is in an image, and that the same sources give the same image.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::Path,
    process::Command,
};

use anyhow::{Context as _, Result, ensure};
use bindery_e2e::{Workdir, images};
use bindery_image::{Built, Image, Options, Profile, Program, Workspace, build};

/// Where packages find licenses that they share.
const COMMON_LICENSES: &str = "/usr/share/common-licenses/";
/// The packages of Debian in an image.
const PACKAGES: [&str; 2] = ["libc6", "libgcc-s1"];

/// The files of the image of a program, with their permissions and owners. `root` is the unpacked image.
fn expected(name: &str, root: &Path) -> Result<BTreeMap<String, (u32, u32)>> {
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
    let licenses = common_licenses(root)?.into_iter().map(|path| (path, 0o644));
    let own = own.into_iter().chain(licenses).map(|(path, mode)| (path, (mode, 0)));
    let shared = shared.map(|(path, mode, owner)| (path.to_owned(), (mode, owner)));
    Ok(shared.into_iter().chain(own).collect())
}

/// The licenses to which those of the packages refer. They are not the same in all releases of Debian.
fn common_licenses(root: &Path) -> Result<BTreeSet<String>> {
    let mut paths = BTreeSet::new();
    for package in PACKAGES {
        let text = fs::read(root.join("usr/share/doc").join(package).join("copyright"))?;
        for behind in String::from_utf8_lossy(&text).split(COMMON_LICENSES).skip(1) {
            let is_of_name = |it: &char| it.is_ascii_alphanumeric() || "-.".contains(*it);
            let name: String = behind.chars().take_while(is_of_name).collect();
            paths.insert(format!("{COMMON_LICENSES}{}", name.trim_end_matches('.')));
        }
    }
    ensure!(!paths.is_empty(), "the packages refer to no license");
    Ok(paths)
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
        let root = Workdir::new("image")?;
        images::unpack(&images::open(program.name)?, root.path())?;
        let mut found = BTreeMap::new();
        list(root.path(), root.path(), &mut found)?;
        assert_eq!(found, expected(program.name, root.path())?);
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
    let folders = [Workdir::new("image")?, Workdir::new("image")?];
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
    let root = Workdir::new("image")?;
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
