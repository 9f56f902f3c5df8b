use serde_json::json;

use super::*;

fn node(name: &str, kind: &str, address: &str) -> Node {
    let status = json!({"addresses": [{"type": "Hostname", "address": name}, {"type": kind, "address": address}]});
    serde_json::from_value(json!({"metadata": {"name": name}, "status": status})).unwrap()
}

fn slice(address: &str, port: i32) -> EndpointSlice {
    serde_json::from_value(json!({
        "metadata": {"name": "kubernetes"}, "addressType": "IPv4",
        "endpoints": [{"addresses": [address]}], "ports": [{"name": "https", "port": port}],
    }))
    .unwrap()
}

#[track_caller]
fn check_server(known: Option<&str>, nodes: &[Node], expect: Result<(&str, Option<u16>), &str>) {
    let found = server(known, nodes);
    let found = found
        .map(|found| (found.url, found.node_port))
        .map_err(|error| error.to_string());
    match (found, expect) {
        (Ok((url, port)), Ok(expect)) => assert_eq!((url.as_str(), port), expect),
        (Err(error), Err(says)) => assert!(error.contains(says), "{error}"),
        (found, _) => panic!("{found:?}"),
    }
}

#[test]
fn the_server_is_reached_as_asked_or_by_a_node() {
    let nodes = [
        node("b", "InternalIP", "172.18.0.3"),
        node("a", "InternalIP", "172.18.0.2"),
    ];
    check_server(None, &nodes, Ok(("https://172.18.0.2:30443", Some(30443))));
    check_server(
        None,
        &[node("a", "InternalIP", "fd00::2")],
        Ok(("https://[fd00::2]:30443", Some(30443))),
    );
    check_server(
        Some("https://10.0.0.1:31000"),
        &nodes,
        Ok(("https://10.0.0.1:31000", Some(31000))),
    );
    check_server(
        Some("https://bind.example.com"),
        &[],
        Ok(("https://bind.example.com", None)),
    );
    check_server(
        Some("https://127.0.0.1:40000"),
        &[],
        Ok(("https://127.0.0.1:40000", None)),
    );
    check_server(None, &[], Err("--external-address"));
    check_server(
        None,
        &[node("a", "ExternalIP", "1.2.3.4")],
        Err("no node of the provider"),
    );
    check_server(Some("http://bind.example.com"), &nodes, Err("https"));
    check_server(Some("bind"), &nodes, Err("\"bind\""));
}

#[track_caller]
fn check_kubernetes(known: Option<&str>, own: &str, published: Option<&EndpointSlice>, expect: Result<&str, &str>) {
    let found = kubernetes(known, ("kind-provider", &own.parse().unwrap()), published);
    match (found, expect) {
        (Ok(url), Ok(expect)) => assert_eq!(url, expect),
        (Err(error), Err(says)) => assert!(error.to_string().contains(says), "{error}"),
        (found, _) => panic!("{found:?}"),
    }
}

#[test]
fn the_kubernetes_api_is_reached_by_no_address_of_this_machine() {
    let published = slice("172.18.0.2", 6443);
    let found = Ok("https://172.18.0.2:6443");
    for own in [
        "https://127.0.0.1:40123",
        "https://localhost:40123",
        "https://[::1]:40123",
        "https://0.0.0.0:40123",
    ] {
        check_kubernetes(None, own, Some(&published), found);
        check_kubernetes(None, own, None, Err("--kubernetes-address"));
    }
    check_kubernetes(
        None,
        "https://k8s.example.com/",
        Some(&published),
        Ok("https://k8s.example.com"),
    );
    let given = Some("https://127.0.0.1:40123");
    check_kubernetes(given, "https://127.0.0.1:40123", None, Ok("https://127.0.0.1:40123"));
    check_kubernetes(
        Some("k8s"),
        "https://k8s.example.com/",
        None,
        Err("--kubernetes-address \"k8s\""),
    );
}
