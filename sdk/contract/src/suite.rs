//! Runs all cases with a runner.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Instant;

use anyhow::Result;
use futures::{StreamExt as _, stream};
use serde_json::{Value, json};

use crate::case::{Case, Token};
use crate::judge;
use crate::large;
use crate::runner::Runner;
use crate::script::Tls;
use crate::server::{Certificates, Server};

/// Number of cases of one runner that run at the same time: few, for their times are judged, and all runners work at once.
const AT_ONCE: usize = 4;

/// The most timed cases of one runner that are judged by a second run. If more of them fail, the client is at fault, not the machine.
const DISTURBED_MAX: usize = 4;

/// What came of one case.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The name of the case.
    pub case: String,
    /// What is wrong; empty if the case passed.
    pub faults: Vec<String>,
    /// What was wrong while other cases ran, if the case was judged by a run alone.
    pub disturbed: Vec<String>,
    /// The client's answer, for reports.
    pub answer: Value,
    /// The calls that the server saw, for reports.
    pub seen: Vec<Value>,
}

/// Runs cases, many at the same time. Files of tokens stand in `folder`.
pub async fn run(runner: &Runner, cases: &[Case], folder: &Path) -> Result<Vec<Verdict>> {
    let certificates = Certificates::make()?;
    // The first call of a program loads what later ones only use. What comes of it is judged by the first case.
    if let Some(case) = cases.first() {
        one(runner, case, &certificates, folder).await;
    }
    // Those that take longest begin first.
    let mut cases: Vec<_> = cases.iter().collect();
    let order = cases.clone();
    cases.sort_by_key(|case| std::cmp::Reverse(case.cancel_after_ms));
    let run = |case| one(runner, case, &certificates, folder);
    let mut verdicts: Vec<_> = stream::iter(cases).map(run).buffer_unordered(AT_ONCE).collect().await;
    let place = |verdict: &Verdict| order.iter().position(|case| case.name == verdict.case);
    verdicts.sort_by_key(place);
    Ok(verdicts)
}

/// Runs each timed case that failed again, alone, and judges it by that run: where a dozen cases and other programs share two cores, a
/// client's deadline of some hundred milliseconds may pass before its program gets to run. A case that sets no time is judged once.
pub async fn judge_timed_alone(runner: &Runner, cases: &[Case], verdicts: &mut [Verdict], folder: &Path) -> Result<()> {
    let is_timed = |name: &str| cases.iter().find(|case| case.name == name && case.is_timed());
    let mut failed: Vec<_> = verdicts
        .iter_mut()
        .filter(|verdict| !verdict.faults.is_empty())
        .filter_map(|verdict| is_timed(&verdict.case).map(|case| (case, verdict)))
        .collect();
    if failed.len() > DISTURBED_MAX {
        return Ok(());
    }
    let certificates = Certificates::make()?;
    for (case, verdict) in &mut failed {
        let mut second = one(runner, case, &certificates, folder).await;
        second.disturbed = std::mem::take(&mut verdict.faults);
        **verdict = second;
    }
    Ok(())
}

async fn one(runner: &Runner, case: &Case, certificates: &Certificates, folder: &Path) -> Verdict {
    let (faults, answer, seen) = match attempt(runner, case, certificates, folder).await {
        Ok(outcome) => outcome,
        Err(error) => (vec![format!("{error:#}")], Value::Null, Vec::new()),
    };
    Verdict {
        case: case.name.clone(),
        faults,
        disturbed: Vec::new(),
        answer,
        seen,
    }
}

async fn attempt(
    runner: &Runner,
    case: &Case,
    certificates: &Certificates,
    folder: &Path,
) -> Result<(Vec<String>, Value, Vec<Value>)> {
    let token_file = folder.join(format!("{}-{}.token", runner.language, case.name));
    let server = Server::start(&case.server, certificates, token_file.clone())?;
    let mut client = json!({ "address": server.url(case.server.tls) });
    if case.server.tls == Tls::Plaintext {
        client["allowPlaintext"] = true.into();
    } else {
        client["caPem"] = certificates.ca_pem().into();
    }
    client["token"] = token(&case.token, &token_file)?;
    let defaults: Value = serde_json::from_str(Case::CLIENT)?;
    for settings in [&defaults, &case.client] {
        for (key, value) in settings.as_object().into_iter().flatten() {
            client[key] = value.clone();
        }
    }
    // Null takes back a default.
    if let Some(client) = client.as_object_mut() {
        client.retain(|key, value| !value.is_null() || key == "token");
    }
    if client["caFile"] == "@ca" {
        let path = token_file.with_extension("pem");
        std::fs::write(&path, certificates.ca_pem())?;
        client["caFile"] = path.to_string_lossy().into();
    }
    if client["caPem"] == "@bundle" {
        client["caPem"] = certificates.bundle().into();
    }
    if client["address"] == "@http" {
        client["address"] = server.url(Tls::Plaintext).into();
    }
    let mut document = json!({ "id": case.name, "client": client, "action": large::value(&case.action) });
    if let Some(delay) = case.cancel_after_ms {
        document["cancelAfterMs"] = delay.into();
    }
    if let Some(number) = case.concurrent {
        document["concurrent"] = number.into();
    }
    let start = Instant::now();
    let answer = runner.ask(&case.name, &document).await?;
    let took = u64::try_from(start.elapsed().as_millis())?;
    if case.expect.seen.iter().any(|seen| !seen.reset.is_empty()) {
        settle(&server, case).await;
    }
    let faults = judge::faults(case, &runner.language, &answer, &server, took);
    Ok((
        faults,
        answer,
        server.seen().iter().map(crate::server::Seen::report).collect(),
    ))
}

/// Waits until the server has seen what the client did last, for a second at most.
async fn settle(server: &Server, case: &Case) {
    let wanted = case.expect.seen.iter().filter(|seen| !seen.reset.is_empty()).count();
    for _ in 0..100 {
        if server.seen().iter().filter(|seen| seen.reset.is_some()).count() >= wanted {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
}

fn token(token: &Token, file: &Path) -> Result<Value> {
    Ok(match token {
        Token::Default => json!({ "static": Case::TOKEN }),
        Token::None => Value::Null,
        Token::Static(token) => json!({ "static": large::text(token) }),
        Token::FileMissing => json!({ "file": file }),
        Token::File(content) => {
            std::fs::write(file, content)?;
            json!({ "file": file })
        }
        Token::Exec(script) => json!({ "exec": program(script, file)? }),
        Token::ExecLimited { script, timeout_ms } => json!({ "exec": program(script, file)?, "timeoutMs": timeout_ms }),
        Token::Function(name) => json!({ "function": name }),
    })
}

/// The command line of a script, which finds a file of its own in `$file`.
fn program(script: &str, file: &Path) -> Result<Value> {
    let program = file.with_extension("sh");
    std::fs::write(&program, format!("#!/bin/sh\nfile={}\n{script}\n", file.display()))?;
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o700))?;
    Ok(json!(["/bin/sh", program]))
}
