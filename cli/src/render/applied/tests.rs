use super::*;

#[test]
fn objects_are_named_as_kubectl_names_them() {
    let name = |kind: &str, version: &str| Applied::global(kind, version, "a", Outcome::Created).object;
    assert_eq!(name("Namespace", "v1"), "namespace/a");
    assert_eq!(name("Deployment", "apps/v1"), "deployment.apps/a");
    assert_eq!(
        name("ClusterRole", "rbac.authorization.k8s.io/v1"),
        "clusterrole.rbac.authorization.k8s.io/a"
    );
}

/// What is told of a namespace and a Secret.
fn told(format: Format, dry_run: bool) -> String {
    let mut out = Vec::new();
    let mut printer = Printer::new(format, &mut out);
    let mut report = if dry_run {
        Report::dry_run(&mut printer)
    } else {
        Report::new(&mut printer)
    };
    report
        .tell(Applied::global("Namespace", "v1", "a", Outcome::Created))
        .unwrap();
    report
        .tell(Applied::global("Secret", "v1", "b", Outcome::Unchanged))
        .unwrap();
    report.end().unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn programs_get_one_document_and_people_a_line_each() {
    assert_eq!(told(Format::Table, false), "namespace/a created\nsecret/b unchanged\n");
    assert_eq!(
        told(Format::Table, true),
        "namespace/a created (dry run)\nsecret/b unchanged (dry run)\n"
    );
    assert_eq!(told(Format::Name, true), "namespace/a\nsecret/b\n");
    let json: Value = serde_json::from_str(&told(Format::Json, false)).unwrap();
    assert_eq!(
        json["items"][1],
        json!({ "object": "secret/b", "outcome": "unchanged" })
    );
}
