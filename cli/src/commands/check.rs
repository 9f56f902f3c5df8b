//! `check`: looks for what is wrong with this installation.

mod cluster;
mod contracts;
mod end_to_end;
mod lease;
mod login;
mod policies;
mod program;
mod provider;
mod read;
mod tls;

use std::{
    io::{IsTerminal as _, Write},
    time::Duration,
};

use futures::future::join_all;
use jiff::Timestamp;
use serde_json::json;
use tokio::time::Instant;

use super::Context;
use crate::{
    args::CheckArgs,
    check::{
        Finding, Marks, Outcome,
        facts::{ClusterFlags, Facts},
        judge, render, summary,
    },
    consumer::Consumer,
    errors::Failure,
    render::output::Format,
};
use cluster::Cluster;

/// How long each fact may take, unless `--timeout` is shorter.
const FACT_MAX: Duration = Duration::from_secs(10);
/// How long `check --wait` repeats itself, unless `--timeout` says otherwise.
const PATIENCE: Duration = Duration::from_mins(2);
/// The pause before each repetition.
const PAUSE: Duration = Duration::from_secs(2);

/// `kubectl bind check`
pub(crate) async fn run<W: Write>(context: &mut Context<W>, args: &CheckArgs) -> Result<(), Failure> {
    if args.end_to_end && args.provider.cluster(&context.settings.cluster).is_none() {
        return Err(end_to_end::missing("--provider-context or --provider-kubeconfig"));
    }
    let start = Instant::now();
    let patience = context.settings.patience(PATIENCE);
    let (findings, backend) = loop {
        let (facts, backend) = Box::pin(gather(context, args)).await?;
        let findings = judge(&facts);
        let failed = summary(&findings).failed;
        if failed == 0 || !args.wait || start.elapsed() + PAUSE > patience {
            break (findings, backend);
        }
        context.steps.note(&format!("failed: {failed}; checking again"));
        tokio::time::sleep(PAUSE).await;
    };
    print(context, &findings)?;
    match summary(&findings).failed {
        0 if args.end_to_end => Box::pin(end_to_end::run(context, args, backend)).await,
        0 => Ok(()),
        failed => Err(Failure::ChecksFailed(failed)),
    }
}

/// Reads all facts, as many at a time as do not depend on each other. Also returns the backend of the provider's cluster.
async fn gather<W: Write>(
    context: &Context<W>,
    args: &CheckArgs,
) -> Result<(Facts, Option<contracts::Endpoint>), Failure> {
    let settings = &context.settings;
    let limit = settings.timeout.map_or(FACT_MAX, |timeout| timeout.min(FACT_MAX));
    let own = settings.cluster.cluster();
    let admin = args.provider.cluster(&settings.cluster);
    let cluster = Cluster::open(own, limit).await?;
    let consumer = Consumer::connect(settings).await?;
    let api = cluster.api();
    let bindings = read::fact(limit, consumer.bindings());
    let bundles = read::fact(limit, consumer.bundles());
    let (api, bindings, bundles) = tokio::join!(api, bindings, bundles);

    let owners = contracts::owners(&bindings, &bundles);
    let credentials = contracts::credentials(&consumer, &owners, limit).await;
    let endpoints = contracts::endpoints(settings, &credentials.of)?;
    let konnector = program::konnector(&cluster, &api, &args.konnector);
    let contracts = join_all(
        credentials
            .of
            .iter()
            .map(|credential| contracts::contract(credential, limit)),
    );
    let backends = contracts::backends(&endpoints, limit);
    let provider = async {
        match admin {
            Some(admin) => provider::facts(admin, &args.server, &owners, &consumer, limit)
                .await
                .map(Some),
            None => Ok(None),
        }
    };
    let (konnector, contracts, backends, provider) = tokio::join!(konnector, contracts, backends, provider);
    let mut facts = Facts {
        own_version: env!("CARGO_PKG_VERSION"),
        flags: ClusterFlags {
            consumer: own.flags(),
            provider: admin.map(|admin| admin.flags()).unwrap_or_default(),
        },
        now: Timestamp::now(),
        consumer: cluster.facts(api),
        konnector: konnector?,
        bindings,
        bundles,
        unusable_secrets: credentials.unusable,
        contracts,
        backends,
        provider: provider?,
    };
    if let Some(admin) = admin {
        let login = login::facts(admin, settings, limit).await?;
        facts
            .provider
            .iter_mut()
            .for_each(|provider| provider.login = login.clone());
    }
    let backend = contracts::of_provider(endpoints, settings, &facts);
    Ok((facts, backend))
}

fn print<W: Write>(context: &mut Context<W>, findings: &[Finding]) -> Result<(), Failure> {
    let printer = &mut context.printer;
    match printer.format() {
        Format::Json | Format::Yaml => {
            let linked = |finding: &Finding| {
                let mut value = json!(finding);
                value["group"] = finding.check.group().title().into();
                value["see"] = finding.check.link().into();
                value
            };
            let findings_shown: Vec<_> = findings.iter().map(linked).collect();
            printer.document(&json!({ "summary": summary(findings), "findings": findings_shown }))
        }
        Format::Name => {
            let bad = findings.iter().filter(|finding| finding.outcome >= Outcome::Warning);
            let names: Vec<_> = bad.flat_map(|finding| ["check/", finding.check.id(), "\n"]).collect();
            printer.text(&names.concat())
        }
        Format::Table | Format::Wide => {
            let marks = if std::io::stdout().is_terminal() {
                Marks::Signs
            } else {
                Marks::Words
            };
            printer.text(&render(findings, marks))
        }
    }
}
