//! Tells `floor` over a socket which changes the API server has acknowledged.

use anyhow::{Context as _, Result};
use tokio::{
    io::AsyncWriteExt as _,
    net::UnixStream,
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    task::JoinSet,
};

use super::command::Command;
use crate::order::Order;

/// One socket per consumer, or none at all.
#[derive(Debug, Default)]
pub(crate) struct Acks {
    to: Vec<UnboundedSender<Order>>,
    tasks: JoinSet<Result<()>>,
}

// === impl Acks ===

impl Acks {
    /// Connects to all sockets that a command names.
    pub(crate) async fn connect(command: &Command, consumers: usize) -> Result<Self> {
        let mut acks = Self::default();
        let Some(paths) = &command.acks else {
            return Ok(acks);
        };
        anyhow::ensure!(
            paths.len() == consumers,
            "acks need a socket per consumer, in their order"
        );
        for path in paths {
            let socket = UnixStream::connect(path).await;
            let socket = socket.with_context(|| format!("cannot connect to {path}"))?;
            let (sender, orders) = unbounded_channel();
            acks.to.push(sender);
            acks.tasks.spawn(pass_on(orders, socket));
        }
        Ok(acks)
    }

    /// Tells of a change of a consumer's object.
    pub(crate) fn tell(&self, consumer: usize, order: impl FnOnce() -> Order) {
        if let Some(to) = self.to.get(consumer) {
            // A socket that broke is told of at the end.
            let _ = to.send(order());
        }
    }

    /// Waits until all was passed on.
    pub(crate) async fn close(self) -> Result<()> {
        let Self { to, mut tasks } = self;
        drop(to);
        while let Some(ended) = tasks.join_next().await {
            ended?.context("the floor's socket broke")?;
        }
        Ok(())
    }
}

async fn pass_on(mut orders: UnboundedReceiver<Order>, mut socket: UnixStream) -> Result<()> {
    use std::fmt::Write as _;

    let mut some = Vec::new();
    let mut text = String::new();
    while orders.recv_many(&mut some, 256).await > 0 {
        for order in some.drain(..) {
            writeln!(text, "{order}")?;
        }
        socket.write_all(text.as_bytes()).await?;
        text.clear();
    }
    Ok(socket.shutdown().await?)
}
