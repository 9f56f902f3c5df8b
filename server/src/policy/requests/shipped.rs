//! Compares the policy on requests, and its binding, with those that ship. A probe shows only that the policy denies one request
//! in one namespace; its spec shows that it denies all others.

use std::sync::LazyLock;

use jiff::Timestamp;
use k8s_openapi::{
    api::admissionregistration::v1::{
        MatchResources, NamedRuleWithOperations, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
        ValidatingAdmissionPolicyBindingSpec, ValidatingAdmissionPolicySpec,
    },
    apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta},
};

use super::NAME;

const SHIPPED: &str = include_str!("../../../../deploy/server/requests-policy.yaml");
/// The account and namespace that the shipped policy leaves out. Where the server runs under others, the policy must name those.
const SERVER: (&str, &str) = ("'system:serviceaccount:kube-bind:bindery-server'", "'kube-bind'");

/// The spec of the policy that ships.
static POLICY: LazyLock<Option<ValidatingAdmissionPolicySpec>> = LazyLock::new(|| {
    let policy = SHIPPED.split("\n---\n").next()?;
    let policy: ValidatingAdmissionPolicy = serde_saphyr::from_str(policy).ok()?;
    policy.spec
});

/// The account that the policy must leave out, and the namespace where it must.
#[derive(Clone, Debug)]
pub(super) struct ServerAccount {
    pub(super) username: String,
    pub(super) namespace: String,
}

/// The first field in which the policy or its binding differs from those that ship, so that it may admit more; `None` if there is
/// no such field.
pub(super) fn difference(
    policy: &ValidatingAdmissionPolicy,
    binding: &ValidatingAdmissionPolicyBinding,
    server: &ServerAccount,
) -> Option<&'static str> {
    let (Some(policy), Some(shipped)) = (&policy.spec, &*POLICY) else {
        return Some("spec of the policy");
    };
    of_policy(policy, shipped, server).or_else(|| of_binding(binding.spec.as_ref()))
}

fn of_policy(
    policy: &ValidatingAdmissionPolicySpec,
    shipped: &ValidatingAdmissionPolicySpec,
    server: &ServerAccount,
) -> Option<&'static str> {
    let conditions = |spec: &ValidatingAdmissionPolicySpec, server: Option<&ServerAccount>| {
        let conditions = spec.match_conditions.iter().flatten();
        let expressions = conditions.map(|condition| match server {
            Some(server) => server.named_in(&condition.expression),
            None => condition.expression.clone(),
        });
        expressions.collect::<Vec<_>>()
    };
    let fields = [
        ("failurePolicy", policy.failure_policy == shipped.failure_policy),
        ("paramKind", policy.param_kind.is_none()),
        (
            "matchConstraints",
            rules(policy.match_constraints.as_ref()) == rules(shipped.match_constraints.as_ref())
                && leaves_nothing_out(policy.match_constraints.as_ref()),
        ),
        (
            "matchConditions",
            conditions(policy, None) == conditions(shipped, Some(server)),
        ),
        ("variables", policy.variables == shipped.variables),
        ("validations", policy.validations == shipped.validations),
    ];
    first_wrong(&fields)
}

fn of_binding(spec: Option<&ValidatingAdmissionPolicyBindingSpec>) -> Option<&'static str> {
    let Some(spec) = spec else {
        return Some("spec of the binding");
    };
    let mut actions = spec.validation_actions.iter().flatten();
    let matches = spec.match_resources.as_ref();
    let fields = [
        ("policyName of the binding", spec.policy_name.as_deref() == Some(NAME)),
        (
            "validationActions of the binding",
            actions.any(|action| action == "Deny"),
        ),
        ("paramRef of the binding", spec.param_ref.is_none()),
        (
            "matchResources of the binding",
            leaves_nothing_out(matches) && rules(matches).is_empty(),
        ),
    ];
    first_wrong(&fields)
}

fn first_wrong(fields: &[(&'static str, bool)]) -> Option<&'static str> {
    let mut wrong = fields.iter().filter(|(_, is_right)| !is_right);
    wrong.next().map(|(field, _)| *field)
}

/// The rules of what is matched, with the API server's default for the scope.
fn rules(matches: Option<&MatchResources>) -> Vec<NamedRuleWithOperations> {
    let rules = matches
        .into_iter()
        .flat_map(|matches| matches.resource_rules.iter().flatten());
    let rules = rules.cloned().map(|rule| NamedRuleWithOperations {
        scope: rule.scope.or_else(|| Some("*".to_owned())),
        ..rule
    });
    rules.collect()
}

fn leaves_nothing_out(matches: Option<&MatchResources>) -> bool {
    let selects_all =
        |selector: &Option<LabelSelector>| selector.as_ref().is_none_or(|it| *it == LabelSelector::default());
    matches.is_none_or(|matches| {
        matches.exclude_resource_rules.iter().flatten().next().is_none()
            && selects_all(&matches.namespace_selector)
            && selects_all(&matches.object_selector)
    })
}

/// When the specs of policy and binding were last changed, from their managed fields. A field that was changed back counts as
/// changed; status, labels and annotations do not count.
pub(super) fn since<'a>(objects: impl IntoIterator<Item = &'a ObjectMeta>) -> Timestamp {
    let times = objects.into_iter().flat_map(|meta| {
        let entries = meta.managed_fields.iter().flatten();
        let of_spec = entries.filter(|entry| {
            let fields = entry.fields_v1.as_ref();
            fields.is_none_or(|fields| fields.0.get("f:spec").is_some())
        });
        let changed = of_spec.filter_map(|entry| entry.time.as_ref());
        changed.chain(meta.creation_timestamp.as_ref()).map(|time| time.0)
    });
    times.max().unwrap_or_default()
}

// === impl ServerAccount ===

impl ServerAccount {
    fn named_in(&self, expression: &str) -> String {
        let expression = expression.replace(SERVER.0, &format!("'{}'", self.username));
        expression.replace(SERVER.1, &format!("'{}'", self.namespace))
    }
}

#[cfg(test)]
mod tests;
