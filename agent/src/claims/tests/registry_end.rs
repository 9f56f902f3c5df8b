//! How claims end, and what delays their end.

use std::time::Duration;

use serde_json::json;
use tokio::time::sleep;

use super::{
    tests::{CONTRACT, Town, everything, here, named, opaque, there, withdrawn},
    *,
};
use crate::{
    claims::{ClaimProgress, fake::eventually, testing::wanted},
    drain::Drain,
};

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_rejected_is_undone_on_both_clusters() {
    let mut town = Town::new();
    town.preseed("west");
    town.consumer.put(&here("colt"), &opaque("1"));
    town.provider.put(&there("permit"), &opaque("2"));
    town.set("cowboys", wanted(&[everything()]));
    town.settled("cowboys").await;
    assert_eq!(town.progress("cowboys").remaining, Some(0));
    town.set("cowboys", withdrawn());
    assert_ne!(
        town.progress("cowboys").remaining,
        Some(0),
        "told of before anything was withdrawn"
    );
    eventually("nothing left", || town.progress("cowboys").remaining == Some(0)).await;
    assert_eq!(town.provider.get(&there("colt")), None);
    assert_eq!(town.consumer.get(&here("permit")), None);
    assert!(town.consumer.get(&here("colt")).is_some() && town.provider.get(&there("permit")).is_some());
    // A restarted konnector, which did not make the copies, removes them too.
    town.set("cowboys", wanted(&[everything()]));
    eventually("both again", || {
        town.provider.get(&there("colt")).is_some() && town.consumer.get(&here("permit")).is_some()
    })
    .await;
    town.restart();
    town.set("cowboys", withdrawn());
    eventually("nothing left", || town.progress("cowboys").remaining == Some(0)).await;
    assert_eq!(town.provider.get(&there("colt")), None);
    assert_eq!(town.consumer.get(&here("permit")), None);
}

#[tokio::test(start_paused = true)]
async fn what_a_complete_list_lacks_is_withdrawn() {
    let mut town = Town::new();
    let names: Vec<_> = (0..12).map(|at| format!("secret-{at}")).collect();
    for name in &names {
        town.consumer.put(&here(name), &opaque("1"));
    }
    town.set("cowboys", wanted(&[everything()]));
    let copies = |town: &Town| {
        names
            .iter()
            .filter(|name| town.provider.get(&there(name)).is_some())
            .count()
    };
    eventually("all copies", || copies(&town) == 12).await;
    town.settled("cowboys").await;
    town.provider.writes();
    town.restart();
    for name in &names {
        town.consumer.lose(&here(name));
    }
    town.set("cowboys", wanted(&[everything()]));
    // The source of a claimed copy is never written, and what was deleted must not stay readable.
    eventually("their end", || copies(&town) == 0).await;
}

#[tokio::test(start_paused = true)]
async fn a_resource_that_nobody_serves_leaves_nothing() {
    let town = Town::new();
    let horses = GroupResource::new("wildwest.dev", "horses");
    let of = |town: &Town| {
        town.claims
            .progress("cowboys")
            .borrow()
            .claims
            .get(&horses)
            .cloned()
            .unwrap_or_default()
    };
    town.set(
        "cowboys",
        Wanted {
            withdrawn: vec![horses.clone()],
            ..wanted(&[])
        },
    );
    eventually("nothing left", || of(&town).remaining == Some(0)).await;
}

#[tokio::test(start_paused = true)]
async fn a_cleanup_needs_no_provider() {
    let town = Town::new();
    town.preseed("west");
    town.provider.put(&there("permit"), &opaque("2"));
    town.consumer.put(&here("colt"), &opaque("1"));
    town.set("cowboys", wanted(&[everything()]));
    eventually("the copy", || town.consumer.get(&here("permit")).is_some()).await;
    town.claims.remove("cowboys");
    town.consumer.writes();
    let secrets = vec![GroupResource::new("", "secrets")];
    let drain = Drain::of_copies(&town.consumer.clients(), "contract-uid", secrets, None);
    let mut progress = drain.progress();
    progress
        .wait_for(|released| released.remaining == Some(0))
        .await
        .unwrap();
    assert_eq!(town.consumer.writes(), [format!("DELETE {}", here("permit"))]);
    assert!(town.consumer.get(&here("colt")).is_some());
}

fn horses() -> GroupResource {
    GroupResource::new("wildwest.dev", "horses")
}

fn claiming_horses() -> Wanted {
    let mut wanted = wanted(&[everything()]);
    wanted.accepted[0].group_resource = horses();
    wanted
}

#[tokio::test(start_paused = true)]
async fn an_api_that_is_installed_later_or_again_is_found() {
    const V1: &str = "apis/wildwest.dev/v1";
    const V2: &str = "apis/wildwest.dev/v2";

    let town = Town::new();
    let problem = || {
        let progress = town.claims.progress("cowboys").borrow().clone();
        progress.claims.get(&horses())?.problem.clone()
    };
    let missing = || problem().is_some_and(|problem| problem.reason == "ClaimedApiMissing");
    let here = |root: &str| format!("/{root}/namespaces/west/horses/silver");
    let there = |root: &str| format!("/{root}/namespaces/{CONTRACT}-west/horses/silver");
    town.set("cowboys", claiming_horses());
    eventually("a word that nobody serves it", missing).await;
    for cluster in [&town.consumer, &town.provider] {
        sleep(Duration::from_mins(1)).await;
        assert!(missing());
        cluster.serve(V1, "horses");
    }
    town.consumer.put(&here(V1), &json!({"spec": {"speed": 1}}));
    eventually("the copy", || town.provider.get(&there(V1)).is_some()).await;
    assert_eq!(problem(), None);
    // The provider ends the version, and serves another one later.
    town.provider.unserve(V1);
    eventually("a word that it is gone", missing).await;
    assert!(town.consumer.writes().is_empty(), "sources are not written");
    for cluster in [&town.consumer, &town.provider] {
        cluster.serve(V2, "horses");
    }
    town.consumer.put(&here(V2), &json!({"spec": {"speed": 2}}));
    eventually("the copy in the other version", || {
        town.provider.get(&there(V2)).is_some()
    })
    .await;
    eventually("all is well", || problem().is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_withdrawn_and_served_nowhere_is_no_problem_until_it_is_claimed() {
    let town = Town::new();
    let progress = || town.claims.progress("cowboys").borrow().claims.get(&horses()).cloned();
    town.set(
        "cowboys",
        Wanted {
            withdrawn: vec![horses()],
            ..wanted(&[])
        },
    );
    let is_done = |it: &ClaimProgress| it.remaining == Some(0) && it.problem.is_none();
    eventually("the end", || progress().is_some_and(|it| is_done(&it))).await;
    town.set("cowboys", claiming_horses());
    assert!(progress().is_some_and(|it| it.problem.is_some()));
}

#[tokio::test(start_paused = true)]
async fn what_the_provider_dropped_is_withdrawn_as_far_as_it_lets_us() {
    // After the provider takes the right away, the watch may go on for a while, and only writes are refused.
    for restarts in [true, false] {
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
        town.provider.forbid("secrets");
        if restarts {
            town.restart();
        }
        // If the user rejects the claim, the copies on the provider are not given up.
        town.set("cowboys", withdrawn());
        eventually("a word", || {
            let problem = town.progress("cowboys").problem;
            problem.is_some_and(|problem| problem.reason == "Forbidden")
        })
        .await;
        sleep(Duration::from_mins(1)).await;
        assert_ne!(town.progress("cowboys").remaining, Some(0));
        let dropped = Wanted {
            dropped: withdrawn().withdrawn,
            ..withdrawn()
        };
        town.set("cowboys", dropped);
        eventually("the end", || town.progress("cowboys").remaining == Some(0)).await;
        let progress = town.progress("cowboys");
        assert!(progress.out_of_reach && progress.problem.is_none());
        assert_eq!(town.consumer.get(&here("permit")), None);
        assert!(town.provider.get(&there("colt")).is_some() && town.consumer.get(&here("colt")).is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn where_the_provider_lets_us_what_it_dropped_is_withdrawn_there_too() {
    let town = Town::new();
    town.consumer.put(&here("colt"), &opaque("1"));
    town.set("cowboys", wanted(&[everything()]));
    eventually("the copy", || town.provider.get(&there("colt")).is_some()).await;
    town.set(
        "cowboys",
        Wanted {
            dropped: withdrawn().withdrawn,
            ..withdrawn()
        },
    );
    eventually("the end", || town.progress("cowboys").remaining == Some(0)).await;
    assert!(!town.progress("cowboys").out_of_reach);
    assert_eq!(town.provider.get(&there("colt")), None);
}

#[tokio::test(start_paused = true)]
async fn a_copy_that_lost_its_place_goes_when_nobody_claims_it_and_it_is_not_paused() {
    for withdraws in [false, true] {
        let town = Town::new();
        town.preseed("west");
        for name in ["permit", "badge", "star"] {
            town.provider.put(&there(name), &opaque("2"));
        }
        town.set("cowboys", wanted(&[everything()]));
        let has = |name: &str| town.consumer.get(&here(name)).is_some();
        eventually("the copies", || {
            ["permit", "badge", "star"].iter().all(|name| has(name))
        })
        .await;
        town.settled("cowboys").await;
        let mut paused = town.consumer.get(&here("badge")).unwrap();
        paused["metadata"]["annotations"]["kube-bind.io/paused"] = json!("true");
        town.consumer.put(&here("badge"), &paused);
        town.lose_place("west");
        sleep(Duration::from_secs(30)).await;
        assert!(has("permit") && has("star"), "they are claimed");
        let all = if withdraws {
            withdrawn()
        } else {
            wanted(&[named(&["star"])])
        };
        town.set("cowboys", all.clone());
        eventually("its end", || !has("permit")).await;
        sleep(Duration::from_secs(30)).await;
        assert!(has("badge"));
        assert_eq!(has("star"), !withdraws);
        let progress = town.progress("cowboys");
        assert_eq!(
            (progress.remaining, progress.problem.unwrap().reason),
            (Some(1), "Paused")
        );
        paused["metadata"]["annotations"]["kube-bind.io/paused"] = json!("false");
        town.consumer.put(&here("badge"), &paused);
        eventually("its end", || !has("badge")).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_binding_whose_place_was_lost_keeps_its_copies_while_it_is_paused() {
    let town = Town::new();
    town.preseed("west");
    town.provider.put(&there("permit"), &opaque("2"));
    town.set("cowboys", wanted(&[named(&["permit"])]));
    eventually("the copy", || town.consumer.get(&here("permit")).is_some()).await;
    town.settled("cowboys").await;
    let paused = Wanted {
        paused: true,
        ..withdrawn()
    };
    town.set("cowboys", paused);
    town.set("sheriffs", wanted(&[named(&["badge"])]));
    town.lose_place("west");
    sleep(Duration::from_mins(1)).await;
    assert!(town.consumer.get(&here("permit")).is_some());
    town.set("cowboys", withdrawn());
    eventually("its end", || town.consumer.get(&here("permit")).is_none()).await;
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_the_end_of_orphans_is_told_whose() {
    let town = Town::new();
    town.consumer.put(&here("colt"), &opaque("1"));
    town.consumer.put(&here("badge"), &opaque("1"));
    let orphaned = Arc::<Deletions>::default();
    town.claims.set("sheriffs", wanted(&[named(&["badge"])]), &orphaned);
    town.set("cowboys", wanted(&[named(&["colt"])]));
    let has = |name: &str| town.provider.get(&there(name)).is_some();
    eventually("both copies", || has("colt") && has("badge")).await;
    town.settled("cowboys").await;
    orphaned.join(u64::MAX);
    orphaned.count(u64::MAX, Some(1));
    town.set("cowboys", wanted(&[named(&["star"])]));
    let problem = |binding: &str| town.progress(binding).problem;
    eventually("a word", || problem("cowboys").is_some()).await;
    let told = problem("cowboys").unwrap();
    assert_eq!(told.reason, "DeletionsHeldBack");
    assert!(
        told.message.contains("orphans of APIServiceBinding sheriffs may"),
        "{}",
        told.message
    );
    sleep(Duration::from_secs(30)).await;
    assert!(has("colt"));
    orphaned.forget(u64::MAX);
    eventually("the end", || !has("colt")).await;
    eventually("no word of it", || {
        problem("cowboys").is_none_or(|problem| problem.reason != "DeletionsHeldBack")
    })
    .await;
}
