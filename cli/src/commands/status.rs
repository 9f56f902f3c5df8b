//! `status`: the bindings and bundles of this cluster.

use std::io::Write;

use bindery_api::{
    Conditions as _, conditions, names,
    v1alpha2::{APIServiceBinding, APIServiceBindingBundle},
};
use jiff::Timestamp;
use kube::ResourceExt;
use serde_json::json;

use super::Context;
use crate::{
    args::StatusArgs,
    consumer::{self, Consumer, bundle_of},
    errors::{Exit, Failure},
    kubeconfig::Credential,
    output::{Format, Show, age},
    tree::{self, BindingStatus, CredentialStatus},
};

/// `kubectl bind status [NAME]`
pub(crate) async fn run<W: Write>(context: &mut Context<W>, args: &StatusArgs) -> Result<(), Failure> {
    let consumer = Consumer::connect(&context.settings).await?;
    let (bundles, bindings) = tokio::join!(consumer.bundles(), consumer.bindings());
    let mut bindings = bindings?;
    let mut bundles = match bundles {
        // Whoever may see bindings alone is shown those.
        Err(failure) if failure.exit() == Exit::Denied => {
            context.steps.note(&format!("bundles are not shown: {failure}"));
            Vec::new()
        }
        bundles => bundles?,
    };
    bundles.sort_by_key(ResourceExt::name_any);
    bindings.sort_by_key(ResourceExt::name_any);
    let found = select(args.name.as_deref(), bundles, bindings)?;
    let mut statuses = Vec::with_capacity(found.bindings.len());
    for binding in found.bindings {
        let credential = credential(&consumer, &binding).await;
        let bundle = bundle_of(&binding).map(|(name, _)| name.to_owned());
        statuses.push(BindingStatus {
            binding,
            bundle,
            credential,
        });
    }
    let printer = &mut context.printer;
    match printer.format() {
        Format::Json | Format::Yaml if found.is_one_binding => match statuses.first() {
            Some(status) => printer.document(status),
            None => Ok(()),
        },
        Format::Json | Format::Yaml => printer.document(&json!({ "items": statuses, "bundles": found.bundles })),
        Format::Name => printer.text(&references(&statuses, &found.bundles)),
        format => {
            let nothing = statuses.is_empty() && found.bundles.is_empty();
            if nothing {
                context.steps.note("nothing is bound on this cluster");
            }
            let now = Timestamp::now();
            if !found.bundles.is_empty() {
                printer.list(&found.bundles, now)?;
                printer.text("\n")?;
            }
            printer.text(&tree::render(&statuses, now, format == Format::Wide))
        }
    }
}

/// What is to be shown.
struct Found {
    bundles: Vec<APIServiceBindingBundle>,
    bindings: Vec<APIServiceBinding>,
    /// It was asked for by name.
    is_one_binding: bool,
}

/// The binding of a name, else the bundle of that name with its bindings; all without a name.
fn select(
    name: Option<&str>,
    mut bundles: Vec<APIServiceBindingBundle>,
    mut bindings: Vec<APIServiceBinding>,
) -> Result<Found, Failure> {
    let mut is_one_binding = false;
    if let Some(name) = name {
        is_one_binding = bindings.iter().any(|binding| binding.name_any() == name);
        bundles.retain(|bundle| !is_one_binding && bundle.name_any() == name);
        if is_one_binding {
            bindings.retain(|binding| binding.name_any() == name);
        } else {
            let uid = bundles.first().and_then(ResourceExt::uid).unwrap_or_default();
            bindings.retain(|binding| bundle_of(binding).is_some_and(|(_, of)| of == uid));
        }
        if !is_one_binding && bundles.is_empty() {
            return Err(Failure::NeitherBindingNorBundle(name.to_owned()));
        }
    }
    Ok(Found {
        bundles,
        bindings,
        is_one_binding,
    })
}

fn references(statuses: &[BindingStatus], bundles: &[APIServiceBindingBundle]) -> String {
    let bundles = bundles.iter().map(Show::reference);
    let bindings = statuses.iter().map(|status| status.binding.reference());
    bundles.chain(bindings).map(|reference| reference + "\n").collect()
}

impl Show for APIServiceBindingBundle {
    const HEADINGS: &'static [&'static str] = &[
        "BUNDLE",
        "PROVIDER",
        "DISCOVERED",
        "BOUND",
        "READY",
        "AGE",
        "MESSAGE",
        "CONTRACT",
        "SECRET",
        "LAST SYNC",
    ];
    const PLAIN: usize = 7;

    fn cells(&self, now: Timestamp) -> Vec<String> {
        let known = self.status.clone().unwrap_or_default();
        let or_unknown = |text: Option<String>| text.unwrap_or_else(|| "<unknown>".to_owned());
        let count = |count: Option<i32>| or_unknown(count.map(|count| count.to_string()));
        let ready = self.condition(conditions::READY);
        let going = self.metadata.deletion_timestamp.is_some();
        vec![
            self.name_any(),
            or_unknown(known.provider_pretty_name),
            count(known.discovered_services),
            count(known.bound_services),
            ready.map_or("Unknown", |ready| ready.status.as_str()).to_owned(),
            age(self.creation_timestamp().map(|time| time.0), now),
            match ready {
                _ if going => "it is being deleted".to_owned(),
                None => "the konnector has not seen it yet".to_owned(),
                Some(ready) => ready.message.clone(),
            },
            or_unknown(known.provider_namespace),
            self.spec.kubeconfig_secret_ref.to_string(),
            age(known.last_sync_time.map(|time| time.0), now),
        ]
    }

    fn reference(&self) -> String {
        format!("apiservicebindingbundle.kube-bind.io/{}", self.name_any())
    }
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
    use bindery_api::{
        conditions::{Severity, false_condition},
        v1alpha2::{APIServiceBindingBundleSpec, APIServiceBindingBundleStatus, APIServiceBindingSpec},
    };
    use kube::Resource as _;

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

    fn bundle(name: &str) -> APIServiceBindingBundle {
        let mut bundle = APIServiceBindingBundle::new(name, APIServiceBindingBundleSpec::default());
        bundle.metadata.uid = Some(format!("uid-of-{name}"));
        bundle
    }

    fn binding(name: &str, of: Option<&str>) -> APIServiceBinding {
        let mut binding = APIServiceBinding::new(name, APIServiceBindingSpec::default());
        binding.metadata.owner_references = of.and_then(|of| Some(vec![bundle(of).controller_owner_ref(&())?]));
        binding
    }

    /// Names that are shown.
    #[track_caller]
    fn check_select(name: Option<&str>, expect: Option<(&[&str], &[&str])>) {
        let bindings = vec![
            binding("a", Some("acme")),
            binding("acme2", None),
            binding("b", Some("acme2")),
        ];
        let found = select(name, vec![bundle("acme"), bundle("acme2")], bindings).ok();
        let found = found.map(|found| {
            let bundles: Vec<_> = found.bundles.iter().map(ResourceExt::name_any).collect();
            (
                bundles,
                found.bindings.iter().map(ResourceExt::name_any).collect::<Vec<_>>(),
            )
        });
        let expect = expect.map(|(bundles, bindings)| {
            let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
            (owned(bundles), owned(bindings))
        });
        assert_eq!(found, expect, "{name:?}");
    }

    #[test]
    fn a_name_is_that_of_a_binding_and_else_of_a_bundle() {
        check_select(None, Some((&["acme", "acme2"], &["a", "acme2", "b"])));
        check_select(Some("a"), Some((&[], &["a"])));
        check_select(Some("acme"), Some((&["acme"], &["a"])));
        check_select(Some("acme2"), Some((&[], &["acme2"])));
        check_select(Some("x"), None);
    }

    #[test]
    fn a_bundle_shows_what_it_found_and_bound() {
        let mut acme = bundle("acme");
        acme.status = Some(APIServiceBindingBundleStatus {
            provider_pretty_name: Some("Acme Inc.".to_owned()),
            discovered_services: Some(3),
            bound_services: Some(2),
            ..APIServiceBindingBundleStatus::default()
        });
        let broken = false_condition(conditions::READY, Severity::Warning, "SyncErrors", "export x: taken");
        acme.set_condition(broken, Timestamp::UNIX_EPOCH);
        let cells = acme.cells(Timestamp::UNIX_EPOCH);
        assert_eq!(cells.len(), APIServiceBindingBundle::HEADINGS.len());
        let plain = ["acme", "Acme Inc.", "3", "2", "False", "<unknown>", "export x: taken"];
        assert_eq!(cells[..APIServiceBindingBundle::PLAIN], plain);
        assert!(bundle("new").cells(Timestamp::UNIX_EPOCH)[6].contains("has not seen"));
    }

    #[test]
    fn the_one_that_lives_longest_counts() {
        check(100, &[], (100, false));
        check(100, &[90], (100, false));
        check(100, &[110, 130, 120], (130, true));
    }
}
