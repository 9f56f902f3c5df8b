//! `revoke`: ends all credentials of a contract, as its owner through the backend, or as the provider's admin on its cluster.

pub(super) mod admin;

use std::io::{IsTerminal as _, Write};

use jiff::Timestamp;
use serde::Serialize;

use super::Context;
use crate::{
    args::RevokeArgs,
    claims::is_plain_yes,
    consumer::Consumer,
    errors::{Exit, Failure},
    install::owner::CredentialOwner,
    render::{
        output::{Format, joined, printable},
        steps::Steps,
    },
};

/// The longest reason, in characters, as the backend limits it.
const REASON_LENGTH_MAX: usize = 1024;

/// What was revoked, or would be.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Revoked {
    contract: String,
    /// When; absent for a dry run.
    #[serde(skip_serializing_if = "Option::is_none")]
    time: Option<Timestamp>,
    /// Number of deleted anchors, Secrets that tokens are bound to; each may have carried several tokens. Absent for a dry run of
    /// the owner, who does not see them.
    #[serde(skip_serializing_if = "Option::is_none")]
    anchors: Option<usize>,
    /// What is not synced any more.
    affected: Vec<String>,
    /// The command that gives new credentials.
    bind_again: String,
}

/// `kubectl bind revoke NAME`
pub(crate) async fn run<W: Write>(context: &mut Context<W>, args: &RevokeArgs) -> Result<(), Failure> {
    check_reason(args.reason.as_deref())?;
    let admin = args.provider.cluster(&context.settings.cluster);
    let named = named(context, args).await?;
    let reason = args.reason.as_deref();
    let steps = &mut context.steps;
    let revoked = if let Some(cluster) = admin {
        let contract = admin::Contract::open(cluster, &named.contract, named.uid.as_deref()).await?;
        let affected = contract.exports().await?;
        announce(&named.contract, &affected, steps);
        let (time, anchors) = if args.dry_run {
            (None, contract.anchors().await?.len())
        } else {
            confirm(args, &named.contract)?;
            let (time, anchors) = contract.revoke(&args.server_namespace, reason, steps).await?;
            (Some(time), anchors)
        };
        named.revoked(time, Some(anchors), affected)
    } else {
        let provider = context.settings.provider()?;
        let mut affected = named.affected.clone();
        if args.dry_run {
            // Fails for a contract that does not exist, or that the caller does not own. Only here: a revocation waits for nothing.
            let exports = provider.exports(&named.contract).await?;
            if affected.is_empty() {
                let namespace = &named.contract;
                affected.extend(
                    exports
                        .iter()
                        .map(|export| format!("APIServiceExport {namespace}/{export}")),
                );
            }
            announce(&named.contract, &affected, steps);
            named.revoked(None, None, affected)
        } else {
            announce(&named.contract, &affected, steps);
            confirm(args, &named.contract)?;
            let answer = provider.revoke(&named.contract, reason.unwrap_or_default()).await?;
            let time = answer.revocation_time;
            let time = time.and_then(|time| Timestamp::from_second(time.seconds).ok());
            let anchors = usize::try_from(answer.revoked_count).unwrap_or_default();
            named.revoked(time.or_else(|| Some(Timestamp::now())), Some(anchors), affected)
        }
    };
    if !args.dry_run {
        context
            .steps
            .done(&format!("revoked the credentials of contract {}", revoked.contract));
    }
    print(context, &revoked)
}

/// Refuses a reason that is too long.
pub(super) fn check_reason(reason: Option<&str>) -> Result<(), Failure> {
    if reason.is_some_and(|reason| reason.chars().count() > REASON_LENGTH_MAX) {
        return Err(Failure::Usage(format!(
            "--reason is longer than {REASON_LENGTH_MAX} characters; write a shorter one"
        )));
    }
    Ok(())
}

/// The contract, as this cluster or a flag names it.
struct Named {
    contract: String,
    /// UID of the contract namespace, if this cluster knows it.
    uid: Option<String>,
    /// Bindings and bundles of this cluster that use the contract.
    affected: Vec<String>,
    /// The arguments of `kubectl bind renew`.
    renew: String,
}

impl Named {
    fn revoked(self, time: Option<Timestamp>, anchors: Option<usize>, affected: Vec<String>) -> Revoked {
        Revoked {
            contract: self.contract,
            time,
            anchors,
            affected,
            bind_again: format!("kubectl bind renew {}", self.renew),
        }
    }
}

async fn named<W: Write>(context: &Context<W>, args: &RevokeArgs) -> Result<Named, Failure> {
    if let Some(contract) = &args.contract {
        return Ok(Named {
            contract: contract.clone(),
            uid: None,
            affected: Vec::new(),
            renew: "NAME".to_owned(),
        });
    }
    let name = args.name.as_deref().unwrap_or_default();
    let consumer = Consumer::connect(&context.settings).await?;
    let owner = consumer.owner(name, args.bundle).await?;
    let contract = contract_namespace(&consumer, &owner).await?;
    Ok(Named {
        affected: users(&consumer, &contract).await?,
        uid: owner.contract_uid().map(ToOwned::to_owned),
        renew: match owner {
            CredentialOwner::Binding(_) => name.to_owned(),
            CredentialOwner::Bundle(_) => format!("--bundle {name}"),
        },
        contract,
    })
}

/// The contract of a binding or a bundle of this cluster, and its UID if this cluster knows it.
pub(super) async fn contract_of<W: Write>(
    context: &Context<W>,
    name: &str,
    bundle: bool,
) -> Result<(String, Option<String>), Failure> {
    let consumer = Consumer::connect(&context.settings).await?;
    let owner = consumer.owner(name, bundle).await?;
    let contract = contract_namespace(&consumer, &owner).await?;
    Ok((contract, owner.contract_uid().map(ToOwned::to_owned)))
}

/// The contract of a binding or a bundle, by its status or else by its newest credential.
async fn contract_namespace(consumer: &Consumer, owner: &CredentialOwner) -> Result<String, Failure> {
    if let Some(contract) = owner.contract() {
        return Ok(contract.to_owned());
    }
    let newest = consumer.newest_credential_of(owner).await;
    let (credential, _) = newest.map_err(|problem| Failure::UnknownContract {
        owner: owner.to_string(),
        why: problem.to_string(),
    })?;
    Ok(credential.namespace)
}

/// The bindings and bundles of this cluster that use a contract.
async fn users(consumer: &Consumer, contract: &str) -> Result<Vec<String>, Failure> {
    let bundles = match consumer.bundles().await {
        Err(failure) if failure.exit() == Exit::Denied => Vec::new(),
        bundles => bundles?,
    };
    let bindings = consumer.bindings().await?.into_iter().map(CredentialOwner::from);
    let owners = bindings.chain(bundles.into_iter().map(CredentialOwner::from));
    let users = owners.filter(|owner| owner.contract() == Some(contract));
    Ok(users.map(|owner| owner.to_string()).collect())
}

fn announce(contract: &str, affected: &[String], steps: &Steps) {
    steps.note(&format!(
        "every konnector loses its access to contract {contract}, until an owner of the contract binds again"
    ));
    if !affected.is_empty() {
        steps.note(&format!(
            "these are not synced any more, and their objects stay: {}",
            joined(affected)
        ));
    }
}

/// Asks the user, unless a flag has answered.
fn confirm(args: &RevokeArgs, contract: &str) -> Result<(), Failure> {
    if args.yes {
        return Ok(());
    }
    let what = format!("the credentials of contract {contract}");
    if !(std::io::stdin().is_terminal() && std::io::stderr().is_terminal()) {
        return Err(Failure::NoTerminal(what));
    }
    let mut terminal = std::io::stderr().lock();
    write!(
        terminal,
        "{}",
        printable(&format!("Revoke all credentials of contract {contract}? [y/N] "))
    )?;
    terminal.flush()?;
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer)?;
    if is_plain_yes(&answer) {
        return Ok(());
    }
    Err(Failure::NotConfirmed(what))
}

fn print<W: Write>(context: &mut Context<W>, revoked: &Revoked) -> Result<(), Failure> {
    let printer = &mut context.printer;
    match printer.format() {
        Format::Json | Format::Yaml => printer.document(revoked),
        Format::Name => printer.text(&format!("{}\n", printable(&revoked.contract))),
        Format::Table | Format::Wide => printer.text(&format!("{}\n", printable(&shown(revoked)))),
    }
}

fn shown(revoked: &Revoked) -> String {
    let contract = &revoked.contract;
    let again = &revoked.bind_again;
    match revoked.time {
        None => format!(
            "the credentials of contract {contract} would be revoked (dry run); after that, bind again with `{again}`"
        ),
        Some(time) => {
            format!("the credentials of contract {contract} are revoked since {time}; bind again with `{again}`")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn revoked(time: Option<Timestamp>) -> Revoked {
        Revoked {
            contract: "kube-bind-x".to_owned(),
            time,
            anchors: Some(1),
            affected: vec!["APIServiceBinding cowboys".to_owned()],
            bind_again: "kubectl bind renew cowboys".to_owned(),
        }
    }

    #[test]
    fn the_result_says_how_to_bind_again() {
        let dry = shown(&revoked(None));
        assert!(
            dry.contains("would be") && dry.contains("`kubectl bind renew cowboys`"),
            "{dry}"
        );
        let done = shown(&revoked(Some(Timestamp::UNIX_EPOCH)));
        assert!(done.contains("are revoked since 1970-01-01T00:00:00Z"), "{done}");
    }
}
