use std::time::Duration;

use http::Method;
use serde_json::{Value, json};

use crate::{
    Failure, Synk,
    apply::Options,
    input::{self, Manifest},
    report::Report,
    target::Target,
    testing::Memory,
};

const SETS: &str = "/apis/apps.cloudrobotics.com/v1alpha1/resourcesets";
const SECRETS: &str = "/api/v1/namespaces/shop/secrets";

fn target(namespace: &str) -> Target {
    Target {
        set: "web".parse().unwrap(),
        namespace: namespace.to_owned(),
    }
}

fn options(retries: u32) -> Options {
    let mut options = Options {
        retries,
        pause: Duration::from_millis(1),
        ..Options::default()
    };
    options.allowed.prune = true;
    options
}

fn manifests(objects: &[(&str, &str)]) -> Vec<Manifest> {
    let items: Vec<Value> = objects
        .iter()
        .map(|(name, value)| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": value}})
        })
        .collect();
    input::parse(
        "set.json",
        &json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string(),
    )
    .unwrap()
}

async fn apply(memory: &Memory, objects: &[(&str, &str)], options: &Options) -> Result<Report, Failure> {
    let synk = Synk::new(memory.clients());
    Box::pin(synk.apply(&target("shop"), &manifests(objects), options, &|_| {})).await
}

/// The paths below one, without it.
fn below(memory: &Memory, root: &str) -> Vec<String> {
    let paths = memory.paths();
    let below = paths
        .iter()
        .filter_map(|path| path.strip_prefix(root)?.strip_prefix('/'));
    below.map(str::to_owned).collect()
}

#[tokio::test(start_paused = true)]
async fn a_history_that_cannot_be_kept_holds_nothing_else_up() {
    for code in [403, 500] {
        let memory = Memory::default();
        apply(&memory, &[("a", "1"), ("b", "1")], &options(3)).await.unwrap();
        memory.fault(Method::POST, SECRETS, code);
        let next = [("a", "2")];
        let failed = apply(&memory, &next, &options(3)).await.unwrap_err();
        assert_eq!(failed.reason(), "HistoryNotKept", "{failed}");
        let text = failed.to_string();
        assert!(
            text.starts_with("all of web.v2 is applied") && text.contains("store the history"),
            "{text}"
        );
        assert_eq!(below(&memory, SETS), ["web.v2"]);
        let set = memory.get(&format!("{SETS}/web.v2")).unwrap();
        assert_eq!(set["status"]["phase"], "Settled", "{set}");
        assert_eq!(below(&memory, "/api/v1/namespaces/shop/configmaps"), ["a"]);
        // The next one finds nothing to do.
        assert!(!apply(&memory, &next, &options(0)).await.unwrap().changed);
    }
}

#[tokio::test(start_paused = true)]
async fn who_may_not_list_secrets_applies_without_history() {
    let memory = Memory::default();
    memory.fault(Method::GET, SECRETS, 403);
    let without = Options {
        history: 0,
        ..options(0)
    };
    apply(&memory, &[("a", "1")], &without).await.unwrap();
    let set = memory.get(&format!("{SETS}/web.v1")).unwrap();
    assert_eq!(set["status"]["phase"], "Settled", "{set}");
}

#[tokio::test(start_paused = true)]
async fn attempts_that_failed_push_no_version_out_of_the_history() {
    let memory = Memory::default();
    apply(&memory, &[("a", "1"), ("b", "1")], &options(0)).await.unwrap();
    apply(&memory, &[("a", "2"), ("b", "1")], &options(0)).await.unwrap();
    let kept = ["synk-web.v1-0", "synk-web.v2-0"];
    assert_eq!(below(&memory, SECRETS), kept);

    let next = [("a", "3")];
    memory.fault(Method::DELETE, "/api/v1/namespaces/shop/configmaps/b", 500);
    let failed = apply(&memory, &next, &options(4)).await.unwrap_err();
    assert_eq!(failed.reason(), "Incomplete", "{failed}");
    assert_eq!(below(&memory, SECRETS), kept, "nothing of what failed");
    memory.mend();

    // What was stored before the apply failed is stored again by the next.
    for _ in 0..3 {
        memory.fault(Method::DELETE, &format!("{SETS}/web.v2"), 500);
        apply(&memory, &next, &options(0)).await.unwrap_err();
        memory.mend();
    }
    apply(&memory, &next, &options(0)).await.unwrap();
    let stored = below(&memory, SECRETS);
    assert_eq!(stored.len(), 3, "{stored:?}");
    assert!(
        kept.iter().all(|kept| stored.iter().any(|name| name == kept)),
        "{stored:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_set_that_is_moved_leaves_no_history_behind() {
    let memory = Memory::default();
    apply(&memory, &[("a", "1")], &options(0)).await.unwrap();
    let mut options = options(0);
    options.allowed.take_over = true;
    let synk = Synk::new(memory.clients());
    let (there, manifests) = (target("elsewhere"), manifests(&[("a", "1")]));
    let moved = Box::pin(synk.apply(&there, &manifests, &options, &|_| {})).await;
    moved.unwrap();
    assert_eq!(below(&memory, SECRETS), [""; 0]);
    assert_eq!(
        below(&memory, "/api/v1/namespaces/elsewhere/secrets"),
        ["synk-web.v2-0"]
    );
    assert!(!memory.paths().iter().any(|path| path.contains("/leases/")));
}
