//! A headless Chromium, in which a test signs in at an issuer as a person does.

mod connection;
mod page;

use std::{path::Path, process::Command, time::Duration};

use anyhow::{Context as _, Result};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use nix::{sys::stat::Mode, unistd::mkfifo};
use rcgen::{KeyPair, PublicKeyData as _};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tokio::{task::spawn_blocking, time::timeout};

use self::connection::Connection;
pub use self::page::{Consent, Page};
use crate::{Process, Workdir, binaries, pki::Identity};

const START_TIMEOUT: Duration = Duration::from_secs(30);

/// Opens the named pipes of the folder `$0` as the descriptors by which Chromium is controlled, and becomes Chromium.
const SCRIPT: &str = r#"exec "$@" 3<"$0/commands" 4>"$0/answers""#;

/// The flags, beside those of the profile and of trust.
///
/// It runs as root, and without a sandbox: it opens pages of the tests alone. It needs no graphics. It reaches this machine alone, and
/// resolves no name: to `localhost` it does not come, as if it ran on another machine.
const FLAGS: [&str; 13] = [
    "--headless",
    "--no-sandbox",
    "--remote-debugging-pipe",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
    "--no-proxy-server",
    "--disable-gpu",
    "--disable-software-rasterizer",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
    "--password-store=basic",
];

/// A running Chromium with an empty profile. It ends with this value, and also when the test process dies in any way.
#[derive(Debug)]
pub struct Browser {
    connection: Connection,
    process: Process,
    /// Removed when the process has ended.
    _workdir: Workdir,
}

impl Browser {
    /// Starts Chromium, which trusts these certificates beside those of public CAs.
    pub async fn start(trusted: &[&Identity]) -> Result<Self> {
        let workdir = Workdir::new("chromium")?;
        for pipe in ["commands", "answers"] {
            mkfifo(&workdir.path().join(pipe), Mode::S_IRUSR | Mode::S_IWUSR)?;
        }
        let connection = Connection::open(workdir.path())?;
        let folder = spawn_blocking(binaries::chromium).await??;
        let process = Process::spawn("chromium", &command(&folder, workdir.path(), trusted)?)?;
        let browser = Self {
            connection,
            process,
            _workdir: workdir,
        };
        let version = browser.connection.call(None, "Browser.getVersion", json!({}));
        timeout(START_TIMEOUT, version)
            .await
            .ok()
            .transpose()
            .and_then(|answer| answer.context("it does not answer"))
            .with_context(|| format!("Chromium has not started; its log ends:\n{}", browser.process.tail()))?;
        Ok(browser)
    }

    /// Opens an empty page, which shares no cookies with other pages.
    pub async fn page(&self) -> Result<Page> {
        Page::open_in(self.connection.clone()).await
    }

    /// The process id of Chromium, which leads the process group of all its processes.
    pub fn id(&self) -> u32 {
        self.process.id()
    }
}

fn command(folder: &Path, workdir: &Path, trusted: &[&Identity]) -> Result<Command> {
    let mut command = Command::new("sh");
    command.args(["-c", SCRIPT]).arg(workdir).arg(folder.join("chromium"));
    command.args(FLAGS);
    command.arg(format!("--user-data-dir={}", workdir.join("profile").display()));
    let keys: Vec<_> = trusted.iter().copied().map(key_hash).collect::<Result<_>>()?;
    command.arg(format!("--ignore-certificate-errors-spki-list={}", keys.join(",")));
    command.env("LD_LIBRARY_PATH", folder.join("lib"));
    command.env("FONTCONFIG_FILE", folder.join("fonts.conf"));
    for variable in ["HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"] {
        command.env(variable, workdir);
    }
    Ok(command)
}

/// The hash of the public key of a certificate, as Chromium's flag has it.
fn key_hash(identity: &Identity) -> Result<String> {
    let key = KeyPair::from_pem(&identity.key)?;
    Ok(STANDARD.encode(Sha256::digest(key.subject_public_key_info())))
}
