//! A runner: the program of an SDK that does what the cases ask.

use std::collections::HashMap;
use std::path::Path;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::{Mutex as AsyncMutex, oneshot};

/// An answer that takes longer does not come any more.
const PATIENCE: Duration = Duration::from_secs(58);

type Waiting = Arc<Mutex<HashMap<String, oneshot::Sender<Value>>>>;

/// A running runner. It ends on drop.
#[derive(Debug)]
pub struct Runner {
    /// The language, such as `rust`.
    pub language: String,
    waiting: Waiting,
    input: AsyncMutex<ChildStdin>,
    _child: Child,
}

impl Runner {
    /// Starts a runner; its standard error goes to the file.
    pub fn start(language: &str, mut command: Command, stderr: &Path) -> Result<Self> {
        let log = std::fs::File::create(stderr).with_context(|| format!("cannot write {}", stderr.display()))?;
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot run the runner of {language}"))?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            bail!("the runner of {language} has no standard streams");
        };
        let waiting = Waiting::default();
        let answered = waiting.clone();
        tokio::spawn(async move {
            let mut lines = BufReader::new(output).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let answer: Value = serde_json::from_str(&line).unwrap_or_default();
                let waiting = answered.lock().remove(answer["id"].as_str().unwrap_or_default());
                if let Some(waiting) = waiting {
                    // The case may have been given up.
                    let _ = waiting.send(answer);
                }
            }
            // Whoever waits learns that nothing comes any more.
            answered.lock().clear();
        });
        Ok(Self {
            language: language.to_owned(),
            waiting,
            input: AsyncMutex::new(input),
            _child: child,
        })
    }

    /// Gives the runner a document, and waits for the answer to it.
    pub async fn ask(&self, id: &str, document: &Value) -> Result<Value> {
        let (answer, answered) = oneshot::channel();
        self.waiting.lock().insert(id.to_owned(), answer);
        let mut input = self.input.lock().await;
        input.write_all(format!("{document}\n").as_bytes()).await?;
        input.flush().await?;
        drop(input);
        tokio::time::timeout(PATIENCE, answered)
            .await
            .with_context(|| format!("no answer within {PATIENCE:?}"))?
            .context("the runner has ended")
    }
}
