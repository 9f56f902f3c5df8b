//! Manifests by the Rust SDK from the input of a golden file.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use bindery_api::v1alpha2::GroupResource;
use bindery_proto::v1alpha2::BindingResourceResponse;
use bindery_sdk::manifests::{Manifests, Options};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::proto_json;

/// The input of a golden file; the files are described in `manifests/README.md`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Input {
    /// A `BindingResourceResponse` as proto JSON.
    pub response: Value,
    /// What the caller chooses.
    pub options: Choices,
}

/// [`Options`] as JSON, with resources such as `secrets` and `certificates.example.com`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Choices {
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    template: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    bundle: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    service_account: Option<String>,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    with_namespace: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    accept: Option<Vec<String>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    reject: Vec<String>,
}

/// What comes of an input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Outcome {
    /// The objects.
    Made {
        /// The objects in the order in which they are applied.
        documents: Vec<Value>,
        /// The same in the canonical form.
        canonical: String,
    },
    /// Why none are made.
    Refused {
        /// The refusal.
        refusal: RefusalReason,
    },
}

/// The reason of a refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RefusalReason {
    /// The reason.
    pub reason: String,
}

/// Makes the manifests of an input.
pub fn render(input: &Input) -> Result<Outcome> {
    let response: BindingResourceResponse = proto_json::read("BindingResourceResponse", &input.response)?;
    Ok(match Manifests::of_response(&response, &input.options.to_options()) {
        Ok(manifests) => {
            let canonical = manifests.canonical()?;
            let documents = manifests.documents()?;
            let parsed = canonical.lines().map(serde_json::from_str);
            let parsed: Vec<Value> = parsed.collect::<Result<_, _>>()?;
            ensure!(
                parsed == documents,
                "the canonical form says something else: {canonical}"
            );
            Outcome::Made { documents, canonical }
        }
        Err(refusal) => Outcome::Refused {
            refusal: RefusalReason {
                reason: refusal.reason().to_owned(),
            },
        },
    })
}

impl Choices {
    fn to_options(&self) -> Options {
        let defaults = Options::default();
        let resources = |names: &[String]| -> BTreeSet<_> { names.iter().map(|name| resource(name)).collect() };
        Options {
            name: self.name.clone(),
            template: self.template.clone(),
            bundle: self.bundle.clone(),
            konnector_namespace: self.namespace.clone().unwrap_or(defaults.konnector_namespace),
            konnector_service_account: self
                .service_account
                .clone()
                .unwrap_or(defaults.konnector_service_account),
            with_namespace: self.with_namespace,
            accept: self.accept.as_deref().map(resources),
            reject: resources(&self.reject),
        }
    }
}

fn resource(text: &str) -> GroupResource {
    let (resource, group) = text.split_once('.').unwrap_or((text, ""));
    GroupResource::new(group, resource)
}
