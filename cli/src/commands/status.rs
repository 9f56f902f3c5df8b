//! `status`: the bindings of this cluster.

use std::io::Write;

use bindery_api::{names, v1alpha2::APIServiceBinding};
use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::json;

use super::Context;
use crate::{
    args::StatusArgs,
    consumer::{self, Consumer},
    errors::Failure,
    kubeconfig::Credential,
    output::Format,
    tree::{self, BindingStatus, CredentialStatus},
};

/// `kubectl bind status [BINDING]`
pub(crate) async fn run<W: Write>(context: &mut Context<W>, args: &StatusArgs) -> Result<(), Failure> {
    let consumer = Consumer::connect(&context.settings).await?;
    let mut bindings = match &args.binding {
        Some(name) => vec![consumer.binding(name).await?],
        None => consumer.bindings().await?,
    };
    bindings.sort_by_key(ResourceExt::name_any);
    let mut statuses = Vec::with_capacity(bindings.len());
    for binding in bindings {
        let credential = credential(&consumer, &binding).await;
        statuses.push(BindingStatus { binding, credential });
    }
    let printer = &mut context.printer;
    match printer.format() {
        Format::Json | Format::Yaml if args.binding.is_some() => match statuses.first() {
            Some(status) => printer.document(status),
            None => Ok(()),
        },
        Format::Json | Format::Yaml => printer.document(&json!({ "items": statuses })),
        Format::Name => printer.text(&references(&statuses)),
        format => {
            if statuses.is_empty() {
                context.steps.note("nothing is bound on this cluster");
            }
            printer.text(&tree::render(&statuses, Timestamp::now(), format == Format::Wide))
        }
    }
}

fn references(statuses: &[BindingStatus]) -> String {
    let reference = |status: &BindingStatus| format!("apiservicebinding.kube-bind.io/{}\n", status.binding.name_any());
    statuses.iter().map(reference).collect()
}

/// What can be seen of a binding's credentials. That they cannot be seen is no failure: few may read Secrets.
async fn credential(consumer: &Consumer, binding: &APIServiceBinding) -> CredentialStatus {
    let reference = &binding.spec.kubeconfig_secret_ref;
    let secret = reference.to_string();
    let problem = |problem: String| CredentialStatus {
        secret: secret.clone(),
        problem: Some(problem),
        ..CredentialStatus::default()
    };
    let found = match consumer.secret(reference).await {
        Ok(Some(found)) => found,
        Ok(None) => return problem("which does not exist".to_owned()),
        Err(failure) => return problem(format!("which is not visible to you ({failure})")),
    };
    let document = found.data.as_ref().and_then(|data| data.get(&reference.key));
    let installed = match document.map(|document| Credential::parse(&document.0)) {
        Some(Ok(credential)) => credential,
        Some(Err(error)) => return problem(format!("whose kubeconfig is refused: {error}")),
        None => return problem(format!("which has no key {:?}", reference.key)),
    };
    let contract = binding
        .status
        .as_ref()
        .and_then(|status| status.contract_uid.as_deref());
    let renewed = match contract {
        Some(contract) => consumer
            .renewed(&reference.namespace, contract)
            .await
            .unwrap_or_default()
            .iter()
            .filter_map(|secret| consumer::credential(secret, names::KUBECONFIG_KEY))
            .collect(),
        None => Vec::new(),
    };
    let (newest, renewed) = newest(installed, renewed);
    CredentialStatus {
        secret,
        server: Some(newest.server),
        expires: newest.expires,
        renewable_until: newest.renewable_until,
        renewed,
        problem: None,
    }
}

/// The one that lives longest, and whether it is one that the konnector renewed.
fn newest(installed: Credential, renewed: Vec<Credential>) -> (Credential, bool) {
    let others = renewed.into_iter().map(|credential| (credential, true));
    others.fold((installed, false), |best, other| {
        // What does not say when it expires lives longest.
        let longer = match (best.0.expires, other.0.expires) {
            (Some(best), Some(other)) => other > best,
            (best, other) => best.is_some() && other.is_none(),
        };
        if longer { other } else { best }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kubeconfig::tests::{kubeconfig, parse};

    fn credential(expires: i64) -> Credential {
        parse(&kubeconfig(expires, expires)).unwrap()
    }

    #[track_caller]
    fn check(installed: i64, renewed: &[i64], expect: (i64, bool)) {
        let (newest, is_renewed) = newest(credential(installed), renewed.iter().copied().map(credential).collect());
        assert_eq!((newest.expires.unwrap().as_second(), is_renewed), expect);
    }

    #[test]
    fn the_one_that_lives_longest_counts() {
        check(100, &[], (100, false));
        check(100, &[90], (100, false));
        check(100, &[110, 130, 120], (130, true));
    }
}
