//! The control planes themselves: what the other suites stand on.
#![expect(clippy::print_stderr, reason = "how long a start takes is of interest")]

use std::{
    env,
    io::{BufRead, BufReader},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use bindery_e2e::{
    ControlPlane, Liar, Lie, Process, ServiceAccountClaims, eventually, eventually_ok, process::Signal,
    remains::COLLECTED,
};
use k8s_openapi::api::{
    authentication::v1::{TokenReview, TokenReviewSpec, TokenReviewStatus},
    core::v1::{ConfigMap, Namespace, Secret, ServiceAccount},
};
use kube::{
    Api, Client, ResourceExt,
    api::{DeleteParams, ListParams, ObjectList, PostParams},
};
use nix::{sys::signal::killpg, unistd::Pid};
use serde_json::json;
use tokio::{
    signal::unix::{SignalKind, signal},
    time::timeout,
};

const SOON: Duration = Duration::from_mins(2);

/// Set for the copy of this executable that is killed.
const VICTIM: &str = "BINDERY_E2E_VICTIM";

#[tokio::test(flavor = "multi_thread")]
async fn two_start_at_once_and_leave_nothing() -> Result<()> {
    let start = Instant::now();
    let (provider, consumer) = tokio::try_join!(ControlPlane::start("provider"), ControlPlane::start("consumer"))?;
    eprintln!("two control planes started in {:.1} s", start.elapsed().as_secs_f64());
    assert_ne!(provider.server_url(), consumer.server_url());
    let uid = async |plane: &ControlPlane| -> Result<Option<String>> {
        Ok(Api::<Namespace>::all(plane.client()).get("kube-system").await?.uid())
    };
    assert_ne!(uid(&provider).await?, uid(&consumer).await?);
    assert!(provider.kubectl(&["version"]).await?.contains("Server Version: v1.34"));

    let pids = [provider.pids(), consumer.pids()].concat();
    let folders = [&provider, &consumer].map(|plane| plane.workdir().path().to_owned());
    assert_eq!(pids.len(), 6);
    drop((provider, consumer));
    none_is_left(&pids).await?;
    if env::var_os("BINDERY_E2E_KEEP").is_none() {
        assert!(!folders.iter().any(|folder| folder.exists()));
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_identify_until_they_expire_or_are_revoked() -> Result<()> {
    let start = Instant::now();
    let plane = ControlPlane::start("tokens").await?;
    eprintln!("one control plane started in {:.1} s", start.elapsed().as_secs_f64());
    let client = plane.client();
    let account = Api::<ServiceAccount>::namespaced(client.clone(), "default")
        .get("default")
        .await?;
    let uid = account.uid().context("no uid")?;

    let token = plane.token_for("default", "default", &["https://backend"], 600).await?;
    let seen = review(&client, &token, "https://backend").await?;
    assert_eq!(username(&seen), Some("system:serviceaccount:default:default"));
    assert_eq!(seen.audiences, Some(vec!["https://backend".to_owned()]));
    assert_ne!(
        review(&client, &token, "https://other").await?.authenticated,
        Some(true)
    );

    // On a busy machine a token may expire before it is reviewed. Then the next one is tried.
    let (short, issued) = eventually_ok("a short token to be accepted", SOON, async || {
        let issued = Instant::now();
        let claims = ServiceAccountClaims::new("default", "default", &uid, Duration::from_secs(4)).without_leeway();
        let short = plane.sign_service_account_token(&claims)?;
        let status = review(&client, &short, "").await?;
        ensure!(username(&status) == username(&seen), "{status:?}");
        Ok((short, issued))
    })
    .await?;

    let secrets: Api<Secret> = Api::namespaced(client.clone(), "default");
    let anchor = serde_json::from_value(json!({ "metadata": { "name": "anchor" } }))?;
    let anchor = secrets.create(&PostParams::default(), &anchor).await?;
    let claims = ServiceAccountClaims::new("default", "default", &uid, Duration::from_mins(10))
        .bound_to("anchor", &anchor.uid().context("no uid")?);
    let bound = plane.sign_service_account_token(&claims)?;
    assert_eq!(review(&client, &bound, "").await?.authenticated, Some(true));
    secrets.delete("anchor", &DeleteParams::default()).await?;
    let expired = async {
        refused(&client, &short).await?;
        ensure!(issued.elapsed() >= Duration::from_secs(3), "refused before it expired");
        Ok(())
    };
    tokio::try_join!(expired, refused(&client, &bound))?;

    let stranger = ServiceAccountClaims::new("default", "default", "another-uid", Duration::from_mins(10));
    let stranger = plane.sign_service_account_token(&stranger)?;
    assert_ne!(review(&client, &stranger, "").await?.authenticated, Some(true));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn objects_outlive_the_api_server() -> Result<()> {
    let plane = ControlPlane::start("outage").await?;
    let proxy = plane.proxy().await?;
    let near = plane
        .kubeconfig()
        .with_server(format!("https://{}", proxy.address()))
        .client()
        .await?;
    plane
        .apply("{apiVersion: v1, kind: ConfigMap, metadata: {name: kept, namespace: default}, data: {a: b}}")
        .await?;
    let maps: Api<ConfigMap> = Api::namespaced(plane.client(), "default");
    let before = maps.get("kept").await?;
    assert_eq!(
        Api::<ConfigMap>::namespaced(near.clone(), "default")
            .get("kept")
            .await?
            .uid(),
        before.uid()
    );
    proxy.block();
    assert!(Api::<ConfigMap>::namespaced(near, "default").get("kept").await.is_err());

    plane.pause_api_server()?;
    assert!(
        timeout(Duration::from_millis(300), maps.get("kept")).await.is_err(),
        "it answers while paused"
    );
    plane.resume_api_server()?;
    assert_eq!(maps.get("kept").await?.uid(), before.uid());

    plane.stop_api_server()?;
    assert!(maps.get("kept").await.is_err());
    assert_eq!(plane.pids().len(), 2);
    let start = Instant::now();
    plane.start_api_server().await?;
    eprintln!("the API server came back in {:.1} s", start.elapsed().as_secs_f64());
    assert_eq!(maps.get("kept").await?.uid(), before.uid());

    // The controllers work on: a namespace goes, and what is owned goes with its owner.
    plane.kubectl(&["create", "namespace", "gone"]).await?;
    plane.kubectl(&["delete", "namespace", "gone", "--timeout=2m"]).await?;
    let reference = json!([{ "apiVersion": "v1", "kind": "ConfigMap", "name": "kept", "uid": before.uid() }]);
    let owned = json!({ "metadata": { "name": "owned", "ownerReferences": reference } });
    maps.create(&PostParams::default(), &serde_json::from_value(owned)?)
        .await?;
    maps.delete("kept", &DeleteParams::default()).await?;
    eventually("the owned object to be collected", COLLECTED, async || {
        Ok(maps.get_opt("owned").await?.is_none().then_some(()))
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_account_has_its_own_rights_alone() -> Result<()> {
    let plane = ControlPlane::start("rights").await?;
    let path = plane.service_account_kubeconfig("default", "default").await?;
    let mut command = plane.kubectl_command(&path);
    command.args(["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"]);
    let output = bindery_e2e::process::run(command, SOON).await?;
    assert_eq!(
        bindery_e2e::process::stdout(&output)?,
        "system:serviceaccount:default:default"
    );

    let client = plane.service_account_client("default", "default").await?;
    let secrets: Api<Secret> = Api::all(client);
    let refused = secrets.list(&kube::api::ListParams::default()).await.unwrap_err();
    assert!(matches!(refused, kube::Error::Api(status) if status.code == 403));
    Ok(())
}

/// A process that holds a child, for [`a_child_dies_with_its_owner`] to kill. Alone it does nothing.
#[tokio::test]
async fn victim() -> Result<()> {
    if env::var_os(VICTIM).is_some() {
        // Whoever was begun in the background ignores it, unless it is waited for before anybody may send it.
        let mut interrupt = signal(SignalKind::interrupt())?;
        // A program with a child of its own.
        let mut command = Command::new("sh");
        command.args(["-c", "sleep 600 & wait"]);
        let child = Process::spawn("sleeper", &command)?;
        eprintln!("child {}", child.id());
        eprintln!("logs {}", child.log_path().display());
        interrupt.recv().await;
        std::process::exit(130);
    }
    Ok(())
}

#[tokio::test]
async fn a_child_dies_with_its_owner() -> Result<()> {
    for signal in [Signal::SIGKILL, Signal::SIGINT, Signal::SIGTERM] {
        let mut owner = Command::new(env::current_exe()?)
            .args(["--exact", "victim", "--nocapture"])
            .env(VICTIM, "1")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut lines = BufReader::new(owner.stderr.take().context("no stderr")?).lines();
        let mut said = |prefix: &str| -> Result<String> {
            let line = lines.find_map(|line| line.ok()?.strip_prefix(prefix).map(str::to_owned));
            line.with_context(|| format!("the victim did not say {prefix:?}"))
        };
        let child: u32 = said("child ")?.parse()?;
        let log = std::path::PathBuf::from(said("logs ")?);
        ensure!(is_group_alive(child), "the child is not there to begin with");
        nix::sys::signal::kill(Pid::from_raw(owner.id().cast_signed()), signal)?;
        let ended = eventually(format!("{signal} to end it"), SOON, async || Ok(owner.try_wait()?)).await;
        if ended.is_err() {
            owner.kill()?;
        }
        ended?;
        none_is_left(&[child])
            .await
            .with_context(|| format!("after {signal}"))?;
        if env::var_os("BINDERY_E2E_KEEP").is_none() {
            eventually("the folder to be removed", SOON, async || {
                Ok((!log.exists()).then_some(()))
            })
            .await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_process_is_watched_and_ended() -> Result<()> {
    let mut command = Command::new("sh");
    command
        .args(["-c", "echo ready $WHO; sleep 600 & wait"])
        .env("WHO", "me");
    let mut process = Process::spawn("watched", &command)?;
    assert_eq!(process.wait_for_line("ready", SOON).await?, "ready me");
    let status = process.terminate(SOON).await?;
    assert!(!status.success());
    assert!(!process.is_running());
    none_is_left(&[process.id()]).await?;

    let mut absent = Process::spawn("absent", &Command::new("/nonexistent/program"))?;
    let error = absent.wait_for_line("ready", SOON).await.unwrap_err().to_string();
    assert!(
        error.contains("absent ended") && error.contains("/nonexistent/program"),
        "{error}"
    );
    Ok(())
}

/// Each process leads a group that holds its guard too.
async fn none_is_left(pids: &[u32]) -> Result<()> {
    eventually("the processes and their guards to be gone", SOON, async || {
        Ok((!pids.iter().any(|pid| is_group_alive(*pid))).then_some(()))
    })
    .await
}

fn is_group_alive(leader: u32) -> bool {
    killpg(Pid::from_raw(leader.cast_signed()), None).is_ok()
}

async fn review(client: &Client, token: &str, audience: &str) -> Result<TokenReviewStatus> {
    let review = TokenReview {
        spec: TokenReviewSpec {
            token: Some(token.to_owned()),
            audiences: (!audience.is_empty()).then(|| vec![audience.to_owned()]),
        },
        ..TokenReview::default()
    };
    let answer = Api::<TokenReview>::all(client.clone())
        .create(&PostParams::default(), &review)
        .await?;
    answer.status.context("a TokenReview without status")
}

/// The API server keeps what it knows of a token for ten seconds.
async fn refused(client: &Client, token: &str) -> Result<()> {
    eventually("the token to be refused", SOON, async || {
        Ok((review(client, token, "").await?.authenticated != Some(true)).then_some(()))
    })
    .await
}

fn username(status: &TokenReviewStatus) -> Option<&str> {
    status.user.as_ref()?.username.as_deref()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restored_backup_knows_what_it_knew_then() -> Result<()> {
    let plane = ControlPlane::start("backup").await?;
    let maps: Api<ConfigMap> = Api::namespaced(plane.client(), "default");
    let make = async |name: &str| {
        let map = serde_json::from_value(json!({ "metadata": { "name": name } }))?;
        anyhow::Ok(maps.create(&PostParams::default(), &map).await?)
    };
    let before = make("before").await?;
    let backup = plane.backup()?;
    make("after").await?;
    maps.delete("before", &DeleteParams::default()).await?;

    plane.stop_api_server()?;
    plane.restore(&backup).await?;
    plane.start_api_server().await?;
    ensure!(maps.get("before").await?.uid() == before.uid(), "another object");
    ensure!(maps.get_opt("after").await?.is_none(), "it knows what came later");
    // It goes on from there, and can be gone back to again.
    make("again").await?;
    plane.stop_api_server()?;
    plane.restore(&backup).await?;
    plane.start_api_server().await?;
    ensure!(maps.get_opt("again").await?.is_none(), "it knows what came later");
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_liar_lies_about_what_it_was_told_to() -> Result<()> {
    let plane = ControlPlane::start("liar").await?;
    let liar = Liar::start(&plane).await?;
    let token = plane.token_for("default", "default", &[], 600).await?;
    plane
        .kubectl(&[
            "create",
            "clusterrolebinding",
            "all",
            "--clusterrole=cluster-admin",
            "--serviceaccount=default:default",
        ])
        .await?;
    let kubeconfig = plane.token_kubeconfig("default", token);
    let client = kubeconfig
        .with_server(format!("https://{}", liar.address()))
        .client()
        .await?;
    let namespaces: Api<Namespace> = Api::all(client.clone());
    let code = |answer: kube::Result<ObjectList<Namespace>>| match answer {
        Err(kube::Error::Api(status)) => status.code,
        _ => 0,
    };
    let list = async || namespaces.list(&ListParams::default()).await;
    // The right takes a moment to count.
    let honest = eventually_ok("namespaces to be listed", SOON, async || Ok(list().await?))
        .await?
        .items
        .len();
    ensure!(honest > 1, "{honest} namespaces");

    liar.lie_about("namespaces", Lie::Status(403));
    ensure!(code(list().await) == 403);
    ensure!(namespaces.get("default").await.is_ok(), "an object is no list");
    Api::<Secret>::all(client).list(&ListParams::default()).await?;
    liar.lie_about("namespaces", Lie::Empty);
    let empty = list().await?;
    ensure!(
        empty.items.is_empty() && empty.metadata.resource_version.is_some(),
        "{empty:?}"
    );
    liar.lie_about("namespaces", Lie::Partial);
    let page = namespaces.list(&ListParams::default().limit(500)).await?;
    ensure!(page.items.len() == 1, "{} on the first page", page.items.len());
    let next = ListParams::default()
        .limit(500)
        .continue_token(&page.metadata.continue_.context("no more is promised")?);
    ensure!(code(namespaces.list(&next).await) == 500);
    liar.lie_about("namespaces", Lie::Cut(100));
    ensure!(list().await.is_err(), "a whole list");
    liar.repent();
    ensure!(list().await?.items.len() == honest);
    Ok(())
}
