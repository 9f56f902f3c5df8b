//! Exit codes and words of kubectl-bind.

use std::{path::Path, process::Command};

use anyhow::{Result, ensure};
use bindery_e2e::{process::run, wildwest::SOON};

use crate::{
    expect::tells,
    world::{Case, Principal, case},
};

const USAGE: i32 = 2;
const DENIED: i32 = 3;
const NOT_FOUND: i32 = 4;

/// The command must end with this code, say all of `says` on standard error, and nothing on standard output.
async fn check(mut command: Command, args: &[&str], code: i32, says: &[&str]) -> Result<()> {
    command.args(args);
    let output = run(command, SOON).await?;
    let (printed, text) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    ensure!(
        output.status.code() == Some(code),
        "{args:?}: {}: {text}",
        output.status
    );
    ensure!(printed.is_empty(), "{args:?}: on standard output: {printed}");
    tells(&text, says)
}

/// A command without a provider.
fn plain(case: &Case) -> Result<Command> {
    case.consumer().bind_command()
}

/// A command of whom this token belongs to.
fn with(case: &Case, token: &Path) -> Result<Command> {
    case.consumer().bind_command_for(case.provider(), token)
}

async fn nothing_written(case: &Case, principal: &Principal) -> Result<()> {
    case.nothing_written(principal, &case.identity()).await
}

#[test]
fn a_wrong_command_line_ends_with_2() -> Result<()> {
    case("cli-usage", async |case| {
        let principal = case.principal("cli-usage", &["cowboys"]).await?;
        let (address, identity) = (case.provider().address(), case.identity());
        let bind = async |args: &[&str], says: &[&str]| check(with(case, &principal.token)?, args, USAGE, says).await;
        bind(&["templates", "--no-such-flag"], &["--no-such-flag"]).await?;
        bind(&["templates", "-o", "xml"], &["xml", "json, yaml"]).await?;
        bind(&["templates", "--timeout", "soon"], &["--timeout", "90s"]).await?;
        let says = ["Not_A_Name", "lower-case", "choose another"];
        bind(
            &["cowboys", "--name", "Not_A_Name", "--cluster-identity", &identity],
            &says,
        )
        .await?;
        bind(&["cowboys", "--cluster-identity", " x"], &["cluster_identity"]).await?;
        let plain = async |args: &[&str], says: &[&str]| check(plain(case)?, args, USAGE, says).await;
        plain(&["templates"], &["--server"]).await?;
        plain(&["templates", "--server", &address], &["--token-file", &address]).await?;
        plain(&["templates", "--server", "ftp://x", "--token", "x"], &["ftp://x"]).await?;
        let says = ["http://bind.example.com", "https://"];
        plain(
            &["templates", "--server", "http://bind.example.com", "--token", "x"],
            &says,
        )
        .await?;
        nothing_written(case, &principal).await
    })
}

#[test]
fn who_may_not_is_told_with_3() -> Result<()> {
    case("cli-denied", async |case| {
        let (provider, identity) = (case.provider(), case.identity());
        let principal = case.principal("cli-denied", &["cowboys"]).await?;
        let audience = "https://elsewhere.example.com";
        let token = provider
            .plane
            .token_for("cli-denied", "binder", &[audience], 600)
            .await?;
        let wrong = case.consumer().plane.workdir().write("wrong-audience.token", token)?;
        let address = provider.address();
        let mend = format!("kubectl create token NAME --audience {address}");
        check(with(case, &wrong)?, &["templates"], DENIED, &["audience", &mend]).await?;
        let bind = ["cowboys", "--cluster-identity", &identity];
        check(with(case, &wrong)?, &bind, DENIED, &["audience", &mend]).await?;
        let absent = wrong.with_file_name("absent.token");
        let says = [absent.display().to_string()];
        check(with(case, &absent)?, &["templates"], DENIED, &[&says[0], &mend]).await?;
        // What it prints is what the provider's admin would apply.
        let bind = ["of-others", "--cluster-identity", &identity];
        let says = [
            "cli-denied",
            "kind: ClusterRole",
            r#"resourceNames: ["of-others"]"#,
            r#"name: "binder""#,
        ];
        check(with(case, &principal.token)?, &bind, DENIED, &says).await?;
        nothing_written(case, &principal).await
    })
}

#[test]
fn what_is_not_there_is_told_with_4() -> Result<()> {
    case("cli-missing", async |case| {
        let principal = case.principal("cli-missing", &["no-such"]).await?;
        let identity = case.identity();
        let bind =
            async |args: &[&str], says: &[&str]| check(with(case, &principal.token)?, args, NOT_FOUND, says).await;
        let templates = ["template no-such", "kubectl bind templates"];
        bind(&["no-such", "--cluster-identity", &identity], &templates).await?;
        bind(&["no-such", "--cluster-identity", &identity, "--dry-run"], &templates).await?;
        bind(&["templates", "no-such"], &templates).await?;
        bind(&["collections", "no-such"], &["no-such", "kubectl bind collections"]).await?;
        for command in ["status", "unbind", "renew"] {
            bind(
                &[command, "no-such"],
                &["APIServiceBinding", "no-such", "kubectl bind status"],
            )
            .await?;
        }
        nothing_written(case, &principal).await
    })
}

#[test]
fn a_provider_that_is_not_reached_is_told_with_1() -> Result<()> {
    case("cli-unreached", async |case| {
        let address = case.provider().address();
        let untrusted = ["templates", "--server", &address, "--token", "a.b.c"];
        check(plain(case)?, &untrusted, 1, &["certificate", "--certificate-authority"]).await?;
        let nobody = [
            "templates",
            "--server",
            "https://127.0.0.1:1",
            "--token",
            "a.b.c",
            "--timeout",
            "5s",
        ];
        check(plain(case)?, &nobody, 1, &["127.0.0.1:1", "no program listens there"]).await
    })
}
