//! The simulated agents, and when each received which messages of its stream.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Result, anyhow};
use bindery_proto::v1alpha2::{Export, WatchExportsRequest};
use bindery_sdk::{Client, WatchEvent};
use tokio::{
    sync::mpsc,
    task::JoinSet,
    time::{sleep, timeout_at},
};

use super::{
    Answer,
    agent_client::{AgentToken, address, client},
    bare::LABEL,
    bind::Contract,
};
use crate::percentiles::Percentiles;

/// How long a konnector waits, as it ships, before it asks a server again that refused it for good.
const REFUSED_PAUSE: Duration = Duration::from_secs(15);

/// What an agent has received.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) agent: usize,
    pub(super) at: Instant,
    pub(super) what: What,
}

#[derive(Debug)]
pub(super) enum What {
    /// All there is.
    Everything,
    /// A change of its export.
    Change(u64),
    /// The stream ended.
    Lost(Option<anyhow::Error>),
}

/// All agents.
#[derive(Default)]
pub(super) struct Crowd {
    agents: Vec<Agent>,
    tasks: JoinSet<()>,
    told: Option<(mpsc::UnboundedSender<Told>, mpsc::UnboundedReceiver<Told>)>,
}

struct Agent {
    client: Client,
    /// The token of its next call, which a renewal replaces.
    token: AgentToken,
    /// The stream is open, and its snapshot is complete.
    whole: bool,
    /// When the snapshot was complete again after the mark.
    served: Option<Instant>,
}

/// One agent at work.
struct Follower {
    agent: usize,
    client: Client,
    contract: Arc<str>,
    export: Arc<str>,
    told: mpsc::UnboundedSender<Told>,
}

// === impl Crowd ===

impl Crowd {
    /// Starts an agent for each contract that has none yet.
    pub(super) fn connect(&mut self, contracts: &[Contract]) -> Result<()> {
        self.drain();
        for (agent, contract) in contracts.iter().enumerate().skip(self.agents.len()) {
            let token = AgentToken::new(&contract.backend);
            let client = client(&contract.backend, address(agent), &token)?;
            let told = self.told.get_or_insert_with(mpsc::unbounded_channel).0.clone();
            let follower = Follower {
                agent,
                client: client.clone(),
                contract: Arc::clone(&contract.namespace),
                export: Arc::clone(&contract.export),
                told,
            };
            self.tasks.spawn(follower.run());
            self.agents.push(Agent {
                client,
                token,
                whole: false,
                served: None,
            });
        }
        Ok(())
    }

    /// A client of each, on the connection of its stream.
    pub(super) fn clients(&self) -> Vec<Client> {
        self.agents.iter().map(|agent| agent.client.clone()).collect()
    }

    /// The token of each.
    pub(super) fn tokens(&self) -> Vec<AgentToken> {
        self.agents.iter().map(|agent| agent.token.clone()).collect()
    }

    /// From now on each is to be told everything once more. Answers how many streams are whole.
    pub(super) fn mark(&mut self) -> usize {
        self.drain();
        for agent in &mut self.agents {
            agent.served = None;
        }
        self.agents.iter().filter(|agent| agent.whole).count()
    }

    /// Waits until each was told everything since the mark, and how long after a start that was.
    pub(super) async fn whole(&mut self, start: Instant, limit: Duration) -> Answer {
        let deadline = start + limit;
        let mut answer = Answer::default();
        while self.agents.iter().any(|agent| agent.served.is_none()) {
            match self.next(deadline).await {
                Some(told) => {
                    // A broken connection is no failure of what comes after it.
                    if let What::Lost(Some(error)) = told.what {
                        answer.error = Some(format!("the last that broke: {error:#}"));
                    }
                }
                None => break,
            }
        }
        let served = self.agents.iter().filter_map(|agent| agent.served);
        let times: Vec<_> = served.map(|at| at.saturating_duration_since(start)).collect();
        answer.count = times.len();
        answer.errors = self.agents.len() - times.len();
        answer.seconds = times.iter().max().map_or(0.0, Duration::as_secs_f64);
        answer.percentiles = Percentiles::of(times);
        answer
    }

    /// The next that any agent was told; None after the deadline.
    pub(super) async fn next(&mut self, deadline: Instant) -> Option<Told> {
        let (_, receiver) = self.told.as_mut()?;
        let told = timeout_at(deadline.into(), receiver.recv()).await.ok()??;
        self.note(&told);
        Some(told)
    }

    /// Handles the messages that came while no command waited for them.
    pub(super) fn drain(&mut self) {
        while let Some(told) = self.told.as_mut().and_then(|(_, receiver)| receiver.try_recv().ok()) {
            self.note(&told);
        }
    }

    fn note(&mut self, told: &Told) {
        let agent = &mut self.agents[told.agent];
        match told.what {
            What::Everything => {
                agent.whole = true;
                agent.served.get_or_insert(told.at);
            }
            What::Change(_) => {}
            What::Lost(_) => agent.whole = false,
        }
    }
}

// === impl Follower ===

impl Follower {
    async fn run(self) {
        loop {
            let error = self.follow().await;
            self.tell(What::Lost(Some(error)));
            sleep(REFUSED_PAUSE).await;
        }
    }

    /// Follows until the server refuses for good.
    async fn follow(&self) -> anyhow::Error {
        let mut watch = self.client.watch_exports(WatchExportsRequest {
            contract: self.contract.to_string(),
            ..WatchExportsRequest::default()
        });
        let mut snapshot: Option<HashMap<String, Option<u64>>> = None;
        while let Some(event) = watch.next().await {
            match event {
                Ok(WatchEvent::SnapshotBegin { .. }) => snapshot = Some(HashMap::new()),
                Ok(WatchEvent::Applied(export)) => {
                    let (name, change) = read(&export);
                    match &mut snapshot {
                        Some(snapshot) => drop(snapshot.insert(name.to_owned(), change)),
                        None => self.change(name, change),
                    }
                }
                Ok(WatchEvent::SnapshotComplete) => {
                    let snapshot = snapshot.take().unwrap_or_default();
                    match snapshot.get(&*self.export) {
                        Some(change) => {
                            self.tell(What::Everything);
                            self.change(&self.export, *change);
                        }
                        None => self.tell(What::Lost(Some(anyhow!("a snapshot without {}", self.export)))),
                    }
                }
                Ok(WatchEvent::Disconnected { error, .. }) => {
                    snapshot = None;
                    self.tell(What::Lost(error.map(Into::into)));
                }
                Ok(WatchEvent::Connected { .. } | WatchEvent::Removed(_)) => {}
                Err(error) => return error.into(),
            }
        }
        anyhow!("the stream ended")
    }

    fn change(&self, export: &str, change: Option<u64>) {
        if let Some(number) = change.filter(|_| *export == *self.export) {
            self.tell(What::Change(number));
        }
    }

    fn tell(&self, what: What) {
        let told = Told {
            agent: self.agent,
            at: Instant::now(),
            what,
        };
        // Nobody listens any more when the program ends.
        let _ = self.told.send(told);
    }
}

/// Its name, and the number of the last change.
fn read(export: &Export) -> (&str, Option<u64>) {
    let Some(metadata) = &export.metadata else {
        return ("", None);
    };
    let change = metadata.labels.get(LABEL).and_then(|number| number.parse().ok());
    (&metadata.name, change)
}
