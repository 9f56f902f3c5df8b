//! `--dry-run`: shows what would be installed.

use std::io::Write;

use jiff::Timestamp;

use super::Bind;
use crate::{commands::Context, errors::Failure, manifests::Kubeconfig, plan, plan::Installed};

const MINTED_LATER: &str = "<the provider makes it when the template is bound>";
const KEPT: &str = "<stays as it is; --show-secrets shows it>";

/// Prints all manifests, and says on standard error which of them would change something.
pub(super) fn run<W: Write>(context: &mut Context<W>, bind: &Bind<'_>) -> Result<(), Failure> {
    let kubeconfig = shown(&bind.seen, &bind.secret.key, bind.args.show_secrets, Timestamp::now());
    let manifests = bind.manifests(&bind.offer, kubeconfig);
    let ops = plan::plan(&manifests, &bind.seen, Timestamp::now())?;
    for op in &ops {
        context.steps.note(&format!(
            "would {} {}",
            if op.exists { "change" } else { "create" },
            op.object
        ));
    }
    if ops.is_empty() {
        context.steps.note("would change nothing");
    }
    context.printer.documents(&manifests.documents()?)
}

/// What stands in place of the kubeconfig.
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
        Some(document) if show_secrets => Kubeconfig::Is(document.0.clone()),
        Some(_) => Kubeconfig::Hidden(KEPT),
        None => Kubeconfig::Hidden(MINTED_LATER),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        kubeconfig::tests::{kubeconfig, parse},
        manifests::tests::manifests,
    };

    fn seen() -> Installed {
        let document = kubeconfig(100, 100);
        Installed {
            secret: Some(manifests(Kubeconfig::Is(document.to_string().into_bytes())).secret),
            credential: parse(&document).ok(),
            ..Installed::default()
        }
    }

    #[test]
    fn a_secret_is_shown_on_request_alone() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let shown = |seen: &Installed, show: bool, now: i64| match shown(seen, "kubeconfig", show, at(now)) {
            Kubeconfig::Is(document) => String::from_utf8(document).unwrap(),
            Kubeconfig::Hidden(words) => words.to_owned(),
        };
        assert_eq!(shown(&seen(), false, 50), KEPT);
        assert!(shown(&seen(), true, 50).contains("hunter2"));
        assert_eq!(shown(&seen(), true, 150), MINTED_LATER);
        assert_eq!(shown(&Installed::default(), true, 50), MINTED_LATER);
    }
}
