//! Writes down what a program is made of: as CycloneDX for readers of images, and as `cargo auditable` does for scanners of programs.

use std::{collections::BTreeSet, io::Write as _, process::Command};

use anyhow::{Context as _, Result, anyhow, ensure};
use auditable_serde::{DependencyKind, Package, Source, VersionInfo};
use cyclonedx_bom::{
    models::{
        component::{Classification, Component, Components},
        dependency::{Dependencies, Dependency},
        license::{LicenseChoice, Licenses},
        metadata::Metadata,
    },
    prelude::{Bom, DateTime, Purl, SpdxExpression, Validate as _},
};
use flate2::{Compression, write::ZlibEncoder};

use crate::{
    Workspace,
    dependencies::Crate,
    libraries::{DebianPackage, Libraries},
    workspace::output,
};

/// The revision of the format that records macros and build tools as such, or leaves them out.
const AUDIT_FORMAT: u32 = 1;

/// What is in an image beside crates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Extra {
    name: &'static str,
    version: String,
    license: &'static str,
    purl: Purl,
}

/// Returns what every image holds beside the crates of its program: the standard library, the public CAs, and Debian packages.
pub(crate) fn extras(workspace: &Workspace, libraries: &Libraries) -> Result<Vec<Extra>> {
    let mut rustc = Command::new("rustc");
    let rust = output(rustc.current_dir(workspace.root()).arg("--version"))?;
    let rust = second_word(&rust)?;
    let roots = workspace
        .metadata
        .packages
        .iter()
        .find(|it| it.name.as_str() == "webpki-root-certs");
    let roots = roots.context("cargo does not know the crate of the public CAs")?;
    let roots = roots.version.to_string();
    let mut extras = vec![
        Extra {
            name: "rust-std",
            purl: Purl::new("generic", "rust-std", &rust)?,
            version: rust,
            license: "MIT OR Apache-2.0",
        },
        Extra {
            name: "webpki-root-certs",
            purl: Purl::new("cargo", "webpki-root-certs", &roots)?,
            version: roots,
            license: "CDLA-Permissive-2.0",
        },
    ];
    for it in &libraries.packages {
        extras.push(Extra {
            name: it.name,
            version: it.version.clone(),
            license: it.license,
            purl: debian_purl(it, workspace.platform.name, &libraries.distribution)?,
        });
    }
    Ok(extras)
}

/// Returns the package URL of a Debian package, such as
/// `pkg:deb/debian/libc6@2.36-9?arch=amd64&distro=debian-12&upstream=glibc%402.36-9`. Scanners look for advisories by `upstream`.
fn debian_purl(package: &DebianPackage, architecture: &str, distribution: &str) -> Result<Purl> {
    let vendor = distribution.split('-').next().unwrap_or(distribution);
    let without_vendor = Purl::new("deb", package.name, &package.version)?.to_string();
    // Versions of Debian contain plus signs, which some readers take for spaces.
    let path = without_vendor.trim_start_matches("pkg:deb/").replace('+', "%2B");
    let source = package.source.replace('@', "%40").replace('+', "%2B");
    let purl = format!("pkg:deb/{vendor}/{path}?arch={architecture}&distro={distribution}&upstream={source}");
    purl.parse()
        .map_err(|()| anyhow!("the package URL {purl} is not valid"))
}

/// Reads a version, as in `rustc 1.95.0 (59807616e 2026-04-14)`.
fn second_word(output: &[u8]) -> Result<String> {
    let text = String::from_utf8_lossy(output);
    let word = text.split_whitespace().nth(1);
    word.map(str::to_owned)
        .with_context(|| format!("{text:?} tells no version"))
}

/// Returns the CycloneDX document, as JSON, of a program with these crates, of which `root` is its own.
pub(crate) fn cyclonedx(crates: &[Crate], root: usize, extras: &[Extra], time: &str) -> Result<Vec<u8>> {
    let components: Vec<Component> = crates.iter().map(component).collect::<Result<_>>()?;
    let mut dependencies: Vec<Dependency> = crates
        .iter()
        .map(|it| Dependency {
            dependency_ref: reference(&it.name, &it.version),
            dependencies: it
                .uses
                .iter()
                .map(|used| reference(&crates[*used].name, &crates[*used].version))
                .collect(),
        })
        .collect();
    let own = &mut dependencies[root].dependencies;
    own.extend(extras.iter().map(|it| reference(it.name, &it.version)));
    let mut program = components[root].clone();
    program.component_type = Classification::Application;
    let others = components.into_iter().enumerate().filter(|(index, _)| *index != root);
    let extras = extras.iter().map(extra);
    let bom = Bom {
        // A random number would make two builds differ.
        serial_number: None,
        metadata: Some(Metadata {
            timestamp: Some(DateTime::try_from(time.to_owned())?),
            component: Some(program),
            ..Metadata::default()
        }),
        components: Some(Components(others.map(|(_, it)| it).chain(extras).collect())),
        dependencies: Some(Dependencies(dependencies)),
        ..Bom::default()
    };
    let valid = bom.validate();
    ensure!(valid.passed(), "the SBOM is not valid: {valid:?}");
    let mut json = Vec::new();
    bom.output_as_json_v1_5(&mut json)?;
    Ok(json)
}

/// Returns the licenses of all that is in an image, as one SPDX expression.
pub(crate) fn licenses(crates: &[Crate], extras: &[Extra]) -> Result<String> {
    let of_crates = crates.iter().map(license).filter_map(Result::transpose);
    let of_extras = extras.iter().map(|it| Ok(it.license.to_owned()));
    let all: BTreeSet<String> = of_crates.chain(of_extras).collect::<Result<_>>()?;
    let parts = all
        .into_iter()
        .map(|it| if it.contains(" OR ") { format!("({it})") } else { it });
    Ok(parts.collect::<Vec<_>>().join(" AND "))
}

/// Returns the license of a crate as an SPDX expression, also where the crate has an older form with a slash.
fn license(it: &Crate) -> Result<Option<String>> {
    let expression = it.license.as_ref().map(|license| {
        let parsed = SpdxExpression::parse_lax(license.clone());
        parsed.with_context(|| format!("crate {} has the license {license:?}", it.name))
    });
    Ok(expression.transpose()?.map(|it| it.to_string()))
}

fn component(it: &Crate) -> Result<Component> {
    let mut component = library(&it.name, &it.version);
    // A crate of crates.io may have the name of one of this workspace, and is not meant.
    if it.is_published {
        component.purl = Some(Purl::new("cargo", &it.name, &it.version)?);
    }
    if let Some(license) = license(it)? {
        component.licenses = Some(Licenses(vec![LicenseChoice::expression(&license)]));
    }
    Ok(component)
}

fn extra(it: &Extra) -> Component {
    let mut component = library(it.name, &it.version);
    component.purl = Some(it.purl.clone());
    component.licenses = Some(Licenses(vec![LicenseChoice::expression(it.license)]));
    component
}

fn library(name: &str, version: &str) -> Component {
    Component::new(Classification::Library, name, version, Some(reference(name, version)))
}

fn reference(name: &str, version: &str) -> String {
    format!("{name}@{version}")
}

/// Returns the list of crates that is embedded into the program, compressed.
pub(crate) fn auditable(crates: &[Crate], root: usize) -> Result<Vec<u8>> {
    let packages = crates.iter().enumerate().map(|(index, it)| {
        Ok(Package {
            name: it.name.clone(),
            version: it.version.parse()?,
            source: if it.is_published {
                Source::CratesIo
            } else {
                Source::Local
            },
            kind: DependencyKind::Runtime,
            dependencies: it.uses.clone(),
            root: index == root,
        })
    });
    let info = VersionInfo {
        packages: packages.collect::<Result<_>>()?,
        format: AUDIT_FORMAT,
    };
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(&serde_json::to_vec(&info)?)?;
    Ok(encoder.finish()?)
}

#[cfg(test)]
mod tests {
    use std::{io::Read as _, path::PathBuf};

    use flate2::read::ZlibDecoder;
    use serde_json::Value;

    use super::*;

    fn crates() -> Vec<Crate> {
        let it = |name: &str, license: Option<&str>, is_published, uses: &[usize]| Crate {
            name: name.to_owned(),
            version: "1.2.3".to_owned(),
            license: license.map(str::to_owned),
            folder: PathBuf::new(),
            is_published,
            uses: uses.to_vec(),
        };
        vec![
            it("alpha", Some("MIT/Apache-2.0"), true, &[]),
            it("beta", None, true, &[0]),
            it("own", Some("Apache-2.0"), false, &[0, 1]),
        ]
    }

    fn package() -> DebianPackage {
        DebianPackage {
            name: "libc6",
            version: "2.36-9+deb12u14".to_owned(),
            source: "glibc@2.36-9+deb12u14".to_owned(),
            license: "LGPL-2.1-or-later",
            status: Vec::new(),
            copyright: Vec::new(),
        }
    }

    fn extras() -> Vec<Extra> {
        vec![Extra {
            name: "libc6",
            version: "2.36-9+deb12u14".to_owned(),
            license: "LGPL-2.1-or-later",
            purl: debian_purl(&package(), "amd64", "debian-12").unwrap(),
        }]
    }

    #[test]
    fn a_document_names_each_part_with_license_and_address() {
        let json = cyclonedx(&crates(), 2, &extras(), "2026-01-02T03:04:05Z").unwrap();
        let bom: Value = serde_json::from_slice(&json).unwrap();
        assert_eq!(bom["bomFormat"], "CycloneDX");
        assert_eq!(bom["metadata"]["component"]["name"], "own");
        assert_eq!(bom["metadata"]["timestamp"], "2026-01-02T03:04:05Z");
        let components = bom["components"].as_array().unwrap();
        let names: Vec<_> = components.iter().map(|it| it["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["alpha", "beta", "libc6"]);
        assert_eq!(components[0]["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert_eq!(components[0]["purl"], "pkg:cargo/alpha@1.2.3");
        assert_eq!(
            components[2]["purl"],
            "pkg:deb/debian/libc6@2.36-9%2Bdeb12u14?arch=amd64&distro=debian-12&upstream=glibc%402.36-9%2Bdeb12u14"
        );
        assert!(
            bom["metadata"]["component"].get("purl").is_none(),
            "crates.io has no such crate"
        );
        let own = &bom["dependencies"][2];
        assert_eq!(own["ref"], "own@1.2.3");
        assert_eq!(
            own["dependsOn"],
            serde_json::json!(["alpha@1.2.3", "beta@1.2.3", "libc6@2.36-9+deb12u14"])
        );
    }

    #[test]
    fn the_label_has_each_license_once() {
        assert_eq!(
            licenses(&crates(), &extras()).unwrap(),
            "Apache-2.0 AND LGPL-2.1-or-later AND (MIT OR Apache-2.0)"
        );
    }

    #[test]
    fn a_document_is_the_same_each_time() {
        let document = || cyclonedx(&crates(), 2, &extras(), "2026-01-02T03:04:05Z").unwrap();
        assert_eq!(document(), document());
    }

    #[test]
    fn a_license_that_is_none_is_an_error_with_the_name_of_the_crate() {
        let mut crates = crates();
        crates[1].license = Some("as you like".to_owned());
        let error = cyclonedx(&crates, 2, &[], "2026-01-02T03:04:05Z").unwrap_err();
        assert!(error.to_string().contains("crate beta"), "{error:#}");
    }

    #[test]
    fn scanners_of_programs_read_the_embedded_list() {
        let mut json = String::new();
        let compressed = auditable(&crates(), 2).unwrap();
        ZlibDecoder::new(&compressed[..]).read_to_string(&mut json).unwrap();
        // Reading checks that there is one root and no circle.
        let info: VersionInfo = json.parse().unwrap();
        let roots: Vec<_> = info
            .packages
            .iter()
            .filter(|it| it.root)
            .map(|it| it.name.as_str())
            .collect();
        assert_eq!((roots, info.packages.len()), (vec!["own"], 3));
        assert_eq!(info.packages[0].source, Source::CratesIo);
        assert_eq!(info.packages[2].source, Source::Local);
    }
}
