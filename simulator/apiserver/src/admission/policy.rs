//! ValidatingAdmissionPolicies.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{
    AdmissionRequest,
    authorizer::Authorizer,
    cel::compiled,
    evaluation::{Input, Scope},
    matching::matches,
};
use crate::{
    json::{list, text},
    status::{About, StatusError},
    store::Objects,
};

const GROUP: &str = "admissionregistration.k8s.io";

/// Why a policy denies a request.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Denial {
    message: String,
    /// Reason of the answer; empty if the policy failed to decide.
    reason: String,
}

/// Asks all policies that are bound: the warnings for the answer, or the refusal of the first that denies the request.
pub(super) fn check(objects: &dyn Objects, request: &AdmissionRequest<'_>) -> Result<Vec<String>, StatusError> {
    if request.kind.group == GROUP {
        return Ok(Vec::new());
    }
    let is_namespace = request.kind.group.is_empty() && request.kind.kind == "Namespace";
    let namespace = if is_namespace || request.namespace.is_empty() {
        None
    } else {
        objects.object("", "namespaces", "", request.namespace)
    };
    let namespace = namespace.map(|namespace| &**namespace);
    let input = Input::new(request, namespace);
    let mut warnings = Vec::new();
    let mut refusal = None;
    for policy in objects.objects_of(GROUP, "validatingadmissionpolicies", None) {
        let spec = &policy["spec"];
        if !is_in_effect(policy, request) || !matches(&spec["matchConstraints"], request, namespace) {
            continue;
        }
        let name = text(&policy["metadata"], "name");
        let mut denials = None;
        for binding in objects.objects_of(GROUP, "validatingadmissionpolicybindings", None) {
            let bound = &binding["spec"];
            if text(bound, "policyName") != name
                || !is_in_effect(binding, request)
                || !matches(&bound["matchResources"], request, namespace)
            {
                continue;
            }
            let binding = text(&binding["metadata"], "name");
            for denial in denials.get_or_insert_with(|| denials_of(objects, spec, &input)) {
                for action in list(bound, "validationActions") {
                    match action.as_str() {
                        Some("Deny") if refusal.is_none() => {
                            refusal = Some(refused(request, name, binding, denial));
                        }
                        Some("Warn") => warnings.push(format!(
                            "Validation failed for ValidatingAdmissionPolicy '{name}' with binding '{binding}': {}",
                            denial.message
                        )),
                        _ => {}
                    }
                }
            }
        }
    }
    refusal.map_or(Ok(warnings), Err)
}

/// Compiles the expressions of a policy.
pub(super) fn compile(policy: &Value) {
    for (field, expression) in [
        ("matchConditions", "expression"),
        ("variables", "expression"),
        ("validations", "expression"),
        ("validations", "messageExpression"),
    ] {
        let expressions = list(&policy["spec"], field).iter().map(|item| text(item, expression));
        for expression in expressions.filter(|expression| !expression.is_empty()) {
            // An expression that cannot be compiled fails whenever it is used.
            let _ = compiled(expression);
        }
    }
}

/// If the API server has noticed a policy or a binding since it was created.
fn is_in_effect(object: &Value, request: &AdmissionRequest<'_>) -> bool {
    if request.policy_delay == SignedDuration::ZERO {
        return true;
    }
    let created = object["metadata"]["creationTimestamp"].as_str();
    let created: Option<Timestamp> = created.and_then(|created| created.parse().ok());
    created.is_none_or(|created| created + request.policy_delay <= request.now)
}

/// What a policy objects to in a request.
fn denials_of(objects: &dyn Objects, spec: &Value, input: &Input<'_>) -> Vec<Denial> {
    let failed = |message: String| Denial {
        message,
        reason: String::new(),
    };
    let fails = spec["failurePolicy"] != "Ignore";
    let of_failure = |message: String| if fails { vec![failed(message)] } else { Vec::new() };
    if !spec["paramKind"].is_null() {
        return of_failure("failed to configure binding: parameters are not simulated".to_owned());
    }
    // Made late: match conditions exempt most requests, and seldom ask for it.
    let provide = |fields: &[&str]| {
        if uses_authorizer(spec, fields) {
            input.authorizer.get_or_init(|| Authorizer::new(objects, input.user()));
        }
    };
    provide(&["matchConditions"]);
    match conditions_hold(spec, input) {
        Ok(true) => {}
        Ok(false) => return Vec::new(),
        Err(message) => return of_failure(message),
    }
    provide(&["variables", "validations"]);
    let scope = Scope::new(input, named(spec, "variables"));
    let mut denials = Vec::new();
    for validation in list(spec, "validations") {
        match scope.evaluate(text(validation, "expression")) {
            Ok(cel::Value::Bool(true)) => {}
            Ok(_) => denials.push(Denial {
                message: message(validation, &scope),
                reason: match text(validation, "reason") {
                    "" => "Invalid".to_owned(),
                    reason => reason.to_owned(),
                },
            }),
            Err(error) if fails => denials.push(failed(error)),
            Err(_) => {}
        }
    }
    denials
}

/// If all match conditions hold. A false one decides, although others cannot be evaluated.
fn conditions_hold(spec: &Value, input: &Input<'_>) -> Result<bool, String> {
    let scope = Scope::new(input, std::iter::empty());
    let mut errors = Vec::new();
    for (_, expression) in named(spec, "matchConditions") {
        match scope.evaluate(expression) {
            Ok(cel::Value::Bool(true)) => {}
            Ok(_) => return Ok(false),
            Err(error) => errors.push(error),
        }
    }
    match errors.as_slice() {
        [] => Ok(true),
        [one] => Err(one.clone()),
        many => Err(format!("[{}]", many.join(", "))),
    }
}

fn message(validation: &Value, scope: &Scope<'_>) -> String {
    let made = match text(validation, "messageExpression") {
        "" => None,
        expression => scope.evaluate(expression).ok(),
    };
    let made = match made {
        Some(cel::Value::String(made)) => made.trim().to_owned(),
        _ => String::new(),
    };
    if !made.is_empty() && !made.contains('\n') {
        return made;
    }
    match text(validation, "message").trim() {
        "" => format!("failed expression: {}", text(validation, "expression").trim()),
        message => message.to_owned(),
    }
}

fn refused(request: &AdmissionRequest<'_>, policy: &str, binding: &str, denial: &Denial) -> StatusError {
    let message = format!(
        "ValidatingAdmissionPolicy '{policy}' with binding '{binding}' denied request: {}",
        denial.message
    );
    let about = About {
        group: &request.kind.group,
        resource: request.resource,
        name: if request.name.is_empty() {
            "Unknown"
        } else {
            request.name
        },
    };
    let mut error = StatusError::forbidden(about, &message);
    (error.reason, error.code) = match denial.reason.as_str() {
        "Forbidden" => ("Forbidden", 403),
        "Unauthorized" => ("Unauthorized", 401),
        "RequestEntityTooLarge" => ("RequestEntityTooLarge", 413),
        _ => ("Invalid", 422),
    };
    if let Some(details) = error.details.as_object_mut() {
        details.insert("causes".to_owned(), json!([{ "message": message }]));
    }
    error
}

/// If an expression in these fields asks what the author may do.
fn uses_authorizer(spec: &Value, fields: &[&str]) -> bool {
    let mut expressions = fields.iter().flat_map(|field| list(spec, field));
    expressions.any(|it| text(it, "expression").contains("authorizer"))
}

/// The expressions of a list, with their names.
fn named<'a>(spec: &'a Value, field: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let items = list(spec, field).iter();
    items.map(|item| (text(item, "name"), text(item, "expression")))
}
