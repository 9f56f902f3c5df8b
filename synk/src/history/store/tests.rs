use serde_json::json;

use super::*;
use crate::testing::Memory;

const SECRETS: &str = "/api/v1/namespaces/shop/secrets";

/// The size of chunks, where it does not matter.
const SMALL: usize = 900;

fn target() -> Target {
    Target {
        set: "web".parse().unwrap(),
        namespace: "shop".to_owned(),
    }
}

/// Objects whose content cannot be compressed: so many bytes of it in each, more in JSON.
fn manifests(sizes: &[usize]) -> Vec<Manifest> {
    let manifest = |(at, size): (usize, &usize)| {
        let noise: String = (0..*size).map(|_| rand::random_range(b' '..=b'~') as char).collect();
        let body = json!({
            "apiVersion": "v1", "kind": "Secret",
            "metadata": {"name": format!("s-{at}"), "namespace": "shop"}, "data": {"noise": noise},
        });
        Manifest {
            object: ObjectRef::of(&body).unwrap(),
            body: body.as_object().unwrap().clone(),
            origin: Origin {
                file: "a.yaml".to_owned(),
                document: at,
                line: 1,
            },
        }
    };
    sizes.iter().enumerate().map(manifest).collect()
}

async fn keep(memory: &Memory, number: u64, manifests: &[Manifest], keep: usize) -> Result<(), Failure> {
    let target = target();
    let packed = chunks::pack(bodies(manifests).into_iter(), SMALL);
    let packed = (keep > 0).then_some((packed, manifests.len()));
    put(&memory.clients(), &target, &target.set.version(number), packed, keep).await
}

async fn listed(memory: &Memory) -> Vec<(u64, bool)> {
    let stored = list(&memory.clients(), &target()).await.unwrap();
    stored
        .iter()
        .map(|stored| (stored.version.number, stored.whole))
        .collect()
}

fn bodies(manifests: &[Manifest]) -> Vec<&serde_json::Map<String, Value>> {
    manifests.iter().map(|manifest| &manifest.body).collect()
}

#[tokio::test]
async fn what_is_stored_is_loaded_and_the_oldest_go() {
    let memory = Memory::default();
    let all: Vec<_> = (1..=5).map(|at| manifests(&[at * 10, 20])).collect();
    for (number, manifests) in (1..).zip(&all) {
        keep(&memory, number, manifests, 3).await.unwrap();
    }
    assert_eq!(listed(&memory).await, [(5, true), (4, true), (3, true)]);
    let loaded = load(&memory.clients(), &target(), 4).await.unwrap();
    assert_eq!(bodies(&loaded), bodies(&all[3]));
    assert_eq!(loaded[1].object, all[3][1].object);
    assert_eq!(
        loaded[1].origin.to_string(),
        "the history of web.v4, document 2, line 1"
    );
    let unknown = load(&memory.clients(), &target(), 2).await.unwrap_err();
    assert_eq!(unknown.reason(), "NotFound");

    let secret = memory.get(&format!("{SECRETS}/synk-web.v5-0")).unwrap();
    assert_eq!((&secret["type"], &secret["immutable"]), (&json!(TYPE), &json!(true)));
    assert_eq!(secret["metadata"]["labels"][SET], "web");
    assert_eq!(secret["metadata"]["ownerReferences"], Value::Null);
}

#[tokio::test]
async fn large_sets_have_several_secrets_that_each_fit() {
    let (memory, target) = (Memory::default(), target());
    let large = manifests(&[700_000, 500_000]);
    let version = target.set.version(1);
    store(&memory.clients(), &target, &version, &large, 3).await.unwrap();
    assert_eq!(memory.paths().len(), 2);
    for path in memory.paths() {
        let content: ByteString = serde_json::from_value(memory.get(&path).unwrap()["data"][KEY].clone()).unwrap();
        assert!(content.0.len() <= chunks::CHUNK);
    }
    let loaded = load(&memory.clients(), &target, 1).await.unwrap();
    assert!(bodies(&loaded) == bodies(&large));
    store(&memory.clients(), &target, &version, &large, 0).await.unwrap();
    assert_eq!(memory.paths(), [""; 0]);
}

#[tokio::test]
async fn storing_again_writes_nothing_and_other_content_replaces_it() {
    let memory = Memory::default();
    let first = manifests(&[10]);
    keep(&memory, 1, &first, 3).await.unwrap();
    memory.writes();
    keep(&memory, 1, &first, 3).await.unwrap();
    assert_eq!(memory.writes(), [""; 0]);
    let second = manifests(&[20]);
    keep(&memory, 1, &second, 3).await.unwrap();
    let loaded = load(&memory.clients(), &target(), 1).await.unwrap();
    assert_eq!(bodies(&loaded), bodies(&second));
}

#[tokio::test]
async fn an_end_at_any_moment_leaves_nothing_that_looks_whole_but_is_not() {
    let (before, after) = (manifests(&[1_200]), manifests(&[2_500]));
    for writes in 0..6 {
        let memory = Memory::default();
        keep(&memory, 1, &before, 1).await.unwrap();
        memory.end_after(Some(writes));
        let ended = keep(&memory, 2, &after, 1).await;
        memory.end_after(None);
        let stored = listed(&memory).await;
        for (number, whole) in &stored {
            let loaded = load(&memory.clients(), &target(), *number).await;
            let expect = if *number == 1 { &before } else { &after };
            match loaded {
                Ok(loaded) => assert!(*whole && bodies(&loaded) == bodies(expect)),
                Err(error) => assert!(!whole && error.reason() == "Unreadable", "{error}"),
            }
        }
        assert!(
            stored.iter().any(|(_, whole)| *whole),
            "one version can always be read: {stored:?}"
        );
        // What is done again finishes it.
        keep(&memory, 3, &after, 1).await.unwrap();
        assert_eq!(listed(&memory).await, [(3, true)]);
        assert_eq!(ended.is_ok(), writes >= 5, "{writes}: {ended:?}");
    }
}

#[tokio::test]
async fn damage_is_named_and_the_content_is_not() {
    let memory = Memory::default();
    keep(&memory, 1, &manifests(&[2_500]), 3).await.unwrap();
    let path = format!("{SECRETS}/synk-web.v1-1");
    let chunk = memory.get(&path).unwrap();

    memory.remove(&path);
    let missing = load(&memory.clients(), &target(), 1).await.unwrap_err().to_string();
    assert_eq!(
        missing,
        "the history of web.v1 in namespace shop cannot be read: 2 of 3 parts are there"
    );

    let mut changed = chunk.clone();
    changed["data"][KEY] = json!("AAAA");
    memory.put(&path, changed);
    let spoiled = load(&memory.clients(), &target(), 1).await.unwrap_err().to_string();
    assert!(spoiled.ends_with("the checksum differs"), "{spoiled}");

    let mut emptied = chunk.clone();
    emptied["data"] = Value::Null;
    memory.put(&path, emptied);
    assert_eq!(
        load(&memory.clients(), &target(), 1).await.unwrap_err().reason(),
        "Unreadable"
    );

    memory.put(&path, chunk);
    assert!(load(&memory.clients(), &target(), 1).await.is_ok());
}

#[tokio::test]
async fn nothing_is_kept_where_nothing_is_wanted_and_others_keep_theirs() {
    let memory = Memory::default();
    let other = Target {
        set: "other".parse().unwrap(),
        ..target()
    };
    store(&memory.clients(), &other, &other.set.version(1), &manifests(&[10]), 3)
        .await
        .unwrap();
    keep(&memory, 1, &manifests(&[10]), 3).await.unwrap();
    keep(&memory, 2, &manifests(&[10]), 0).await.unwrap();
    assert_eq!(memory.paths(), [format!("{SECRETS}/synk-other.v1-0")]);

    keep(&memory, 3, &manifests(&[10]), 3).await.unwrap();
    remove_all(&memory.clients(), &target().set, "shop").await.unwrap();
    assert_eq!(memory.paths(), [format!("{SECRETS}/synk-other.v1-0")]);
}

#[tokio::test]
async fn what_is_stored_where_nothing_can_be_says_why() {
    let memory = Memory::default();
    memory.terminate("shop");
    let refused = keep(&memory, 1, &manifests(&[10]), 3).await.unwrap_err();
    assert_eq!(refused.reason(), "NamespaceTerminating");
}

#[tokio::test]
async fn secrets_of_another_type_are_neither_read_nor_deleted() {
    let memory = Memory::default();
    keep(&memory, 1, &manifests(&[10]), 3).await.unwrap();
    let path = format!("{SECRETS}/synk-web.v1-0");
    let mut forged = memory.get(&path).unwrap();
    forged["type"] = json!("Opaque");
    memory.put(&path, forged);
    assert_eq!(listed(&memory).await, []);
    assert_eq!(
        load(&memory.clients(), &target(), 1).await.unwrap_err().reason(),
        "NotFound"
    );
    remove_all(&memory.clients(), &target().set, "shop").await.unwrap();
    assert_eq!(memory.paths(), [path]);
}

#[tokio::test]
async fn who_may_not_see_secrets_can_do_without_history() {
    let memory = Memory::default();
    memory.fault(http::Method::GET, SECRETS, 403);
    keep(&memory, 1, &manifests(&[10]), 0).await.unwrap();
    assert!(!is_kept(&memory.clients(), &target()).await.unwrap());
    let refused = keep(&memory, 1, &manifests(&[10]), 3).await.unwrap_err();
    assert_eq!(refused.reason(), "ApiError");
}
