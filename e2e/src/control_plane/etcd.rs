//! Changes the store of a control plane behind its API server: restores backups, removes objects, spends revisions, and compacts
//! history.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, ensure};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
};

use super::{ControlPlane, readiness};
use crate::{Workdir, process::Signal};

/// No API server looks at a key outside of `/registry`.
const SPENT: &str = "spent";
/// How many revisions are spent at a time.
const SPENDERS: usize = 16;
/// By how many revisions a restore with bumped revisions goes beyond those that were given out.
const BUMP: u64 = 1000;

/// A backup of the store of a control plane. Its folder is removed on drop.
#[derive(Debug)]
pub struct Backup {
    workdir: Workdir,
}

impl ControlPlane {
    /// Copies the store as it is at this moment. Nobody notices, but that answers take a little longer meanwhile.
    pub fn backup(&self) -> Result<Backup> {
        let backup = Backup {
            workdir: Workdir::new("backup")?,
        };
        let mut etcd = self.etcd.lock();
        // What was written up to now is what a store finds that was killed now, and it can start from that.
        etcd.signal(Signal::SIGSTOP)?;
        let copied = copy_folder(&self.layout.etcd_data(), &backup.data());
        etcd.signal(Signal::SIGCONT)?;
        copied.context("cannot copy the store")?;
        Ok(backup)
    }

    /// Goes back to a backup: all that was written since has never happened, and resource versions begin again where they
    /// were. The API server must be stopped meanwhile.
    pub async fn restore(&self, backup: &Backup) -> Result<()> {
        let mut etcd = {
            let mut slot = self.etcd.lock();
            slot.kill9()?;
            let data = self.layout.etcd_data();
            fs::remove_dir_all(&data)?;
            copy_folder(&backup.data(), &data).context("cannot copy the backup")?;
            self.layout.spawn_etcd(self.binaries)?
        };
        readiness::listening(&mut etcd, &self.layout.etcd_socket()).await?;
        *self.etcd.lock() = etcd;
        Ok(())
    }

    /// As [`ControlPlane::restore`], but resource versions go on beyond all that were given out, and history is forgotten, as
    /// `etcdutl snapshot restore` does with `--bump-revision` and `--mark-compacted`: each watch has expired. The API server must be
    /// stopped meanwhile.
    pub async fn restore_bumped(&self, backup: &Backup) -> Result<()> {
        let reached = self.revision().await?;
        self.restore(backup).await?;
        let behind = reached.saturating_sub(self.revision().await?);
        self.spend_revisions(behind + BUMP).await?;
        self.compact().await
    }

    /// Gives out this many resource versions, as other clients of a cluster do while time passes.
    pub async fn spend_revisions(&self, count: u64) -> Result<()> {
        let put = json!({"key": BASE64_STANDARD.encode(SPENT)});
        let puts = stream::iter(0..count).map(|_| self.etcd_call("kv/put", &put));
        puts.buffer_unordered(SPENDERS).try_for_each(async |_| Ok(())).await
    }

    /// Takes every object whose key begins so out of the store, such as `wildwest.dev/cowboys/`. Nobody is told: the API
    /// server must be stopped meanwhile.
    pub async fn lose(&self, prefix: &str) -> Result<u64> {
        let from = format!("/registry/{prefix}").into_bytes();
        let mut to = from.clone();
        *to.last_mut().context("a prefix")? += 1;
        let range = json!({"key": BASE64_STANDARD.encode(from), "range_end": BASE64_STANDARD.encode(to)});
        let answer = self.etcd_call("kv/deleterange", &range).await?;
        let deleted = answer["deleted"].as_str().unwrap_or("0");
        Ok(deleted.parse()?)
    }

    /// Forgets all history: a watch from before now has expired, once the API server was restarted.
    pub async fn compact(&self) -> Result<()> {
        let compaction = json!({"revision": self.revision().await?.to_string(), "physical": true});
        self.etcd_call("kv/compaction", &compaction).await.map(drop)
    }

    /// The revision that was given out last.
    async fn revision(&self) -> Result<u64> {
        let any = json!({"key": BASE64_STANDARD.encode("/"), "count_only": true});
        let answer = self.etcd_call("kv/range", &any).await?;
        let revision = answer["header"]["revision"].as_str().context("no revision")?;
        Ok(revision.parse()?)
    }

    async fn etcd_call(&self, method: &str, body: &Value) -> Result<Value> {
        let answer = post(&self.layout.etcd_socket(), &format!("/v3/{method}"), &body.to_string()).await;
        answer.with_context(|| format!("etcd {method}"))
    }
}

impl Backup {
    fn data(&self) -> PathBuf {
        self.workdir.path().join("etcd")
    }
}

fn copy_folder(from: &Path, to: &Path) -> io::Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let to = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy_folder(&entry.path(), &to)?;
        } else {
            fs::copy(entry.path(), to)?;
        }
    }
    Ok(())
}

/// One request of HTTP/1.1 over a socket file.
async fn post(socket: &Path, path: &str, body: &str) -> Result<Value> {
    let mut stream = UnixStream::connect(socket).await?;
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.0\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no HTTP")?;
    let status = head.lines().next().unwrap_or_default();
    ensure!(status.contains(" 200 "), "{status}: {body}");
    Ok(serde_json::from_str(body)?)
}
