//! `kubectl bind` alone: where the user stands, and what to do next.

use std::{io::Write, time::Duration};

use bindery_api::{Conditions as _, conditions};
use serde::Serialize;
use tokio::time::timeout;

use super::Context;
use crate::{
    args::settings::Settings,
    consumer::Consumer,
    errors::Failure,
    render::output::{self, Format, printable},
};

/// How long the cluster has to answer: the command must not wait for a cluster that is away.
const PATIENCE: Duration = Duration::from_secs(5);

/// Where the user stands.
#[derive(Debug, PartialEq, Eq)]
struct Standing {
    cluster: Cluster,
    /// Address of the provider, if the user has a login or a token.
    provider: Option<String>,
    /// Why there is none, in words.
    no_provider: String,
}

/// The consumer cluster.
#[derive(Debug, PartialEq, Eq)]
enum Cluster {
    /// It cannot be read, for this reason.
    Unknown(String),
    NoKonnector,
    /// The number of bindings, and of those that are not ready.
    Bound {
        all: usize,
        unready: usize,
    },
}

/// A command to run next.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Next {
    command: String,
    what: &'static str,
}

/// `kubectl bind`
pub(crate) async fn run<W: Write>(context: &mut Context<W>) -> Result<(), Failure> {
    let cluster = timeout(PATIENCE, cluster(&context.settings)).await;
    let cluster = cluster.unwrap_or_else(|_| Cluster::Unknown("it does not answer".to_owned()));
    let (provider, no_provider) = match context.settings.backend() {
        Ok(backend) => (Some(backend.address.to_string()), String::new()),
        Err(failure) => (None, failure.to_string()),
    };
    let standing = Standing {
        cluster,
        provider,
        no_provider,
    };
    let next = standing.next();
    match context.printer.format() {
        Format::Json | Format::Yaml => context.printer.document(&output::list(&next)),
        Format::Name => context
            .printer
            .text(&lines(next.iter().map(|next| next.command.clone()))),
        Format::Table | Format::Wide => context.printer.text(&standing.text(&next)),
    }
}

async fn cluster(settings: &Settings) -> Cluster {
    let bindings = async { Consumer::connect(settings).await?.bindings().await };
    match bindings.await {
        Ok(bindings) => {
            let ready = bindings.iter().filter(|binding| {
                let ready = binding.condition(conditions::READY);
                ready.is_some_and(|ready| ready.status.as_str() == "True")
            });
            Cluster::Bound {
                all: bindings.len(),
                unready: bindings.len() - ready.count(),
            }
        }
        Err(Failure::NoKonnector) => Cluster::NoKonnector,
        Err(failure) => Cluster::Unknown(failure.to_string()),
    }
}

impl Standing {
    /// What to do next, most urgent first.
    fn next(&self) -> Vec<Next> {
        let next = |command: &str, what| Next {
            command: format!("kubectl bind {command}"),
            what,
        };
        let mut all = Vec::new();
        if self.cluster == Cluster::NoKonnector {
            all.push(next("deploy", "install the konnector on this cluster"));
        }
        if self.provider.is_some() {
            all.push(next("templates", "list what you may bind"));
            all.push(next("TEMPLATE", "bind one of them"));
        } else {
            all.push(next("login URL", "log in at a provider"));
        }
        match self.cluster {
            Cluster::Bound { unready: 1.., .. } => {
                all.push(next("status", "see which bindings are not ready"));
                all.push(next("check", "look for what is wrong, and what mends it"));
            }
            Cluster::Bound { all: 1.., .. } => all.push(next("status", "show your bindings")),
            _ => {}
        }
        all.push(next("--help", "show all commands"));
        all
    }

    fn text(&self, next: &[Next]) -> String {
        let cluster = match &self.cluster {
            Cluster::Unknown(why) => format!("unknown: {why}"),
            Cluster::NoKonnector => "the konnector is not installed".to_owned(),
            Cluster::Bound { all: 0, .. } => "nothing is bound".to_owned(),
            Cluster::Bound { all, unready: 0 } => format!("{all} bound, all ready"),
            Cluster::Bound { all, unready } => format!("{all} bound, {unready} not ready"),
        };
        let provider = self.provider.as_deref().unwrap_or(&self.no_provider);
        let first = |text: &str| printable(text.lines().next().unwrap_or_default());
        let width = next.iter().map(|next| next.command.len()).max().unwrap_or(0);
        let next = next
            .iter()
            .map(|next| format!("  {:width$}   {}", next.command, next.what));
        format!(
            "This cluster:  {}\nThe provider:  {}\n\nNext:\n{}",
            first(&cluster),
            first(provider),
            lines(next)
        )
    }
}

fn lines(lines: impl Iterator<Item = String>) -> String {
    lines.map(|line| line + "\n").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(cluster: Cluster, provider: Option<&str>, expect: &[&str]) {
        let standing = Standing {
            cluster,
            provider: provider.map(str::to_owned),
            no_provider: "you are logged out".to_owned(),
        };
        let next = standing.next();
        let commands: Vec<_> = next
            .iter()
            .map(|next| next.command.trim_start_matches("kubectl bind "))
            .collect();
        assert_eq!(commands, expect, "{standing:?}");
        let text = standing.text(&next);
        assert!(text.contains(provider.unwrap_or("you are logged out")), "{text}");
    }

    #[test]
    fn what_is_missing_comes_first() {
        let bound = |all, unready| Cluster::Bound { all, unready };
        check(Cluster::NoKonnector, None, &["deploy", "login URL", "--help"]);
        check(bound(0, 0), None, &["login URL", "--help"]);
        check(bound(0, 0), Some("https://b"), &["templates", "TEMPLATE", "--help"]);
        check(
            bound(2, 0),
            Some("https://b"),
            &["templates", "TEMPLATE", "status", "--help"],
        );
        check(bound(2, 1), None, &["login URL", "status", "check", "--help"]);
        check(
            Cluster::Unknown("away\nfor long".to_owned()),
            None,
            &["login URL", "--help"],
        );
    }

    #[test]
    fn the_standing_is_told_in_a_line_each() {
        let standing = Standing {
            cluster: Cluster::Bound { all: 3, unready: 1 },
            provider: None,
            no_provider: "no server is given\nand more".to_owned(),
        };
        let expect = "\
This cluster:  3 bound, 1 not ready
The provider:  no server is given

Next:
  kubectl bind login URL   log in at a provider
  kubectl bind status      see which bindings are not ready
  kubectl bind check       look for what is wrong, and what mends it
  kubectl bind --help      show all commands
";
        assert_eq!(standing.text(&standing.next()), expect);
    }
}
