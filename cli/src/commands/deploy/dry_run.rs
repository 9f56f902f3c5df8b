//! `--dry-run=client`: prints what a first installation applies, and asks nobody.

use std::{collections::BTreeSet, io::Write};

use bindery_api::v1alpha2::GroupResource;
use serde_json::Value;

use super::{answer, asked, bind, bundle};
use crate::{
    applied::reference,
    args::DeployArgs,
    commands::Context,
    deploy::{self, Answer},
    errors::Failure,
    manifests::Kubeconfig,
    output::Format,
};

const HIDDEN: &str = "<the provider's kubeconfig; --show-secrets shows it>";

pub(super) fn run<W: Write>(
    context: &mut Context<W>,
    args: &DeployArgs,
    answer: Option<(String, Answer)>,
) -> Result<(), Failure> {
    let (konnector, _) = deploy::choose(&asked(args), None)?;
    let mut bundled = args.bundle_resource.iter().cloned().collect();
    let bound = bound(args, answer, &mut bundled)?;
    let mut all = deploy::everything(&konnector, &bundled)?;
    all.extend(bound);
    match context.printer.format() {
        Format::Name => {
            let names: Vec<_> = all.iter().map(reference).collect();
            context.printer.text(&(names.join("\n") + "\n"))
        }
        _ => context.printer.documents(&all),
    }
}

fn bound(
    args: &DeployArgs,
    answer: Option<(String, Answer)>,
    bundled: &mut BTreeSet<GroupResource>,
) -> Result<Vec<Value>, Failure> {
    let shown = |kubeconfig: &[u8]| {
        if args.show_secrets {
            Kubeconfig::Is(kubeconfig.to_vec())
        } else {
            Kubeconfig::Hidden(HIDDEN)
        }
    };
    match (answer, &args.bundle) {
        (None, _) => Ok(Vec::new()),
        (Some((_, answer)), Some(name)) => {
            let (kubeconfig, requests) = bundle::parts(answer);
            bind::check_rejected(&requests, &args.answers)?;
            let (wanted, resources) = bundle::afresh(name, &requests, &args.answers, shown(&kubeconfig));
            bundled.extend(resources);
            bundle::documents(&wanted)
        }
        (Some((from, answer)), None) => {
            let response = answer::response(&from, answer)?;
            bind::check_rejected(&response.requests, &args.answers)?;
            let mut all = Vec::new();
            for request in &response.requests {
                let manifests = bind::afresh(request, &args.answers, shown(&response.kubeconfig));
                all.extend(
                    manifests
                        .documents()?
                        .into_iter()
                        .filter(|it| it["kind"] != "Namespace"),
                );
            }
            Ok(all)
        }
    }
}
