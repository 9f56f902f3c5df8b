//! The konnector's Deployment: what the flags say, and what stays as it is installed where they say nothing.

use bindery_api::adoption::Adoption;
use k8s_openapi::api::apps::v1::Deployment;
use serde_json::{Value, json};

use super::files;
use crate::errors::Failure;

/// The konnector's flag for adoption.
const ADOPTION_FLAG: &str = "--adoption";

/// What the flags say.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asked {
    pub(crate) image: Option<String>,
    pub(crate) replicas: Option<u32>,
    pub(crate) adoption: Option<Adoption>,
}

/// How the konnector is to run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Konnector {
    /// The image, where it is not that of this release.
    image: Option<String>,
    replicas: Option<u32>,
    pub(crate) adoption: Adoption,
}

impl Konnector {
    /// Whether it takes rights to create namespaces.
    pub(super) fn adopts(&self) -> bool {
        self.adoption != Adoption::Off
    }
}

/// What is to run: what is asked for, else what runs already. An image of the name that this release has is brought to this
/// release; one of another name is somebody's choice. Also says what was kept, in words.
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
    let replicas = seen.and_then(|seen| u32::try_from(seen.spec.as_ref()?.replicas?).ok());
    let konnector = Konnector {
        image: asked.image.clone().or(other_image),
        replicas: asked.replicas.or(replicas),
        adoption: asked.adoption.unwrap_or(adoption),
    };
    Ok((konnector, kept))
}

/// The Deployment as it is to run.
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
    if let (true, Some(args)) = (konnector.adopts(), container["args"].as_array_mut()) {
        args.push(json!(format!("{ADOPTION_FLAG}={}", konnector.adoption)));
    }
    Ok(deployment)
}

fn template() -> Result<Value, Failure> {
    let mut documents = files::documents(files::WORKLOAD)?;
    documents
        .pop()
        .ok_or_else(|| Failure::Format(format!("{} is empty", files::WORKLOAD.0)))
}

/// The image of this release.
pub(super) fn release() -> Result<String, Failure> {
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

fn image(deployment: &Deployment) -> Option<String> {
    let pod = deployment.spec.as_ref()?.template.spec.as_ref()?;
    pod.containers.first()?.image.clone()
}

fn adoption(deployment: &Deployment) -> Option<Adoption> {
    let pod = deployment.spec.as_ref()?.template.spec.as_ref()?;
    let args = pod.containers.first()?.args.as_deref()?;
    let value = args.iter().enumerate().find_map(|(index, arg)| {
        let rest = arg.strip_prefix(ADOPTION_FLAG)?;
        match rest.strip_prefix('=') {
            Some(value) => Some(value),
            None if rest.is_empty() => args.get(index + 1).map(String::as_str),
            None => None,
        }
    })?;
    value.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(change: impl FnOnce(&mut Value)) -> Deployment {
        let mut deployment = template().unwrap();
        change(&mut deployment);
        serde_json::from_value(deployment).unwrap()
    }

    #[track_caller]
    fn check_image(asked: Option<&str>, seen_image: &str, expect: &str) {
        let seen =
            seen(|deployment| deployment["spec"]["template"]["spec"]["containers"][0]["image"] = json!(seen_image));
        let asked = Asked {
            image: asked.map(str::to_owned),
            ..Asked::default()
        };
        let (konnector, _) = choose(&asked, Some(&seen)).unwrap();
        let manifest = manifest(&konnector).unwrap();
        assert_eq!(
            manifest["spec"]["template"]["spec"]["containers"][0]["image"], expect,
            "{seen_image}"
        );
    }

    #[test]
    fn an_own_image_is_upgraded_and_a_chosen_one_stays() {
        let release = release().unwrap();
        check_image(None, "bindery-konnector:0.0.1", &release);
        check_image(None, "bindery-konnector", &release);
        check_image(
            None,
            "registry.example.com:5000/konnector:1",
            "registry.example.com:5000/konnector:1",
        );
        check_image(Some("mine:2"), "other:1", "mine:2");
    }

    #[test]
    fn a_repository_is_an_image_without_tag_and_digest() {
        for (image, expect) in [
            ("a", "a"),
            ("a:1", "a"),
            ("r:5000/a", "r:5000/a"),
            ("r:5000/a:1", "r:5000/a"),
            ("r:5000/a:1@sha256:00", "r:5000/a"),
        ] {
            assert_eq!(repository(image), expect);
        }
    }

    #[track_caller]
    fn check_adoption(asked: Option<Adoption>, args: &[&str], expect: Adoption) {
        let seen = seen(|deployment| deployment["spec"]["template"]["spec"]["containers"][0]["args"] = json!(args));
        let asked = Asked {
            adoption: asked,
            ..Asked::default()
        };
        let (konnector, kept) = choose(&asked, Some(&seen)).unwrap();
        assert_eq!(konnector.adoption, expect, "{args:?}");
        assert_eq!(
            kept.len(),
            usize::from(asked.adoption.is_none() && expect != Adoption::Off)
        );
        let manifest = manifest(&konnector).unwrap().to_string();
        assert_eq!(manifest.contains(ADOPTION_FLAG), expect != Adoption::Off);
    }

    #[test]
    fn adoption_stays_as_it_is_until_somebody_says_otherwise() {
        check_adoption(None, &[], Adoption::Off);
        check_adoption(None, &["--adoption=all"], Adoption::All);
        check_adoption(None, &["--adoption", "opt-in"], Adoption::OptIn);
        check_adoption(None, &["--adoptions=all"], Adoption::Off);
        check_adoption(Some(Adoption::Off), &["--adoption=all"], Adoption::Off);
        check_adoption(Some(Adoption::All), &[], Adoption::All);
    }

    #[test]
    fn replicas_stay_too() {
        let two = seen(|deployment| deployment["spec"]["replicas"] = json!(2));
        let replicas = |asked: Option<u32>| {
            let asked = Asked {
                replicas: asked,
                ..Asked::default()
            };
            let (konnector, _) = choose(&asked, Some(&two)).unwrap();
            manifest(&konnector).unwrap()["spec"]["replicas"].clone()
        };
        assert_eq!((replicas(None), replicas(Some(3))), (json!(2), json!(3)));
    }
}
