use std::{collections::BTreeSet, path::Path};

use bindery_api::adoption::Adoption;
use serde_json::json;

use super::*;

fn folder(name: &str) -> BTreeSet<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy").join(name);
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let files = files.filter(|entry| entry.file_type().unwrap().is_file());
    files.map(|entry| entry.file_name().into_string().unwrap()).collect()
}

fn konnector(adoption: Adoption) -> Konnector {
    let asked = Asked {
        adoption: Some(adoption),
        ..Asked::default()
    };
    choose(&asked, None).unwrap().0
}

fn heads(manifests: &[Value]) -> Vec<String> {
    let head = |manifest: &Value| {
        format!(
            "{} {}",
            manifest["kind"].as_str().unwrap(),
            manifest["metadata"]["name"].as_str().unwrap()
        )
    };
    manifests.iter().map(head).collect()
}

#[test]
fn every_file_of_the_folder_is_installed() {
    let known: BTreeSet<_> = files::ALWAYS
        .iter()
        .chain([&files::WORKLOAD])
        .map(|(name, _)| (*name).to_owned())
        .collect();
    assert_eq!(known, folder("konnector"));
    // The example of bundles is generated: its test is beside the rules.
    assert_eq!(
        folder("konnector/optional"),
        ["adoption.yaml", "bundles.yaml"].map(str::to_owned).into()
    );
    let documents = files::ALWAYS.iter().map(|file| files::documents(*file).unwrap().len());
    let separators = files::ALWAYS
        .iter()
        .map(|(_, text)| text.matches("\n---\n").count() + 1);
    assert!(documents.eq(separators), "a document was lost");
}

#[test]
fn files_are_applied_in_the_order_of_their_names_as_kubectl_does() {
    let mut names: Vec<_> = files::ALWAYS.iter().map(|(name, _)| *name).collect();
    names.push(files::WORKLOAD.0);
    assert!(names.is_sorted(), "{names:?}");
}

#[test]
fn what_limits_the_konnector_comes_first_and_the_konnector_last() {
    for adoption in [Adoption::Off, Adoption::All] {
        let heads = heads(&manifests(&konnector(adoption), Some(&[])).unwrap());
        assert_eq!(heads[0], "ValidatingAdmissionPolicy kube-bind-konnector-account");
        assert_eq!(heads[2], "Namespace kube-bind");
        assert_eq!(heads.last().map(String::as_str), Some("Deployment konnector"));
        let adopts = heads.contains(&format!("ClusterRole {ADOPTION_ROLE}"));
        assert_eq!(adopts, adoption != Adoption::Off);
        assert!(heads.contains(&format!("ClusterRoleBinding {BUNDLES_ROLE}")));
    }
}

#[test]
fn a_first_installation_is_whole() {
    let cowboys = BTreeSet::from([GroupResource::new("wildwest.dev", "cowboys")]);
    let all = heads(&everything(&konnector(Adoption::OptIn), &cowboys).unwrap());
    let definitions = all.iter().filter(|head| head.starts_with("CustomResourceDefinition"));
    assert_eq!(definitions.count(), 2);
    for head in [
        "ServiceAccount konnector",
        "ValidatingAdmissionPolicy kube-bind-konnector",
        &format!("ClusterRole {BUNDLES_ROLE}"),
    ] {
        assert!(all.contains(&head.to_owned()), "{head} is missing in {all:?}");
    }
    let none = heads(&everything(&konnector(Adoption::Off), &BTreeSet::new()).unwrap());
    assert!(!none.contains(&format!("ClusterRole {BUNDLES_ROLE}")));
}

#[test]
fn the_image_is_that_of_this_release() {
    let image = workload::release().unwrap();
    assert_eq!(image, format!("bindery-konnector:{}", env!("CARGO_PKG_VERSION")));
}

#[test]
fn the_konnector_runs_with_as_little_as_it_can() {
    let manifests = manifests(&konnector(Adoption::Off), None).unwrap();
    let pod = &manifests.last().unwrap()["spec"]["template"]["spec"];
    assert_eq!(pod["serviceAccountName"], "konnector");
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert_eq!(pod["securityContext"]["seccompProfile"]["type"], "RuntimeDefault");
    let container = &pod["containers"][0];
    assert_eq!(container["securityContext"]["allowPrivilegeEscalation"], false);
    assert_eq!(container["securityContext"]["capabilities"]["drop"], json!(["ALL"]));
    assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/healthz");
    assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/readyz");
    assert!(container["resources"]["requests"]["memory"].is_string());
    assert_eq!(container["resources"]["limits"]["memory"], "2Gi");
    assert_eq!(container["env"][0]["name"], "POD_NAMESPACE");
}
