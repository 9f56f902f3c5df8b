use bindery_api::v1alpha2::APIServiceBindingBundleSpec;
use clap::Parser as _;

use super::*;
use crate::{
    args::{Args, Command},
    provider::response::{read, tests::response},
};

fn args(line: &str) -> DeployArgs {
    let words = "kubectl-bind deploy -f x -y".split_whitespace();
    match Args::try_parse_from(words.chain(line.split_whitespace()))
        .unwrap()
        .command
    {
        Command::Deploy(args) => *args,
        other => panic!("{other:?}"),
    }
}

fn afresh(line: &str) -> (Vec<Value>, Vec<String>) {
    let answer = read(response().to_string().as_bytes(), None).unwrap();
    let (documents, bundled) = Bound::afresh(&args(line), &answer, || Kubeconfig::Hidden("x")).unwrap();
    (documents, bundled.iter().map(ToString::to_string).collect())
}

/// Flags; expected: what the konnector gets rights on, and how many claims the bundle accepts.
#[track_caller]
fn check(line: &str, resources: &[&str], claims: usize) {
    let (documents, bundled) = afresh(line);
    assert_eq!(bundled, resources);
    let spec: APIServiceBindingBundleSpec = serde_json::from_value(documents[1]["spec"].clone()).unwrap();
    assert_eq!(spec.accepted_claims.len(), claims);
}

#[test]
fn a_bundle_gets_rights_on_what_is_exported_and_accepted() {
    check("--bundle acme", &["secrets", "cowboys.wildwest.dev"], 1);
    check("--bundle acme --reject-claim secrets", &["cowboys.wildwest.dev"], 0);
}

#[test]
fn a_bundle_comes_after_its_secret() {
    let (documents, _) = afresh("--bundle acme");
    assert_eq!(documents[0]["kind"], "Secret");
    assert_eq!(documents[1]["kind"], "APIServiceBindingBundle");
    assert_eq!(
        documents[1]["spec"]["kubeconfigSecretRef"]["name"],
        documents[0]["metadata"]["name"]
    );
}

#[test]
fn a_binding_comes_with_rights_of_its_own_and_without_a_namespace() {
    let (documents, bundled) = afresh("");
    let kinds: Vec<_> = documents
        .iter()
        .map(|document| document["kind"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        ["ClusterRole", "ClusterRoleBinding", "Secret", "APIServiceBinding"]
    );
    assert_eq!(bundled, Vec::<String>::new());
}
