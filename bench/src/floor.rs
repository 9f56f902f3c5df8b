//! `bindery-bench floor`: shows the best throughput that a konnector can have. It keeps a konnector's watches open and
//! ignores their events; the driver (`load`) tells it each change, and it sends only the writes that follow from the
//! change.

use std::{collections::HashMap, io::ErrorKind, path::PathBuf, sync::Arc};

use anyhow::{Context as _, Result, ensure};
use parking_lot::Mutex;
use serde_json::value::RawValue;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    net::{UnixListener, UnixStream},
    sync::Semaphore,
};
use tokio_util::task::AbortOnDropHandle;

use crate::{
    body,
    order::{Change, Order},
    sides, stand_in,
    writes::{Source, Writer},
};

/// Flags.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    sides: sides::Args,
    /// Path of the Unix socket on which orders are received. The program creates it.
    #[arg(long)]
    socket: PathBuf,
    /// Objects worked on at once.
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u16).range(1..=1024))]
    concurrency: u16,
}

/// Carries out orders.
struct Floor {
    writer: Arc<Writer>,
    permits: Arc<Semaphore>,
    /// UIDs of copies, by resource, namespace and name.
    copies: Mutex<HashMap<Key, Box<str>>>,
}

type Key = (usize, Box<str>, Box<str>);

pub(crate) async fn run(args: Args) -> Result<()> {
    let writer = Arc::new(Writer::new(args.sides.connect().await?));
    let floor = Arc::new(Floor {
        writer: Arc::clone(&writer),
        permits: Arc::new(Semaphore::new(args.concurrency.into())),
        copies: Mutex::default(),
    });
    let listener = listen(&args.socket).with_context(|| format!("cannot listen on {}", args.socket.display()))?;
    let _orders = AbortOnDropHandle::new(tokio::spawn(floor.serve(listener)));
    let refuse = |line: &str| anyhow::bail!("no command: {line:?}");
    stand_in::run(&writer, |_, _, _| {}, refuse).await
}

/// Listens on a new socket, in place of one that was left.
fn listen(path: &PathBuf) -> std::io::Result<UnixListener> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    UnixListener::bind(path)
}

// === impl Floor ===

impl Floor {
    async fn serve(self: Arc<Self>, listener: UnixListener) {
        while let Ok((orders, _)) = listener.accept().await {
            tokio::spawn(Arc::clone(&self).follow(orders));
        }
    }

    async fn follow(self: Arc<Self>, orders: UnixStream) {
        let mut lines = BufReader::new(orders).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            // It is never closed.
            let permit = Arc::clone(&self.permits).acquire_owned().await;
            let floor = Arc::clone(&self);
            tokio::spawn(async move {
                let outcome = floor.carry_out(&line).await;
                floor.writer.tally.finished(outcome.with_context(|| line));
                drop(permit);
            });
        }
    }

    async fn carry_out(&self, line: &str) -> Result<()> {
        let order: Order = line.parse()?;
        let resource = self.writer.sides.resource(order.resource)?;
        let source = Source {
            resource,
            namespace: &order.namespace,
            name: &order.name,
            uid: &order.uid,
        };
        let key = (order.resource, order.namespace.clone(), order.name.clone());
        let spec = || {
            RawValue::from_string(body::spec(
                resource,
                &order.namespace,
                &order.name,
                order.seq,
                order.size,
            ))
        };
        match order.change {
            Change::Create => {
                let uid = self.writer.create(source, &order.version, &spec()?).await?;
                let before = self.copies.lock().insert(key, uid);
                ensure!(before.is_none(), "it was created before");
            }
            Change::Update => {
                let copy = self.copies.lock().get(&key).cloned().context("it has no copy")?;
                self.writer.update(source, &copy, &spec()?).await?;
            }
            Change::Status => {
                let status = RawValue::from_string(body::status(order.seq, order.size))?;
                self.writer.status(source, &status).await?;
            }
            Change::Delete => {
                let copy = self.copies.lock().remove(&key).context("it has no copy")?;
                self.writer.delete(source, &order.version, &copy).await?;
            }
        }
        Ok(())
    }
}
