//! `init`, `delete`, `history`, `status` and `completion`.

use bindery_synk::{
    Event, Failure as Refused,
    delete::{Deleted, Deletion},
};
use clap::CommandFactory as _;
use jiff::Timestamp;
use serde_json::Map;

use super::{Context, done};
use crate::cli::{
    answer::{Answer, Stop},
    args::{Args, CompletionArgs, DeleteArgs, HistoryArgs, Named, StatusArgs},
    errors::{Exit, Failure},
    render,
};

impl Context {
    /// Runs `synk init`.
    pub(super) async fn init(&self) -> Result<Answer, Stop> {
        Ok(done(render::init(self.synk.init().await?)))
    }

    /// Runs `synk delete`.
    pub(super) async fn delete(&self, args: &DeleteArgs) -> Result<Answer, Stop> {
        let deletion = Deletion {
            namespace: self.namespace.clone(),
            wait: args.wait,
            timeout: args.timeout,
            stop: self.stop.clone(),
        };
        let on = |event: Event<'_>| self.progress.tell(event);
        let hint = "deleting: what is owned goes first";
        let (name, result) = match &args.name {
            Named::Set(set) => {
                let work = self.synk.delete(set, &deletion, &on);
                (set.to_string(), self.hinted(work, hint).await)
            }
            Named::Version(version) => {
                let work = self.synk.delete_version(version, &deletion, &on);
                (version.to_string(), self.hinted(work, hint).await)
            }
        };
        let deleted = match result {
            Err(Refused::NoSet(_) | Refused::NoVersion { .. }) if args.ignore_not_found => Deleted {
                versions: Vec::new(),
                kept: Vec::new(),
            },
            Err(Refused::Stopped(_)) => {
                let then = "what was begun goes on by itself; delete it again for the rest";
                return Err(Failure::Interrupted(then).into());
            }
            result => result?,
        };
        Ok(done(render::deleted(&name, &deleted, args.wait)))
    }

    /// Runs `synk history`.
    pub(super) async fn history(&self, args: &HistoryArgs) -> Result<Answer, Stop> {
        let target = self.known(&args.name).await?;
        let versions = self.synk.versions(&target.set).await?;
        let stored = self.synk.history(&target).await?;
        // The history may remain after the set was deleted by other means.
        if versions.is_empty() && stored.is_empty() {
            return Err(Refused::NoSet(target.set).into());
        }
        Ok(done(render::history(&target.set, &versions, &stored, Timestamp::now())))
    }

    /// Runs `synk status`.
    pub(super) async fn status(&self, args: &StatusArgs) -> Result<Answer, Stop> {
        let Some(set) = &args.name else {
            return Ok(done(render::sets(&self.synk.sets().await?)));
        };
        let target = self.known(set).await?;
        let status = self.synk.status(&target).await?;
        Ok(done(render::status(&status, Timestamp::now())))
    }
}

/// Runs `synk version`.
pub(super) fn version() -> Answer {
    done(render::version())
}

/// Runs `synk completion`.
pub(super) fn completion(args: &CompletionArgs) -> Answer {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Args::command(), "synk", &mut script);
    Answer {
        text: String::from_utf8_lossy(&script).into_owned(),
        document: Map::new(),
        exit: Exit::Done,
    }
}
