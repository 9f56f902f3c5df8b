//! The konnector's Deployment, as flags ask for it. What no flag says stays as it is installed, also flags of the konnector
//! that somebody added to its Deployment.

mod args;

use bindery_api::adoption::Adoption;
use k8s_openapi::api::apps::v1::Deployment;
use serde_json::{Value, json};

use super::files;
use crate::errors::Failure;

/// The konnector's flag for adoption.
const ADOPTION_FLAG: &str = "--adoption";

/// What the flags ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) image: Option<String>,
    pub(crate) replicas: Option<u32>,
    pub(crate) adoption: Option<Adoption>,
}

/// How the konnector will run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Konnector {
    /// The image; none for that of this release.
    image: Option<String>,
    replicas: Option<u32>,
    pub(crate) adoption: Adoption,
    /// Flags that the manifest does not have, of the Deployment that is installed. They include that for adoption.
    flags: Vec<args::Flag>,
}

impl Konnector {
    /// Whether the konnector adopts objects, which needs more rights.
    pub(super) fn adopts(&self) -> bool {
        self.adoption != Adoption::Off
    }
}

/// Chooses how the konnector will run: as the flags ask, or else as it runs now. The image of another repository than that
/// of this release is kept. Also returns, in words, what is kept and what is replaced.
pub(crate) fn choose(asked: &Asked, seen: Option<&Deployment>) -> Result<(Konnector, Vec<String>), Failure> {
    let release = release()?;
    let mut kept = Vec::new();
    let other_image = seen
        .and_then(image)
        .filter(|image| repository(image) != repository(&release));
    if let (None, Some(image)) = (&asked.image, &other_image) {
        kept.push(format!("keeps image {image}; --konnector-image changes it"));
    }
    let adoption = seen.and_then(adoption).unwrap_or_default();
    if asked.adoption.is_none() && adoption != Adoption::Off {
        kept.push(format!("keeps --adoption {adoption}; --adoption off ends it"));
    }
    let installed = seen.and_then(container_args).unwrap_or_default();
    let template = template_args()?;
    for (before, after) in args::reset(installed, &template) {
        kept.push(format!(
            "replaces {before} of the Deployment by {after}, on which its ports and probes rely"
        ));
    }
    let flags = args::added(installed, &template);
    for flag in flags.iter().filter(|flag| flag.name() != ADOPTION_FLAG) {
        kept.push(format!(
            "keeps {flag} of the Deployment; kubectl edit deployment konnector -n kube-bind changes it"
        ));
    }
    let replicas = seen.and_then(|seen| u32::try_from(seen.spec.as_ref()?.replicas?).ok());
    let konnector = Konnector {
        image: asked.image.clone().or(other_image),
        replicas: asked.replicas.or(replicas),
        adoption: asked.adoption.unwrap_or(adoption),
        flags,
    };
    Ok((konnector, kept))
}

/// The Deployment of the konnector.
pub(super) fn manifest(konnector: &Konnector) -> Result<Value, Failure> {
    let mut deployment = template()?;
    let spec = &mut deployment["spec"];
    if let Some(replicas) = konnector.replicas {
        spec["replicas"] = json!(replicas);
    }
    let container = &mut spec["template"]["spec"]["containers"][0];
    if let Some(image) = &konnector.image {
        container["image"] = json!(image);
    }
    if let Some(args) = container["args"].as_array_mut() {
        let adoption = konnector
            .adopts()
            .then(|| format!("{ADOPTION_FLAG}={}", konnector.adoption));
        let args_added = args::replaced(&konnector.flags, ADOPTION_FLAG, adoption);
        args.extend(args_added.into_iter().map(Value::from));
    }
    Ok(deployment)
}

/// The flags of the manifest.
fn template_args() -> Result<Vec<String>, Failure> {
    let args = template()?["spec"]["template"]["spec"]["containers"][0]["args"].take();
    serde_json::from_value(args).map_err(|error| Failure::Format(format!("{}: {error}", files::WORKLOAD.0)))
}

/// The Deployment as it ships.
pub(crate) fn template() -> Result<Value, Failure> {
    let mut documents = files::documents(files::WORKLOAD)?;
    documents
        .pop()
        .ok_or_else(|| Failure::Format(format!("{} is empty", files::WORKLOAD.0)))
}

/// The image of this release.
pub(crate) fn release() -> Result<String, Failure> {
    let image = template()?["spec"]["template"]["spec"]["containers"][0]["image"].take();
    Ok(image.as_str().unwrap_or_default().to_owned())
}

/// An image without its tag and digest.
fn repository(image: &str) -> &str {
    let image = image.split_once('@').map_or(image, |(name, _)| name);
    match image.rsplit_once(':') {
        // What follows a port is no tag.
        Some((name, tag)) if !tag.contains('/') => name,
        _ => image,
    }
}

/// The image that a Deployment runs.
pub(crate) fn image(deployment: &Deployment) -> Option<String> {
    let pod = deployment.spec.as_ref()?.template.spec.as_ref()?;
    pod.containers.first()?.image.clone()
}

fn container_args(deployment: &Deployment) -> Option<&[String]> {
    let pod = deployment.spec.as_ref()?.template.spec.as_ref()?;
    pod.containers.first()?.args.as_deref()
}

/// The value of a flag of a Deployment's program.
pub(crate) fn flag(deployment: &Deployment, name: &str) -> Option<String> {
    let flags = args::flags(container_args(deployment)?);
    let flag = flags.iter().find(|flag| flag.name() == name)?;
    flag.value().map(str::to_owned)
}

fn adoption(deployment: &Deployment) -> Option<Adoption> {
    flag(deployment, ADOPTION_FLAG)?.parse().ok()
}

/// The release of Helm that a Deployment belongs to: its namespace and its name.
pub(crate) fn release_of_helm(deployment: &Deployment) -> Option<(String, String)> {
    let annotations = deployment.metadata.annotations.as_ref()?;
    let annotation = |key: &str| annotations.get(&format!("meta.helm.sh/{key}")).cloned();
    Some((annotation("release-namespace")?, annotation("release-name")?))
}

#[cfg(test)]
mod tests;
