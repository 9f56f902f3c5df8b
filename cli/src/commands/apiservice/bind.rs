//! One bind: checked on both sides, then made.

use std::collections::BTreeSet;

use bindery_api::{
    conditions::ConditionStatus,
    names::{self, is_subdomain},
    v1alpha2::{APIServiceBinding, APIServiceExportTemplateSpec, ClusterSecretKeyRef, Isolation, Scope},
};
use bindery_proto::v1alpha2::{BindableResourcesRequest, BindingResourceResponse, ClusterIdentity};
use bindery_sdk::Address;
use jiff::Timestamp;
use tokio::time::Instant;

use crate::{
    args::BindArgs,
    claims::{self, Decision},
    commands::{claims::take_rights, consent},
    consumer::{Consumer, wait},
    errors::Failure,
    install::{
        manifests::{self, BindingInstall, ClaimRights, Kubeconfig, Manifests},
        owner::CredentialOwner,
        plan::{self, Installed},
    },
    provider::{
        BindRequest, Provider,
        offer::{self, Offer},
    },
    render::{output::joined, placement, steps::Steps},
};

/// A bind that was checked on both sides, before anything is written.
pub(super) struct Bind<'a> {
    pub(super) args: &'a BindArgs,
    /// What the provider is asked for: the template, the name of the binding, and this cluster.
    pub(super) request: BindRequest,
    pub(super) consumer: &'a Consumer,
    pub(super) secret: ClusterSecretKeyRef,
    pub(super) seen: Installed,
    /// The checked preview of what the provider wants installed: the APIs, its claims, and the contract namespace,
    /// which is the provider's namespace for this cluster.
    pub(super) offer: Offer,
    /// Which claims of the offer are accepted and rejected, and which claims of the existing binding are withdrawn:
    /// they were accepted before and are not any more.
    pub(super) decision: Decision,
    /// The namespaces that the claims of the binding concern; all if there are none.
    claim_namespaces: Vec<String>,
    /// Where the konnector gets its rights on claimed objects.
    claim_rights: ClaimRights,
    /// The template, which says where the provider keeps the objects.
    template: APIServiceExportTemplateSpec,
    /// The provider's default isolation, if the template has none: whether a cluster-scoped object gets a name prefix,
    /// is kept in a namespace of the contract, or keeps its name.
    isolation: Option<Isolation>,
}

/// The bind to ask the provider for. `of_collection` says whether the template is one of a collection, which takes no `--name`.
pub(super) fn request(
    template: &str,
    identity: &str,
    args: &BindArgs,
    of_collection: bool,
) -> Result<BindRequest, Failure> {
    let (name, source) = match &args.name {
        Some(name) => (name.clone(), NameSource::Typed),
        None if of_collection => (template.to_owned(), NameSource::Collection),
        None => (template.to_owned(), NameSource::Template),
    };
    check_name(&name, source)?;
    Ok(BindRequest {
        name,
        template: template.to_owned(),
        cluster: ClusterIdentity {
            identity: identity.to_owned(),
            pretty_name: args.cluster_name.clone().unwrap_or_default(),
        },
    })
}

/// Refuses a name that was typed and can be no name of a binding, before anything is asked. The name of a collection is none.
pub(super) fn check_typed(args: &BindArgs) -> Result<(), Failure> {
    match &args.name {
        Some(name) => check_name(name, NameSource::Typed),
        None if is_subdomain(&args.template) => Ok(()),
        None => check_name(&args.template, NameSource::Template),
    }
}

/// Where the name of a binding is from.
#[derive(Clone, Copy, Debug)]
enum NameSource {
    /// The user chose it with flag `--name`.
    Typed,
    /// It is that of the template that the user named.
    Template,
    /// It is that of a template of the collection that the user named.
    Collection,
}

fn check_name(name: &str, source: NameSource) -> Result<(), Failure> {
    if offer::is_binding_name(name) {
        return Ok(());
    }
    let mend = match source {
        NameSource::Typed => "choose another".to_owned(),
        NameSource::Template => "choose one with --name".to_owned(),
        NameSource::Collection => format!("bind template {name} by itself, with --name"),
    };
    Err(Failure::Usage(format!(
        "{name:?} cannot be the name of a binding: a name has 1 to {} lower-case letters, digits and dashes; {mend}",
        names::NAMESPACE_LENGTH_MAX,
    )))
}

impl<'a> Bind<'a> {
    /// Reads both sides and judges what would be installed. Writes nothing.
    pub(super) async fn prepare(
        args: &'a BindArgs,
        request: BindRequest,
        template: APIServiceExportTemplateSpec,
        consumer: &'a Consumer,
        provider: &Provider<'_>,
        address: &Address,
    ) -> Result<Self, Failure> {
        let name = &request.name;
        let binding = consumer.find_binding(name).await?;
        let secret = match &binding {
            Some(binding) => binding.spec.kubeconfig_secret_ref.clone(),
            None => manifests::secret_ref(name, &args.konnector.konnector_namespace),
        };
        let seen = consumer.installed(binding.map(Into::into), Some(name), &secret).await?;
        seen.refuse_other_backend(address)?;
        let preview = provider.preview(&request).await?;
        let offer = offer::judge(&preview.response, name)?;
        let decision = claims::decide(
            &offer.claims,
            &args.answers.reject_claims,
            seen.binding(),
            &seen.rules(),
        );
        let claim_namespaces = claim_namespaces(args, seen.binding());
        let claim_rights = consumer.claim_rights(&claim_namespaces, seen.binding()).await?;
        let isolation = match (template.scope, template.isolation) {
            // Shown to the user only, so a bind goes on without it.
            (Scope::Cluster, None) => provider.isolation().await,
            _ => None,
        };
        let bind = Self {
            args,
            request,
            consumer,
            secret,
            seen,
            offer,
            decision,
            claim_namespaces,
            claim_rights,
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
    pub(super) fn explain(&self, steps: &Steps) {
        let place = placement::words(&self.template, self.isolation);
        steps.note(&format!("the provider keeps its objects {place}"));
        if let Some(warning) = placement::warning(&self.template, self.isolation) {
            steps.note(warning);
        }
        consent::explain_offer(&self.offer, &self.decision, &self.claim_namespaces, steps);
    }

    /// Asks about the claims of the bind; fails if the user does not accept them.
    pub(super) fn consent(&self) -> Result<(), Failure> {
        consent::ask(
            claims::question(&self.offer.claims, &self.decision, self.seen.binding()),
            self.args.answers.accept_claims,
            (
                &format!("template {}", self.request.template),
                &joined(&self.decision.accepted),
            ),
            "nothing was bound",
        )
    }

    async fn check_apis(&self, offer: &Offer) -> Result<(), Failure> {
        let apis = self.consumer.apis(&offer.resources).await?;
        Ok(plan::refuse_foreign_apis(&apis, &self.request.name)?)
    }

    pub(super) fn manifests(&self, offer: &Offer, kubeconfig: Kubeconfig) -> Manifests {
        let install = BindingInstall {
            binding: &self.request.name,
            template: Some(&self.request.template),
            offer,
            decision: &self.decision,
            secret: &self.secret,
            konnector: (
                &self.args.konnector.konnector_namespace,
                &self.args.konnector.konnector_service_account,
            ),
            with_namespace: true,
            claim_namespaces: &self.claim_namespaces,
            claim_rights: &self.claim_rights,
        };
        Manifests::of_binding(&install, kubeconfig)
    }

    /// Has the provider make the export, and installs its answer.
    pub(super) async fn bind(
        &self,
        provider: &Provider<'_>,
        deadline: Instant,
        steps: &mut Steps,
    ) -> Result<(), Failure> {
        let left = deadline.saturating_duration_since(Instant::now());
        let pending = |request: &BindableResourcesRequest| steps.note(&waiting_for(request));
        let bound = provider.bind(&self.request, left, pending).await?;
        steps.done(&format!(
            "the provider made export {} in contract {}",
            self.request.name, bound.response.provider_namespace
        ));
        self.install(&bound.to_response(), steps).await
    }

    /// Judges the provider's answer and installs the objects that are missing.
    async fn install(&self, answer: &BindingResourceResponse, steps: &mut Steps) -> Result<(), Failure> {
        let offer = offer::judge(answer, &self.request.name)?;
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
        let mut is_done = writes.is_empty();
        for role in self.seen.obsolete_roles(&manifests) {
            self.consumer.delete_obsolete_role(role, steps).await?;
            is_done = false;
        }
        if is_done {
            steps.done("everything is installed already");
        }
        self.note_leaving(steps);
        Ok(())
    }

    /// Tells that the konnector keeps rights until it has withdrawn copies.
    fn note_leaving(&self, steps: &Steps) {
        let ClaimRights { in_cluster, namespaces } = &self.claim_rights;
        let left: Vec<_> = namespaces
            .iter()
            .filter(|name| !self.claim_namespaces.contains(name))
            .collect();
        let place = match (self.claim_namespaces.is_empty(), in_cluster, left.as_slice()) {
            (true, ..) | (false, false, []) => return,
            (false, true, _) => "the whole cluster".to_owned(),
            (false, false, left) => format!("namespace {}", joined(left)),
        };
        steps.note(&format!(
            "the konnector keeps its rights on claimed objects of {place} until it has withdrawn its copies; bind again then, and they are \
             taken"
        ));
    }

    /// Waits until the binding is ready, and takes the konnector's rights on withdrawn claims, which it needs until it has withdrawn
    /// the copies. Without `--wait` it keeps them.
    pub(super) async fn ready(&self, deadline: Instant, steps: &mut Steps) -> Result<CredentialOwner, Failure> {
        let name = &self.request.name;
        if !self.args.wait {
            return Ok(self.consumer.binding(name).await?.into());
        }
        let left = || deadline.saturating_duration_since(Instant::now());
        // The owner names the kubeconfig Secret. Here it is the APIServiceBinding, never a bundle.
        let owner = self.manifests(&self.offer, Kubeconfig::Hidden("")).owner.into();
        let ready = wait::ready(self.consumer, &owner, left(), steps).await?;
        steps.done(&format!("{ready} is ready"));
        take_rights(self.consumer, name, &self.decision.withdrawn, left(), steps).await?;
        Ok(ready)
    }
}

/// The namespaces that the claims of a binding concern: what the user said, or else what the binding lists already.
fn claim_namespaces(args: &BindArgs, seen: Option<&APIServiceBinding>) -> Vec<String> {
    if args.claim_namespaces.is_empty() {
        return seen.map_or_else(Vec::new, |seen| seen.spec.claim_namespaces.clone());
    }
    let namespaces: BTreeSet<_> = args.claim_namespaces.iter().cloned().collect();
    namespaces.into_iter().collect()
}

/// What the provider's request waits for, in words.
fn waiting_for(request: &BindableResourcesRequest) -> String {
    let mut conditions = request.status.iter().flat_map(|status| &status.conditions);
    match conditions.find(|condition| condition.status == ConditionStatus::False.as_str()) {
        Some(condition) => format!("waiting for the provider: {}", condition.message),
        None => "waiting for the provider".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::errors::Exit;

    #[test]
    fn names_are_dns_labels() {
        for good in ["a", "cowboys", "west-1", &"x".repeat(63)] {
            assert!(check_name(good, NameSource::Typed).is_ok(), "{good}");
        }
        for bad in ["", "-a", "a-", "A", "a.b", "a_b", &"x".repeat(64)] {
            let failure = check_name(bad, NameSource::Template).expect_err(bad);
            assert_eq!(failure.exit(), Exit::Usage);
            assert!(failure.to_string().contains("--name"), "{failure}");
        }
        let failure = check_name("a.b", NameSource::Collection).unwrap_err();
        assert!(
            failure
                .to_string()
                .ends_with("; bind template a.b by itself, with --name"),
            "{failure}"
        );
    }
}
