use super::*;

fn server(port: Option<u16>) -> DevServer {
    DevServer {
        image: "r/bindery-server:1".to_owned(),
        address: ServerAddress {
            url: "https://172.18.0.2:30443".to_owned(),
            node_port: port,
        },
        kubernetes: "https://172.18.0.2:6443".to_owned(),
    }
}

fn find<'a>(all: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let mut all = all.iter();
    let found = all.find(|one| one["kind"] == kind && one["metadata"]["name"] == name);
    found.unwrap_or_else(|| panic!("no {kind} {name}"))
}

#[test]
fn every_object_is_labelled_and_no_definition_is_in_a_set() {
    let mut all = provider(&server(None)).unwrap();
    all.extend(consumer("k").unwrap());
    all.extend(objects().unwrap());
    all.push(request("uid", "admin"));
    for manifest in &all {
        assert_eq!(manifest["metadata"]["labels"][LABEL], LABELLED, "{manifest}");
        assert_ne!(manifest["kind"], "CustomResourceDefinition");
    }
    for definition in provider_definitions()
        .unwrap()
        .into_iter()
        .chain(consumer_definitions())
    {
        let labelled = labelled_definition(definition);
        assert_eq!(labelled.metadata.labels.unwrap()[LABEL], LABELLED);
    }
}

#[test]
fn the_server_runs_as_asked() {
    let all = provider(&server(Some(30443))).unwrap();
    let deployment = find(&all, "Deployment", "bindery-server");
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    assert_eq!(container["image"], "r/bindery-server:1");
    let args = container["args"].as_array().unwrap();
    let of = |flag: &str| {
        args.iter()
            .filter(|arg| arg.as_str().unwrap().starts_with(&format!("{flag}=")))
            .count()
    };
    assert_eq!((of(GRPC_FLAG), of(KUBERNETES_FLAG)), (1, 1), "{args:?}");
    assert!(
        args.contains(&json!("--external-grpc-address=https://172.18.0.2:30443")),
        "{args:?}"
    );
    let service = find(&all, "Service", "bindery-server");
    assert_eq!(service["spec"]["type"], "NodePort");
    assert_eq!(service["spec"]["ports"][0]["nodePort"], 30443);
    let all = provider(&server(None)).unwrap();
    assert_eq!(find(&all, "Service", "bindery-server")["spec"]["type"], "ClusterIP");
}

#[test]
fn the_konnector_runs_the_image() {
    let all = consumer("r/bindery-konnector:1").unwrap();
    let deployment = find(&all, "Deployment", "konnector");
    assert_eq!(
        deployment["spec"]["template"]["spec"]["containers"][0]["image"],
        "r/bindery-konnector:1"
    );
}
