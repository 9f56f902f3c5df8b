//! A release: the same sources give the same files, its checksums and signatures hold, and what is in it can be used.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
    time::Duration,
};

use anyhow::{Context as _, Result, anyhow, ensure};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bindery_e2e::{Workdir, binaries, charts::Helm, images, process, run, sdks};
use bindery_image::{
    Profile, Workspace,
    release::{self, CHECKSUMS, Published, SigningKey},
};
use serde_json::Value;

use crate::registry::{Registry, crane};

const LIMIT: Duration = Duration::from_mins(1);
const VERSION: &str = env!("CARGO_PKG_VERSION");
const DOWNLOADS: &str = "https://downloads.example.com/bindery";

/// The release of all tests: making it takes seconds.
static RELEASE: LazyLock<Result<Release>> = LazyLock::new(Release::make);

/// A signed release.
struct Release {
    work: Workdir,
    published: Vec<Published>,
}

impl Release {
    fn get() -> Result<&'static Self> {
        RELEASE.as_ref().map_err(|error| anyhow!("no release: {error:#}"))
    }

    fn make() -> Result<Self> {
        let work = Workdir::new("release")?;
        let key = "genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out key.pem";
        openssl(work.path(), key)?;
        openssl(work.path(), "pkey -in key.pem -pubout -out key.pub")?;
        let mut release = Self {
            work,
            published: Vec::new(),
        };
        release.published = release.write("release", &release.packages("sdks")?)?;
        Ok(release)
    }

    /// Makes the packages of the SDKs in a folder of that name.
    fn packages(&self, folder: &str) -> Result<PathBuf> {
        let packages = self.work.path().join(folder);
        sdks::packages(&packages, Workspace::read()?.seconds()?)?;
        Ok(packages)
    }

    /// Makes the release in a folder of that name, with these packages of the SDKs.
    fn write(&self, folder: &str, sdks: &Path) -> Result<Vec<Published>> {
        let options = release::Options {
            output: &self.work.path().join(folder),
            profile: Profile::Dev,
            helm: &binaries::helm()?,
            sdks,
            key: Some(&SigningKey::read(&self.work.path().join("key.pem"))?),
            downloads: Some(DOWNLOADS),
        };
        release::write(&Workspace::read()?, images::folder()?, options)
    }

    fn path(&self, path: &str) -> PathBuf {
        self.work.path().join("release").join(path)
    }

    /// Fails unless a signature, in base64, is that of `bytes`.
    fn verify(&self, bytes: &[u8], signature: &str) -> Result<()> {
        let folder = tempfile::tempdir()?;
        fs::write(folder.path().join("signature"), STANDARD.decode(signature.trim())?)?;
        fs::write(folder.path().join("bytes"), bytes)?;
        fs::copy(self.work.path().join("key.pub"), folder.path().join("key.pub"))?;
        openssl(folder.path(), "dgst -sha256 -verify key.pub -signature signature bytes")
    }
}

/// Runs openssl in a folder.
fn openssl(folder: &Path, args: &str) -> Result<()> {
    let mut command = Command::new("openssl");
    command.args(args.split(' ')).current_dir(folder);
    succeed(&mut command)
}

fn succeed(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("cannot run {command:?}"))?;
    process::stdout(&output)
        .with_context(|| format!("{command:?}"))
        .map(drop)
}

/// Returns paths and contents of the files below a folder.
fn files(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(next) = folders.pop() {
        for entry in fs::read_dir(next)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else {
                let name = path.strip_prefix(folder)?.to_str().context("not UTF-8")?;
                found.insert(name.to_owned(), fs::read(&path)?);
            }
        }
    }
    Ok(found)
}

#[test]
fn the_same_sources_give_the_same_files_but_signatures() -> Result<()> {
    let release = Release::get()?;
    release.write("again/", &release.packages("sdks-again")?)?;
    // Signatures contain a random number, and the checksums are also those of signatures.
    let unsigned = |folder: &str| -> Result<BTreeMap<String, Vec<u8>>> {
        let mut files = files(&release.work.path().join(folder))?;
        files.retain(|path, _| !path.contains(".sig") && path != CHECKSUMS);
        Ok(files)
    };
    let (one, two) = (unsigned("release")?, unsigned("again")?);
    assert_eq!(one.keys().collect::<Vec<_>>(), two.keys().collect::<Vec<_>>());
    for (path, content) in &one {
        ensure!(two[path] == *content, "{path} differs");
    }
    let digests = String::from_utf8(one["DIGESTS"].clone())?;
    assert_eq!(digests.lines().count(), release.published.len());
    for it in &release.published {
        ensure!(
            digests.contains(&format!("{} {}:{VERSION}", it.digest, it.path)),
            "{digests}"
        );
    }
    Ok(())
}

#[test]
fn checksums_cover_every_file_and_their_signature_holds() -> Result<()> {
    let release = Release::get()?;
    let mut check = Command::new("sha256sum");
    check
        .args(["--check", "--strict", "--quiet", CHECKSUMS])
        .current_dir(release.path(""));
    succeed(&mut check)?;
    let checksums = fs::read_to_string(release.path(CHECKSUMS))?;
    let listed: Vec<_> = checksums
        .lines()
        .filter_map(|it| Some(it.split_once("  ")?.1))
        .collect();
    let own = [CHECKSUMS.to_owned(), format!("{CHECKSUMS}.sig")];
    let present = files(&release.path(""))?.into_keys().filter(|path| !own.contains(path));
    assert_eq!(listed, present.collect::<Vec<_>>());

    let signature = fs::read_to_string(release.path("SHA256SUMS.sig"))?;
    release.verify(checksums.as_bytes(), &signature)?;
    let altered = checksums.replacen('0', "1", 1);
    ensure!(
        release.verify(altered.as_bytes(), &signature).is_err(),
        "the signature holds for other checksums"
    );
    Ok(())
}

#[test]
fn registries_take_images_charts_and_signatures() -> Result<()> {
    run(async {
        let release = Release::get()?;
        let registry = Registry::start().await?;
        // One image and its chart: the others differ in their content only.
        let published = release
            .published
            .iter()
            .filter(|it| it.path.ends_with("bindery-server"));
        for it in published {
            let name = it.path.as_str();
            registry
                .push(&release.path(name), &format!("{name}:{}", it.tag))
                .await?;
            assert_eq!(
                crane(&["digest", &registry.reference(&format!("{name}:{VERSION}"))])
                    .await?
                    .trim(),
                it.digest
            );
            // Where cosign looks for signatures.
            let tag = format!("{name}:{}.sig", it.digest.replace(':', "-"));
            registry.push(&release.path(&format!("{name}.sig")), &tag).await?;
            let manifest: Value = serde_json::from_str(&crane(&["manifest", &registry.reference(&tag)]).await?)?;
            let layer = &manifest["layers"][0];
            assert_eq!(layer["mediaType"], "application/vnd.dev.cosign.simplesigning.v1+json");
            let digest = layer["digest"].as_str().context("no digest")?;
            let payload = crane(&["blob", &format!("{}@{digest}", registry.reference(name))]).await?;
            let signature = layer["annotations"]["dev.cosignproject.cosign/signature"].as_str();
            release.verify(payload.as_bytes(), signature.context("no signature")?)?;
            let payload: Value = serde_json::from_str(&payload)?;
            assert_eq!(
                payload["critical"]["image"]["docker-manifest-digest"],
                it.digest.as_str()
            );
            assert_eq!(payload["optional"]["version"], VERSION);
        }

        let folder = tempfile::tempdir()?;
        let chart = format!("oci://{}", registry.reference("charts/bindery-server"));
        let mut pull =
            Helm::locate()?.command(&["pull", &chart, "--version", VERSION, "--plain-http", "--destination"]);
        pull.arg(folder.path());
        process::stdout(&process::run(pull, LIMIT).await?).context("helm pull")?;
        let archive = format!("bindery-server-{VERSION}.tgz");
        ensure!(
            fs::read(folder.path().join(&archive))? == fs::read(release.path("charts").join(&archive))?,
            "Helm pulled another chart"
        );
        Ok(())
    })
}

#[test]
fn a_command_line_runs_from_its_archive_and_krew_knows_its_checksum() -> Result<()> {
    let release = Release::get()?;
    let folder = tempfile::tempdir()?;
    for program in ["kubectl-bind", "synk"] {
        let archives = fs::read_dir(release.path(""))?.flatten().map(|it| it.path());
        let is_its = |path: &PathBuf| {
            path.file_name()
                .is_some_and(|it| it.to_string_lossy().starts_with(program))
        };
        let archive = archives
            .into_iter()
            .find(is_its)
            .with_context(|| format!("no archive of {program}"))?;
        succeed(
            Command::new("tar")
                .arg("-xzf")
                .arg(&archive)
                .arg("-C")
                .arg(folder.path()),
        )?;
        let output = Command::new(folder.path().join(program)).arg("--version").output()?;
        ensure!(
            process::stdout(&output)?.contains(VERSION),
            "{program} is of another version"
        );
        for file in ["LICENSE", "THIRD-PARTY-NOTICES"] {
            ensure!(folder.path().join(file).is_file(), "{program} has no {file}");
        }
    }
    let mut complete = Command::new(folder.path().join("kubectl_complete-bind"));
    let output = complete.args(["undep"]).env("PATH", folder.path()).output()?;
    ensure!(process::stdout(&output)?.starts_with("undeploy\t"), "{output:?}");
    let manifest = fs::read_to_string(release.path("krew/bind.yaml"))?;
    let checksums = fs::read_to_string(release.path(CHECKSUMS))?;
    let listed = checksums.lines().find(|it| it.contains("  kubectl-bind_"));
    let (sum, name) = listed
        .and_then(|it| it.split_once("  "))
        .context("no archive of kubectl-bind")?;
    ensure!(
        manifest.contains(sum) && manifest.contains(&format!("{DOWNLOADS}/{name}")),
        "{manifest}"
    );
    Ok(())
}

#[test]
fn the_packages_of_the_sdks_install_from_the_release() -> Result<()> {
    let release = Release::get()?;
    let folder = tempfile::tempdir()?;
    let own = |path: &str| release.path("sdks").join(path);
    let printed = |command: &mut Command| -> Result<String> {
        let output = command.current_dir(folder.path()).output();
        process::stdout(&output.with_context(|| format!("cannot run {command:?}"))?)
    };

    let python = sdks::python()?;
    let install = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-index",
        "--no-deps",
        "--target",
        "python",
    ];
    let wheel = own(&format!("python/bindery_sdk-{VERSION}-py3-none-any.whl"));
    printed(Command::new(&python).args(install).arg(wheel))?;
    let version = "import bindery; print(bindery.__version__)";
    let version = printed(Command::new(&python).args(["-c", version]).env("PYTHONPATH", "python"))?;
    assert_eq!(version.trim(), VERSION, "Python");
    let source = own(&format!("python/bindery_sdk-{VERSION}.tar.gz"));
    let listed = printed(Command::new("tar").arg("-tzf").arg(source))?;
    ensure!(
        listed.contains(&format!("bindery_sdk-{VERSION}/pyproject.toml")),
        "{listed}"
    );

    let tarball = own(&format!("typescript/bindery-sdk-{VERSION}.tgz"));
    printed(Command::new("tar").arg("-xzf").arg(tarball))?;
    let version = "import('./package/dist/version.js').then((it) => console.log(it.VERSION))";
    let version = printed(Command::new("node").args(["-e", version]))?;
    assert_eq!(version.trim(), VERSION, "TypeScript");

    // As from a proxy of modules, into an empty cache.
    let module = format!("kube-bind.io/bindery/sdk/go@v{VERSION}");
    let downloaded = printed(
        Command::new("go")
            .args(["mod", "download", "-json", &module])
            .env("GOPROXY", format!("file://{}", own("go").display()))
            .env("GOMODCACHE", folder.path().join("go"))
            .env("GOFLAGS", "-modcacherw")
            .env("GONOSUMDB", "kube-bind.io")
            .env("GOWORK", "off"),
    )?;
    let downloaded: Value = serde_json::from_str(&downloaded)?;
    let sources = Path::new(downloaded["Dir"].as_str().context("no sources")?).join("client.go");
    ensure!(sources.is_file(), "{downloaded}");

    for name in ["bindery-proto", "bindery-api", "bindery-sdk"] {
        printed(
            Command::new("tar")
                .arg("-xzf")
                .arg(own(&format!("rust/{name}-{VERSION}.crate"))),
        )?;
        let manifest = fs::read_to_string(folder.path().join(format!("{name}-{VERSION}/Cargo.toml")))?;
        ensure!(manifest.contains(&format!("version = \"{VERSION}\"")), "{manifest}");
        ensure!(
            !manifest.contains("path = \"../"),
            "{name} needs a folder of the workspace: {manifest}"
        );
    }
    Ok(())
}

#[test]
fn a_folder_with_other_files_is_not_replaced() -> Result<()> {
    let release = Release::get()?;
    let folder = release.work.path().join("other");
    fs::create_dir(&folder)?;
    fs::write(folder.join("precious"), "")?;
    let error = release
        .write("other", &release.path("sdks"))
        .err()
        .context("the folder was replaced")?;
    ensure!(
        error.to_string().contains("precious, which is not part of a release"),
        "{error:#}"
    );
    ensure!(folder.join("precious").is_file());
    Ok(())
}
