//! `apiservice` and the short form: bind a template to this cluster.

mod dry_run;

use std::{io::Write, time::Duration};

use bindery_api::{
    conditions::ConditionStatus,
    names,
    v1alpha2::{APIServiceExportTemplateSpec, ClusterSecretKeyRef, Isolation, Scope},
};
use bindery_proto::v1alpha2::{BindableResourcesRequest, BindingResourceResponse, ClusterIdentity};
use bindery_sdk::objects;
use jiff::Timestamp;
use tokio::time::Instant;

use super::{Context, consent};
use crate::{
    args::BindArgs,
    claims::{self, Decision},
    consumer::{Consumer, wait},
    errors::Failure,
    install::{
        manifests::{self, Install, Kubeconfig, Manifests},
        plan::{self, Installed},
    },
    provider::{
        BindRequest, Provider,
        offer::{self, Offer},
    },
    render::{output::joined, placement, steps::Steps},
};

/// How long a bind may take, unless `--timeout` says otherwise.
const PATIENCE: Duration = Duration::from_mins(2);
/// A bind that was checked on both sides, before anything is written.
struct Bind<'a> {
    args: &'a BindArgs,
    name: String,
    consumer: Consumer,
    secret: ClusterSecretKeyRef,
    seen: Installed,
    /// The checked preview of what the provider wants installed: the APIs, its claims, and the contract namespace,
    /// which is the provider's namespace for this cluster.
    offer: Offer,
    /// Which claims of the offer are accepted and rejected, and which claims of the existing binding are withdrawn:
    /// they were accepted before and are not any more.
    decision: Decision,
    /// The template, which says where the provider keeps the objects.
    template: APIServiceExportTemplateSpec,
    /// The provider's default isolation, if the template has none: whether a cluster-scoped object gets a name prefix,
    /// is kept in a namespace of the contract, or keeps its name.
    isolation: Option<Isolation>,
}

/// `kubectl bind apiservice TEMPLATE`
pub(crate) async fn run<W: Write>(context: &mut Context<W>, args: &BindArgs) -> Result<(), Failure> {
    let start = Instant::now();
    let patience = context.settings.patience(PATIENCE);
    let provider = context.settings.provider()?;
    let steps = &mut context.steps;
    let consumer = Consumer::connect(&context.settings).await?;
    let request = request(&consumer, args).await?;
    steps.done(&format!("this cluster is {}", request.cluster.identity));
    let address = &context.settings.backend()?.address;
    let bind = Box::pin(Bind::prepare(args, &request, consumer, &provider, address)).await?;
    steps.done(&offered(&bind.offer, &address.to_string()));
    bind.explain(steps);
    if args.dry_run {
        return dry_run::run(context, &bind);
    }
    bind.consent()?;
    let pending = |request: &BindableResourcesRequest| steps.note(&waiting_for(request));
    let bound = provider.bind(&request, patience, pending).await?;
    steps.done(&format!(
        "the provider made export {} in contract {}",
        bind.name, bound.response.provider_namespace
    ));
    bind.install(&bound.response, steps).await?;
    let binding = if args.wait {
        let left = patience.saturating_sub(start.elapsed());
        // The owner names the kubeconfig Secret. Here it is the APIServiceBinding, never a bundle.
        let owner = bind.manifests(&bind.offer, Kubeconfig::Hidden("")).owner.into();
        let ready = wait::ready(&bind.consumer, &owner, left, steps).await?;
        steps.done(&format!("{ready} is ready"));
        let left = patience.saturating_sub(start.elapsed());
        // The konnector needs its rights on withdrawn claims until it has withdrawn the copies. Without --wait it keeps
        // them.
        super::claims::take_rights(&bind.consumer, &bind.name, &bind.decision.withdrawn, left, steps).await?;
        ready
    } else {
        bind.consumer.binding(&bind.name).await?.into()
    };
    context.printer.owner(&binding, Timestamp::now())
}

/// The bind to ask the provider for.
async fn request(consumer: &Consumer, args: &BindArgs) -> Result<BindRequest, Failure> {
    let name = args.name.clone().unwrap_or_else(|| args.template.clone());
    check_name(&name, args.name.is_some())?;
    let identity = match &args.cluster_identity {
        Some(identity) => identity.clone(),
        None => consumer.identity().await?,
    };
    Ok(BindRequest {
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
        "{name:?} cannot be the name of a binding: a name has 1 to {} lower-case letters, digits and dashes; {mend}",
        names::NAMESPACE_LENGTH_MAX,
    )))
}

impl<'a> Bind<'a> {
    /// Reads both sides and judges what would be installed. Writes nothing.
    async fn prepare(
        args: &'a BindArgs,
        request: &BindRequest,
        consumer: Consumer,
        provider: &Provider<'_>,
        address: &bindery_sdk::Address,
    ) -> Result<Self, Failure> {
        let name = request.name.clone();
        let binding = consumer.find_binding(&name).await?;
        let secret = match &binding {
            Some(binding) => binding.spec.kubeconfig_secret_ref.clone(),
            None => manifests::secret_ref(&name, &args.konnector.konnector_namespace),
        };
        let seen = consumer
            .installed(binding.map(Into::into), Some(&name), &secret)
            .await?;
        seen.refuse_other_backend(address)?;
        let (preview, template) = tokio::try_join!(provider.preview(request), provider.template(&request.template))?;
        let offer = offer::judge(&preview.response, &name)?;
        claims::check_rejected(&offer.claims, &args.answers.reject_claims)?;
        let decision = claims::decide(
            &offer.claims,
            &args.answers.reject_claims,
            seen.binding(),
            seen.cluster_role.as_ref(),
        );
        let template = objects::template(template.template).spec;
        let isolation = match (template.scope, template.isolation) {
            // Shown to the user only, so a bind goes on without it.
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
        // Conflicts on this cluster are found before the provider writes anything.
        plan::plan(
            &bind.manifests(&bind.offer, Kubeconfig::Hidden("")),
            &bind.seen,
            Timestamp::now(),
        )?;
        Ok(bind)
    }

    /// Tells the user where objects will be kept and what is claimed, before anything is installed.
    fn explain(&self, steps: &Steps) {
        let place = placement::words(&self.template, self.isolation);
        steps.note(&format!("the provider keeps its objects {place}"));
        if let Some(warning) = placement::warning(&self.template, self.isolation) {
            steps.note(warning);
        }
        consent::explain_offer(&self.offer, &self.decision, steps);
    }

    /// Asks about the claims of the bind; fails if the user does not accept them.
    fn consent(&self) -> Result<(), Failure> {
        consent::ask(
            claims::question(&self.offer.claims, &self.decision, self.seen.binding()),
            self.args.answers.accept_claims,
            (
                &format!("template {}", self.args.template),
                &joined(&self.decision.accepted),
            ),
            "nothing was bound",
        )
    }

    async fn check_apis(&self, offer: &Offer) -> Result<(), Failure> {
        let apis = self.consumer.apis(&offer.resources).await?;
        Ok(plan::refuse_foreign_apis(&apis, &self.name)?)
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
            with_namespace: true,
        };
        Manifests::of_binding(&install, kubeconfig)
    }

    /// Judges the provider's answer and installs the objects that are missing.
    async fn install(&self, answer: &BindingResourceResponse, steps: &mut Steps) -> Result<(), Failure> {
        let offer = offer::judge(answer, &self.name)?;
        offer::same_claims(&self.offer, &offer)?;
        if offer != self.offer {
            self.check_apis(&offer).await?;
        }
        // Fails if the answer has no kubeconfig, or one for another contract than that of the offer or of the installed
        // one.
        let kubeconfig = self.seen.accept(&offer.contract, answer.kubeconfig.as_ref())?;
        let manifests = self.manifests(&offer, Kubeconfig::Document(kubeconfig));
        let writes = plan::plan(&manifests, &self.seen, Timestamp::now())?;
        for write in &writes {
            self.consumer.write(write).await?;
            steps.done(&format!("{} {write}", write.past()));
        }
        if writes.is_empty() {
            steps.done("everything is installed already");
        }
        Ok(())
    }
}

/// What the provider's request waits for, in words.
fn waiting_for(request: &BindableResourcesRequest) -> String {
    let mut conditions = request.status.iter().flat_map(|status| &status.conditions);
    match conditions.find(|condition| condition.status == ConditionStatus::False.as_str()) {
        Some(condition) => format!("waiting for the provider: {}", condition.message),
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

#[cfg(test)]
mod tests {
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
    fn claims_are_shown_before_anything_is_installed() {
        let offer = offer::judge(&offer::tests::answer(), "west").unwrap();
        assert_eq!(
            offered(&offer, "https://b"),
            "https://b offers cowboys.wildwest.dev, and asks for secrets of this cluster"
        );
    }
}
