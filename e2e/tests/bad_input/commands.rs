//! Exit codes and words of kubectl-bind.

use std::process::Command;

use anyhow::{Result, ensure};
use bindery_e2e::{process::run, wildwest::SOON};

use crate::world::{case, tells};

/// The command must end with this code, say all of `says` on standard error, and nothing on standard output.
async fn check(mut command: Command, args: &[&str], code: i32, says: &[&str]) -> Result<()> {
    command.args(args);
    let output = run(command, SOON).await?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(code),
        "{args:?}: {}: {text}",
        output.status
    );
    ensure!(
        output.stdout.is_empty(),
        "{args:?}: on standard output: {:?}",
        String::from_utf8_lossy(&output.stdout)
    );
    tells(&text, says)
}

#[test]
fn kubectl_bind_tells_by_its_exit_code_what_went_wrong() -> Result<()> {
    case("commands", async |case| {
        let (provider, consumer) = (case.provider(), case.consumer());
        let principal = case.principal("commands", &["cowboys", "no-such"]).await?;
        let bind = || consumer.bind_command_for(provider, &principal.token);
        let plain = || consumer.bind_command();
        let address = provider.address();
        let identity = case.identity();

        // 2: the command line.
        check(bind()?, &["templates", "--no-such-flag"], 2, &["--no-such-flag"]).await?;
        check(bind()?, &["templates", "-o", "xml"], 2, &["xml", "json, yaml"]).await?;
        check(plain()?, &["templates"], 2, &["--server"]).await?;
        check(
            plain()?,
            &["templates", "--server", &address],
            2,
            &["--token-file", &address],
        )
        .await?;
        check(
            plain()?,
            &["templates", "--server", "ftp://x", "--token", "x"],
            2,
            &["ftp://x"],
        )
        .await?;
        let plaintext = ["templates", "--server", "http://bind.example.com", "--token", "x"];
        check(plain()?, &plaintext, 2, &["http://bind.example.com", "https://"]).await?;
        check(
            bind()?,
            &["cowboys", "--name", "Not_A_Name", "--cluster-identity", &identity],
            2,
            &["Not_A_Name", "lower-case", "choose another"],
        )
        .await?;
        check(
            bind()?,
            &["cowboys", "--cluster-identity", " x"],
            2,
            &["cluster_identity"],
        )
        .await?;

        // 3: who is asking.
        let wrong = provider
            .plane
            .token_for("commands", "binder", &["https://elsewhere.example.com"], 600)
            .await?;
        let wrong = consumer.plane.workdir().write("wrong-audience.token", wrong)?;
        let wrong = || consumer.bind_command_for(provider, &wrong);
        check(
            wrong()?,
            &["templates"],
            3,
            &["audience", &format!("kubectl create token NAME --audience {address}")],
        )
        .await?;
        check(
            wrong()?,
            &["cowboys", "--cluster-identity", &identity],
            3,
            &["audience", &address],
        )
        .await?;
        let says = [
            "commands",
            "kind: ClusterRole",
            "resourceNames: [secrets-of-others]",
            "name: binder",
        ];
        check(
            bind()?,
            &["secrets-of-others", "--cluster-identity", &identity],
            3,
            &says,
        )
        .await?;
        let absent = consumer.plane.workdir().path().join("absent.token");
        let absent_name = absent.display().to_string();
        check(
            consumer.bind_command_for(provider, &absent)?,
            &["templates"],
            3,
            &[&absent_name],
        )
        .await?;

        // 4: what is not there.
        check(
            bind()?,
            &["no-such", "--cluster-identity", &identity],
            4,
            &["template no-such", "kubectl bind templates"],
        )
        .await?;
        check(
            bind()?,
            &["templates", "no-such"],
            4,
            &["no-such", "kubectl bind templates"],
        )
        .await?;
        check(
            bind()?,
            &["collections", "no-such"],
            4,
            &["no-such", "kubectl bind collections"],
        )
        .await?;
        check(plain()?, &["status", "no-such"], 4, &["no-such", "kubectl bind status"]).await?;
        check(bind()?, &["unbind", "no-such"], 4, &["no-such", "kubectl bind status"]).await?;
        check(bind()?, &["renew", "no-such"], 4, &["no-such", "kubectl bind status"]).await?;

        // 1: all else.
        let untrusted = ["templates", "--server", &address, "--token", "a.b.c"];
        check(plain()?, &untrusted, 1, &["certificate", "--certificate-authority"]).await?;
        let nobody = [
            "templates",
            "--server",
            "https://127.0.0.1:1",
            "--token",
            "a.b.c",
            "--timeout",
            "5s",
        ];
        check(plain()?, &nobody, 1, &["127.0.0.1:1"]).await?;
        case.nothing_written(&principal, &identity).await
    })
}
