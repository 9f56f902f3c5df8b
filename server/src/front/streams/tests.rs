use std::{collections::BTreeMap, time::Duration};

use bindery_runtime::{queue::Priority, telemetry};
use futures::{FutureExt as _, StreamExt as _, future::BoxFuture};
use http::HeaderMap;
use jiff::Timestamp;
use tokio::time::{advance, sleep};
use tonic::Code;

use crate::front::streams::{
    hub::{Cursor, Progress, Version},
    task::SLOW_AFTER,
    *,
};
use crate::front::{
    auth::{Authenticator, Caller, CheckError, Claims, Denial, Identity, Kind, Presented, Verdict, tests_support},
    limits::STREAM_AGE_MAX,
    transport::deadline::Deadline,
};
use crate::limits::Refusals;

/// A source of numbers by name.
#[derive(Clone, Default)]
struct Numbers(Arc<Mutex<World>>);

#[derive(Default)]
struct World {
    numbers: BTreeMap<String, u64>,
    refused: bool,
    behind: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct Text {
    said: String,
    token: String,
}

impl Numbers {
    fn set(&self, hub: &Hub, name: &str, number: u64) {
        self.0.lock().numbers.insert(name.to_owned(), number);
        let progress = Progress {
            kind: 0,
            version: Some(Version { number, object: &name }),
            priority: Priority::Live,
        };
        hub.record(["a"], name, None, progress);
    }

    fn remove(&self, hub: &Hub, name: &str) {
        self.0.lock().numbers.remove(name);
        let progress = Progress {
            kind: 0,
            version: None,
            priority: Priority::Live,
        };
        hub.record(["a"], name, Some(&removed(name)), progress);
    }

    fn shown(name: &str, number: u64) -> SentObject<String> {
        SentObject {
            key: name.into(),
            identity: removed(name),
            object: format!("{name}={number}"),
        }
    }
}

fn removed(name: &str) -> RemovedObject {
    RemovedObject {
        name: name.to_owned(),
        uid: format!("uid-{name}"),
    }
}

impl StreamSource for Numbers {
    type Object = String;
    type Message = Text;

    fn all(&self) -> Vec<SentObject<String>> {
        self.0
            .lock()
            .numbers
            .iter()
            .map(|(name, number)| Self::shown(name, *number))
            .collect()
    }

    fn now(&self, changed: &str) -> Vec<CurrentObject<String>> {
        let number = self.0.lock().numbers.get(changed).copied();
        vec![(changed.into(), number.map(|number| Self::shown(changed, number)))]
    }

    fn namespace(&self) -> String {
        "a".to_owned()
    }

    fn may_go_on(&self) -> Outcome<()> {
        if self.0.lock().refused {
            return Err(Failure::new(ErrorReason::CredentialRevoked, "revoked"));
        }
        Ok(())
    }

    fn is_current(&self) -> Outcome<()> {
        let failure = self.0.lock().behind.then(|| "connection refused".to_owned());
        let health = watch::Sender::new(Health {
            listed: Some(Instant::now()),
            failure,
        });
        require_followed("numbers", &health.subscribe())
    }

    fn message(event: StreamEvent<String>, token: String) -> Text {
        let said = match event {
            StreamEvent::Begin(begin) if begin.resume_refused => "begin again".to_owned(),
            StreamEvent::Begin(_) => "begin".to_owned(),
            StreamEvent::Applied(text) => text,
            StreamEvent::Removed(removed) => format!("-{}/{}", removed.name, removed.uid),
            StreamEvent::Complete(complete) => format!("complete {}", complete.object_count),
            StreamEvent::Heartbeat(_) => "heartbeat".to_owned(),
        };
        Text { said, token }
    }
}

/// How a check of a token comes out.
#[derive(Clone, Copy, Debug, Default)]
enum Mood {
    #[default]
    Good,
    Revoked,
    /// The user has another group.
    Regrouped,
    /// It never does.
    Silent,
}

/// Checks tokens, and counts how often.
#[derive(Debug, Default)]
struct Moody(Mutex<(Mood, usize)>, watch::Sender<u64>);

impl Authenticator for Moody {
    fn is_for(&self, _: &Claims) -> bool {
        true
    }

    fn precheck(&self, _: &Presented) -> Result<(), Denial> {
        Ok(())
    }

    fn check<'a>(&'a self, _: &'a Presented) -> BoxFuture<'a, Result<Verdict, CheckError>> {
        let mood = {
            let mut state = self.0.lock();
            state.1 += 1;
            state.0
        };
        Box::pin(async move {
            match mood {
                Mood::Good => Ok(Ok(alice(&[]))),
                Mood::Regrouped => Ok(Ok(alice(&["ranchers"]))),
                Mood::Revoked => Ok(Err(Denial::Invalid("revoked".into()))),
                Mood::Silent => std::future::pending().await,
            }
        })
    }

    fn generations(&self) -> Option<watch::Receiver<u64>> {
        Some(self.1.subscribe())
    }
}

/// Over when it is known, so that none is remembered and each call is a check.
fn alice(groups: &[&str]) -> Identity {
    Identity {
        username: "alice".to_owned(),
        groups: groups.iter().map(|group| (*group).to_owned()).collect(),
        expires_at: Some(Timestamp::UNIX_EPOCH),
        ..Identity::default()
    }
}

impl Moody {
    fn set(&self, mood: Mood) {
        self.0.lock().0 = mood;
    }

    fn checks(&self) -> usize {
        self.0.lock().1
    }
}

struct Stage {
    hub: Arc<Hub>,
    streams: Streams,
    stop: CancellationToken,
    source: Numbers,
    call: Call,
}

fn stage() -> Stage {
    stage_with(Authenticators::new(Vec::new()))
}

/// A stage on which the caller's token is checked now and then.
fn checked_stage() -> (Stage, Arc<Moody>) {
    let moody = Arc::new(Moody::default());
    let mut stage = stage_with(Authenticators::new(vec![Arc::<Moody>::clone(&moody)]));
    let token = tests_support::token(&serde_json::json!({"sub": "alice"}));
    stage.call = call(None, Some(token));
    (stage, moody)
}

fn stage_with(authenticators: Authenticators) -> Stage {
    let hub = Hub::new();
    hub.disable_kind(1);
    let stop = CancellationToken::new();
    let metrics = Metrics::new(&mut telemetry::registry());
    Stage {
        streams: Streams::new(authenticators, metrics, Refusals::default(), stop.clone()),
        hub,
        stop,
        source: Numbers::default(),
        call: call(None, None),
    }
}

fn call(expires_in: Option<i64>, token: Option<Presented>) -> Call {
    let caller = Caller {
        identity: Identity {
            username: "alice".to_owned(),
            expires_at: expires_in.map(|seconds| Timestamp::now() + jiff::SignedDuration::from_secs(seconds)),
            ..Identity::default()
        },
        kind: Kind::Principal,
    };
    Call::new(
        Some(Arc::new(caller)),
        token.map(Arc::new),
        Deadline::of(&HeaderMap::new()),
    )
}

impl Stage {
    fn open(&self, resume_token: &str) -> Outcome<MessageStream<Text>> {
        let request = StreamRequest {
            method: "test",
            scopes: vec!["a".to_owned()],
            filter: Filter::of(&["a"]),
            resume_token,
        };
        self.streams.open(&self.call, request, &self.hub, self.source.clone())
    }
}

/// A source of messages that are larger than all that a stream is to have while it waits.
struct Large;

impl StreamSource for Large {
    type Object = [u8; 8192];
    type Message = [u8; 8192];

    fn all(&self) -> Vec<SentObject<[u8; 8192]>> {
        Vec::new()
    }

    fn now(&self, _: &str) -> Vec<CurrentObject<[u8; 8192]>> {
        Vec::new()
    }

    fn namespace(&self) -> String {
        String::new()
    }

    fn may_go_on(&self) -> Outcome<()> {
        Ok(())
    }

    fn is_current(&self) -> Outcome<()> {
        Ok(())
    }

    fn message(_: StreamEvent<[u8; 8192]>, _: String) -> [u8; 8192] {
        [0; 8192]
    }
}

#[test]
fn a_stream_that_waits_is_small_whatever_it_carries() {
    let stage = stage();
    let request = StreamRequest {
        method: "test",
        scopes: vec!["a".to_owned()],
        filter: Filter::of(&["a"]),
        resume_token: "",
    };
    let prepared = stage.streams.prepare(&stage.call, request, &stage.hub, Large);
    let (work, _outgoing) = prepared.expect("a stream");
    let bytes = std::mem::size_of_val(&work);
    assert!(bytes < 4096, "{bytes} bytes");
}

async fn next(stream: &mut MessageStream<Text>) -> Text {
    stream.next().await.expect("a message").expect("no error")
}

async fn said(stream: &mut MessageStream<Text>, count: usize) -> Vec<String> {
    let mut said = Vec::new();
    for _ in 0..count {
        said.push(next(stream).await.said);
    }
    said
}

async fn end(stream: &mut MessageStream<Text>) -> Option<Status> {
    loop {
        match stream.next().await {
            None => return None,
            Some(Err(status)) => return Some(status),
            Some(Ok(_)) => {}
        }
    }
}

fn is_silent(stream: &mut MessageStream<Text>) -> bool {
    stream.next().now_or_never().is_none()
}

/// Lets the stream's task run until it waits.
async fn settle() {
    for _ in 0..20 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_has_no_token_before_it_is_complete() {
    let stage = stage();
    stage.source.set(&stage.hub, "x", 1);
    stage.source.set(&stage.hub, "y", 2);
    let mut stream = stage.open("").expect("a stream");
    let mut tokens = Vec::new();
    for expect in ["begin", "x=1", "y=2", "complete 2"] {
        let text = next(&mut stream).await;
        assert_eq!(text.said, expect);
        tokens.push(!text.token.is_empty());
    }
    assert_eq!(tokens, [false, false, false, true]);
    settle().await;
    assert!(is_silent(&mut stream));
}

#[tokio::test(start_paused = true)]
async fn a_burst_is_one_message_and_a_removal_names_what_is_gone() {
    let stage = stage();
    stage.source.set(&stage.hub, "x", 1);
    let mut stream = stage.open("").expect("a stream");
    said(&mut stream, 3).await;
    for number in 2..100 {
        stage.source.set(&stage.hub, "x", number);
    }
    stage.source.set(&stage.hub, "y", 100);
    assert_eq!(said(&mut stream, 2).await, ["x=99", "y=100"]);
    stage.source.remove(&stage.hub, "x");
    // Came and went unseen: the client never knew it.
    stage.source.set(&stage.hub, "z", 101);
    stage.source.remove(&stage.hub, "z");
    assert_eq!(said(&mut stream, 1).await, ["-x/uid-x"]);
    settle().await;
    assert!(is_silent(&mut stream));
}

#[tokio::test(start_paused = true)]
async fn a_token_resumes_after_what_the_client_has_seen() {
    let stage = stage();
    stage.source.set(&stage.hub, "x", 1);
    stage.source.set(&stage.hub, "y", 2);
    let mut stream = stage.open("").expect("a stream");
    said(&mut stream, 3).await;
    let token = next(&mut stream).await.token;
    drop(stream);
    stage.source.remove(&stage.hub, "x");
    stage.source.set(&stage.hub, "z", 3);
    let mut stream = stage.open(&token).expect("a stream");
    let (one, two, three) = (
        next(&mut stream).await,
        next(&mut stream).await,
        next(&mut stream).await,
    );
    assert_eq!([&one.said, &two.said, &three.said], ["-x/uid-x", "z=3", "heartbeat"]);
    // Only with the last of them is all of it seen.
    assert!(one.token.is_empty() && !two.token.is_empty());
    let mut again = stage.open(&two.token).expect("a stream");
    assert_eq!(said(&mut again, 1).await, ["heartbeat"]);
}

#[tokio::test(start_paused = true)]
async fn a_token_of_no_use_begins_again_and_a_broken_one_is_refused() {
    let stage = stage();
    let other = token::write(Filter::of(&["b"]), &Cursor::default());
    assert_eq!(
        said(&mut stage.open(&other).expect("a stream"), 2).await,
        ["begin again", "complete 0"]
    );
    let ahead = Cursor {
        versions: [1_000, 0],
        ..Cursor::default()
    };
    let ahead = token::write(Filter::of(&["a"]), &ahead);
    assert_eq!(
        said(&mut stage.open(&ahead).expect("a stream"), 2).await,
        ["begin again", "complete 0"]
    );
    let failure = stage.open("nonsense").expect_err("a refusal");
    assert_eq!(failure.reason(), ErrorReason::ResumeTokenInvalid);
}

/// What such a replica misses is not to be taken for gone.
#[tokio::test(start_paused = true)]
async fn a_replica_that_fell_behind_sends_no_snapshot() {
    let stage = stage();
    stage.source.set(&stage.hub, "x", 1);
    let mut stream = stage.open("").expect("a stream");
    said(&mut stream, 2).await;
    let token = next(&mut stream).await.token;
    drop(stream);
    stage.source.0.lock().behind = true;
    let ahead = Cursor {
        versions: [1_000, 0],
        ..Cursor::default()
    };
    for refused in ["", &token::write(Filter::of(&["a"]), &ahead)] {
        let mut stream = stage.open(refused).expect("a stream");
        let status = end(&mut stream).await.expect("an error");
        assert_eq!(status.code(), Code::Unavailable, "{status}");
    }
    // Who has seen as much as this replica may wait here for more.
    let mut stream = stage.open(&token).expect("a stream");
    assert_eq!(said(&mut stream, 1).await, ["heartbeat"]);
    drop(stream);
    stage.source.0.lock().behind = false;
    let mut stream = stage.open("").expect("a stream");
    assert_eq!(said(&mut stream, 3).await, ["begin", "x=1", "complete 1"]);
}

#[tokio::test(start_paused = true)]
async fn a_silent_stream_beats_and_is_not_for_ever() {
    let stage = stage();
    let mut stream = stage.open("").expect("a stream");
    said(&mut stream, 2).await;
    let begun = Instant::now();
    let beat = next(&mut stream).await;
    assert_eq!((beat.said.as_str(), begun.elapsed().as_secs()), ("heartbeat", 30));
    assert!(!beat.token.is_empty());
    assert!(end(&mut stream).await.is_none(), "ends well");
    let age = begun.elapsed();
    assert!(age <= STREAM_AGE_MAX && age >= STREAM_AGE_MAX.mul_f64(0.79), "{age:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_its_token_with_its_right_and_with_the_server() {
    let mut stage = stage();
    let mut stream = stage.open("").expect("a stream");
    said(&mut stream, 2).await;
    stage.source.0.lock().refused = true;
    stage.hub.wake("a");
    assert_eq!(end(&mut stream).await.expect("an error").code(), Code::Unauthenticated);
    assert_eq!(
        stage.open("").expect_err("a refusal").reason(),
        ErrorReason::CredentialRevoked
    );
    stage.source.0.lock().refused = false;

    stage.call = call(Some(60), None);
    let mut stream = stage.open("").expect("a stream");
    let begun = Instant::now();
    let status = end(&mut stream).await.expect("an error");
    assert_eq!(status.code(), Code::Unauthenticated);
    assert!(begun.elapsed() <= Duration::from_secs(61), "{:?}", begun.elapsed());

    let mut stream = stage.open("").expect("a stream");
    said(&mut stream, 2).await;
    stage.stop.cancel();
    assert!(end(&mut stream).await.is_none(), "ends well");
}

/// Reads until a check of the token is under way.
async fn until_checked(stream: &mut MessageStream<Text>, moody: &Moody) {
    let before = moody.checks();
    while moody.checks() == before {
        sleep(Duration::from_secs(1)).await;
        check_goes_on(stream);
    }
}

/// Reads what was sent so far, such as heartbeats, and fails if that is an error or the end.
fn check_goes_on(stream: &mut MessageStream<Text>) {
    while let Some(message) = stream.next().now_or_never() {
        message.expect("a message").expect("no error");
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_that_was_revoked_ends_its_stream_and_a_good_one_does_not() {
    let (stage, moody) = checked_stage();
    let mut stream = stage.open("").expect("a stream");
    until_checked(&mut stream, &moody).await;
    until_checked(&mut stream, &moody).await;
    settle().await;
    check_goes_on(&mut stream);
    moody.set(Mood::Revoked);
    assert_eq!(end(&mut stream).await.expect("an error").code(), Code::Unauthenticated);
    assert_eq!(moody.checks(), 3);
}

/// In good order, so that the client opens the next one as who it is now.
#[tokio::test(start_paused = true)]
async fn a_stream_ends_when_its_token_belongs_to_other_groups() {
    let (stage, moody) = checked_stage();
    let mut stream = stage.open("").expect("a stream");
    settle().await;
    check_goes_on(&mut stream);
    moody.set(Mood::Regrouped);
    let begun = Instant::now();
    moody.1.send_modify(|generation| *generation += 1);
    assert!(end(&mut stream).await.is_none());
    assert_eq!(begun.elapsed(), Duration::ZERO, "it waited for the next check");
}

#[tokio::test(start_paused = true)]
async fn a_check_that_came_to_nothing_is_made_again_within_seconds() {
    let (stage, moody) = checked_stage();
    moody.set(Mood::Silent);
    let mut stream = stage.open("").expect("a stream");
    until_checked(&mut stream, &moody).await;
    moody.set(Mood::Revoked);
    let begun = Instant::now();
    assert_eq!(end(&mut stream).await.expect("an error").code(), Code::Unauthenticated);
    assert_eq!(moody.checks(), 2);
    // Five seconds of silence, and ten until it is request again.
    assert!(begun.elapsed() <= Duration::from_secs(15), "{:?}", begun.elapsed());
}

/// Nobody answers, and the stream goes on meanwhile.
#[tokio::test(start_paused = true)]
async fn a_check_of_the_token_holds_nothing_up() {
    let (stage, moody) = checked_stage();
    moody.set(Mood::Silent);
    let mut stream = stage.open("").expect("a stream");
    until_checked(&mut stream, &moody).await;
    let begun = Instant::now();
    stage.source.set(&stage.hub, "x", 1);
    assert_eq!(said(&mut stream, 1).await, ["x=1"]);
    stage.source.0.lock().refused = true;
    stage.hub.wake("a");
    assert_eq!(end(&mut stream).await.expect("an error").code(), Code::Unauthenticated);
    assert_eq!((begun.elapsed(), moody.checks()), (Duration::ZERO, 1));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_read_is_let_go() {
    let stage = stage();
    for number in 0..100 {
        stage.source.set(&stage.hub, &format!("x{number}"), number);
    }
    let mut stream = stage.open("").expect("a stream");
    settle().await;
    sleep(SLOW_AFTER * 2).await;
    let status = end(&mut stream).await.expect("an error");
    assert_eq!(status.code(), Code::ResourceExhausted);
}

#[tokio::test(start_paused = true)]
async fn streams_are_counted_and_given_back() {
    let stage = stage();
    let (one, two) = (stage.open("").expect("a stream"), stage.open("").expect("a stream"));
    assert_eq!(
        stage.open("").expect_err("a refusal").reason(),
        ErrorReason::StreamLimit
    );
    drop(one);
    settle().await;
    advance(Duration::from_millis(1)).await;
    settle().await;
    assert!(stage.open("").is_ok(), "a stream that was closed counts no more");
    drop(two);
}
