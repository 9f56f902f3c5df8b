//! The in-memory API server: one for each sequence, started from the same backup.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use bindery_simulator_apiserver::{
    self as apiserver, ApiServer, ClusterSettings, Revisions, Snapshot, UserInfo, WatchId,
};
use bytes::Bytes;
use http::header;
use jiff::Timestamp;
use serde_json::Value;

use super::{Answer, wire::Wire};
use crate::generate::step::{Sequence, User};

const ADMIN: &str = "admin";

/// The issuer of the in-memory API server.
pub(crate) const ISSUER: &str = "https://simulated.simulated";

/// More chores than this in a row never end.
const CHORES_MAX: usize = 20_000;

#[derive(Debug)]
pub(crate) struct Memory {
    server: ApiServer,
    watches: BTreeMap<usize, WatchId>,
}

impl Memory {
    /// An empty cluster that knows the users of these sequences.
    pub(crate) fn new(sequences: &[Sequence]) -> Self {
        let groups = |groups: &[&str]| groups.iter().map(|group| (*group).to_owned()).collect::<Vec<_>>();
        let user = |name: &str, groups: Vec<String>| UserInfo {
            name: name.to_owned(),
            groups,
            ..UserInfo::default()
        };
        let mut tokens = BTreeMap::new();
        tokens.insert(
            ADMIN.to_owned(),
            user(ADMIN, groups(&["system:masters", "system:authenticated"])),
        );
        for (name, its_groups) in sequences.iter().flat_map(|sequence| &sequence.users) {
            let groups = [its_groups.clone(), groups(&["system:authenticated"])].concat();
            tokens.insert(name.clone(), user(name, groups));
        }
        let server = ApiServer::new(ClusterSettings {
            name: "simulated".to_owned(),
            tokens,
            start_revision: 1000,
        });
        Self::of(server)
    }

    /// A copy of the cluster that the backup is of.
    pub(crate) fn beside(snapshot: &Snapshot) -> Self {
        Self::of(ApiServer::beside(snapshot, Revisions::Kept))
    }

    fn of(server: ApiServer) -> Self {
        Self {
            server,
            watches: BTreeMap::new(),
        }
    }

    pub(crate) fn snapshot(&mut self) -> Snapshot {
        self.server.compact();
        self.server.snapshot()
    }

    /// Answers a request that came at a time.
    pub(crate) fn call(&mut self, wire: &Wire, now: Timestamp) -> Result<Answer> {
        match self.send(wire, now)? {
            apiserver::Answer::Whole(response) => {
                let (head, body) = response.into_parts();
                Ok(Answer::new(head.status.as_u16(), &head.headers, &body))
            }
            apiserver::Answer::Watch { head, id } => {
                self.server.end_watch(id);
                Ok(Answer::new(head.status().as_u16(), head.headers(), b""))
            }
        }
    }

    /// Opens a watch. Returns the head, or the whole answer of a request that was refused.
    pub(crate) fn watch(&mut self, number: usize, wire: &Wire) -> Result<Answer> {
        match self.send(wire, Timestamp::now())? {
            apiserver::Answer::Whole(response) => {
                let (head, body) = response.into_parts();
                Ok(Answer::new(head.status.as_u16(), &head.headers, &body))
            }
            apiserver::Answer::Watch { head, id } => {
                self.watches.insert(number, id);
                Ok(Answer::new(head.status().as_u16(), head.headers(), b""))
            }
        }
    }

    /// The numbers of the watches that were opened and whose end was not asked for.
    pub(crate) fn watches(&self) -> Vec<usize> {
        self.watches.keys().copied().collect()
    }

    /// The events of a watch that were not taken yet.
    pub(crate) fn events(&mut self, number: usize) -> Result<Vec<Value>> {
        let Some(id) = self.watches.get(&number) else {
            return Ok(Vec::new());
        };
        let events = self.server.watch_events(*id);
        Ok(events
            .iter()
            .map(|event| serde_json::from_slice(event))
            .collect::<Result<_, _>>()?)
    }

    /// How a watch ended whose client waits for the end: `end` after its timeout or an error, `open` if it goes on.
    pub(crate) fn end(&mut self, number: usize) -> &'static str {
        let Some(id) = self.watches.remove(&number) else {
            return "end";
        };
        let has_ended = self.server.watch_ended(id) || self.server.watch_deadline(id).is_some();
        self.server.end_watch(id);
        if has_ended { "end" } else { "open" }
    }

    /// If the controllers have something to do.
    pub(crate) fn is_at_work(&self) -> bool {
        !self.server.background().is_empty()
    }

    /// Does all that the controllers have to do.
    pub(crate) fn settle(&mut self) -> Result<()> {
        self.server.settle(Timestamp::now(), CHORES_MAX);
        let left: Vec<_> = self.server.background().iter().map(ToString::to_string).collect();
        ensure!(left.is_empty(), "the controllers never rest: {left:?}");
        Ok(())
    }

    fn send(&mut self, wire: &Wire, now: Timestamp) -> Result<apiserver::Answer> {
        let token = match &wire.user {
            User::Admin => ADMIN,
            User::Named(name) | User::Token(name) => name,
        };
        let mut request = http::Request::builder()
            .method(wire.method.clone())
            .uri(&wire.uri)
            .header(header::AUTHORIZATION, format!("Bearer {token}"))
            .header(header::USER_AGENT, super::real::USER_AGENT)
            .header(header::ACCEPT, wire.accept);
        if wire.body.is_some() {
            request = request.header(header::CONTENT_TYPE, wire.content_type);
        }
        let request = request.body(Bytes::from(wire.body.clone().unwrap_or_default()))?;
        Ok(self.server.handle(now, &request))
    }
}
