//! The program of the README, built with the packaged crates in an empty project, and run against a server.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use bindery_sdk::manifests::{ManifestOptions, Manifests};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;

use crate::binding::{done, succeeded};
use crate::server::Script;
use crate::tls::certify;

const PACKAGES: [&str; 3] = ["bindery-proto", "bindery-api", "bindery-sdk"];

fn cargo(folder: &Path) -> Command {
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(folder);
    command
}

#[track_caller]
fn run(command: &mut Command) -> String {
    let output = command.output().expect("the program exists");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {stderr}");
    String::from_utf8(output.stdout).expect("text")
}

/// The first program of the README.
fn program() -> String {
    let readme = include_str!("../../README.md");
    let (_, program) = readme.split_once("```rust,no_run\n").expect("a program");
    let (program, _) = program.split_once("```").expect("an end");
    let lines = program
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with("use "));
    assert!(lines.count() <= 12, "more than twelve lines");
    program.to_owned()
}

/// Packs the crates as `cargo publish` does and unpacks them into a folder, which depends on nothing of the workspace.
fn unpack(workspace: &Path, folder: &Path) {
    let mut package = cargo(workspace);
    package
        .args(["package", "--offline", "--allow-dirty", "--no-verify", "--target-dir"])
        .arg(folder.join("packed"));
    run(package.args(PACKAGES.map(|name| format!("--package={name}"))));
    for name in PACKAGES {
        let archive = format!("packed/package/{name}-{}.crate", env!("CARGO_PKG_VERSION"));
        // The times in an archive are all the same, and cargo takes a file as changed by its time.
        run(Command::new("tar").current_dir(folder).args(["-xzmf", &archive]));
    }
}

/// Builds the program in a project of its own, with the versions of dependencies that the workspace has; returns the binary.
fn build(folder: &Path) -> PathBuf {
    let workspace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    unpack(&workspace, folder);
    let version = env!("CARGO_PKG_VERSION");
    let patches = PACKAGES.map(|name| format!("{name} = {{ path = \"{name}-{version}\" }}\n"));
    let manifest = format!(
        "[package]\nname = \"readme\"\nedition = \"2024\"\n\n[workspace]\nexclude = [\"bindery-*\"]\n\n[dependencies]\n\
         bindery-sdk = \"{version}\"\ntokio = {{ version = \"1\", features = [\"macros\", \"rt-multi-thread\"] }}\n\n\
         [patch.crates-io]\n{}",
        patches.concat()
    );
    fs::create_dir_all(folder.join("src")).expect("a folder");
    fs::write(folder.join("Cargo.toml"), manifest).expect("a file");
    fs::write(folder.join("src/main.rs"), program()).expect("a file");
    fs::copy(workspace.join("Cargo.lock"), folder.join("Cargo.lock")).expect("a lock file");
    let built = Path::new(env!("CARGO_TARGET_TMPDIR")).join("readme");
    // Debug information would be most of what is written.
    run(cargo(folder)
        .args(["build", "--offline", "--target-dir"])
        .arg(&built)
        .env("CARGO_PROFILE_DEV_DEBUG", "0"));
    built.join("debug/readme")
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "builds all dependencies anew, which takes minutes: cargo test -p bindery-sdk --test sdk -- --ignored readme"]
async fn the_program_of_the_readme_runs_in_an_empty_project() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_owned();
    let program = tokio::task::spawn_blocking(move || build(&path))
        .await
        .expect("a build");

    let (ca, tls) = certify("127.0.0.1");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("bound");
    let script = Script::new([succeeded("cowboys")]);
    let server = script.add_to(Server::builder().tls_config(tls).expect("a certificate"));
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));

    let (ca_file, token_file) = (folder.path().join("ca.crt"), folder.path().join("token"));
    fs::write(&ca_file, ca).expect("a file");
    fs::write(&token_file, "token-of-the-file\n").expect("a file");
    let mut command = Command::new(program);
    command
        .env_clear()
        .env("BIND_SERVER", format!("https://{address}"))
        .env("BIND_CA_FILE", ca_file)
        .env("BIND_TOKEN_FILE", token_file)
        .env("BIND_TEMPLATE", "cowboys")
        .env("BIND_CLUSTER_IDENTITY", "uid");
    let printed = tokio::task::spawn_blocking(move || run(&mut command))
        .await
        .expect("a run");
    let options = ManifestOptions {
        template: Some("cowboys".to_owned()),
        ..ManifestOptions::default()
    };
    let manifests = Manifests::of_response(&done("cowboys"), &options).expect("manifests");
    assert_eq!(printed, manifests.canonical().expect("JSON"));
    assert_eq!(script.seen()[0].headers["authorization"], "Bearer token-of-the-file");
}
