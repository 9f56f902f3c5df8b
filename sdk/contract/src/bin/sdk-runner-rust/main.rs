//! The runner of the Rust SDK: does what the cases ask, and tells what comes of it.
#![expect(clippy::print_stdout, reason = "standard output is the protocol")]

mod calls;
mod errors;
mod settings;
mod typed;

use std::io::BufRead as _;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bindery_contract::{golden, proto_json};
use bindery_sdk::manifests::ManifestOptions;
use bindery_sdk::{BindRequest, Client, Error, Watch, WatchEvent};
use futures::future::join_all;
use prost::Message;
use serde::Deserialize;
use serde_json::{Map, Value, json};

/// One line of standard input.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    id: String,
    client: settings::Settings,
    action: Value,
    cancel_after_ms: Option<u64>,
    /// How many times the action is done at the same moment; once if absent.
    concurrent: Option<usize>,
}

/// What one action has led to so far.
#[derive(Default)]
struct Outcome {
    /// Fields of the line of standard output.
    fields: Map<String, Value>,
    /// The texts that the language makes for people who debug.
    shown: Vec<String>,
}

/// What ends an action.
enum Failure {
    /// An error of the SDK.
    Sdk(Box<Error>),
    /// Manifests are refused.
    Refused(String),
    /// The case asks for what this runner cannot do.
    Runner(anyhow::Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Sdk(Box::new(error))
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Runner(error)
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let (lines, mut received) = tokio::sync::mpsc::unbounded_channel();
    // Standard input is read on a thread of its own, which ends with the process.
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if lines.send(line).is_err() {
                return;
            }
        }
    });
    let mut running = tokio::task::JoinSet::new();
    while let Some(line) = received.recv().await {
        let line: Line = serde_json::from_str(&line).with_context(|| format!("no case: {line}"))?;
        running.spawn(async move {
            let answer = Box::pin(answer(line)).await;
            println!("{answer}");
        });
    }
    running.join_all().await;
    Ok(())
}

async fn answer(line: Line) -> Value {
    let mut shown = Vec::new();
    let mut fields = match line.client.build(&mut shown) {
        Err(error) => {
            shown.push(format!("{error} {error:?}"));
            Map::from_iter([("error".to_owned(), errors::config(&error))])
        }
        Ok(client) => {
            shown.push(format!("{client:?}"));
            let run = || run(&client, &line.action, line.cancel_after_ms);
            match line.concurrent {
                None => {
                    let outcome = Box::pin(run()).await;
                    shown.extend(outcome.shown);
                    outcome.fields
                }
                Some(count) => {
                    let mut results = Vec::new();
                    for outcome in join_all((0..count).map(|_| run())).await {
                        shown.extend(outcome.shown);
                        results.push(Value::Object(outcome.fields));
                    }
                    Map::from_iter([("ok".to_owned(), results.into())])
                }
            }
        }
    };
    fields.insert("id".to_owned(), line.id.into());
    fields.insert("shown".to_owned(), shown.into());
    Value::Object(fields)
}

/// Does the action once.
async fn run(client: &Client, action: &Value, cancel_after_ms: Option<u64>) -> Outcome {
    let mut outcome = Outcome::default();
    let action = Box::pin(act(client, action, &mut outcome));
    let ended = match cancel_after_ms {
        None => Some(action.await),
        Some(delay) => tokio::time::timeout(Duration::from_millis(delay), action).await.ok(),
    };
    let error = match ended {
        // The call was dropped, which is how a Rust program cancels.
        None => json!({ "kind": "cancelled", "message": "the future was dropped" }),
        Some(Ok(Value::Null)) => return outcome,
        Some(Ok(ok)) => {
            outcome.fields.insert("ok".to_owned(), ok);
            return outcome;
        }
        Some(Err(Failure::Sdk(error))) => {
            outcome.shown.push(format!("{error} {error:?}"));
            errors::to_json(&error)
        }
        Some(Err(Failure::Refused(reason))) => json!({ "kind": "refusal", "reason": reason, "message": reason }),
        Some(Err(Failure::Runner(error))) => json!({ "kind": "runner", "message": format!("{error:#}") }),
    };
    outcome.fields.insert("error".to_owned(), error);
    outcome
}

async fn act(client: &Client, action: &Value, outcome: &mut Outcome) -> Result<Value, Failure> {
    let request = action.get("request").cloned().unwrap_or_else(|| json!({}));
    let text = |key: &str| action[key].as_str();
    if let Some(method) = text("call") {
        return calls::call(client, method, &request).await;
    }
    if let Some(method) = text("list") {
        return calls::list(client, method, &request).await;
    }
    if let Some(method) = text("watch") {
        let events = action["events"].as_u64().unwrap_or(u64::MAX);
        return watch(client, method, &request, events, outcome).await;
    }
    if let Some(method) = text("typed") {
        return typed::call(client, method, &request, &mut outcome.shown).await;
    }
    if let Some(options) = action.get("bind") {
        return bind(client, options, outcome).await;
    }
    let input = serde_json::from_value(action["manifests"].clone()).context("no action of this runner")?;
    match golden::render(&input)? {
        golden::Outcome::Made { canonical, .. } => Ok(canonical.into()),
        golden::Outcome::Refused { refusal } => Err(Failure::Refused(refusal.reason)),
    }
}

async fn bind(client: &Client, options: &Value, outcome: &mut Outcome) -> Result<Value, Failure> {
    let text = |key: &str| options[key].as_str().unwrap_or_default();
    let time = |key: &str| options[key].as_u64().map(Duration::from_millis);
    let mut request = BindRequest::new(text("template"), text("identity"))
        .name(text("name"))
        .pretty_name(text("prettyName"));
    request.wait = time("waitMs");
    request.ttl_after_finished = time("ttlAfterFinishedMs");
    request.validate_only = options["validateOnly"].as_bool().unwrap_or_default();
    if let Some(patience) = time("patienceMs") {
        request = request.patience(patience);
    }
    let mut progress = 0;
    let bound = client.bind(request, |_| progress += 1).await;
    outcome.fields.insert("progress".to_owned(), progress.into());
    let bound = bound?;
    outcome.shown.push(format!("{bound:?}"));
    let manifests = bound.manifests(&ManifestOptions::default());
    outcome.shown.push(format!("{manifests:?}"));
    let mut ok = json!({
        "request": proto_json::write("BindableResourcesRequest", &bound.request)?,
        "response": proto_json::write("BindingResourceResponse", &bound.to_response())?,
    });
    // Asked for by cases about the manifests of a bind.
    if options["manifests"] == true {
        let manifests = manifests.map_err(|refusal| Failure::Refused(refusal.reason().to_owned()))?;
        ok["manifests"] = manifests.canonical().map_err(anyhow::Error::from)?.into();
    }
    Ok(ok)
}

async fn watch(
    client: &Client,
    method: &str,
    request: &Value,
    events: u64,
    outcome: &mut Outcome,
) -> Result<Value, Failure> {
    let name = format!("{method}Request");
    match method {
        "WatchExports" => {
            collect(
                client.watch_exports(proto_json::read(&name, request)?),
                "Export",
                events,
                outcome,
            )
            .await
        }
        "WatchContracts" => {
            collect(
                client.watch_contracts(proto_json::read(&name, request)?),
                "Contract",
                events,
                outcome,
            )
            .await
        }
        _ => {
            let watch = client.watch_bindable_resources_requests(proto_json::read(&name, request)?);
            collect(watch, "BindableResourcesRequest", events, outcome).await
        }
    }
}

async fn collect<T: Message + 'static>(
    mut watch: Watch<T>,
    object: &str,
    count: u64,
    outcome: &mut Outcome,
) -> Result<Value, Failure> {
    let mut events = Vec::new();
    outcome.shown.push(format!("{watch:?}"));
    let end = loop {
        if u64::try_from(events.len()).is_ok_and(|len| len >= count) {
            break Ok(Value::Null);
        }
        match watch.next().await {
            Some(Ok(event)) => {
                if let WatchEvent::Disconnected { error: Some(error), .. } = &event {
                    outcome.shown.push(format!("{error} {error:?}"));
                }
                events.push(event_json(event, object)?);
            }
            Some(Err(error)) => break Err(error.into()),
            None => break Ok(Value::Null),
        }
    };
    outcome.fields.insert("events".to_owned(), events.into());
    outcome
        .fields
        .insert("resumeToken".to_owned(), watch.resume_token().into());
    end
}

fn event_json<T: Message>(event: WatchEvent<T>, object: &str) -> Result<Value> {
    Ok(match event {
        WatchEvent::Connected { resumed } => json!({ "connected": { "resumed": resumed } }),
        WatchEvent::SnapshotBegin { refused: None } => json!({ "snapshotBegin": {} }),
        WatchEvent::SnapshotBegin { refused: Some(why) } => json!({ "snapshotBegin": { "refused": why } }),
        WatchEvent::Applied(applied) => json!({ "applied": proto_json::write(object, &applied)? }),
        WatchEvent::Removed(removed) => {
            json!({ "removed": proto_json::write("Removed", &removed)? })
        }
        WatchEvent::SnapshotComplete => json!({ "snapshotComplete": {} }),
        WatchEvent::Disconnected { error: None, .. } => json!({ "disconnected": {} }),
        WatchEvent::Disconnected { error: Some(error), .. } => {
            json!({ "disconnected": { "error": errors::to_json(&error) } })
        }
    })
}
