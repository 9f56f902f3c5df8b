//! Whether the policy on requests and its binding are those that ship. A probe tells that they answer in one place; that they
//! do so in every other one, and to everything, is what they say.

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
/// The account that the shipped policy leaves out, and where: who runs the server otherwise names another there.
const SERVER: (&str, &str) = ("'system:serviceaccount:kube-bind:bindery-server'", "'kube-bind'");

/// The specification that ships. Without one, none is believed.
static POLICY: LazyLock<Option<ValidatingAdmissionPolicySpec>> = LazyLock::new(|| {
    let policy = SHIPPED.split("\n---\n").next()?;
    let policy: ValidatingAdmissionPolicy = serde_saphyr::from_str(policy).ok()?;
    policy.spec
});

/// Who the policy is to leave out, and where.
#[derive(Clone, Debug)]
pub(super) struct Server {
    pub(super) username: String,
    pub(super) namespace: String,
}

/// In what a policy or its binding lets more pass than those that ship.
pub(super) fn difference(
    policy: &ValidatingAdmissionPolicy,
    binding: &ValidatingAdmissionPolicyBinding,
    server: &Server,
) -> Option<&'static str> {
    let (Some(policy), Some(shipped)) = (&policy.spec, &*POLICY) else {
        return Some("spec of the policy");
    };
    of_policy(policy, shipped, server).or_else(|| of_binding(binding.spec.as_ref()))
}

fn of_policy(
    policy: &ValidatingAdmissionPolicySpec,
    shipped: &ValidatingAdmissionPolicySpec,
    server: &Server,
) -> Option<&'static str> {
    let conditions = |spec: &ValidatingAdmissionPolicySpec, server: Option<&Server>| {
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

/// What is matched, with the API server's default filled in.
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

/// Since when policy and binding say what they say: whoever changes a field, or changes it back, is known to the API server
/// with the time of it. Their status, and labels alone, are of no account.
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

// === impl Server ===

impl Server {
    fn named_in(&self, expression: &str) -> String {
        let expression = expression.replace(SERVER.0, &format!("'{}'", self.username));
        expression.replace(SERVER.1, &format!("'{}'", self.namespace))
    }
}

#[cfg(test)]
mod tests;
