//! Claims that concern some namespaces of the consumer alone, with rights in these alone.

use bindery_api::v1alpha2::GroupResource;
use serde_json::json;

use super::{
    tests::{Town, everything, opaque},
    *,
};
use crate::{
    claims::{
        fake::{Fake, eventually},
        testing::wanted,
    },
    engine::Cause,
};

fn at(namespace: &str, name: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/secrets/{name}")
}

fn copy_of(namespace: &str, name: &str) -> String {
    at(&format!("kube-bind-x-{namespace}"), name)
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

/// Claims every Secret of some namespaces, and has left others where copies may be.
fn limited(namespaces: &[&str], left: &[&str]) -> Wanted {
    Wanted {
        claim_namespaces: Some(set(namespaces)),
        watched_namespaces: Some(set(&[namespaces, left].concat())),
        ..wanted(&[everything()])
    }
}

fn watches(consumer: &Fake, namespace: &str) -> usize {
    consumer.watches(&format!("/api/v1/namespaces/{namespace}/secrets"))
}

/// A town whose consumer has two namespaces with a Secret each, and whose provider has made one for each.
fn town() -> Town {
    let town = Town::new();
    town.consumer.put("/api/v1/namespaces/east", &json!({}));
    for namespace in ["west", "east"] {
        town.preseed(namespace);
        town.consumer.put(&at(namespace, "colt"), &opaque("1"));
        town.provider.put(&copy_of(namespace, "permit"), &opaque("2"));
    }
    town
}

#[tokio::test(start_paused = true)]
async fn a_claim_of_one_namespace_needs_no_right_in_another() {
    let town = town();
    town.consumer.allow_only("secrets", &["west"]);
    town.set("cowboys", limited(&["west"], &[]));
    town.settled("cowboys").await;
    assert!(town.provider.get(&copy_of("west", "colt")).is_some());
    assert!(town.consumer.get(&at("west", "permit")).is_some());
    assert_eq!(town.provider.get(&copy_of("east", "colt")), None);
    assert_eq!(town.consumer.get(&at("east", "permit")), None);
    assert_eq!(
        (watches(&town.consumer, "west"), watches(&town.consumer, "east")),
        (1, 0)
    );
    assert_eq!(town.consumer.watches("/api/v1/secrets"), 0);
    let problem = town.progress("cowboys").problem.unwrap();
    assert_eq!(problem.reason, "NamespaceNotClaimed");
    assert!(problem.message.starts_with("east/permit: "), "{problem:?}");
    // Changes are seen.
    town.consumer.put(&at("west", "colt"), &opaque("3"));
    eventually("the change", || {
        town.provider.get(&copy_of("west", "colt")).unwrap()["data"]["k"] == "3"
    })
    .await;
    town.consumer.remove(&at("west", "colt"));
    eventually("the end", || town.provider.get(&copy_of("west", "colt")).is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_left_the_list_loses_its_copies_and_nothing_else() {
    for restarted in [false, true] {
        let mut town = town();
        town.consumer.allow_only("secrets", &["west", "east"]);
        town.set("cowboys", limited(&["east", "west"], &[]));
        town.settled("cowboys").await;
        assert!(town.provider.get(&copy_of("east", "colt")).is_some());
        assert!(town.consumer.get(&at("east", "permit")).is_some());
        if restarted {
            town.restart();
        }
        town.set("cowboys", limited(&["west"], &["east"]));
        assert_ne!(
            town.progress("cowboys").remaining,
            Some(0),
            "told of before anything was withdrawn"
        );
        eventually("nothing left", || town.progress("cowboys").remaining == Some(0)).await;
        assert_eq!(town.provider.get(&copy_of("east", "colt")), None);
        assert_eq!(town.consumer.get(&at("east", "permit")), None);
        // Then its rights are taken, and it is not watched any more.
        town.set("cowboys", limited(&["west"], &[]));
        town.consumer.allow_only("secrets", &["west"]);
        town.settled("cowboys").await;
        eventually("the end of the watch", || watches(&town.consumer, "east") == 0).await;
        assert_eq!(watches(&town.consumer, "west"), 1);
        for (place, sources) in [
            (
                &town.consumer,
                [at("west", "colt"), at("east", "colt"), at("west", "permit")],
            ),
            (
                &town.provider,
                [
                    copy_of("west", "permit"),
                    copy_of("east", "permit"),
                    copy_of("west", "colt"),
                ],
            ),
        ] {
            assert!(sources.iter().all(|path| place.get(path).is_some()), "{sources:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_right_in_one_namespace_is_told_and_the_others_go_on() {
    let town = town();
    town.consumer.allow_only("secrets", &["west"]);
    town.set("cowboys", limited(&["east", "west"], &[]));
    eventually("the copy", || town.provider.get(&copy_of("west", "colt")).is_some()).await;
    eventually("the problem", || town.progress("cowboys").problem.is_some()).await;
    let progress = town.progress("cowboys");
    let problem = progress.problem.unwrap();
    assert_eq!(
        (problem.cause, problem.namespace.as_deref()),
        (Cause::ConsumerForbids, Some("east"))
    );
    assert!(!progress.synced && progress.remaining.is_none(), "east was not listed");
    assert_eq!(town.provider.get(&copy_of("east", "colt")), None);
    town.consumer.allow_only("secrets", &["east", "west"]);
    eventually("the copy", || town.provider.get(&copy_of("east", "colt")).is_some()).await;
    eventually("its copy", || town.consumer.get(&at("east", "permit")).is_some()).await;
    town.settled("cowboys").await;
    assert_eq!(town.progress("cowboys").problem, None);
}

#[tokio::test(start_paused = true)]
async fn a_namespace_is_watched_while_it_exists() {
    let town = town();
    town.consumer.allow_only("secrets", &["west"]);
    town.set("cowboys", limited(&["north", "west"], &[]));
    town.settled("cowboys").await;
    assert_eq!(watches(&town.consumer, "north"), 0);
    town.consumer.allow_only("secrets", &["north", "west"]);
    town.consumer.put("/api/v1/namespaces/north", &json!({}));
    town.consumer.put(&at("north", "colt"), &opaque("1"));
    eventually("the copy", || town.provider.get(&copy_of("north", "colt")).is_some()).await;
    town.consumer.remove(&at("north", "colt"));
    town.consumer.remove("/api/v1/namespaces/north");
    eventually("the end", || town.provider.get(&copy_of("north", "colt")).is_none()).await;
    eventually("the end of the watch", || watches(&town.consumer, "north") == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_namespace_that_ended_with_its_rights_ends_its_copies() {
    let mut town = town();
    town.consumer.allow_only("secrets", &["east", "west"]);
    town.set("cowboys", limited(&["east", "west"], &[]));
    eventually("the copy", || town.provider.get(&copy_of("east", "colt")).is_some()).await;
    town.restart();
    town.consumer.lose(&at("east", "colt"));
    town.consumer.lose(&at("east", "permit"));
    town.consumer.remove("/api/v1/namespaces/east");
    town.consumer.allow_only("secrets", &["west"]);
    town.set("cowboys", limited(&["east", "west"], &[]));
    eventually("the end", || town.provider.get(&copy_of("east", "colt")).is_none()).await;
    assert!(town.provider.get(&copy_of("west", "colt")).is_some());
    assert!(
        town.provider.get(&copy_of("east", "permit")).is_some(),
        "the provider's own"
    );
}

#[tokio::test(start_paused = true)]
async fn a_binding_without_a_list_has_the_cluster_watched() {
    let town = town();
    town.set("cowboys", limited(&["west"], &[]));
    town.settled("cowboys").await;
    assert_eq!(town.consumer.watches("/api/v1/secrets"), 0);
    town.set("sheriffs", wanted(&[everything()]));
    eventually("the copy", || town.provider.get(&copy_of("east", "colt")).is_some()).await;
    assert_eq!(town.consumer.watches("/api/v1/secrets"), 1);
    assert_eq!(watches(&town.consumer, "west"), 0);
    // Its claims end with it, and so do the copies in other namespaces while the cluster is watched.
    town.set(
        "sheriffs",
        Wanted {
            accepted: Vec::new(),
            withdrawn: vec![GroupResource::new("", "secrets")],
            ..wanted(&[])
        },
    );
    eventually("the end", || town.provider.get(&copy_of("east", "colt")).is_none()).await;
    assert!(town.provider.get(&copy_of("west", "colt")).is_some());
}

#[tokio::test(start_paused = true)]
async fn what_is_left_in_a_namespace_that_was_forced_to_end_keeps_its_copy_until_the_namespace_is_back() {
    let town = town();
    town.consumer.allow_only("secrets", &["east", "west"]);
    town.set("cowboys", limited(&["east", "west"], &[]));
    town.settled("cowboys").await;
    // The rights outlive the namespace, as its objects do.
    town.consumer.remove("/api/v1/namespaces/east");
    eventually("the end of the watch", || watches(&town.consumer, "east") == 0).await;
    town.settled("cowboys").await;
    assert!(
        town.provider.get(&copy_of("east", "colt")).is_some(),
        "its source lives"
    );
    // Nobody hears of its end before the namespace is watched again.
    town.consumer.remove(&at("east", "colt"));
    town.consumer.put("/api/v1/namespaces/east", &json!({}));
    eventually("the end", || town.provider.get(&copy_of("east", "colt")).is_none()).await;
}
