use std::time::Duration;

use bindery_api::{
    placement::ClaimedPlacement,
    v1alpha2::{APIServiceNamespace, InformerScope, PermissionClaim},
};
use bindery_runtime::{
    cache::Cache,
    events::Recorder,
    guard::{Guard, Limits, NameRule},
    watch::Source,
};
use k8s_openapi::api::core::v1::Namespace;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::*;
use crate::{
    claims::{
        ClaimProgress,
        fake::{Fake, eventually},
        testing::{bound_resource, object, wanted},
    },
    connection::Sides,
    contract::Contract,
    engine::{Budget, Cause, Metrics, Surroundings, Tally},
    references::ReferenceIndexer,
};

pub(super) const CONTRACT: &str = "kube-bind-x";

/// Two clusters, and the claims of a session between them.
pub(super) struct Town {
    pub(super) consumer: Fake,
    pub(super) provider: Fake,
    pub(super) claims: Claims,
    pub(super) guard: Arc<Deletions>,
    limits: Guard,
    bound: ReferenceIndexer,
}

/// Has the namespace `west` one bound object.
fn bound(claims: &Claims) -> ReferenceIndexer {
    let indexer = claims.references().indexer(bound_resource(), "v1");
    let cowboy = object(&json!({"metadata": {"namespace": "west", "name": "wyatt", "resourceVersion": "1"}}));
    indexer.listing();
    indexer.seen(&cowboy);
    indexer.listed();
    indexer
}

fn claims(consumer: &Fake, provider: &Fake, limits: &Guard) -> Claims {
    let (here, there) = (consumer.clients(), provider.clients());
    Claims::new(Site {
        contract: Contract {
            uid: "contract-uid".into(),
            namespace: CONTRACT.into(),
        },
        around: Surroundings {
            namespaces: Cache::start(
                there.watch.clone(),
                Source::of::<APIServiceNamespace>(Some(CONTRACT)).guarded(limits, NameRule::Label),
            ),
            unreadable_namespaces: tokio::sync::watch::channel(false).1,
            consumer_namespaces: Cache::start(here.watch.clone(), Source::of::<Namespace>(None)),
            recorder: Recorder::silent(),
            metrics: Metrics::register(&mut bindery_runtime::telemetry::registry()),
            budget: Budget::default(),
            tally: Tally::default(),
            holding: crate::holder::Holding::proven_at_once(),
            guard: limits.clone(),
        },
        sides: Sides {
            consumer: here,
            provider: there,
        },
        own_namespace: "kube-bind".into(),
    })
}

impl Town {
    pub(super) fn new() -> Self {
        Self::limited(Guard::unlimited())
    }

    fn limited(limits: Guard) -> Self {
        let (consumer, provider) = (Fake::new(), Fake::new());
        consumer.put("/api/v1/namespaces/west", &json!({}));
        let claims = claims(&consumer, &provider, &limits);
        Self {
            bound: bound(&claims),
            claims,
            consumer,
            provider,
            guard: Arc::default(),
            limits,
        }
    }

    /// Assigns a provider namespace as a provider does before any consumer asks for it.
    pub(super) fn preseed(&self, namespace: &str) {
        let status = json!({"namespace": format!("{CONTRACT}-{namespace}"), "sharedNamespace": namespace});
        self.provider.put(
            &format!("/apis/kube-bind.io/v1alpha2/namespaces/{CONTRACT}/apiservicenamespaces/{namespace}"),
            &json!({"metadata": {"labels": {"kube-bind.io/owner": "provider"}}, "status": status}),
        );
    }

    pub(super) fn set(&self, binding: &str, wanted: Wanted) {
        self.claims.set(binding, wanted, &self.guard);
    }

    /// Ends the konnector, and starts another one.
    pub(super) fn restart(&mut self) {
        self.claims = claims(&self.consumer, &self.provider, &self.limits);
        drop(std::mem::replace(&mut self.bound, bound(&self.claims)));
        self.guard = Arc::default();
    }

    pub(super) fn progress(&self, binding: &str) -> ClaimProgress {
        let progress = self.claims.progress(binding).borrow().clone();
        progress
            .claims
            .get(&GroupResource::new("", "secrets"))
            .cloned()
            .unwrap_or_default()
    }

    /// Deletes the APIServiceNamespace of a consumer namespace.
    pub(super) fn lose_place(&self, namespace: &str) {
        self.provider.remove(&format!(
            "/apis/kube-bind.io/v1alpha2/namespaces/{CONTRACT}/apiservicenamespaces/{namespace}"
        ));
    }

    pub(super) async fn settled(&self, binding: &str) {
        eventually("rest", || {
            let progress = self.progress(binding);
            progress.synced && progress.pending == 0 && progress.remaining.is_some()
        })
        .await;
        // Requests that are under way end meanwhile.
        sleep(Duration::from_secs(3)).await;
    }
}

pub(super) fn here(name: &str) -> String {
    format!("/api/v1/namespaces/west/secrets/{name}")
}

pub(super) fn there(name: &str) -> String {
    format!("/api/v1/namespaces/{CONTRACT}-west/secrets/{name}")
}

pub(super) fn opaque(data: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "Secret", "type": "Opaque", "data": {"k": data}})
}

pub(super) fn named(names: &[&str]) -> Value {
    let names: Vec<_> = names.iter().map(|name| json!({"name": name})).collect();
    json!({"namedResources": names})
}

pub(super) fn everything() -> Value {
    json!({"labelSelector": {}})
}

pub(super) fn withdrawn() -> Wanted {
    Wanted {
        withdrawn: vec![GroupResource::new("", "secrets")],
        ..wanted(&[])
    }
}

fn about_secrets(writes: Vec<String>) -> Vec<String> {
    writes.into_iter().filter(|write| write.contains("/secrets")).collect()
}

#[tokio::test(start_paused = true)]
async fn names_of_the_provider_that_lead_elsewhere_are_skipped_and_the_others_sync() {
    let town = Town::new();
    town.preseed("west");
    town.preseed("a?x=y");
    town.provider.put(&there("permit"), &opaque("1"));
    town.provider.put(&there("a?b=c"), &opaque("2"));
    town.set("cowboys", wanted(&[everything()]));
    eventually("the copy", || town.consumer.get(&here("permit")).is_some()).await;
    town.provider.put(&there("d%2fb=c"), &opaque("2"));
    town.provider.put(&there("later"), &opaque("2"));
    eventually("the later copy", || town.consumer.get(&here("later")).is_some()).await;
    town.settled("cowboys").await;
    let writes = [town.consumer.writes(), town.provider.writes()].concat();
    let is_elsewhere = |write: &&String| write.contains("b=c") || write.contains("x=y");
    assert_eq!(writes.iter().find(is_elsewhere), None);
    assert!(town.limits.faults().borrow().invalid_names().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_exceeds_a_limit_waits_and_loses_nothing() {
    let town = Town::limited(Guard::new(Limits {
        objects: 6,
        bytes: 1 << 20,
    }));
    town.preseed("west");
    town.provider.put(&there("permit"), &opaque("1"));
    town.consumer.put(&here("colt"), &opaque("1"));
    town.set("cowboys", wanted(&[everything()]));
    eventually("both copies", || {
        town.provider.get(&there("colt")).is_some() && town.consumer.get(&here("permit")).is_some()
    })
    .await;
    let more: Vec<_> = (0..40).map(|at| there(&format!("more-{at}"))).collect();
    for path in &more {
        town.provider.put(path, &opaque("1"));
    }
    eventually("the limit", || !town.limits.faults().borrow().is_within_limits()).await;
    sleep(Duration::from_secs(1)).await;
    town.consumer.writes();
    town.provider.writes();
    town.consumer.put(&here("bay"), &opaque("1"));
    sleep(Duration::from_mins(2)).await;
    assert_eq!(
        [town.consumer.writes(), town.provider.writes()].concat(),
        [""; 0],
        "nothing is written meanwhile"
    );
    assert!(town.consumer.get(&here("permit")).is_some());
    assert!(town.limits.held().0 <= 13, "{:?}", town.limits);
    for path in &more {
        town.provider.remove(path);
    }
    // Less is sent, and sync goes on by itself.
    sleep(Duration::from_mins(6)).await;
    eventually("what waited", || town.provider.get(&there("bay")).is_some()).await;
    assert!(town.limits.faults().borrow().is_within_limits());
    assert!(town.consumer.get(&here("permit")).is_some() && town.provider.get(&there("colt")).is_some());
}

#[tokio::test(start_paused = true)]
async fn a_claimed_object_goes_up_with_one_write_a_change() {
    let town = Town::new();
    town.consumer.put(&here("colt"), &opaque("1"));
    town.consumer.put(&here("diary"), &opaque("2"));
    town.set("cowboys", wanted(&[named(&["colt"])]));
    eventually("the copy", || town.provider.get(&there("colt")).is_some()).await;
    town.settled("cowboys").await;
    assert_eq!(town.provider.get(&there("diary")), None, "nobody claims it");
    let copy = town.provider.get(&there("colt")).unwrap();
    let meta = &copy["metadata"];
    assert_eq!(copy["data"], json!({"k": "1"}));
    assert_eq!(meta["labels"], json!({"kube-bind.io/owner": "consumer"}));
    let source = town.consumer.get(&here("colt")).unwrap();
    assert_eq!(
        meta["annotations"]["kube-bind.io/consumer-uid"],
        source["metadata"]["uid"]
    );
    assert_eq!(meta["annotations"]["kube-bind.io/cluster-namespace"], json!(CONTRACT));
    assert_eq!(meta["annotations"]["kube-bind.io/consumer-namespace"], json!("west"));
    assert_eq!(
        town.provider.writes().len(),
        2,
        "the namespace is asked for, the copy is made"
    );
    town.consumer.put(&here("colt"), &opaque("3"));
    eventually("the change", || {
        town.provider.get(&there("colt")).unwrap()["data"]["k"] == "3"
    })
    .await;
    town.settled("cowboys").await;
    assert_eq!(town.provider.writes(), [format!("PATCH {}", there("colt"))]);
    town.consumer.remove(&here("colt"));
    eventually("the end", || town.provider.get(&there("colt")).is_none()).await;
    town.settled("cowboys").await;
    assert_eq!(town.provider.writes(), [format!("DELETE {}", there("colt"))]);
    assert!(town.consumer.writes().is_empty(), "sources are not written");
    assert!(!town.progress("cowboys").selects_all);
}

#[tokio::test(start_paused = true)]
async fn a_restart_in_sync_writes_nothing() {
    let mut town = Town::new();
    town.preseed("west");
    town.consumer.put(&here("colt"), &opaque("1"));
    town.provider.put(&there("permit"), &opaque("2"));
    town.set("cowboys", wanted(&[everything()]));
    eventually("both copies", || {
        town.provider.get(&there("colt")).is_some() && town.consumer.get(&here("permit")).is_some()
    })
    .await;
    town.settled("cowboys").await;
    let progress = town.progress("cowboys");
    assert_eq!((progress.from_consumer, progress.from_provider), (1, 1));
    assert!(progress.selects_all && progress.failing == 0);
    town.consumer.writes();
    town.provider.writes();
    town.restart();
    town.set("cowboys", wanted(&[everything()]));
    town.settled("cowboys").await;
    assert!(town.consumer.writes().is_empty() && town.provider.writes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_the_provider_owns_comes_down_when_its_namespace_is_there() {
    let town = Town::new();
    town.consumer.remove("/api/v1/namespaces/west");
    town.preseed("west");
    town.provider.put(&there("permit"), &opaque("1"));
    let mut token = opaque("2");
    token["type"] = json!("kubernetes.io/service-account-token");
    town.provider.put(&there("token"), &token);
    town.set("cowboys", wanted(&[everything()]));
    town.settled("cowboys").await;
    assert!(town.consumer.writes().is_empty(), "it waits for the namespace");
    town.consumer.put("/api/v1/namespaces/west", &json!({}));
    eventually("the copy", || town.consumer.get(&here("permit")).is_some()).await;
    town.settled("cowboys").await;
    assert_eq!(
        town.consumer.get(&here("token")),
        None,
        "credentials of a cluster for itself"
    );
    let copy = town.consumer.get(&here("permit")).unwrap();
    let meta = &copy["metadata"];
    assert_eq!(
        meta["labels"],
        json!({"kube-bind.io/owner": "provider", "kube-bind.io/contract-uid": "contract-uid"})
    );
    assert_eq!(
        meta["annotations"]["kube-bind.io/provider-namespace"],
        json!("kube-bind-x-west")
    );
    assert_eq!(town.consumer.writes().len(), 1);
    town.consumer.remove(&here("permit"));
    eventually("it is made again", || town.consumer.get(&here("permit")).is_some()).await;
    town.provider.remove(&there("permit"));
    eventually("the end", || town.consumer.get(&here("permit")).is_none()).await;
    assert!(
        about_secrets(town.provider.writes()).is_empty(),
        "sources are not written"
    );
}

#[tokio::test(start_paused = true)]
async fn bindings_share_a_resource_and_each_keeps_its_own() {
    let town = Town::new();
    for name in ["colt", "badge", "star"] {
        town.consumer.put(&here(name), &opaque("1"));
    }
    town.set("cowboys", wanted(&[named(&["colt", "star"])]));
    town.set("sheriffs", wanted(&[named(&["badge", "star"])]));
    let has = |name: &str| town.provider.get(&there(name)).is_some();
    eventually("all copies", || ["colt", "badge", "star"].iter().all(|name| has(name))).await;
    town.settled("cowboys").await;
    // Binding `sheriffs` is not served any more, since its session ended: copies that only it selects stay.
    let kept: BTreeMap<String, Vec<PermissionClaim>> =
        [("sheriffs".to_owned(), wanted(&[named(&["badge", "star"])]).accepted)].into();
    let knowing = Wanted {
        kept,
        ..wanted(&[named(&["colt", "star"])])
    };
    town.set("cowboys", knowing);
    town.claims.remove("sheriffs");
    town.settled("cowboys").await;
    assert!(has("badge"));
    assert_eq!(town.progress("cowboys").remaining, Some(0));
    town.set("cowboys", wanted(&[named(&["colt", "star"])]));
    eventually("its own goes", || !has("badge")).await;
    assert!(has("colt") && has("star"));
    assert_eq!(town.claims.progress("sheriffs").borrow().claims.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn references_are_followed_as_they_change() {
    let town = Town::new();
    for name in ["colt", "badge"] {
        town.consumer.put(&here(name), &opaque("1"));
    }
    let sheriffs = GroupResource::new("wildwest.dev", "sheriffs");
    let referenced = json!({"references": [
        {"group": "wildwest.dev", "resource": "sheriffs", "jsonPath": {"name": "spec.refs.#.name"}},
    ]});
    let has = |name: &str| town.provider.get(&there(name)).is_some();
    let sheriff = |refs: &[&str]| {
        let refs: Vec<_> = refs.iter().map(|name| json!({"name": name})).collect();
        object(&json!({
            "metadata": {"namespace": "west", "name": "wyatt", "resourceVersion": "1"},
            "spec": {"refs": refs},
        }))
    };
    town.set("cowboys", wanted(&[referenced]));
    sleep(Duration::from_secs(2)).await;
    assert!(!town.progress("cowboys").synced && town.progress("cowboys").problem.is_none());
    eventually("a word why", || {
        town.progress("cowboys")
            .problem
            .is_some_and(|problem| problem.reason == "ReferencesUnknown")
    })
    .await;
    let indexer = town.claims.references().indexer(sheriffs.clone(), "v1");
    indexer.listing();
    indexer.seen(&sheriff(&["colt"]));
    indexer.listed();
    eventually("the one that is referred to", || has("colt")).await;
    town.settled("cowboys").await;
    assert!(!has("badge"));
    indexer.seen(&sheriff(&["badge"]));
    eventually("the other", || has("badge") && !has("colt")).await;
    // Another indexer takes over. Until it knows all references, nothing is withdrawn.
    let next = town.claims.references().indexer(sheriffs, "v1");
    drop(indexer);
    sleep(Duration::from_secs(5)).await;
    assert!(has("badge"));
    next.listing();
    next.listed();
    eventually("nothing refers to it", || !has("badge")).await;
}

#[tokio::test(start_paused = true)]
async fn a_selector_that_matches_no_more_withdraws_the_copy() {
    let town = Town::new();
    let labelled = |value: &str| {
        let mut secret = opaque("1");
        secret["metadata"] = json!({"labels": {"gang": value}});
        secret
    };
    town.consumer.put(&here("colt"), &labelled("clanton"));
    town.set(
        "cowboys",
        wanted(&[json!({"labelSelector": {"matchLabels": {"gang": "clanton"}}})]),
    );
    eventually("the copy", || town.provider.get(&there("colt")).is_some()).await;
    town.consumer.put(&here("colt"), &labelled("earp"));
    eventually("its end", || town.provider.get(&there("colt")).is_none()).await;
    assert!(town.consumer.get(&here("colt")).is_some() && town.consumer.writes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_changed_is_made_anew() {
    let town = Town::new();
    let mut locked = opaque("1");
    locked["immutable"] = json!(true);
    town.consumer.put(&here("colt"), &locked);
    town.set("cowboys", wanted(&[everything()]));
    eventually("the copy", || town.provider.get(&there("colt")).is_some()).await;
    // The consumer's user deletes the object and makes another.
    town.consumer.remove(&here("colt"));
    locked["data"] = json!({"k": "2"});
    locked["type"] = json!("kubernetes.io/tls");
    town.consumer.put(&here("colt"), &locked);
    eventually("the other", || {
        town.provider
            .get(&there("colt"))
            .is_some_and(|copy| copy["data"]["k"] == "2")
    })
    .await;
    // The provider makes a copy immutable whose source is not.
    town.consumer.put(&here("badge"), &opaque("1"));
    eventually("the copy", || town.provider.get(&there("badge")).is_some()).await;
    let mut copy = town.provider.get(&there("badge")).unwrap();
    copy["immutable"] = json!(true);
    town.provider.put(&there("badge"), &copy);
    town.settled("cowboys").await;
    town.consumer.put(&here("badge"), &opaque("5"));
    eventually("the change", || {
        town.provider
            .get(&there("badge"))
            .is_some_and(|copy| copy["data"]["k"] == "5")
    })
    .await;
    town.settled("cowboys").await;
    assert_eq!(town.progress("cowboys").failing, 0);
}

#[tokio::test(start_paused = true)]
async fn a_conflict_is_shown_and_nothing_is_touched() {
    let town = Town::new();
    town.preseed("west");
    town.consumer.put(&here("colt"), &opaque("1"));
    town.provider.put(&there("colt"), &opaque("2"));
    town.set("cowboys", wanted(&[everything()]));
    eventually("a word", || town.progress("cowboys").failing == 1).await;
    town.settled("cowboys").await;
    let problem = town.progress("cowboys").problem.unwrap();
    assert_eq!(problem.reason, "Conflict");
    assert!(problem.message.starts_with("west/colt: "), "{}", problem.message);
    assert!(about_secrets(town.provider.writes()).is_empty() && town.consumer.writes().is_empty());
    town.provider.remove(&there("colt"));
    eventually("the copy", || town.provider.get(&there("colt")).is_some()).await;
    eventually("all is well", || town.progress("cowboys").failing == 0).await;
}

#[tokio::test(start_paused = true)]
async fn protected_namespaces_are_not_read_nor_written() {
    const PROTECTED: [&str; 2] = ["kube-bind", "kube-system"];

    let town = Town::new();
    town.consumer.put(&here("colt"), &opaque("1"));
    for namespace in PROTECTED {
        town.preseed(namespace);
        town.consumer
            .put(&format!("/api/v1/namespaces/{namespace}"), &json!({}));
        town.consumer.put(
            &format!("/api/v1/namespaces/{namespace}/secrets/kubeconfig"),
            &opaque("1"),
        );
        let planted = format!("/api/v1/namespaces/{CONTRACT}-{namespace}/secrets/planted");
        town.provider.put(&planted, &opaque("2"));
    }
    town.set("cowboys", wanted(&[everything()]));
    eventually("another copy", || town.provider.get(&there("colt")).is_some()).await;
    town.settled("cowboys").await;
    assert!(town.consumer.writes().is_empty());
    for namespace in PROTECTED {
        let up = format!("/api/v1/namespaces/{CONTRACT}-{namespace}/secrets/kubeconfig");
        assert_eq!(town.provider.get(&up), None);
    }
}

#[tokio::test(start_paused = true)]
async fn a_missing_right_is_told_as_one() {
    let town = Town::new();
    town.consumer.forbid("secrets");
    town.set("cowboys", wanted(&[everything()]));
    eventually("a word", || town.progress("cowboys").problem.is_some()).await;
    let problem = town.progress("cowboys").problem.unwrap();
    assert_eq!(problem.reason, "Forbidden");
    assert!(
        problem.cause == Cause::ConsumerForbids && problem.message.contains("secrets is forbidden"),
        "{problem:?}"
    );
    assert!(!town.progress("cowboys").synced && town.progress("cowboys").remaining.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_paused_binding_writes_nothing() {
    let town = Town::new();
    town.consumer.put(&here("colt"), &opaque("1"));
    let paused = Wanted {
        paused: true,
        ..wanted(&[everything()])
    };
    town.set("cowboys", paused.clone());
    sleep(Duration::from_secs(30)).await;
    assert!(town.provider.writes().is_empty());
    town.set("cowboys", wanted(&[everything()]));
    eventually("the copy", || town.provider.get(&there("colt")).is_some()).await;
    town.settled("cowboys").await;
    town.provider.writes();
    town.set("cowboys", paused);
    town.consumer.put(&here("colt"), &opaque("2"));
    town.consumer.put(&here("badge"), &opaque("2"));
    sleep(Duration::from_secs(30)).await;
    assert!(town.provider.writes().is_empty());
}

#[tokio::test(start_paused = true)]
async fn in_a_shared_place_others_copies_are_left() {
    let town = Town::new();
    town.preseed("west");
    let shared = |selector: Value| Wanted {
        placement: ClaimedPlacement::Shared,
        ..wanted(&[selector])
    };
    let mut others = opaque("9");
    others["metadata"] = json!({
        "labels": {"kube-bind.io/owner": "consumer"},
        "annotations": {"kube-bind.io/cluster-namespace": "kube-bind-y", "kube-bind.io/consumer-uid": "z"},
    });
    town.provider.put(&here("badge"), &others);
    town.consumer.put(&here("badge"), &opaque("1"));
    town.consumer.put(&here("colt"), &opaque("1"));
    town.provider.put("/api/v1/namespaces/west", &json!({}));
    town.set("cowboys", shared(everything()));
    eventually("the copy", || town.provider.get(&here("colt")).is_some()).await;
    eventually("a word", || town.progress("cowboys").failing == 1).await;
    town.settled("cowboys").await;
    assert_eq!(town.provider.get(&here("badge")).unwrap()["data"], json!({"k": "9"}));
    assert_eq!(town.provider.get(&there("colt")), None);
    let message = town.progress("cowboys").problem.unwrap().message;
    assert!(message.contains("kube-bind-y"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn both_places_share_one_watch_of_the_consumer() {
    let town = Town::new();
    town.preseed("west");
    town.provider.put("/api/v1/namespaces/west", &json!({}));
    town.consumer.put(&here("colt"), &opaque("1"));
    town.consumer.put(&here("badge"), &opaque("1"));
    let wide = |selector: Value| Wanted {
        informer_scope: InformerScope::Cluster,
        cluster_wide_secrets: true,
        ..wanted(&[selector])
    };
    town.set("cowboys", wide(named(&["colt"])));
    eventually("the copy", || town.provider.get(&there("colt")).is_some()).await;
    let shared = Wanted {
        placement: ClaimedPlacement::Shared,
        ..wide(named(&["badge"]))
    };
    town.set("sheriffs", shared);
    eventually("the other", || town.provider.get(&here("badge")).is_some()).await;
    town.settled("cowboys").await;
    town.settled("sheriffs").await;
    let secrets = "/api/v1/secrets";
    assert_eq!(town.consumer.watches(secrets), 1);
    assert_eq!(town.provider.watches(secrets), 1);
    // Both engines see the changes.
    town.consumer.put(&here("colt"), &opaque("2"));
    town.consumer.put(&here("badge"), &opaque("2"));
    eventually("both changes", || {
        [there("colt"), here("badge")]
            .iter()
            .all(|path| town.provider.get(path).is_some_and(|copy| copy["data"]["k"] == "2"))
    })
    .await;
    town.claims.remove("cowboys");
    town.consumer.put(&here("badge"), &opaque("3"));
    eventually("the change", || {
        town.provider
            .get(&here("badge"))
            .is_some_and(|copy| copy["data"]["k"] == "3")
    })
    .await;
    assert_eq!(town.consumer.watches(secrets), 1);
}
