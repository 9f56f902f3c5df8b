//! `claims`: shows the claims of a binding, and accepts or rejects them.

mod change;

use std::{collections::BTreeSet, io::Write, time::Duration};

use bindery_api::{
    Accepted, names,
    v1alpha2::{APIServiceBinding, GroupResource, PermissionClaim},
};
use jiff::Timestamp;
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::{Resource, ResourceExt as _};
use tokio::time::Instant;

use change::Change;

use super::{Context, consent};
use crate::{
    args::ClaimsArgs,
    claims::{Claim, Known, news, record_after, rules, states},
    consumer::{
        Consumer,
        wait::{self, Watched},
    },
    errors::{Failure, conflict::Conflict},
    install::{manifests, owner::bundle_of},
    render::{
        output::{Show, joined},
        steps::Steps,
    },
};

/// How long it may take to withdraw copies, unless `--timeout` says otherwise.
const PATIENCE: Duration = Duration::from_mins(2);

/// `kubectl bind claims BINDING`
pub(crate) async fn run<W: Write>(context: &mut Context<W>, args: &ClaimsArgs) -> Result<(), Failure> {
    let start = Instant::now();
    let patience = context.settings.patience(PATIENCE);
    let change = Change::new(args)?;
    let consumer = Consumer::connect(&context.settings).await?;
    let binding = consumer.binding(&args.binding).await?;
    let known = known(&consumer, &binding, &context.steps).await;
    let before = states(&binding, &known);
    let is_known = known.offered.is_some();
    if change.is_empty() {
        return show(context, &before, is_known);
    }
    change.check(&before, is_known)?;
    check_bundle(&binding, &change.accept, &before)?;
    consent::explain(change.news(&before), &context.steps);
    consent::ask(
        change.question(&before),
        args.yes,
        (
            &format!("the provider of binding {}", args.binding),
            &joined(&change.accept),
        ),
        "nothing was changed",
    )?;
    let steps = &mut context.steps;
    // The bindings of bundles have no role of their own.
    let own = change.claimed(&before).filter(|_| bundle_of(&binding).is_none());
    for claim in own {
        give_right(&consumer, &binding, claim, steps).await?;
    }
    answer(&consumer, &binding, &change, known.offered.as_deref(), steps).await?;
    if args.wait {
        let left = patience.saturating_sub(start.elapsed());
        take_rights(&consumer, &args.binding, &change.reject, left, steps).await?;
        let wanted: Vec<_> = change.accepted(&before).cloned().collect();
        if !wanted.is_empty() {
            let left = patience.saturating_sub(start.elapsed());
            let watched = Watched::<APIServiceBinding>::start(&consumer, "", &args.binding, left);
            watched.taken_up(&wanted, steps).await?;
        }
    } else if !change.reject.is_empty() {
        steps.note(&unfinished(&args.binding, &change.reject));
    }
    let binding = consumer.binding(&args.binding).await?;
    let rules = Some(consumer.rules_for(&binding).await?);
    let known = Known { rules, ..known };
    let mut after = states(&binding, &known);
    change.keep(&before, &mut after);
    show(context, &after, is_known)
}

/// Refuses to accept more than the bundle of the binding does. Its binding may reject claims itself.
fn check_bundle(
    binding: &APIServiceBinding,
    accept: &BTreeSet<GroupResource>,
    claims: &[Claim],
) -> Result<(), Conflict> {
    let Some((bundle, _)) = bundle_of(binding) else {
        return Ok(());
    };
    let accepted = Accepted::of(binding);
    let mut wider = claims.iter().filter(|claim| {
        accept.contains(&claim.resource) && claim.said.iter().any(|said| news(&accepted, said).is_some())
    });
    match wider.next() {
        None => Ok(()),
        Some(claim) => Err(Conflict::ClaimOfBundle {
            binding: binding.name_any(),
            bundle: bundle.to_owned(),
            claim: claim.resource.clone(),
        }),
    }
}

/// Writes into the binding what it rejects and what was accepted, if that changes.
async fn answer(
    consumer: &Consumer,
    binding: &APIServiceBinding,
    change: &Change,
    offered: Option<&[PermissionClaim]>,
    steps: &mut Steps,
) -> Result<(), Failure> {
    let name = binding.name_any();
    let rejected = change.rejected_after(binding);
    let rejected = (rejected != binding.spec.rejected_permission_claims).then_some(rejected);
    // The konnector writes the record of the binding of a bundle.
    let record = match bundle_of(binding) {
        None => record_after(binding, offered, &change.accept, &change.reject),
        Some(_) => None,
    };
    if rejected.is_none() && record.is_none() {
        return Ok(());
    }
    consumer
        .answer_claims(binding, rejected.as_deref(), record.as_deref())
        .await?;
    if let Some(rejected) = rejected {
        steps.done(&format!("APIServiceBinding {name} rejects {}", or_no_claim(rejected)));
    }
    if let Some(record) = record {
        let claims: BTreeSet<_> = record.into_iter().map(|claim| claim.group_resource).collect();
        steps.done(&format!(
            "APIServiceBinding {name} records as accepted: {}",
            or_no_claim(claims)
        ));
    }
    Ok(())
}

fn or_no_claim(claims: impl IntoIterator<Item = GroupResource>) -> String {
    let mut claims = claims.into_iter().peekable();
    match claims.peek() {
        None => "no claim".to_owned(),
        Some(_) => joined(claims),
    }
}

/// Waits until the konnector has withdrawn claims that are not accepted, then takes its rights on them.
pub(super) async fn take_rights(
    consumer: &Consumer,
    binding: &str,
    claims: &BTreeSet<GroupResource>,
    patience: Duration,
    steps: &mut Steps,
) -> Result<(), Failure> {
    if claims.is_empty() {
        return Ok(());
    }
    let now = consumer.binding(binding).await?;
    if !wait::in_effect(&now, claims).is_empty() {
        let withdrawn = Watched::<APIServiceBinding>::start(consumer, "", binding, patience)
            .withdrawn(claims, steps)
            .await;
        if withdrawn.is_err() {
            steps.note(&unfinished(binding, claims));
        }
        withdrawn?;
        steps.done(&format!("the konnector has withdrawn the claims on {}", joined(claims)));
    }
    let without = |rules: &[PolicyRule]| {
        let claims = claims.iter();
        claims.fold(rules.to_vec(), |rules, claim| rules::without_claim(&rules, claim))
    };
    if let Some(role) = consumer.role(binding).await? {
        change_role(consumer, &role, role.rules.as_deref(), without, steps).await?;
    }
    for role in consumer.roles(binding).await? {
        change_role(consumer, &role, role.rules.as_deref(), without, steps).await?;
    }
    Ok(())
}

/// Gives the konnector the right on a claimed resource, where the claims of the binding concern objects.
async fn give_right(
    consumer: &Consumer,
    binding: &APIServiceBinding,
    claim: &GroupResource,
    steps: &mut Steps,
) -> Result<(), Failure> {
    let name = binding.name_any();
    let with = |rules: &[PolicyRule]| {
        if rules::holds_claim(rules, claim) {
            rules.to_vec()
        } else {
            rules::with_claim(rules, claim)
        }
    };
    let lacks = |role: String| {
        Failure::Usage(format!(
            "{role} does not exist, so the konnector cannot get a right on {claim}; bind again with kubectl bind, or ask the owner of \
             APIServiceBinding {name} to give the konnector that right"
        ))
    };
    let role_name = names::konnector_cluster_role(&name);
    if binding.spec.claim_namespaces.is_empty() {
        let role = consumer.role(&name).await?;
        let role = role.ok_or_else(|| lacks(format!("ClusterRole {role_name}")))?;
        return change_role(consumer, &role, role.rules.as_deref(), with, steps).await;
    }
    let roles = consumer.roles(&name).await?;
    for namespace in &binding.spec.claim_namespaces {
        let role = roles.iter().find(|role| role.namespace().as_ref() == Some(namespace));
        let role = role.ok_or_else(|| lacks(format!("Role {namespace}/{role_name}")))?;
        change_role(consumer, role, role.rules.as_deref(), with, steps).await?;
    }
    Ok(())
}

/// Changes the rules of a role, if that makes others of them.
async fn change_role<K: Resource<DynamicType = ()>>(
    consumer: &Consumer,
    role: &K,
    rules: Option<&[PolicyRule]>,
    change: impl Fn(&[PolicyRule]) -> Vec<PolicyRule>,
    steps: &mut Steps,
) -> Result<(), Failure> {
    let before = rules.unwrap_or_default();
    let after = change(before);
    if after == before {
        return Ok(());
    }
    let name = match role.namespace() {
        Some(namespace) => format!("{namespace}/{}", role.name_any()),
        None => role.name_any(),
    };
    if !manifests::is_ours(role.meta()) {
        return Err(Conflict::ForeignRole { name }.into());
    }
    consumer.set_rules(role, &after).await?;
    steps.done(&format!("changed {} {name}", K::kind(&())));
    Ok(())
}

fn unfinished(binding: &str, claims: &BTreeSet<GroupResource>) -> String {
    let flags: Vec<_> = claims.iter().map(|claim| format!("--reject {claim}")).collect();
    format!(
        "the konnector keeps its right on {} until it has withdrawn what it copied; `kubectl bind claims {binding} {}` takes \
         it then",
        joined(claims),
        flags.join(" ")
    )
}

/// Reads the konnector's rights and the provider's claims. What cannot be read is noted and left out.
async fn known(consumer: &Consumer, binding: &APIServiceBinding, steps: &Steps) -> Known {
    let rules = match consumer.rules_for(binding).await {
        Ok(rules) => Some(rules),
        Err(failure) => {
            steps.note(&format!("the konnector's rights are not shown: {failure}"));
            None
        }
    };
    let offered = match offered(consumer, binding).await {
        Ok(claims) => Some(claims),
        Err(why) => {
            steps.note(&format!("what the provider claims now is not shown: {why}"));
            None
        }
    };
    Known { rules, offered }
}

async fn offered(consumer: &Consumer, binding: &APIServiceBinding) -> Result<Vec<PermissionClaim>, String> {
    let contract = consumer.contract(binding).await?;
    match contract.export(binding.export_name()).await? {
        Some(export) => Ok(export.spec.permission_claims),
        None => Err(format!("it has no export {}", binding.export_name())),
    }
}

fn show<W: Write>(context: &mut Context<W>, claims: &[Claim], is_known: bool) -> Result<(), Failure> {
    if claims.is_empty() {
        context.steps.note(if is_known {
            "the provider claims nothing beside its API"
        } else {
            "no claim is in effect, and none is rejected"
        });
    }
    context.printer.list(claims, Timestamp::now())
}

impl Show for Claim {
    const HEADINGS: &'static [&'static str] = &["CLAIM", "STATE", "SELECTS"];
    const PLAIN: usize = 3;

    fn cells(&self, _: Timestamp) -> Vec<String> {
        vec![
            self.resource.to_string(),
            self.state.as_str().to_owned(),
            self.selects(),
        ]
    }

    fn reference(&self) -> String {
        format!("claim/{}", self.resource)
    }
}
