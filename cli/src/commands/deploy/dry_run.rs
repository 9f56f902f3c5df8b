//! `deploy --dry-run=client`: prints what a first installation applies, without a request to any cluster.

use std::{collections::BTreeSet, io::Write};

use super::{asked, bind::Bound};
use crate::{
    args::DeployArgs,
    commands::Context,
    errors::Failure,
    install::manifests::Kubeconfig,
    konnector,
    provider::response::Response,
    render::{applied::reference, output::Format},
};

const HIDDEN: &str = "<the provider's kubeconfig; --show-secrets shows it>";

pub(super) fn run<W: Write>(
    context: &mut Context<W>,
    args: &DeployArgs,
    answer: Option<&Response>,
) -> Result<(), Failure> {
    let (konnector, _) = konnector::choose(&asked(args), None)?;
    let mut bundled: BTreeSet<_> = args.bundle_resource.iter().cloned().collect();
    let mut bound = Vec::new();
    if let Some(answer) = answer {
        let kubeconfig = || {
            if args.show_secrets {
                Kubeconfig::Document(answer.kubeconfig.clone())
            } else {
                Kubeconfig::Hidden(HIDDEN)
            }
        };
        let (documents, resources) = Bound::afresh(args, answer, kubeconfig)?;
        bound = documents;
        bundled.extend(resources);
    }
    let mut all = konnector::everything(&konnector, &bundled)?;
    all.extend(bound);
    match context.printer.format() {
        Format::Name => {
            let names: Vec<_> = all.iter().map(reference).collect();
            context.printer.text(&(names.join("\n") + "\n"))
        }
        _ => context.printer.documents(&all),
    }
}
