//! The manifests of `deploy/server`, compiled into the command: what the server's account holds, and what limits its consumers.

use serde_json::Value;

use crate::errors::Failure;

macro_rules! server {
    ($name:literal) => {
        ($name, include_str!(concat!("../../deploy/server/", $name)))
    };
}

/// The files, in the order of their names, as kubectl applies them.
const FILES: [(&str, &str); 12] = [
    server!("account-policy.yaml"),
    server!("binder-role.yaml"),
    server!("claims-role.yaml"),
    server!("cluster-info.yaml"),
    server!("contract-role.yaml"),
    server!("exports-role.yaml"),
    server!("namespace.yaml"),
    server!("own-namespace.yaml"),
    server!("policy.yaml"),
    server!("requests-policy.yaml"),
    server!("responses-role.yaml"),
    server!("role.yaml"),
];

/// The manifests that every server needs, without what runs it.
pub(crate) fn shipped() -> Result<Vec<Value>, Failure> {
    let mut all = Vec::new();
    for (name, text) in FILES {
        let documents = serde_saphyr::from_multiple::<Value>(text);
        all.extend(documents.map_err(|error| Failure::Format(format!("{name}: {error}")))?);
    }
    Ok(all)
}

/// The file with Service and Deployment.
const WORKLOAD: (&str, &str) = server!("optional/workload.yaml");

/// Service and Deployment that run the server.
pub(crate) fn workload() -> Result<Vec<Value>, Failure> {
    let (name, text) = WORKLOAD;
    serde_saphyr::from_multiple(text).map_err(|error| Failure::Format(format!("{name}: {error}")))
}

/// The image of this release.
pub(crate) fn release() -> Result<String, Failure> {
    let all = workload()?;
    let deployment = all.iter().find(|manifest| manifest["kind"] == "Deployment");
    let image = deployment.and_then(|found| found["spec"]["template"]["spec"]["containers"][0]["image"].as_str());
    Ok(image.unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_file_of_the_folder_is_known() {
        let folder = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/server")).unwrap();
        let files = folder.flatten().filter(|entry| entry.path().is_file());
        let files: BTreeSet<_> = files.map(|entry| entry.file_name().into_string().unwrap()).collect();
        let known: BTreeSet<_> = FILES.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(known, files);
        let documents: usize = FILES.iter().map(|(_, text)| text.matches("\n---\n").count() + 1).sum();
        assert_eq!(shipped().unwrap().len(), documents, "a document was lost");
    }
}
