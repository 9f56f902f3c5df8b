//! A client id that Bindery shares with the provider's API server.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path, process::Command, time::Duration};

use anyhow::{Context as _, Result, bail, ensure};
use bindery_e2e::{
    browser::{Browser, Consent},
    eventually_ok,
    issuers::{CLIENT, Issuer, IssuerMake, IssuerUser, OTHER_CLIENT},
};
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::world::{SOON, World};

/// How long a person may take to answer.
const PERSON_LIMIT: Duration = Duration::from_mins(1);

/// A token for Bindery's client is tried on the provider's API server, and accepted there only if both have one client id. Only the login
/// at a server that the user names is tried: the kubeconfig of a binding could name the server of another provider.
pub(crate) async fn shared_client_id(world: &World) -> Result<()> {
    let jane = IssuerUser::new("jane", &[]);
    let issuer = Issuer::start(IssuerMake::Zitadel, std::slice::from_ref(&jane)).await?;
    let token = id_token(&issuer, &jane).await?;
    let folder = tempfile::tempdir()?;
    let backend = world.bound.provider.address();
    let without = finding(world, folder.path()).await?;
    ensure!(without["outcome"] == "Skipped", "{without}");
    store(folder.path(), &backend, &issuer, &token)?;
    let unnamed = finding_of(world, check_in(world, folder.path())?).await?;
    let says = unnamed["message"].as_str().context("a message")?;
    ensure!(
        unnamed["outcome"] == "Skipped" && says.contains("--server"),
        "{unnamed}"
    );

    let plane = &world.bound.provider.plane;
    // An API server that knows no issuer, one that accepts another client, and one that accepts Bindery's.
    for trusted in [None, Some((&issuer, OTHER_CLIENT))] {
        plane.trust_issuer(trusted).await?;
        eventually_ok("the token to be refused", SOON, async || {
            let found = finding(world, folder.path()).await?;
            ensure!(found["outcome"] == "Passed", "{found}");
            Ok(())
        })
        .await?;
    }
    plane.trust_issuer(Some((&issuer, CLIENT))).await?;
    eventually_ok("the token to be accepted", SOON, async || {
        let found = finding(world, folder.path()).await?;
        ensure!(found["outcome"] == "Warning", "{found}");
        let text = format!("{} {}", found["message"], found["mend"]);
        for says in [
            backend.as_str(),
            "as user oidc:",
            issuer.url().as_str(),
            "--oidc-client-id",
        ] {
            ensure!(text.contains(says), "{says:?} is missing in:\n{text}");
        }
        Ok(())
    })
    .await?;
    // With all that the command logs.
    let mut loud = command(world, folder.path())?;
    loud.arg("-vv");
    let ended = world.run(loud).await?;
    let signature = token.rsplit('.').next().context("a signature")?;
    for output in [&ended.stdout, &ended.stderr] {
        ensure!(!output.contains(signature), "the token is in the output");
    }
    ensure!(
        ended.stdout.contains("WARN the provider's API server"),
        "{}",
        ended.stdout
    );
    plane.trust_issuer(None).await?;
    world.all_is_well().await
}

/// The command with the logins of a folder.
fn check_in(world: &World, folder: &Path) -> Result<Command> {
    let mut command = world.check_command()?;
    command.env("BINDERY_CONFIG", folder);
    Ok(command)
}

/// The command with the logins of a folder and the name of the provider's server.
fn command(world: &World, folder: &Path) -> Result<Command> {
    let mut command = check_in(world, folder)?;
    command.arg("--server").arg(world.bound.provider.address());
    Ok(command)
}

/// What `login-token` finds about the login at the provider's server.
async fn finding(world: &World, folder: &Path) -> Result<Value> {
    finding_of(world, command(world, folder)?).await
}

/// What `login-token` finds.
async fn finding_of(world: &World, mut command: Command) -> Result<Value> {
    command.args(["-o", "json"]);
    let ended = world.run(command).await?;
    let all: Value = serde_json::from_str(&ended.stdout).with_context(|| ended.stderr.clone())?;
    let findings = all["findings"].as_array().context("findings")?;
    let found: Vec<_> = findings
        .iter()
        .filter(|found| found["check"] == "login-token")
        .collect();
    let [only] = found.as_slice() else {
        bail!("{} findings: {}", found.len(), ended.stdout);
    };
    Ok((*only).clone())
}

/// Logs a person in with the device flow.
async fn id_token(issuer: &Issuer, user: &IssuerUser) -> Result<String> {
    let endpoint = issuer.endpoint("device_authorization_endpoint")?;
    let fields = [("client_id", CLIENT), ("scope", "openid profile email groups")];
    let device: Value = issuer.https().post_form(&endpoint, &fields).await?.success()?.json()?;
    let code = device["device_code"].as_str().context("a device code")?;
    let url = device["verification_uri_complete"].as_str().context("an address")?;
    let browser = Browser::start(&[issuer.identity()]).await?;
    browser.page().await?.sign_in(url, user, Consent::Allow).await?;
    let interval = Duration::from_secs(device["interval"].as_u64().unwrap_or(5));
    let fields = [
        ("grant_type", "urn:ietf:params:oauth:grant-type:device_code"),
        ("client_id", CLIENT),
        ("device_code", code),
    ];
    let deadline = Instant::now() + PERSON_LIMIT;
    loop {
        let answer = issuer
            .https()
            .post_form(&issuer.endpoint("token_endpoint")?, &fields)
            .await?;
        let is_success = answer.status.is_success();
        let answer: Value = answer.json()?;
        match answer["id_token"].as_str() {
            Some(token) if is_success => return Ok(token.to_owned()),
            _ => ensure!(Instant::now() < deadline, "no token: {}", answer["error"]),
        }
        // The protocol demands the pause.
        sleep(interval).await;
    }
}

/// Keeps a login as `kubectl bind login` does.
fn store(folder: &Path, backend: &str, issuer: &Issuer, token: &str) -> Result<()> {
    let pin = json!({"url": issuer.url(), "clientId": CLIENT});
    let servers = json!({"current": backend, "servers": [{"address": backend, "issuer": pin}]});
    fs::write(folder.join("servers.yaml"), servers.to_string())?;
    let tokens = folder.join("tokens");
    fs::create_dir(&tokens)?;
    fs::set_permissions(&tokens, fs::Permissions::from_mode(0o700))?;
    let expires = Timestamp::now() + Duration::from_hours(1);
    let (scheme, place) = backend.split_once("://").context("a scheme")?;
    let (host, port) = place.split_once(':').context("a port")?;
    let file = tokens.join(format!("{scheme}_{host}_{port}.json"));
    let content = json!({
        "server": backend, "issuer": issuer.url(), "clientId": CLIENT, "subject": "jane",
        "expiresAt": expires.to_string(), "refreshAt": expires.to_string(), "idToken": token,
    });
    fs::write(&file, content.to_string())?;
    Ok(fs::set_permissions(&file, fs::Permissions::from_mode(0o600))?)
}
