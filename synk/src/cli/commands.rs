//! Runs each command.

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
    render::Style,
};

/// Time without output after which a hint is printed.
const PATIENCE: Duration = Duration::from_secs(1);

/// What every command needs.
struct Context {
    synk: Synk,
    /// The namespace that was typed.
    namespace: Option<String>,
    /// The namespace of the kubeconfig's context.
    default_namespace: String,
    style: Style,
    quiet: bool,
    progress: Progress,
    /// Cancelled by Ctrl-C.
    stop: CancellationToken,
}

/// Runs a command.
pub(super) async fn run(args: Args) -> Result<Answer, Stop> {
    // Input is read first, so that its errors show before any request. Until then Ctrl-C simply ends the process.
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
        default_namespace: connection.namespace,
        style: Style {
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

    /// Runs work that may be interrupted anywhere.
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

    /// Returns the target of an apply: with the namespace that was typed, else that of the context.
    fn target(&self, set: &SetName) -> Target {
        Target {
            set: set.clone(),
            namespace: self.namespace.clone().unwrap_or_else(|| self.default_namespace.clone()),
        }
    }

    /// Returns the target of an existing or former set: with the namespace that was typed, else the one that the set
    /// records.
    async fn known(&self, set: &SetName) -> Result<Target, Failure> {
        Ok(self.synk.target(set, self.namespace.as_deref()).await?)
    }

    /// Runs work that reports no progress. Prints a hint on a terminal if it takes long.
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
