//! Command lines that make no server and no konnector: a sentence that names the flag, and an exit code.

use std::{net::TcpListener, process::Command, time::Duration};

use anyhow::{Result, ensure};
use bindery_e2e::{Process, process::run};

use crate::{
    expect::tells,
    world::{Case, case},
};

const LIMIT: Duration = Duration::from_mins(2);
/// Stands in a file that cannot be read, and must not be shown.
const SECRET: &str = "hunter2";
const LISTEN: [&str; 2] = ["--listen-address", "127.0.0.1:0"];
const HTTPS: [&str; 2] = ["--external-grpc-address", "https://127.0.0.1:1"];
const HTTP: [&str; 2] = ["--external-grpc-address", "http://127.0.0.1:1"];
const PLAINTEXT: [&str; 1] = ["--allow-plaintext"];

/// The command must end by itself with this code and a text that says all of `says`.
async fn check(mut command: Command, args: &[&str], code: i32, says: &[&str]) -> Result<()> {
    command.args(args);
    let output = run(command, LIMIT).await?;
    let text = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.code() == Some(code),
        "{args:?}: {}: {text}",
        output.status
    );
    ensure!(
        output.stdout.is_empty(),
        "{args:?}: on standard output: {:?}",
        output.stdout
    );
    ensure!(!text.contains("panicked") && !text.contains(SECRET), "{args:?}: {text}");
    tells(&text, says)
}

/// A server that would start, but for its flags: with a kubeconfig, and on ports of its own.
async fn check_server(case: &Case, args: &[&[&str]], code: i32, says: &[&str]) -> Result<()> {
    let mut command = Process::cargo_bin("bindery-server")?;
    command.arg("--kubeconfig").arg(case.provider().server_kubeconfig());
    command.args(["--namespace", "kube-bind", "--admin-address", "127.0.0.1:0"]);
    check(command, &args.concat(), code, says).await
}

/// Path of a file in the provider's folder, which has the certificate of its server.
fn file(case: &Case, name: &str) -> String {
    case.provider().plane.workdir().path().join(name).display().to_string()
}

fn tls<'a>(certificate: &'a str, key: &'a str) -> [&'a str; 4] {
    ["--tls-cert-file", certificate, "--tls-key-file", key]
}

#[test]
fn a_value_that_no_flag_has_is_an_error_and_never_a_default() -> Result<()> {
    case("flag-values", async |case| {
        let (certificate, key) = (file(case, "grpc.crt"), file(case, "grpc.key"));
        let good = [&LISTEN[..], &HTTPS, &tls(&certificate, &key)].concat();
        let usage = async |args: &[&str], says: &[&str]| check_server(case, &[&good, args], 2, says).await;
        usage(
            &["--isolation", "Shared"],
            &["Shared", "--isolation", "prefixed, namespaced, none"],
        )
        .await?;
        usage(
            &["--consumer-scope", "all"],
            &["all", "--consumer-scope", "namespaced, cluster"],
        )
        .await?;
        usage(&["--token-lifetime", "5m"], &["--token-lifetime", "at least 10m"]).await?;
        usage(&["--install-crds=maybe"], &["--install-crds", "maybe"]).await?;
        usage(&["--log-format", "xml"], &["--log-format", "text, json"]).await?;
        usage(&["--no-such-flag"], &["--no-such-flag"]).await?;
        check_server(case, &[&LISTEN], 2, &["--external-grpc-address"]).await?;

        let refused = async |args: &[&str], says: &[&str]| check_server(case, &[&good, args], 1, says).await;
        refused(&["--namespace-prefix", "Kube_"], &["--namespace-prefix", "lower-case"]).await?;
        refused(&["--log", "no=such=filter"], &["--log"]).await?;
        let missing = file(case, "missing.kubeconfig");
        let mut command = Process::cargo_bin("bindery-server")?;
        command.args(["--kubeconfig", &missing]);
        check(command, &good, 1, &[&missing]).await
    })
}

#[test]
fn a_server_without_tls_is_none_but_on_loopback_and_by_request() -> Result<()> {
    case("flag-tls", async |case| {
        let (certificate, key) = (file(case, "grpc.crt"), file(case, "grpc.key"));
        let refused = async |args: &[&[&str]], says: &[&str]| check_server(case, args, 1, says).await;
        refused(&[&LISTEN, &HTTP], &["--external-grpc-address", "https://"]).await?;
        let lifetimes = ["--tls-lifetime", "50h", "--tls-ca-lifetime", "100h"];
        refused(
            &[&LISTEN, &HTTPS, &lifetimes],
            &["--tls-lifetime", "a third of --tls-ca-lifetime"],
        )
        .await?;
        let wildcard = ["--tls-name", "*.example.com"];
        check_server(case, &[&LISTEN, &HTTPS, &wildcard], 2, &["--tls-name", "DNS name"]).await?;
        let everywhere = ["--listen-address", "0.0.0.0:0"];
        refused(
            &[&everywhere, &PLAINTEXT, &HTTP],
            &["--allow-plaintext", "loopback", "0.0.0.0:0"],
        )
        .await?;
        refused(&[&LISTEN, &PLAINTEXT, &HTTPS], &["--external-grpc-address", "http://"]).await?;
        let public = ["--external-grpc-address", "http://bind.example.com"];
        refused(
            &[&LISTEN, &PLAINTEXT, &public],
            &["--external-grpc-address", "loopback"],
        )
        .await?;
        check_server(
            case,
            &[&LISTEN, &HTTPS, &tls(&certificate, &key)[..2]],
            2,
            &["--tls-key-file"],
        )
        .await?;

        let (missing, empty) = (file(case, "missing.crt"), file(case, "empty.crt"));
        std::fs::write(&empty, SECRET)?;
        // The CA's certificate does not go with the server's key.
        let other = case.provider().ca_path().display().to_string();
        for (certificate, key, named) in [
            (&missing, &key, &missing),
            (&certificate, &missing, &missing),
            (&empty, &key, &empty),
            (&certificate, &empty, &empty),
            (&other, &key, &other),
        ] {
            refused(&[&LISTEN, &HTTPS, &tls(certificate, key)], &[named]).await?;
        }
        let good = tls(&certificate, &key);
        for flag in ["--external-grpc-ca-file", "--external-ca-file", "--client-ca-file"] {
            refused(&[&LISTEN, &HTTPS, &good, &[flag, &missing]], &[flag, &missing]).await?;
            refused(&[&LISTEN, &HTTPS, &good, &[flag, &empty]], &[flag, &empty]).await?;
        }
        let taken = TcpListener::bind("127.0.0.1:0")?;
        let address = taken.local_addr()?.to_string();
        refused(&[&HTTPS, &good, &["--listen-address", &address]], &[&address]).await
    })
}

#[test]
fn a_konnector_that_cannot_be_says_which_flag_is_wrong() -> Result<()> {
    case("flag-konnector", async |case| {
        let workdir = case.consumer().plane.workdir();
        let missing = workdir.path().join("missing.kubeconfig").display().to_string();
        let nonsense = workdir.write("nonsense.kubeconfig", format!("users: [{{user: {{token: {SECRET}"))?;
        let nonsense = nonsense.display().to_string();
        let konnector = async |args: &[&str], code: i32, says: &[&str]| {
            check(Process::cargo_bin("bindery-konnector")?, args, code, says).await
        };
        konnector(&["--no-such-flag"], 2, &["--no-such-flag"]).await?;
        konnector(&["--server-address", "nowhere"], 2, &["--server-address", "nowhere"]).await?;
        konnector(
            &["--provider-polling-interval", "soon"],
            2,
            &["--provider-polling-interval"],
        )
        .await?;
        konnector(&["--log", "no=such=filter"], 1, &["--log"]).await?;
        konnector(&["--kubeconfig", &missing], 1, &[&missing]).await?;
        konnector(&["--kubeconfig", &nonsense], 1, &[&nonsense, "cannot be parsed"]).await
    })
}
