//! What each command does.

mod apply;
mod small;

use std::{
    env,
    io::{self, IsTerminal as _, Write as _},
    path::PathBuf,
    time::Duration,
};

use bindery_runtime::shutdown;
use bindery_synk::{Manifest, SetName, Synk, Target, input};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::{
    answer::{Answer, Stop},
    args::{Args, Command},
    connection::Connection,
    errors::{Exit, Failure},
    progress::Progress,
    render::Look,
};

/// How long silence looks like work.
const PATIENCE: Duration = Duration::from_secs(1);

/// What every command works with.
struct Context {
    synk: Synk,
    /// As it was typed.
    namespace: Option<String>,
    /// That of the context.
    home: String,
    look: Look,
    quiet: bool,
    progress: Progress,
    /// Cancelled by Ctrl-C.
    stop: CancellationToken,
}

/// Runs a command.
pub(super) async fn run(args: Args) -> Result<Answer, Stop> {
    // Before anything is asked for, so that what is wrong with the input shows at once. Until then Ctrl-C just ends it.
    let manifests = match &args.command {
        Command::Completion(args) => return Ok(small::completion(args)),
        Command::Version => return Ok(small::version()),
        Command::Apply(apply) => read(&apply.source.files, args.display.quiet)?,
        Command::Plan(plan) => read(&plan.source.files, args.display.quiet)?,
        _ => Vec::new(),
    };
    let connection = Connection::open(&args.connection, args.display.max_qps).await?;
    let stop = shutdown::on_signal().map_err(|error| Failure::Setup(error.to_string()))?;
    let verbose = args.display.verbose > 0;
    let context = Context {
        synk: Synk::new(connection.clients),
        namespace: args.display.namespace,
        home: connection.namespace,
        look: Look {
            verbose,
            colours: has_colours(),
        },
        quiet: args.display.quiet,
        progress: Progress::new(args.display.quiet, verbose, &connection.server),
        stop,
    };
    let result = Box::pin(context.run(args.command, &manifests)).await;
    context.progress.end();
    result.map_err(|stop| Stop {
        failure: stop.failure.at(&connection.server),
        ..stop
    })
}

fn read(files: &[PathBuf], quiet: bool) -> Result<Vec<Manifest>, Failure> {
    if files.is_empty() {
        return Ok(Vec::new());
    }
    let is_typed = files.iter().any(|file| file.as_os_str() == "-") && io::stdin().is_terminal();
    if is_typed && !quiet {
        let _ = writeln!(
            io::stderr().lock(),
            "reading manifests from standard input, until Ctrl-D"
        );
    }
    input::read(files).map_err(|errors| bindery_synk::Failure::from(errors).into())
}

fn has_colours() -> bool {
    let is_dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
    io::stdout().is_terminal() && !is_dumb && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

// === impl Context ===

impl Context {
    async fn run(&self, command: Command, manifests: &[Manifest]) -> Result<Answer, Stop> {
        match command {
            Command::Init => self.or_stopped(self.init(), "it is safe to run it again").await,
            Command::Apply(args) => self.apply(&args, manifests).await,
            Command::Plan(args) => {
                self.or_stopped(self.plan(&args, manifests), "nothing was written")
                    .await
            }
            Command::Delete(args) => self.delete(&args).await,
            Command::History(args) => self.or_stopped(self.history(&args), "nothing was written").await,
            Command::Rollback(args) => self.rollback(&args).await,
            Command::Status(args) => self.or_stopped(self.status(&args), "nothing was written").await,
            Command::Completion(args) => Ok(small::completion(&args)),
            Command::Version => Ok(small::version()),
        }
    }

    /// Work that may end anywhere.
    async fn or_stopped<T>(
        &self,
        work: impl Future<Output = Result<T, Stop>>,
        what_then: &'static str,
    ) -> Result<T, Stop> {
        tokio::select! {
            result = Box::pin(work) => result,
            () = self.stop.cancelled() => Err(Failure::Interrupted(what_then).into()),
        }
    }

    /// A set that is applied: with the namespace that was typed, else that of the context.
    fn target(&self, set: &SetName) -> Target {
        Target {
            set: set.clone(),
            namespace: self.namespace.clone().unwrap_or_else(|| self.home.clone()),
        }
    }

    /// A set that is there, or was: with the namespace that was typed, else the one it has.
    async fn known(&self, set: &SetName) -> Result<Target, Failure> {
        Ok(self.synk.target(set, self.namespace.as_deref()).await?)
    }

    /// Work of which nothing is heard, with a word to whoever waits for it at a terminal.
    async fn hinted<T>(&self, work: impl Future<Output = T>, hint: &str) -> T {
        let mut work = Box::pin(work);
        tokio::select! {
            done = &mut work => return done,
            () = tokio::time::sleep(PATIENCE) => self.progress.hint(hint),
        }
        work.await
    }
}

fn done((text, document): (String, Map<String, Value>)) -> Answer {
    Answer {
        text,
        document,
        exit: Exit::Done,
    }
}
