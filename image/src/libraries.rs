//! The shared libraries that the programs need, from the Debian packages of this machine.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, ensure};

use crate::{
    Platform,
    workspace::{output, read},
};

/// Has the licenses that several packages share. Their own licenses refer to it.
const COMMON_LICENSES: &str = "/usr/share/common-licenses/";
/// Names the release of Debian.
const OS_RELEASE: &str = "/etc/os-release";
/// The oldest C library that looks up hosts, and asks DNS, without a module that it loads while it runs.
const GLIBC_MIN: (u32, u32) = (2, 34);

/// The package of the C library, which the dynamic linker is part of.
const LIBC: &str = "libc6";
/// The libraries that programs of Rust need beside the dynamic linker, by their packages.
const NEEDED: [(&str, &str); 3] = [(LIBC, "libc.so.6"), (LIBC, "libm.so.6"), ("libgcc-s1", "libgcc_s.so.1")];

/// The licenses of the packages, as SPDX expressions.
const LICENSES: [(&str, &str); 2] = [
    (LIBC, "LGPL-2.1-or-later"),
    ("libgcc-s1", "GPL-3.0-or-later WITH GCC-exception-3.1"),
];

/// The libraries of an image, and where they are from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Libraries {
    /// The file that names the release of Debian.
    pub(crate) os_release: Vec<u8>,
    /// The release, such as `debian-12`.
    pub(crate) distribution: String,
    /// The packages.
    pub(crate) packages: Vec<DebianPackage>,
    /// The libraries.
    pub(crate) files: Vec<Library>,
    /// The texts that the licenses of the packages refer to, by name, such as `LGPL-2.1`.
    pub(crate) common_licenses: BTreeMap<String, Vec<u8>>,
}

/// A Debian package of which an image has files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DebianPackage {
    pub(crate) name: &'static str,
    pub(crate) version: String,
    /// The package of the sources, as advisories of Debian name it: `glibc@2.36-9`.
    pub(crate) source: String,
    /// The SPDX expression of its license.
    pub(crate) license: &'static str,
    /// What dpkg knows of the package, for scanners: a paragraph of `/var/lib/dpkg/status`.
    pub(crate) status: Vec<u8>,
    /// Its licenses. They refer to texts in [`Libraries::common_licenses`].
    pub(crate) copyright: Vec<u8>,
}

/// A shared library.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Library {
    /// The path in an image.
    pub(crate) path: String,
    pub(crate) content: Vec<u8>,
    /// Whether it starts programs, as the dynamic linker does.
    pub(crate) is_executable: bool,
}

/// Reads the libraries of this machine. Fails where they are of no Debian package, or too old.
pub(crate) fn read_installed(platform: &Platform) -> Result<Libraries> {
    let text = read(Path::new(OS_RELEASE))?;
    let text = String::from_utf8_lossy(&text);
    let (id, version) = (field(&text, "ID")?, field(&text, "VERSION_ID")?);
    let packages = LICENSES.map(|(name, license)| package(platform, name, license));
    let packages = packages.into_iter().collect::<Result<Vec<_>>>()?;
    for it in packages.iter().filter(|it| it.name == LIBC) {
        ensure!(
            glibc(&it.version).is_some_and(|version| version >= GLIBC_MIN),
            "{LIBC} is of version {}: build images on a machine with version {}.{} or newer",
            it.version,
            GLIBC_MIN.0,
            GLIBC_MIN.1
        );
    }
    let mut files = vec![Library {
        path: platform.linker.to_owned(),
        content: installed(platform, LIBC, linker_name(platform))?,
        is_executable: true,
    }];
    for (package, name) in NEEDED {
        files.push(Library {
            path: format!("{}/{name}", platform.libraries),
            content: installed(platform, package, name)?,
            is_executable: false,
        });
    }
    Ok(Libraries {
        os_release: format!("ID={id}\nVERSION_ID=\"{version}\"\n").into_bytes(),
        distribution: format!("{id}-{version}"),
        common_licenses: common_licenses(&packages)?,
        packages,
        files,
    })
}

/// Returns the path in an image of a license that several packages share.
pub(crate) fn common_license(name: &str) -> String {
    format!("{}{name}", COMMON_LICENSES.trim_start_matches('/'))
}

/// Reads the licenses that those of the packages refer to.
fn common_licenses(packages: &[DebianPackage]) -> Result<BTreeMap<String, Vec<u8>>> {
    let names = packages.iter().flat_map(|it| references(&it.copyright));
    let names: BTreeSet<String> = names.collect();
    names
        .into_iter()
        .map(|name| {
            let text = read(&Path::new(COMMON_LICENSES).join(&name))?;
            Ok((name, text))
        })
        .collect()
}

/// Returns the names behind `/usr/share/common-licenses/` in the licenses of a package.
fn references(copyright: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(copyright);
    let behind = text.split(COMMON_LICENSES).skip(1);
    let names = behind.map(|it| {
        let end = it.find(|c: char| !c.is_ascii_alphanumeric() && !"-.".contains(c));
        // A name at the end of a sentence has a full stop behind it.
        it[..end.unwrap_or(it.len())].trim_end_matches('.').to_owned()
    });
    names.filter(|name| !name.is_empty()).collect()
}

/// Fails if a program needs a library that images do not have.
pub(crate) fn check(platform: &Platform, program: &str, needed: &[String]) -> Result<()> {
    let is_known = |name: &str| name == linker_name(platform) || NEEDED.iter().any(|(_, known)| *known == name);
    let missing = needed.iter().find(|it| !is_known(it));
    ensure!(
        missing.is_none(),
        "{program} needs the library {}, which images do not have: add it to image/src/libraries.rs",
        missing.map_or("", String::as_str)
    );
    Ok(())
}

fn linker_name(platform: &Platform) -> &'static str {
    platform.linker.rsplit('/').next().unwrap_or(platform.linker)
}

/// Returns the value of a line `KEY=value` or `KEY="value"`.
fn field(os_release: &str, key: &str) -> Result<String> {
    let mut lines = os_release.lines().filter_map(|line| line.split_once('='));
    let (_, value) = lines
        .find(|(found, _)| *found == key)
        .with_context(|| format!("{OS_RELEASE} has no {key}: build images on Debian"))?;
    Ok(value.trim_matches('"').to_owned())
}

fn package(platform: &Platform, name: &'static str, license: &'static str) -> Result<DebianPackage> {
    let query = |format: &str| {
        let mut command = dpkg_query();
        command.args(["--show", "--showformat", format]);
        output(command.arg(format!("{name}:{}", platform.name)))
            .context("images take shared libraries from Debian packages: build them on Debian")
    };
    let status = query(
        "Package: ${Package}\nStatus: install ok installed\nSource: ${source:Package} (${source:Version})\nVersion: ${Version}\n\
         Architecture: ${Architecture}\nMaintainer: ${Maintainer}\nDescription: ${binary:Summary}\n",
    )?;
    let copyright = PathBuf::from(format!("/usr/share/doc/{name}/copyright"));
    Ok(DebianPackage {
        name,
        version: String::from_utf8(query("${Version}")?)?,
        source: String::from_utf8(query("${source:Package}@${source:Version}")?)?,
        license,
        status,
        copyright: read(&copyright)?,
    })
}

/// Reads a file of an installed package.
fn installed(platform: &Platform, package: &str, file: &str) -> Result<Vec<u8>> {
    let list = output(dpkg_query().args(["--listfiles", &format!("{package}:{}", platform.name)]))?;
    let list = String::from_utf8(list)?;
    let mut paths = list.lines().map(Path::new);
    let path = paths.find(|path| path.ends_with(file));
    read(path.with_context(|| format!("package {package} has no file {file}"))?)
}

fn dpkg_query() -> Command {
    Command::new("dpkg-query")
}

/// Reads a version such as `2.36-9+deb12u14`.
fn glibc(version: &str) -> Option<(u32, u32)> {
    let upstream = version.split(['-', '+', '~']).next()?;
    let (major, minor) = upstream.split_once('.')?;
    Some((major.parse().ok()?, minor.split('.').next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_of_the_c_library_are_compared_as_numbers() {
        assert_eq!(glibc("2.36-9+deb12u14"), Some((2, 36)));
        assert_eq!(glibc("2.41-12"), Some((2, 41)));
        assert_eq!(glibc("2.4.1-1"), Some((2, 4)));
        assert!(glibc("2.4-1") < Some(GLIBC_MIN));
        assert_eq!(glibc("unknown"), None);
    }

    #[test]
    fn a_release_is_read_with_and_without_quotes() {
        let text = "NAME=\"Debian GNU/Linux\"\nVERSION_ID=\"12\"\nID=debian\n";
        assert_eq!(field(text, "ID").unwrap(), "debian");
        assert_eq!(field(text, "VERSION_ID").unwrap(), "12");
        let error = field(text, "VERSION").unwrap_err().to_string();
        assert!(error.contains("no VERSION"), "{error}");
    }

    #[test]
    fn every_library_is_found_and_has_a_package_with_a_license() {
        let libraries = read_installed(Platform::host().unwrap()).unwrap();
        assert!(libraries.files.iter().all(|it| it.content.starts_with(b"\x7fELF")));
        for (package, _) in NEEDED {
            let found = libraries.packages.iter().find(|it| it.name == package).unwrap();
            let status = String::from_utf8_lossy(&found.status);
            assert!(status.contains(&format!("Version: {}\n", found.version)), "{status}");
            for name in references(&found.copyright) {
                assert!(!libraries.common_licenses[&name].is_empty(), "{name}");
            }
            assert!(
                found
                    .source
                    .starts_with(["glibc@", "gcc-"][usize::from(package != LIBC)]),
                "{}",
                found.source
            );
        }
    }

    #[test]
    fn references_to_common_licenses_are_found() {
        let text = b"in `/usr/share/common-licenses/LGPL-2.1'.\nSee /usr/share/common-licenses/GPL.\n/usr/share/common-licenses/";
        assert_eq!(references(text), ["LGPL-2.1", "GPL"]);
    }

    #[test]
    fn a_library_that_images_lack_is_named() {
        let platform = Platform::host().unwrap();
        let needed = |names: &[&str]| names.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        check(platform, "synk", &needed(&["libc.so.6", linker_name(platform)])).unwrap();
        let error = check(platform, "synk", &needed(&["libc.so.6", "libz.so.1"])).unwrap_err();
        assert!(
            error.to_string().contains("synk needs the library libz.so.1"),
            "{error}"
        );
    }
}
