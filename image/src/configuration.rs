//! What an image says of itself, and how its program is run.

use std::collections::HashMap;

use anyhow::Result;
use oci_spec::image::{
    ConfigBuilder, HistoryBuilder, ImageConfiguration, ImageConfigurationBuilder, Os, RootFsBuilder,
};

use crate::{
    Platform,
    files::{CA_BUNDLE, USER},
    layer::Layer,
};

/// The signal that asks a program to end.
const STOP_SIGNAL: &str = "SIGTERM";

/// What an image says of itself.
#[derive(Debug)]
pub(crate) struct Description {
    /// The name of the program.
    pub(crate) name: &'static str,
    pub(crate) version: String,
    pub(crate) platform: &'static Platform,
    /// The time of the sources, as RFC 3339.
    pub(crate) created: String,
    /// Labels, which are also annotations of the manifest.
    pub(crate) labels: HashMap<String, String>,
}

/// Returns the configuration of an image with these layers.
pub(crate) fn configuration(description: &Description, layers: &[Layer]) -> Result<ImageConfiguration> {
    let config = ConfigBuilder::default()
        .user(format!("{USER}:{USER}"))
        .env(["PATH=/usr/bin".to_owned(), format!("SSL_CERT_FILE=/{CA_BUNDLE}")])
        .entrypoint([format!("/usr/bin/{}", description.name)])
        .working_dir("/")
        .labels(description.labels.clone())
        .stop_signal(STOP_SIGNAL)
        .build()?;
    let root = RootFsBuilder::default()
        .typ("layers")
        .diff_ids(layers.iter().map(|layer| layer.diff_id.clone()).collect::<Vec<_>>())
        .build()?;
    let history = HistoryBuilder::default()
        .created(description.created.clone())
        .created_by("cargo xtask image")
        .build()?;
    let configuration = ImageConfigurationBuilder::default()
        .created(description.created.clone())
        .architecture(description.platform.architecture())
        .os(Os::Linux)
        .config(config)
        .rootfs(root)
        .history(vec![history; layers.len()])
        .build()?;
    Ok(configuration)
}
