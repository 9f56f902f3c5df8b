use bindery_api::v1alpha2::ClusterBindingSpec;
use parking_lot::Mutex;

use super::*;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn binding(recorded: Option<&str>) -> ClusterBinding {
    let mut binding = ClusterBinding::new(CLUSTER_BINDING, ClusterBindingSpec::default());
    binding.metadata.uid = Some("u".to_owned());
    binding.metadata.resource_version = Some("7".to_owned());
    let mut status = ClusterBindingStatus {
        consumer_cluster_uid: recorded.map(str::to_owned),
        ..ClusterBindingStatus::default()
    };
    conditions::set(&mut status.conditions, conditions::true_condition("Healthy"), NOW);
    binding.status = Some(status);
    binding
}

fn sender(consent: bool) -> HeartbeatSender<'static> {
    HeartbeatSender {
        cluster_uid: "mine",
        interval: Duration::from_mins(5),
        secret: None,
        consent,
        credential_expires: None,
        sync: Some(&IN_SYNC),
        step: None,
    }
}

static IN_SYNC: ClusterBindingSync = ClusterBindingSync {
    objects: Some(7),
    pending: Some(0),
    failing: Some(0),
    lag: None,
};

fn decided(recorded: Option<&str>, consent: bool, since: Option<u64>) -> HeartbeatDecision {
    decide(
        Some(&binding(recorded)),
        true,
        &sender(consent),
        since.map(Duration::from_secs),
        NOW,
    )
}

#[test]
fn beats_at_half_of_the_interval() {
    assert!(matches!(decided(None, false, None), HeartbeatDecision::Beat(_)));
    assert!(matches!(
        decided(Some("mine"), false, Some(150)),
        HeartbeatDecision::Beat(_)
    ));
    assert_eq!(
        decided(Some("mine"), false, Some(149)),
        HeartbeatDecision::Rest(Duration::from_secs(1))
    );
}

#[test]
fn never_writes_over_another_cluster_without_consent() {
    let other = || HeartbeatDecision::OtherCluster {
        recorded: "other".to_owned(),
    };
    assert_eq!(decided(Some("other"), false, None), other());
    assert_eq!(decided(Some("other"), false, Some(999)), other());
    assert!(matches!(
        decided(Some("other"), true, Some(0)),
        HeartbeatDecision::Beat(_)
    ));
}

#[test]
fn nothing_is_concluded_before_the_list_is_complete() {
    assert_eq!(
        decide(None, false, &sender(false), None, NOW),
        HeartbeatDecision::Unknown
    );
    assert_eq!(
        decide(None, true, &sender(false), None, NOW),
        HeartbeatDecision::Missing
    );
}

#[test]
fn a_heartbeat_keeps_what_others_wrote() {
    let HeartbeatDecision::Beat(patch) = decided(None, false, None) else {
        panic!("no heartbeat");
    };
    assert_eq!(patch["metadata"], json!({"uid": "u", "resourceVersion": "7"}));
    assert_eq!(patch["status"]["consumerClusterUID"], "mine");
    assert_eq!(patch["status"]["heartbeatInterval"], "5m0s");
    assert_eq!(
        patch["status"]["sync"],
        json!({"objects": 7, "pending": 0, "failing": 0, "lag": null})
    );
    // An expiry that a former credential had does not stay.
    assert!(
        patch["status"]
            .as_object()
            .unwrap()
            .contains_key("credentialExpirationTime")
    );
    assert_eq!(patch["status"]["credentialExpirationTime"], Value::Null);
    let types: Vec<_> = patch["status"]["conditions"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["type"])
        .collect();
    assert_eq!(types, ["Ready", "Healthy", "SecretValid", "ValidVersion"]);
}

#[test]
fn a_heartbeat_carries_the_next_step_of_the_holder() {
    let step: HolderRecord = "i/7/n".parse().unwrap();
    let sender = HeartbeatSender {
        step: Some(&step),
        ..sender(false)
    };
    let HeartbeatDecision::Beat(patch) = decide(Some(&binding(None)), true, &sender, None, NOW) else {
        panic!("no heartbeat");
    };
    let mut seen = binding(None);
    seen.status = Some(serde_json::from_value(patch["status"].clone()).unwrap());
    let recorded = RecordedHolder::of(&seen);
    assert_eq!(recorded.record.as_ref(), Some(&step));
    assert!(!recorded.is_contested && !recorded.is_bypassed);
    let contested = contest(&seen, &step, NOW);
    seen.status.as_mut().unwrap().conditions =
        serde_json::from_value(contested["status"]["conditions"].clone()).unwrap();
    assert!(RecordedHolder::of(&seen).is_contested);
    assert!(!seen.is_condition_true(conditions::READY));
    // An older konnector keeps the condition and writes the time of its own heartbeat.
    seen.status = Some(serde_json::from_value(patch["status"].clone()).unwrap());
    seen.status.as_mut().unwrap().last_heartbeat_time = Some(Time(NOW + jiff::SignedDuration::from_secs(1)));
    assert!(RecordedHolder::of(&seen).is_bypassed);
}

#[test]
fn a_heartbeat_tells_expiry_and_lag() {
    let sync = ClusterBindingSync {
        lag: Some(Duration::from_secs(90).into()),
        ..IN_SYNC.clone()
    };
    let sender = HeartbeatSender {
        credential_expires: Some(NOW),
        sync: Some(&sync),
        ..sender(false)
    };
    let patch_of = |sender: &HeartbeatSender<'_>| match decide(Some(&binding(None)), true, sender, None, NOW) {
        HeartbeatDecision::Beat(patch) => patch,
        other => panic!("no heartbeat but {other:?}"),
    };
    let patch = patch_of(&sender);
    assert_eq!(patch["status"]["credentialExpirationTime"], "1970-01-01T00:00:00Z");
    assert_eq!(patch["status"]["sync"]["lag"], "1m30s");
    let idle = HeartbeatSender { sync: None, ..sender };
    assert_eq!(patch_of(&idle)["status"]["sync"], Value::Null);
}

/// Times, in seconds from the start, at which a heartbeat is tried, up to `within` seconds.
async fn beats(within: u64, answer: impl Fn(Option<Duration>) -> Result<HeartbeatDecision, kube::Error>) -> Vec<u64> {
    let (start, times) = (Instant::now(), Mutex::new(Vec::new()));
    let beat = |since| {
        let answer = answer(since);
        if !matches!(answer, Ok(HeartbeatDecision::Rest(_))) {
            times.lock().push(start.elapsed().as_secs());
        }
        std::future::ready(answer)
    };
    let note = |outcome| match outcome {
        Ok(HeartbeatDecision::Rest(pause)) => Some(pause),
        _ => None,
    };
    let wake = Notify::new();
    let _ = tokio::time::timeout(Duration::from_secs(within), drive(beat, note, &wake)).await;
    times.into_inner()
}

#[tokio::test(start_paused = true)]
async fn it_goes_on_at_half_of_the_interval() {
    let seen = binding(Some("mine"));
    let times = beats(600, |since| Ok(decide(Some(&seen), true, &sender(false), since, NOW))).await;
    assert_eq!(times, [0, 150, 300, 450]);
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_is_away_is_tried_with_patience() {
    let times = beats(600, |_| Err(kube::Error::LinesCodecMaxLineLengthExceeded)).await;
    assert!((30..=90).contains(&times.len()), "{times:?}");
    assert!(times[1] <= 1, "{times:?}");
}
