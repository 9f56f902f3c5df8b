//! The commands, a module for each.

pub(crate) mod accept;
pub(crate) mod adopt;
pub(crate) mod apiservice;
pub(crate) mod catalog;
pub(crate) mod check;
pub(crate) mod claims;
pub(crate) mod complete;
mod consent;
pub(crate) mod deploy;
pub(crate) mod dev;
pub(crate) mod login;
pub(crate) mod logout;
pub(crate) mod next;
pub(crate) mod orphans;
pub(crate) mod provider;
pub(crate) mod renew;
pub(crate) mod retained;
pub(crate) mod revoke;
pub(crate) mod servers;
pub(crate) mod share;
pub(crate) mod small;
pub(crate) mod status;
pub(crate) mod token;
pub(crate) mod top;
pub(crate) mod unbind;
pub(crate) mod undeploy;
pub(crate) mod whoami;
pub(crate) mod why;

use std::io::Write;

use crate::{
    args::{Command, settings::Settings},
    errors::Failure,
    render::{output::Printer, steps::Steps},
};

/// The settings of the command line, and where a command prints.
pub(crate) struct Context<W> {
    pub(crate) settings: Settings,
    pub(crate) steps: Steps,
    pub(crate) printer: Printer<W>,
}

/// Runs a command.
pub(crate) async fn run<W: Write>(mut context: Context<W>, command: Command) -> Result<(), Failure> {
    let context = &mut context;
    match command {
        Command::Templates(args) => catalog::templates(context, &args).await,
        Command::Collections(args) => catalog::collections(context, &args).await,
        Command::Apiservice(args) => Box::pin(apiservice::run(context, &args)).await,
        Command::Status(args) => status::run(context, &args).await,
        Command::Why(args) => Box::pin(why::run(context, &args)).await,
        Command::Claims(args) => Box::pin(claims::run(context, &args)).await,
        Command::Accept(args) => Box::pin(accept::run(context, &args)).await,
        Command::Orphans(args) => Box::pin(orphans::run(context, &args)).await,
        Command::Retained(args) => Box::pin(retained::run(context, &args)).await,
        Command::Restore(args) => Box::pin(retained::restore(context, &args)).await,
        Command::Discard(args) => Box::pin(retained::discard(context, &args)).await,
        Command::Check(args) => Box::pin(check::run(context, &args)).await,
        Command::Top(args) => Box::pin(top::run(context, &args)).await,
        Command::Revoke(args) => Box::pin(revoke::run(context, &args)).await,
        Command::Share(args) => Box::pin(share::run(context, &args)).await,
        Command::Provider(args) => Box::pin(provider::run(context, &args)).await,
        Command::Renew(args) => Box::pin(renew::run(context, &args)).await,
        Command::Unbind(args) => Box::pin(unbind::run(context, &args)).await,
        Command::Deploy(args) => Box::pin(deploy::run(context, &args)).await,
        Command::Undeploy(args) => Box::pin(undeploy::run(context, &args)).await,
        Command::Dev(args) => Box::pin(dev::run(context, &args)).await,
        Command::Adopt(args) => Box::pin(adopt::run(context, &args)).await,
        Command::Login(args) => Box::pin(login::run(context, &args)).await,
        Command::Logout(args) => Box::pin(logout::run(context, &args)).await,
        Command::Whoami => Box::pin(whoami::run(context)).await,
        Command::Token(args) => Box::pin(token::run(context, &args)).await,
        Command::Server(args) => Box::pin(servers::run(context, &args)).await,
        Command::Next => Box::pin(next::run(context)).await,
        Command::Version => small::version(context).await,
        Command::ClusterIdentity => small::cluster_identity(context).await,
        Command::Completion(args) => small::completion(context, &args),
        // `args::parse` has turned the short form into `apiservice`.
        Command::Short(_) => Err(Failure::Usage("write `kubectl bind apiservice TEMPLATE`".to_owned())),
    }
}
