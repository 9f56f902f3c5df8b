//! The DevTools protocol over two named pipes: JSON messages that end with a zero byte.

use std::{collections::HashMap, mem, path::Path, sync::Arc, time::Duration};

use anyhow::{Context as _, Result, anyhow, bail};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader},
    net::unix::pipe::{OpenOptions, Receiver, Sender},
    sync::{Mutex as AsyncMutex, oneshot},
    task::JoinHandle,
    time::timeout,
};

/// A command that takes longer has failed.
const LIMIT: Duration = Duration::from_secs(30);

/// A connection to Chromium, which its pages share.
#[derive(Clone, Debug)]
pub(super) struct Connection {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    commands: AsyncMutex<Sender>,
    waiting: Arc<Mutex<Waiting>>,
    reading: JoinHandle<()>,
}

#[derive(Debug, Default)]
struct Waiting {
    last_id: u64,
    /// The commands without an answer yet. `None` after Chromium has ended.
    calls: Option<HashMap<u64, oneshot::Sender<Message>>>,
}

/// An answer to a command. Events have no id.
#[derive(Debug, Deserialize)]
struct Message {
    id: Option<u64>,
    #[serde(default)]
    result: Value,
    error: Option<ProtocolError>,
}

#[derive(Debug, Deserialize)]
struct ProtocolError {
    message: String,
}

impl Connection {
    /// Opens the pipes `commands` and `answers` of a folder, before Chromium does.
    pub(super) fn open(folder: &Path) -> Result<Self> {
        let mut options = OpenOptions::new();
        let answers = options.open_receiver(folder.join("answers"))?;
        // Until Chromium has opened it, the pipe would be at its end without a writer.
        let writer = options.open_sender(folder.join("answers"))?;
        // A reader of our own, because Chromium has not opened it yet.
        let commands = options.read_write(true).open_sender(folder.join("commands"))?;
        let waiting = Arc::new(Mutex::new(Waiting {
            last_id: 0,
            calls: Some(HashMap::new()),
        }));
        let reading = tokio::spawn(read(answers, writer, Arc::clone(&waiting)));
        Ok(Self {
            shared: Arc::new(Shared {
                commands: AsyncMutex::new(commands),
                waiting,
                reading,
            }),
        })
    }

    /// Sends a command, to a page if there is a session, and returns its result.
    pub(super) async fn call(&self, session: Option<&str>, method: &str, params: Value) -> Result<Value> {
        let (id, answer) = self.shared.waiting.lock().begin()?;
        let mut message = json!({"id": id, "method": method, "params": params});
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        let exchange = async {
            let bytes = [message.to_string().as_bytes(), &[0]].concat();
            self.shared.commands.lock().await.write_all(&bytes).await?;
            answer.await.context("Chromium has ended")
        };
        let message = timeout(LIMIT, exchange)
            .await
            .map_err(|_| anyhow!("Chromium has not answered {method} after {LIMIT:?}"))??;
        if let Some(ProtocolError { message }) = message.error {
            bail!("{method}: {message}");
        }
        Ok(message.result)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.reading.abort();
    }
}

impl Waiting {
    /// Makes the id of a command, and the channel for its answer.
    fn begin(&mut self) -> Result<(u64, oneshot::Receiver<Message>)> {
        self.last_id += 1;
        let (sender, receiver) = oneshot::channel();
        let calls = self.calls.as_mut().context("Chromium has ended")?;
        calls.insert(self.last_id, sender);
        Ok((self.last_id, receiver))
    }

    fn end(&mut self, message: Message) {
        let call = message.id.zip(self.calls.as_mut());
        if let Some(sender) = call.and_then(|(id, calls)| calls.remove(&id)) {
            // The caller may have given up.
            let _ = sender.send(message);
        }
    }
}

/// Passes answers to those who wait for them, until Chromium ends.
async fn read(answers: Receiver, writer: Sender, waiting: Arc<Mutex<Waiting>>) {
    let mut answers = BufReader::new(answers);
    let mut writer = Some(writer);
    let mut message = Vec::new();
    while answers.read_until(0, &mut message).await.is_ok_and(|length| length > 0) {
        // Chromium has the pipe now, and its end closes it.
        writer.take();
        let bytes = mem::take(&mut message);
        if let Ok(message) = serde_json::from_slice(bytes.strip_suffix(&[0]).unwrap_or(&bytes)) {
            waiting.lock().end(message);
        }
    }
    waiting.lock().calls = None;
}
