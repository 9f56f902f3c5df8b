//! The manifest by which Krew, the package manager of kubectl plugins, finds `kubectl bind`.

use anyhow::Result;
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::Platform;

/// The program that Krew installs.
pub(super) const PROGRAM: &str = "kubectl-bind";
/// The name of the plugin: `kubectl bind`.
const PLUGIN: &str = "bind";
const SHORT: &str = "Bind APIs of other clusters";
const LONG: &str = "Binds APIs that other clusters offer, so that their objects are kept in sync with this cluster.";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Plugin<'a> {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata,
    spec: Spec<'a>,
}

#[derive(Serialize)]
struct Metadata {
    name: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Spec<'a> {
    version: String,
    short_description: &'static str,
    description: &'static str,
    platforms: [OnPlatform<'a>; 1],
}

#[derive(Serialize)]
struct OnPlatform<'a> {
    selector: Selector<'a>,
    uri: &'a str,
    sha256: String,
    bin: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Selector<'a> {
    match_labels: Labels<'a>,
}

#[derive(Serialize)]
struct Labels<'a> {
    os: &'static str,
    arch: &'a str,
}

/// Returns the manifest, as YAML, of an archive that users will find at `address`.
pub(super) fn manifest(address: &str, archive: &[u8], version: &str, platform: &Platform) -> Result<String> {
    let platform = OnPlatform {
        selector: Selector {
            match_labels: Labels {
                os: "linux",
                arch: platform.name,
            },
        },
        uri: address,
        sha256: format!("{:x}", Sha256::digest(archive)),
        bin: PROGRAM,
    };
    let plugin = Plugin {
        api_version: "krew.googlecontainertools.github.com/v1alpha2",
        kind: "Plugin",
        metadata: Metadata { name: PLUGIN },
        spec: Spec {
            version: format!("v{version}"),
            short_description: SHORT,
            description: LONG,
            platforms: [platform],
        },
    };
    Ok(serde_saphyr::to_string(&plugin)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_manifest_names_address_and_checksum_of_the_archive() {
        let address = "https://example.com/v0.1.0/kubectl-bind_0.1.0_linux_amd64.tar.gz";
        let yaml = manifest(address, b"abc", "0.1.0", Platform::host().unwrap()).unwrap();
        let read: serde_json::Value = serde_saphyr::from_str(&yaml).unwrap();
        assert_eq!(read["metadata"]["name"], "bind");
        assert_eq!(read["spec"]["version"], "v0.1.0");
        let platform = &read["spec"]["platforms"][0];
        assert_eq!(platform["uri"], address);
        assert_eq!(
            platform["sha256"],
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(platform["selector"]["matchLabels"]["os"], "linux");
    }
}
