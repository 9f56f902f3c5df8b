use std::collections::VecDeque;

use futures::{StreamExt as _, stream};
use http::{Response, Uri};
use hyper_util::{
    client::legacy,
    rt::{TokioExecutor, TokioIo},
};
use kube::client::Body;
use parking_lot::Mutex;
use serde::Deserialize;
use tokio::{
    net::TcpStream,
    time::{Duration, Instant, sleep, timeout},
};
use tower::BoxError;

use super::{
    read::{ApiServer, Body as AnswerBody},
    watcher::is_later,
    *,
};
use crate::{
    errors,
    guard::{Guard, Limits, NameRule},
};

#[derive(Deserialize)]
struct Thing {
    metadata: ObjectName,
    /// A word. A number here makes the object unreadable.
    #[serde(default)]
    says: String,
}

struct Things;

impl Decode for Things {
    type Object = Thing;

    const COUNTS_OBJECTS: bool = true;

    fn name(thing: &Thing) -> (&str, &str) {
        (&thing.metadata.namespace, &thing.metadata.name)
    }

    fn decode(&self, json: &str) -> serde_json::Result<Thing> {
        serde_json::from_str(json)
    }
}

/// An API server that answers by a script and then with nothing. A watch lasts as long as the client asked for, unless its
/// text ends with [`CUT`] or in the middle of a line. The server records the queries.
#[derive(Clone, Default)]
struct Server {
    script: Arc<Mutex<VecDeque<(u16, String)>>>,
    queries: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn new(script: &[(u16, &str)]) -> Self {
        let script = script
            .iter()
            .map(|(status, body)| (*status, (*body).to_owned()))
            .collect();
        Self {
            script: Arc::new(Mutex::new(script)),
            ..Self::default()
        }
    }

    fn client(&self) -> Client {
        let server = self.clone();
        Client::new(
            tower::service_fn(move |request: http::Request<Body>| {
                let server = server.clone();
                async move {
                    server
                        .queries
                        .lock()
                        .push(request.uri().query().unwrap_or_default().to_owned());
                    let answer = server.script.lock().pop_front();
                    let (status, body) = match answer {
                        None | Some((SILENT, _)) => std::future::pending().await,
                        Some((ABSENT, _)) => return unreached().await,
                        Some(answer) => answer,
                    };
                    let query = request.uri().query().unwrap_or_default();
                    let asked = query.split('&').find_map(|pair| pair.strip_prefix("timeoutSeconds="));
                    let lasts = asked
                        .filter(|_| body.ends_with('\n'))
                        .map_or(0, |seconds| seconds.parse().unwrap());
                    let text = stream::iter([body.trim_end_matches(CUT).to_owned()]);
                    let end = stream::once(async move {
                        sleep(Duration::from_secs(lasts)).await;
                        String::new()
                    });
                    let body = axum::body::Body::from_stream(text.chain(end).map(Ok::<_, std::io::Error>));
                    Ok(Response::builder().status(status).body(body)?)
                }
            }),
            "default",
        )
    }

    /// The events that a handler gets in less time than the watcher waits for an answer.
    async fn told(&self) -> Vec<String> {
        self.told_within(Duration::from_secs(25)).await
    }

    /// The events that a handler gets within a time, except that the script has ended.
    async fn told_within(&self, time: Duration) -> Vec<String> {
        self.told_of(Source::path("/api/v1/things"), time).await
    }

    async fn told_of(&self, source: Source, time: Duration) -> Vec<String> {
        let told = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&told);
        let handler = move |event: Event<Thing>| {
            log.lock().push(match event {
                Event::Rewound => "rewound".to_owned(),
                Event::Reset => "reset".to_owned(),
                Event::Listed(thing) => format!("listed {} {}", thing.metadata.name, thing.says),
                Event::Unreadable(name) => format!("unreadable {}", name.name),
                Event::Complete(version) => format!("complete {version}"),
                Event::Following => "following".to_owned(),
                Event::Ended => "ended".to_owned(),
                Event::Applied(thing) => format!("applied {} {}", thing.metadata.name, thing.says),
                Event::Deleted(thing) => format!("deleted {}", thing.metadata.name),
                Event::Failed(error) => format!("failed {}", errors::explain(&error)),
            });
        };
        let watching = run(self.client(), source, Things, handler);
        // Time is paused: this passes when nothing else can happen.
        let _ = timeout(time, watching).await;
        let mut told = std::mem::take(&mut *told.lock());
        told.retain(|event| !event.contains("does not answer"));
        told
    }

    fn asked(&self, part: &str) -> Vec<bool> {
        self.queries.lock().iter().map(|query| query.contains(part)).collect()
    }
}

/// At the end of a watch's text: the server ends the watch there, long before its time.
const CUT: &str = "<cut>";
/// In place of a status code: the server does not answer.
const SILENT: u16 = 0;
/// In place of a status code: the server cannot be reached.
const ABSENT: u16 = 1;

/// The failure of a client that cannot reach its server.
async fn unreached() -> Result<Response<axum::body::Body>, BoxError> {
    let refuses = |_: Uri| std::future::ready(Err::<TokioIo<TcpStream>, _>(std::io::Error::other("refused")));
    let client: legacy::Client<_, Body> =
        legacy::Client::builder(TokioExecutor::new()).build(tower::service_fn(refuses));
    let answer = client
        .request(http::Request::get("http://nobody").body(Body::empty())?)
        .await?;
    Ok(answer.map(axum::body::Body::new))
}

const LIST: &str =
    r#"{"metadata":{"resourceVersion":"5"},"items":[{"metadata":{"name":"a","resourceVersion":"3"},"says":"x"}]}"#;

fn event(kind: &str, name: &str, version: u32) -> String {
    format!(
        r#"{{"type":"{kind}","object":{{"metadata":{{"name":"{name}","resourceVersion":"{version}"}},"says":"y"}}}}"#
    ) + "\n"
}

#[tokio::test(start_paused = true)]
async fn what_is_listed_as_a_whole_is_one_list_and_changes_follow() {
    let list = r#"{"items":[{"metadata":{"name":"a"},"says":"x"},{"metadata":{"name":"b"},"says":1}],"metadata":{"resourceVersion":"5"}}"#;
    let server = Server::new(&[(200, list), (200, &event("DELETED", "a", 7))]);
    let expect = [
        "reset",
        "listed a x",
        "unreadable b",
        "complete 5",
        "following",
        "deleted a",
    ];
    assert_eq!(server.told().await, expect);
    assert_eq!(server.asked("limit=0")[..2], [true, false]);
}

/// An API server, or a proxy before it, that cannot answer for all objects at once can for a part.
#[tokio::test(start_paused = true)]
async fn what_is_not_answered_as_a_whole_is_asked_for_in_pages() {
    for (failure, is_whole_again) in [
        (504, false),
        (500, false),
        (429, false),
        (413, false),
        (SILENT, false),
        (ABSENT, true),
    ] {
        let server = Server::new(&[(failure, "{}"), (200, LIST)]);
        let told = server.told_within(Duration::from_secs(50)).await;
        assert_eq!(
            told[told.len() - 3..],
            ["reset", "listed a x", "complete 5"],
            "{failure}: {told:?}"
        );
        assert_eq!(server.asked("limit=0")[..2], [true, is_whole_again], "{failure}");
        assert_eq!(server.asked("limit=500")[..2], [false, !is_whole_again], "{failure}");
    }
}

/// An object whose name cannot be read would otherwise count as gone.
#[tokio::test(start_paused = true)]
async fn a_list_with_an_object_that_has_no_name_says_nothing() {
    let list = r#"{"items":[{"metadata":{"name":"a"},"says":"x"},{"says":1}],"metadata":{"resourceVersion":"5"}}"#;
    let server = Server::new(&[(200, list), (200, list), (200, LIST)]);
    let told = server.told().await;
    assert_eq!(told[..2], ["reset", "listed a x"], "{told:?}");
    assert!(told[2].contains("no name"), "{told:?}");
    assert_eq!(told[3..5], ["reset", "listed a x"], "{told:?}");
    assert!(told[5].contains("no name"), "{told:?}");
    assert_eq!(told[6..], ["reset", "listed a x", "complete 5"], "{told:?}");
}

#[tokio::test(start_paused = true)]
async fn names_that_lead_elsewhere_are_skipped_in_lists_and_changes() {
    let list = r#"{"items":[{"metadata":{"name":"team1/otherresources/x?y="},"says":"x"},{"metadata":{"name":"../b"},"says":1},
        {"metadata":{"name":"a"},"says":"x"}],"metadata":{"resourceVersion":"5"}}"#;
    let changes = event("ADDED", "c%2fd", 6) + &event("ADDED", "c", 7) + &event("DELETED", "c%2fd", 8);
    let server = Server::new(&[(200, list), (200, &changes)]);
    let guard = Guard::unlimited();
    let source = Source::path("/api/v1/things").guarded(&guard, NameRule::Object);
    let told = server.told_of(source, Duration::from_secs(25)).await;
    assert_eq!(told, ["reset", "listed a x", "complete 5", "following", "applied c y"]);
}

/// Each page promises more.
#[tokio::test(start_paused = true)]
async fn a_list_without_end_is_read_up_to_the_limit_and_not_again_at_once() {
    let torn = r#"{"items":[{"metadata":{"name":"a"},"says":"x"},{"metadata":"#;
    let page = |at: u32| {
        let items: Vec<_> = (0..2)
            .map(|item| format!(r#"{{"metadata":{{"name":"a{at}-{item}"}},"says":"x"}}"#))
            .collect();
        format!(
            r#"{{"metadata":{{"resourceVersion":"5","continue":"more"}},"items":[{}]}}"#,
            items.join(",")
        )
    };
    let pages: Vec<_> = (0..50).map(page).collect();
    let script: Vec<_> = std::iter::once(torn)
        .chain(pages.iter().map(String::as_str))
        .map(|page| (200, page))
        .collect();
    let server = Server::new(&script);
    let guard = Guard::new(Limits {
        objects: 5,
        bytes: 1 << 20,
    });
    let faults = guard.faults();
    let source = Source::path("/api/v1/things").guarded(&guard, NameRule::Object);
    let told = server.told_of(source, Duration::from_secs(8)).await;
    assert_eq!(
        told.iter().filter(|event| event.starts_with("listed a")).count(),
        1 + 5,
        "{told:?}"
    );
    assert!(!told.iter().any(|event| event.starts_with("complete")), "{told:?}");
    assert!(told.last().unwrap().contains("limits of the konnector"), "{told:?}");
    assert_eq!(server.queries.lock().len(), 1 + 3);
    assert!(faults.borrow().is_within_limits(), "the watch was dropped");
}

#[tokio::test(start_paused = true)]
async fn pages_are_one_list_and_changes_follow() {
    let torn = r#"{"items":[{"metadata":{"name":"a"},"says":"x"},{"metadata":"#;
    let first =
        r#"{"metadata":{"resourceVersion":"5","continue":"more"},"items":[{"metadata":{"name":"a"},"says":"x"}]}"#;
    let second = r#"{"metadata":{"resourceVersion":"5"},"items":[{"metadata":{"name":"b"},"says":1}]}"#;
    let changes = event("ADDED", "c", 6) + &event("DELETED", "a", 7) + &event("BOOKMARK", "", 9);
    let server = Server::new(&[(200, torn), (200, first), (200, second), (200, &changes)]);
    let expect = [
        "reset",
        "listed a x",
        "unreadable b",
        "complete 5",
        "following",
        "applied c y",
        "deleted a",
        "ended",
    ];
    let told = server.told_within(Duration::from_mins(5)).await;
    assert_eq!(told[..2], ["reset", "listed a x"], "{told:?}");
    assert!(told[2].starts_with("failed"), "{told:?}");
    assert_eq!(told[3..], expect, "{told:?}");
    assert_eq!(server.asked("limit=500")[..4], [false, true, true, false]);
    assert_eq!(server.asked("continue=more")[..4], [false, false, true, false]);
    assert!(
        server.queries.lock()[4].contains("resourceVersion=9"),
        "goes on from the bookmark"
    );
}

#[tokio::test(start_paused = true)]
async fn what_the_api_server_has_forgotten_is_listed_anew() {
    let gone = r#"{"type":"ERROR","object":{"kind":"Status","status":"Failure","code":410,"reason":"Expired","message":"too old"}}"#;
    let server = Server::new(&[(200, LIST), (200, &format!("{gone}\n")), (200, LIST)]);
    let expect = [
        "reset",
        "listed a x",
        "complete 5",
        "following",
        "ended",
        "reset",
        "listed a x",
        "complete 5",
    ];
    assert_eq!(server.told().await, expect);
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_is_ended_early_is_no_ground_to_go_on_from() {
    // Pruned by the old schema, an object lacks fields of the new one, and no later event brings them.
    let richer = LIST.replace(r#""says":"x""#, r#""says":"xyz""#).replace('5', "7");
    let cut = event("MODIFIED", "a", 6) + CUT;
    let server = Server::new(&[(200, LIST), (200, &cut), (200, &richer), (200, CUT), (200, &richer)]);
    let expect = [
        "reset",
        "listed a x",
        "complete 5",
        "following",
        "applied a y",
        "ended",
        "reset",
        "listed a xyz",
        "complete 7",
        "following",
        "ended",
        "reset",
        "listed a xyz",
        "complete 7",
    ];
    let begun = Instant::now();
    assert_eq!(server.told().await, expect);
    assert!(
        begun.elapsed() > Duration::from_millis(1500),
        "lists in a row are spaced"
    );
    assert_eq!(server.asked("watch=1"), [false, true, false, true, false, true]);
}

#[tokio::test(start_paused = true)]
async fn a_position_that_fails_again_and_again_is_given_up() {
    let server = Server::new(&[
        (200, LIST),
        (500, "{}"),
        (200, LIST),
        (500, "{}"),
        (200, LIST),
        (500, "{}"),
        (200, LIST),
        (500, "{}"),
        (200, LIST),
    ]);
    let told = server.told().await;
    assert_eq!(told.iter().filter(|event| *event == "reset").count(), 2, "{told:?}");
    assert_eq!(
        server.asked("watch=1"),
        [false, true, false, true, false, true, false, true, false, true]
    );
    assert_eq!(
        server.asked("limit=1"),
        [false, false, true, false, true, false, true, false, false, false]
    );
}

#[tokio::test(start_paused = true)]
async fn a_break_after_changes_resumes_where_it_was() {
    let torn = event("ADDED", "b", 8) + r#"{"type":"ADDED","obj"#;
    let later = LIST.replace('5', "9");
    let server = Server::new(&[(200, LIST), (200, &torn), (200, &later), (200, "")]);
    let expect = [
        "reset",
        "listed a x",
        "complete 5",
        "following",
        "applied b y",
        "ended",
        "following",
    ];
    assert_eq!(server.told().await[..7], expect);
    assert!(server.queries.lock()[2].contains("limit=1"));
    assert!(server.queries.lock()[3].contains("resourceVersion=8"));
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_went_back_in_time_is_listed_anew() {
    let torn = event("ADDED", "b", 8) + r#"{"type":"ADDED","obj"#;
    let server = Server::new(&[(200, LIST), (200, &torn), (200, LIST), (200, LIST)]);
    let expect = [
        "reset",
        "listed a x",
        "complete 5",
        "following",
        "applied b y",
        "ended",
        "rewound",
        "reset",
        "listed a x",
        "complete 5",
    ];
    assert_eq!(server.told().await, expect);
    assert!(server.queries.lock()[4].contains("resourceVersion=5"));
}

/// The API server ended its watches in good order, and came back as it was before.
#[tokio::test(start_paused = true)]
async fn a_list_that_is_older_than_what_was_told_is_the_truth() {
    let cut = event("MODIFIED", "a", 6) + CUT;
    let server = Server::new(&[(200, LIST), (200, &cut), (500, "{}"), (200, LIST)]);
    let told = server.told().await;
    let after: Vec<_> = told.iter().skip_while(|event| *event != "rewound").collect();
    assert_eq!(after, ["rewound", "reset", "listed a x", "complete 5"], "{told:?}");
}

/// A watch that expires each time is not requested without a pause.
#[tokio::test(start_paused = true)]
async fn lists_that_cannot_be_gone_on_from_are_spaced() {
    let gone = (
        410,
        r#"{"kind":"Status","status":"Failure","code":410,"reason":"Expired"}"#,
    );
    let script: Vec<_> = std::iter::repeat_n([(200, LIST), gone], 12).flatten().collect();
    let server = Server::new(&script);
    let begun = Instant::now();
    server.told_within(Duration::from_secs(10)).await;
    let asked = server.queries.lock().len();
    assert!(asked < 24, "{asked} requests in {:?}", begun.elapsed());
}

#[test]
fn versions_are_compared_as_numbers() {
    assert!(is_later("10", "9") && !is_later("9", "10") && !is_later("9", "9"));
    assert!(!is_later("9", "x") && !is_later("x", "9"));
}

/// An API server that answers in the order of a script. A watch ends when its text does.
struct Script(Mutex<VecDeque<Result<&'static str, u16>>>);

impl ApiServer for Script {
    async fn get(&self, _: http::Request<Vec<u8>>) -> Result<AnswerBody, kube::Error> {
        match self.0.lock().pop_front().expect("an answer in the script") {
            Ok(text) => Ok(Box::pin(text.as_bytes())),
            Err(code) => Err(kube::Error::Api(
                kube::core::Status::failure("", "").with_code(code).boxed(),
            )),
        }
    }
}

/// Steps from a state through a script; compares the states after each step, and the whole time in milliseconds.
async fn check_steps(first: State, script: &[Result<&'static str, u16>], expect: &[&str], time: std::ops::Range<u128>) {
    let api = Script(Mutex::new(script.iter().copied().collect()));
    let mut watcher = Watcher::new(api, Source::path("/api/v1/things"), Things, |_| {});
    let (mut state, begun, mut reached) = (first, Instant::now(), Vec::new());
    for _ in expect {
        state = watcher.step(state).await;
        reached.push(match &state {
            State::Listing => "listing".to_owned(),
            State::Checking(version) => format!("checking {version}"),
            State::Starting(version) => format!("starting {version}"),
            State::Watching(_) => "watching".to_owned(),
        });
    }
    assert_eq!(reached, expect);
    let took = begun.elapsed().as_millis();
    assert!(time.contains(&took), "{reached:?} took {took} ms");
}

#[tokio::test(start_paused = true)]
async fn each_answer_leads_to_one_state() {
    const BOOKMARK: &str = "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"9\"}}}\n";
    const TORN: &str = "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"resourceVersion\":\"9\"}}}\n{\"type\"";
    const GONE: &str = "{\"type\":\"ERROR\",\"object\":{\"kind\":\"Status\",\"status\":\"Failure\",\"code\":410,\"reason\":\"Expired\"}}\n";
    let at = |version: &str| version.to_owned();
    // A list leads to a watch; one that is refused is tried again after a pause.
    check_steps(State::Listing, &[Ok(LIST)], &["starting 5"], 0..1).await;
    check_steps(
        State::Listing,
        &[Err(500), Ok(LIST)],
        &["listing", "starting 5"],
        1..60_000,
    )
    .await;
    // An API server that could not be reached is asked whether it knows the version.
    check_steps(State::Checking(at("5")), &[Ok(LIST)], &["starting 5"], 0..1).await;
    check_steps(State::Checking(at("6")), &[Ok(LIST)], &["listing"], 0..1).await;
    check_steps(State::Checking(at("6")), &[Err(410)], &["listing"], 1..60_000).await;
    // After several refusals in a row, the watcher lists anew.
    let refused = ["checking 5", "checking 5", "checking 5", "listing"];
    check_steps(State::Starting(at("5")), &[Err(500); 4], &refused, 1..60_000).await;
    // Events are read one by one. In good order but early, the end means a new list; amid an event, a broken connection.
    check_steps(
        State::Starting(at("5")),
        &[Ok(BOOKMARK)],
        &["watching", "watching", "listing"],
        1..60_000,
    )
    .await;
    check_steps(
        State::Starting(at("5")),
        &[Ok(TORN)],
        &["watching", "watching", "checking 9"],
        0..1,
    )
    .await;
    check_steps(
        State::Starting(at("5")),
        &[Ok(GONE)],
        &["watching", "listing"],
        1..60_000,
    )
    .await;
}
