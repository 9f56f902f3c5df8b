//! Command lines that make no server and no konnector: a sentence that names the flag, and an exit code.

use std::{net::TcpListener, process::Command, time::Duration};

use anyhow::{Result, ensure};
use bindery_e2e::{Process, process::run};

use crate::world::{Case, case, tells};

const LIMIT: Duration = Duration::from_secs(20);
/// Stands in a file that cannot be read, and must not be shown.
const SECRET: &str = "hunter2";

/// The command must end by itself with this code and a text that says all of `says`.
async fn check(mut command: Command, more: &[&str], code: i32, says: &[&str]) -> Result<()> {
    command.args(more);
    let output = run(command, LIMIT).await?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(code),
        "{more:?}: {}: {text}",
        output.status
    );
    ensure!(
        output.stdout.is_empty(),
        "{more:?}: on standard output: {:?}",
        output.stdout
    );
    ensure!(!text.contains("panicked") && !text.contains(SECRET), "{more:?}: {text}");
    tells(&text, says)
}

/// A server that would start, but for what is added: with a kubeconfig, and on ports of its own.
fn server(case: &Case) -> Result<Command> {
    let mut command = Process::cargo_bin("bindery-server")?;
    command.arg("--kubeconfig").arg(case.provider().server_kubeconfig());
    command.args(["--namespace", "kube-bind", "--admin-address", "127.0.0.1:0"]);
    Ok(command)
}

#[test]
fn a_server_that_cannot_be_says_which_flag_is_wrong() -> Result<()> {
    case("server-flags", async |case| {
        let folder = case.provider().plane.workdir().path();
        let file = |name: &str| folder.join(name).display().to_string();
        let (certificate, key, missing, empty) = (
            file("grpc.crt"),
            file("grpc.key"),
            file("missing.crt"),
            file("empty.crt"),
        );
        std::fs::write(&empty, "nothing")?;
        let listen = ["--listen-address", "127.0.0.1:0"];
        let url = ["--external-grpc-address", "https://127.0.0.1:1"];
        let http = ["--external-grpc-address", "http://127.0.0.1:1"];
        let with_tls = [
            &listen[..],
            &url,
            &["--tls-cert-file", &certificate, "--tls-key-file", &key],
        ]
        .concat();
        let check =
            async |args: &[&[&str]], code: i32, says: &[&str]| check(server(case)?, &args.concat(), code, says).await;

        check(
            &[&with_tls, &["--isolation", "Shared"]],
            2,
            &["Shared", "--isolation", "prefixed, namespaced, none"],
        )
        .await?;
        check(
            &[&with_tls, &["--consumer-scope", "all"]],
            2,
            &["all", "--consumer-scope", "namespaced, cluster"],
        )
        .await?;
        check(&[&with_tls, &["--no-such-flag"]], 2, &["--no-such-flag"]).await?;
        check(
            &[&with_tls, &["--token-lifetime", "5m"]],
            2,
            &["--token-lifetime", "at least 10m"],
        )
        .await?;
        check(
            &[&with_tls, &["--namespace-prefix", "Kube_"]],
            1,
            &["--namespace-prefix", "lower-case"],
        )
        .await?;
        check(&[&with_tls, &["--log", "no=such=filter"]], 1, &["--log"]).await?;
        check(&[&listen], 2, &["--external-grpc-address"]).await?;
        check(
            &[&listen, &url, &["--tls-cert-file", &certificate]],
            2,
            &["--tls-key-file"],
        )
        .await?;

        check(
            &[&listen, &url],
            1,
            &["--tls-cert-file", "--tls-key-file", "--allow-plaintext"],
        )
        .await?;
        check(
            &[&["--listen-address", "0.0.0.0:0", "--allow-plaintext"], &http],
            1,
            &["--allow-plaintext", "loopback", "0.0.0.0:0"],
        )
        .await?;
        check(
            &[&listen, &["--allow-plaintext"], &url],
            1,
            &["--external-grpc-address", "http://"],
        )
        .await?;
        let public = ["--external-grpc-address", "http://bind.example.com"];
        check(
            &[&listen, &["--allow-plaintext"], &public],
            1,
            &["--external-grpc-address", "loopback"],
        )
        .await?;

        let files =
            |certificate: &str, key: &str| ["--tls-cert-file", certificate, "--tls-key-file", key].map(str::to_owned);
        for (files, says) in [
            (files(&missing, &key), missing.as_str()),
            (files(&certificate, &missing), &missing),
            (files(&empty, &key), &empty),
            // A key that is not the certificate's.
            (
                files(&case.consumer().plane.ca_path().display().to_string(), &key),
                "ca",
            ),
        ] {
            let files: Vec<_> = files.iter().map(String::as_str).collect();
            check(&[&listen, &url, &files], 1, &[says]).await?;
        }
        check(
            &[&with_tls, &["--external-grpc-ca-file", &missing]],
            1,
            &["--external-grpc-ca-file", &missing],
        )
        .await?;

        let taken = TcpListener::bind("127.0.0.1:0")?;
        let address = taken.local_addr()?.to_string();
        let on_it = [
            "--listen-address",
            &address,
            "--tls-cert-file",
            &certificate,
            "--tls-key-file",
            &key,
        ];
        check(&[&url, &on_it], 1, &[&address]).await
    })
}

#[test]
fn a_konnector_that_cannot_be_says_which_flag_is_wrong() -> Result<()> {
    case("konnector-flags", async |case| {
        let missing = case
            .consumer()
            .plane
            .workdir()
            .path()
            .join("missing.kubeconfig")
            .display()
            .to_string();
        let nonsense = case
            .consumer()
            .plane
            .workdir()
            .write("nonsense.kubeconfig", format!("users: [{{user: {{token: {SECRET}"))?
            .display()
            .to_string();
        let konnector = || Process::cargo_bin("bindery-konnector");
        check(konnector()?, &["--no-such-flag"], 2, &["--no-such-flag"]).await?;
        check(
            konnector()?,
            &["--server-address", "nowhere"],
            2,
            &["--server-address", "nowhere"],
        )
        .await?;
        check(
            konnector()?,
            &["--provider-polling-interval", "soon"],
            2,
            &["--provider-polling-interval"],
        )
        .await?;
        check(konnector()?, &["--kubeconfig", &missing], 1, &[&missing]).await?;
        check(
            konnector()?,
            &["--kubeconfig", &nonsense],
            1,
            &[&nonsense, "cannot be parsed"],
        )
        .await
    })
}
