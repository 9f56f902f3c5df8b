//! The runner of the Rust SDK: does what the cases ask, and tells what comes of it.
#![expect(clippy::print_stdout, reason = "standard output is the protocol")]

mod calls;
mod errors;
mod settings;

use std::io::BufRead as _;
use std::time::Duration;

use anyhow::{Context as _, Result};
use bindery_contract::{golden, proto_json};
use bindery_proto::v1alpha2::{CreateBindableResourcesRequestRequest, Removed};
use bindery_sdk::{Client, Error, Watch, WatchEvent, bind_request};
use futures::{Stream, StreamExt as _};
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
}

/// What an action leads to, besides its error: fields of the line of standard output.
type Fields = Map<String, Value>;

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
    let mut fields = Fields::new();
    let mut shown = Vec::new();
    let outcome = match line.client.build(&mut shown) {
        Err(error) => Err(Failure::Runner(error)),
        Ok(client) => {
            shown.push(format!("{client:?}"));
            let action = Box::pin(act(&client, &line.action, &mut fields));
            match line.cancel_after_ms {
                None => action.await,
                Some(delay) => {
                    if let Ok(outcome) = tokio::time::timeout(Duration::from_millis(delay), action).await {
                        outcome
                    } else {
                        // The call was dropped, which is how a Rust program cancels.
                        let cancelled = json!({ "kind": "cancelled", "message": "the future was dropped" });
                        fields.insert("error".to_owned(), cancelled);
                        Ok(Value::Null)
                    }
                }
            }
        }
    };
    match outcome {
        Ok(Value::Null) => {}
        Ok(ok) => {
            fields.insert("ok".to_owned(), ok);
        }
        Err(failure) => {
            let error = match failure {
                Failure::Sdk(error) => {
                    shown.push(format!("{error} {error:?}"));
                    errors::to_json(&error)
                }
                Failure::Refused(reason) => json!({ "kind": "refusal", "reason": reason, "message": reason }),
                Failure::Runner(error) => json!({ "kind": "runner", "message": format!("{error:#}") }),
            };
            fields.insert("error".to_owned(), error);
        }
    }
    fields.insert("id".to_owned(), line.id.into());
    fields.insert("shown".to_owned(), shown.into());
    Value::Object(fields)
}

async fn act(client: &Client, action: &Value, fields: &mut Fields) -> Result<Value, Failure> {
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
        return watch(client, method, &request, events, fields).await;
    }
    if let Some(wish) = action.get("bind") {
        return bind(client, wish, fields).await;
    }
    let input = serde_json::from_value(action["manifests"].clone()).context("no action of this runner")?;
    match golden::render(&input)? {
        golden::Outcome::Made { canonical, .. } => Ok(canonical.into()),
        golden::Outcome::Refused { refusal } => Err(Failure::Refused(refusal.reason)),
    }
}

async fn bind(client: &Client, wish: &Value, fields: &mut Fields) -> Result<Value, Failure> {
    let text = |key: &str| wish[key].as_str().unwrap_or_default();
    let mut request: CreateBindableResourcesRequestRequest = bind_request(text("template"), text("identity"));
    if let Some(name) = wish["name"].as_str()
        && let Some(metadata) = request
            .bindable_resources_request
            .as_mut()
            .and_then(|it| it.metadata.as_mut())
    {
        name.clone_into(&mut metadata.name);
    }
    if let Some(wait) = wish["waitMs"].as_u64() {
        request.wait = prost_types::Duration::try_from(Duration::from_millis(wait)).ok();
    }
    request.validate_only = wish["validateOnly"].as_bool().unwrap_or_default();
    let patience = Duration::from_millis(wish["patienceMs"].as_u64().unwrap_or(300_000));
    let mut progress = 0;
    let bound = client.bind(request, patience, |_| progress += 1).await;
    fields.insert("progress".to_owned(), progress.into());
    let bound = bound?;
    Ok(json!({
        "request": proto_json::write("BindableResourcesRequest", &bound.request)?,
        "response": proto_json::write("BindingResourceResponse", &bound.response)?,
    }))
}

async fn watch(
    client: &Client,
    method: &str,
    request: &Value,
    events: u64,
    fields: &mut Fields,
) -> Result<Value, Failure> {
    let name = format!("{method}Request");
    match method {
        "WatchExports" => {
            collect(
                client.watch_exports(proto_json::read(&name, request)?),
                "Export",
                events,
                fields,
            )
            .await
        }
        "WatchContracts" => {
            collect(
                client.watch_contracts(proto_json::read(&name, request)?),
                "Contract",
                events,
                fields,
            )
            .await
        }
        _ => {
            let watch = client.watch_bindable_resources_requests(proto_json::read(&name, request)?);
            collect(watch, "BindableResourcesRequest", events, fields).await
        }
    }
}

async fn collect<T>(mut watch: Watch<T>, object: &str, count: u64, fields: &mut Fields) -> Result<Value, Failure>
where
    Watch<T>: Stream<Item = Result<WatchEvent<T>, Error>> + Unpin,
    T: Message + Send + 'static,
{
    let mut events = Vec::new();
    let outcome = loop {
        if u64::try_from(events.len()).is_ok_and(|len| len >= count) {
            break Ok(Value::Null);
        }
        match watch.next().await {
            Some(Ok(event)) => events.push(event_json(event, object)?),
            Some(Err(error)) => break Err(error.into()),
            None => break Ok(Value::Null),
        }
    };
    fields.insert("events".to_owned(), events.into());
    fields.insert("resumeToken".to_owned(), watch.resume_token().into());
    outcome
}

fn event_json<T: Message>(event: WatchEvent<T>, object: &str) -> Result<Value> {
    Ok(match event {
        WatchEvent::Connected { resumed } => json!({ "connected": { "resumed": resumed } }),
        WatchEvent::SnapshotBegin { refused: None } => json!({ "snapshotBegin": {} }),
        WatchEvent::SnapshotBegin { refused: Some(why) } => json!({ "snapshotBegin": { "refused": why } }),
        WatchEvent::Applied(applied) => json!({ "applied": proto_json::write(object, &applied)? }),
        WatchEvent::Removed(removed) => {
            let removed: Removed = removed;
            json!({ "removed": proto_json::write("Removed", &removed)? })
        }
        WatchEvent::SnapshotComplete => json!({ "snapshotComplete": {} }),
        WatchEvent::Disconnected { error: None, .. } => json!({ "disconnected": {} }),
        WatchEvent::Disconnected { error: Some(error), .. } => {
            json!({ "disconnected": { "error": errors::to_json(&error) } })
        }
    })
}
