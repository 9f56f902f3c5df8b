//! `apiservice` and the short form: binds a template.

pub(super) mod consent;
mod dry_run;

use std::{io::Write, time::Duration};

use bindery_api::{
    Conditions as _, conditions, names,
    v1alpha2::{APIServiceBinding, APIServiceExportTemplateSpec, ClusterSecretKeyRef, Isolation, Scope},
};
use bindery_proto::v1alpha2::{BindableResourcesRequest, BindingResourceResponse, ClusterIdentity};
use bindery_sdk::objects;
use jiff::Timestamp;
use kube::ResourceExt as _;
use tokio::time::Instant;

use super::Context;
use crate::{
    args::BindArgs,
    claims::{self, Decision},
    consumer::Consumer,
    errors::Failure,
    kubeconfig::{Credential, KubeconfigError},
    manifests::{self, Install, Kubeconfig, Manifests},
    offer::{self, Offer},
    output::{Show, age, joined},
    placement,
    plan::{self, Installed},
    provider::{Provider, Wish},
    steps::Steps,
    wait::Watched,
};

/// How long a bind may take, unless a flag says otherwise.
const PATIENCE: Duration = Duration::from_mins(2);
/// One bind on its way.
struct Bind<'a> {
    args: &'a BindArgs,
    name: String,
    consumer: Consumer,
    secret: ClusterSecretKeyRef,
    seen: Installed,
    /// What the provider says would come of it.
    offer: Offer,
    /// What becomes of its claims.
    decision: Decision,
    /// Where its objects would stand.
    template: APIServiceExportTemplateSpec,
    /// The provider's isolation where the template has none.
    isolation: Option<Isolation>,
}

/// `kubectl bind apiservice TEMPLATE`
pub(crate) async fn run<W: Write>(context: &mut Context<W>, args: &BindArgs) -> Result<(), Failure> {
    let start = Instant::now();
    let patience = context.settings.patience(PATIENCE);
    let provider = Provider::new(&context.settings)?;
    let steps = &mut context.steps;
    let consumer = Consumer::connect(&context.settings).await?;
    let wish = wish(&consumer, args).await?;
    steps.done(&format!("this cluster is {}", wish.cluster.identity));
    let address = &context.settings.backend()?.address;
    let bind = Box::pin(Bind::prepare(args, &wish, consumer, &provider, address)).await?;
    steps.done(&offered(&bind.offer, &address.to_string()));
    bind.explain(steps);
    if args.dry_run {
        return dry_run::run(context, &bind);
    }
    consent::get(&bind)?;
    let pending = |request: &BindableResourcesRequest| steps.note(&waiting_for(request));
    let bound = provider.bind(&wish, patience, pending).await?;
    steps.done(&format!(
        "the provider made export {} in contract {}",
        bind.name, bound.response.provider_namespace
    ));
    bind.install(&bound.response, steps).await?;
    let binding = if args.wait {
        let left = patience.saturating_sub(start.elapsed());
        let ready = Watched::start(&bind.consumer, &bind.name, left).ready(steps).await?;
        steps.done(&format!("APIServiceBinding {} is ready", bind.name));
        let left = patience.saturating_sub(start.elapsed());
        super::claims::take_rights(&bind.consumer, &bind.name, &bind.decision.withdrawn, left, steps).await?;
        ready
    } else {
        bind.consumer.binding(&bind.name).await?
    };
    context.printer.one(&binding, Timestamp::now())
}

/// What is asked of the provider.
async fn wish(consumer: &Consumer, args: &BindArgs) -> Result<Wish, Failure> {
    let name = args.name.clone().unwrap_or_else(|| args.template.clone());
    check_name(&name, args.name.is_some())?;
    let identity = match &args.cluster_identity {
        Some(identity) => identity.clone(),
        None => consumer.identity().await?,
    };
    Ok(Wish {
        name,
        template: args.template.clone(),
        cluster: ClusterIdentity {
            identity,
            pretty_name: args.cluster_name.clone().unwrap_or_default(),
        },
    })
}

fn check_name(name: &str, chosen: bool) -> Result<(), Failure> {
    if offer::is_binding_name(name) {
        return Ok(());
    }
    let mend = if chosen {
        "choose another"
    } else {
        "choose one with --name"
    };
    Err(Failure::Usage(format!(
        "{name:?} cannot be the name of a binding, which has at most {} lower-case letters, digits and dashes; {mend}",
        names::NAMESPACE_LENGTH_MAX,
    )))
}

impl<'a> Bind<'a> {
    /// Looks at both sides and judges what would be installed. Writes nothing.
    async fn prepare(
        args: &'a BindArgs,
        wish: &Wish,
        consumer: Consumer,
        provider: &Provider<'_>,
        address: &bindery_sdk::Address,
    ) -> Result<Self, Failure> {
        let name = wish.name.clone();
        let binding = consumer.find_binding(&name).await?;
        let secret = match &binding {
            Some(binding) => binding.spec.kubeconfig_secret_ref.clone(),
            None => manifests::secret_ref(&name, &args.konnector.konnector_namespace),
        };
        let seen = consumer.installed(binding, &name, &secret).await?;
        plan::before_asking(&seen, address)?;
        let (preview, template) = tokio::try_join!(provider.preview(wish), provider.template(&wish.template))?;
        let offer = offer::judge(&preview.response, &name)?;
        claims::check_rejected(&offer.claims, &args.answers.reject_claims)?;
        let decision = claims::decide(&offer.claims, &args.answers.reject_claims, &seen);
        let template = objects::template(template.template).spec;
        let isolation = match (template.scope, template.isolation) {
            // Only to be shown: that it is not known keeps nobody from binding.
            (Scope::Cluster, None) => provider.isolation().await,
            _ => None,
        };
        let bind = Self {
            args,
            name,
            consumer,
            secret,
            seen,
            offer,
            decision,
            template,
            isolation,
        };
        bind.check_apis(&bind.offer).await?;
        // What stands in the way is found before the provider makes anything.
        plan::plan(
            &bind.manifests(&bind.offer, Kubeconfig::Hidden("")),
            &bind.seen,
            Timestamp::now(),
        )?;
        Ok(bind)
    }

    /// Says what whoever binds should know before anything is installed.
    fn explain(&self, steps: &Steps) {
        let place = placement::words(&self.template, self.isolation);
        steps.note(&format!("its objects stand on the provider {place}"));
        if let Some(warning) = placement::warning(&self.template, self.isolation) {
            steps.note(warning);
        }
        for claim in &self.offer.claims {
            consent::explain([claim], steps);
            if self.decision.rejected.contains(&claim.group_resource) {
                steps.note("which is rejected: nothing of it is read or written");
            }
        }
    }

    async fn check_apis(&self, offer: &Offer) -> Result<(), Failure> {
        let apis = self.consumer.apis(&offer.resources).await?;
        Ok(plan::foreign_apis(&apis, &self.name)?)
    }

    fn manifests(&self, offer: &Offer, kubeconfig: Kubeconfig) -> Manifests {
        let install = Install {
            binding: &self.name,
            template: Some(&self.args.template),
            offer,
            decision: &self.decision,
            secret: &self.secret,
            konnector: (
                &self.args.konnector.konnector_namespace,
                &self.args.konnector.konnector_service_account,
            ),
        };
        Manifests::new(&install, kubeconfig)
    }

    /// Judges the answer and installs what is missing of it.
    async fn install(&self, answer: &BindingResourceResponse, steps: &mut Steps) -> Result<(), Failure> {
        let offer = offer::judge(answer, &self.name)?;
        self.offer.same_claims(&offer)?;
        if offer != self.offer {
            self.check_apis(&offer).await?;
        }
        let kubeconfig = accept_kubeconfig(answer, &offer.contract, &self.seen)?;
        let manifests = self.manifests(&offer, Kubeconfig::Is(kubeconfig));
        let ops = plan::plan(&manifests, &self.seen, Timestamp::now())?;
        for op in &ops {
            self.consumer.apply(op).await?;
            steps.done(&format!(
                "{} {}",
                if op.exists { "changed" } else { "created" },
                op.object
            ));
        }
        if ops.is_empty() {
            steps.done("everything is installed already");
        }
        Ok(())
    }
}

/// The kubeconfig of an answer, if it may be installed.
pub(super) fn accept_kubeconfig(
    answer: &BindingResourceResponse,
    contract: &str,
    seen: &Installed,
) -> Result<Vec<u8>, Failure> {
    let kubeconfig = answer.kubeconfig.as_ref().ok_or(KubeconfigError::Missing)?;
    let credential = Credential::parse(&kubeconfig.kubeconfig)?.for_contract(contract)?;
    plan::same_contract(seen, &credential, &kubeconfig.contract_uid)?;
    Ok(kubeconfig.kubeconfig.to_vec())
}

/// What keeps the provider from being done, in words.
fn waiting_for(request: &BindableResourcesRequest) -> String {
    let conditions = request.status.iter().flat_map(|status| &status.conditions);
    match conditions
        .filter(|condition| condition.status == "False")
        .map(|condition| &condition.message)
        .next()
    {
        Some(message) => format!("waiting for the provider: {message}"),
        None => "waiting for the provider".to_owned(),
    }
}

fn offered(offer: &Offer, address: &str) -> String {
    let offered = format!("{address} offers {}", joined(&offer.resources));
    if offer.claims.is_empty() {
        return offered;
    }
    let claimed = offer.claims.iter().map(|claim| &claim.group_resource);
    format!("{offered}, and asks for {} of this cluster", joined(claimed))
}

impl Show for APIServiceBinding {
    const HEADINGS: &'static [&'static str] = &[
        "NAME",
        "PROVIDER",
        "RESOURCES",
        "READY",
        "AGE",
        "CONTRACT",
        "SECRET",
        "MESSAGE",
    ];
    const PLAIN: usize = 5;

    fn cells(&self, now: Timestamp) -> Vec<String> {
        let known = self.status.as_ref();
        let ready = self.condition(conditions::READY);
        vec![
            self.name_any(),
            known
                .and_then(|known| known.provider_pretty_name.clone())
                .unwrap_or_else(|| "<unknown>".to_owned()),
            joined(known.iter().flat_map(|known| &known.bound_schemas)),
            ready.map_or("Unknown", |ready| ready.status.as_str()).to_owned(),
            age(self.creation_timestamp().map(|time| time.0), now),
            known
                .and_then(|known| known.provider_namespace.clone())
                .unwrap_or_else(|| "<unknown>".to_owned()),
            self.spec.kubeconfig_secret_ref.to_string(),
            ready.map(|ready| ready.message.clone()).unwrap_or_default(),
        ]
    }

    fn reference(&self) -> String {
        format!("apiservicebinding.kube-bind.io/{}", self.name_any())
    }
}

#[cfg(test)]
mod tests {
    use bindery_api::v1alpha2::APIServiceBindingSpec;

    use super::*;
    use crate::errors::Exit;

    #[test]
    fn names_are_dns_labels() {
        for good in ["a", "cowboys", "west-1", &"x".repeat(63)] {
            assert!(check_name(good, true).is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a_b", &"x".repeat(64)] {
            let failure = check_name(bad, false).expect_err(bad);
            assert_eq!(failure.exit(), Exit::Usage);
            assert!(failure.to_string().contains("--name"), "{failure}");
        }
    }

    #[test]
    fn every_column_of_a_binding_has_a_cell() {
        let binding = APIServiceBinding::new("west", APIServiceBindingSpec::default());
        let cells = binding.cells(Timestamp::UNIX_EPOCH);
        assert_eq!(cells.len(), APIServiceBinding::HEADINGS.len());
        assert_eq!(cells[..5], ["west", "<unknown>", "<none>", "Unknown", "<unknown>"]);
    }

    #[test]
    fn claims_are_shown_before_anything_is_installed() {
        let offer = offer::judge(&offer::tests::answer(), "west").unwrap();
        assert_eq!(
            offered(&offer, "https://b"),
            "https://b offers cowboys.wildwest.dev, and asks for secrets of this cluster"
        );
    }
}
