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

/// Connections to the sockets of `floor`: one per consumer, or none if no floor runs.
#[derive(Debug, Default)]
pub(crate) struct Acks {
    to: Vec<UnboundedSender<Order>>,
    tasks: JoinSet<Result<()>>,
}

// === impl Acks ===

impl Acks {
    /// Connects to the sockets that a command names.
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

    /// Sends an order for a change of a consumer's object. Without a socket, it does nothing.
    pub(crate) fn tell(&self, consumer: usize, order: impl FnOnce() -> Order) {
        if let Some(to) = self.to.get(consumer) {
            // `close` reports a socket that broke.
            let _ = to.send(order());
        }
    }

    /// Waits until all orders are written to the sockets; fails if a socket broke.
    pub(crate) async fn close(self) -> Result<()> {
        let Self { to, mut tasks } = self;
        drop(to);
        while let Some(ended) = tasks.join_next().await {
            ended?.context("the floor's socket broke")?;
        }
        Ok(())
    }
}

/// Writes orders to a socket, one a line, until the sender is dropped.
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
