//! `apiservice --dry-run`: prints what a bind would install.

use std::{collections::BTreeSet, io::Write};

use jiff::Timestamp;

use super::Bind;
use crate::{
    commands::Context,
    errors::Failure,
    install::{
        manifests::{self, Kubeconfig},
        plan::{self, Installed},
        write::WriteKind,
    },
};

const MINTED_LATER: &str = "<the provider makes it when the template is bound>";
const KEPT: &str = "<stays as it is; --show-secrets shows it>";

/// Prints all manifests, and on standard error which of them would be created or changed.
pub(super) fn run<W: Write>(context: &mut Context<W>, binds: &[Bind<'_>]) -> Result<(), Failure> {
    let now = Timestamp::now();
    let (mut documents, mut changes) = (Vec::new(), BTreeSet::new());
    for bind in binds {
        let kubeconfig = shown(&bind.seen, &bind.secret.key, bind.args.show_secrets, now);
        let manifests = bind.manifests(&bind.offer, kubeconfig);
        for write in plan::plan(&manifests, &bind.seen, now)? {
            let verb = if write.kind == WriteKind::Create {
                "create"
            } else {
                "change"
            };
            let change = format!("would {verb} {write}");
            // Several binds need the same namespace.
            if changes.insert(change.clone()) {
                context.steps.note(&change);
            }
        }
        for document in manifests::documents(&manifests)? {
            if !documents.contains(&document) {
                documents.push(document);
            }
        }
    }
    if changes.is_empty() {
        context.steps.note("would change nothing");
    }
    context.printer.documents(&documents)
}

/// The kubeconfig to print, or the text in its place.
fn shown(seen: &Installed, key: &str, show_secrets: bool, now: Timestamp) -> Kubeconfig {
    if !seen
        .credential
        .as_ref()
        .is_some_and(|credential| credential.is_valid_at(now))
    {
        return Kubeconfig::Hidden(MINTED_LATER);
    }
    let data = seen.secret.as_ref().and_then(|secret| secret.data.as_ref());
    match data.and_then(|data| data.get(key)) {
        Some(document) if show_secrets => Kubeconfig::Document(document.0.clone()),
        Some(_) => Kubeconfig::Hidden(KEPT),
        None => Kubeconfig::Hidden(MINTED_LATER),
    }
}

#[cfg(test)]
mod tests;
