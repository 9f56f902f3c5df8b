//! The variable `authorizer` of CEL expressions.

use std::{any::Any, collections::BTreeMap, sync::Arc};

use cel::{
    Env, ExecutionError,
    common::{
        types::{CelBool, CelString, STRING_TYPE, Type},
        value::{CowVal, StaticVal, Val},
    },
};
use serde_json::Value;

use crate::{
    UserInfo,
    auth::{Attributes, is_superuser, rule_allows, rules_of},
    store::Objects,
};

static AUTHORIZER: Type = authorizer();
static DECISION: Type = decision();

const fn authorizer() -> Type {
    Type::new_unspecified_type("kubernetes.authorization.Authorizer")
}

const fn decision() -> Type {
    Type::new_unspecified_type("kubernetes.authorization.Decision")
}

/// What a user may do, kept apart from the store, because values of CEL cannot borrow it.
#[derive(Debug)]
struct Rights {
    is_superuser: bool,
    /// Rules in every namespace, under the empty name, and in each.
    rules: BTreeMap<String, Vec<Value>>,
}

/// A question to RBAC, as far as an expression has put it.
#[derive(Clone, Debug)]
pub(super) struct Authorizer {
    rights: Arc<Rights>,
    group: String,
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
    path: String,
}

/// The answer of RBAC.
#[derive(Clone, Copy, Debug)]
struct Decision(bool);

impl Authorizer {
    /// The authorizer for a user.
    pub(super) fn new(objects: &dyn Objects, user: &UserInfo) -> Self {
        let mut rules = BTreeMap::new();
        let owned = |rules: Vec<&Value>| rules.into_iter().cloned().collect::<Vec<_>>();
        if !is_superuser(user) {
            rules.insert(String::new(), owned(rules_of(objects, user, "").0));
            let bindings = objects.objects_of(crate::auth::RBAC, "rolebindings", None);
            for namespace in bindings.filter_map(|binding| binding["metadata"]["namespace"].as_str()) {
                if !rules.contains_key(namespace) {
                    rules.insert(namespace.to_owned(), owned(rules_of(objects, user, namespace).0));
                }
            }
        }
        Self {
            rights: Arc::new(Rights {
                is_superuser: is_superuser(user),
                rules,
            }),
            group: String::new(),
            resource: String::new(),
            subresource: String::new(),
            namespace: String::new(),
            name: String::new(),
            path: String::new(),
        }
    }

    fn allows(&self, verb: &str) -> bool {
        let wants = Attributes {
            verb,
            group: &self.group,
            resource: &self.resource,
            subresource: &self.subresource,
            namespace: &self.namespace,
            name: &self.name,
            path: &self.path,
        };
        let rules = &self.rights.rules;
        let rules = rules.get(&self.namespace).or_else(|| rules.get(""));
        self.rights.is_superuser || rules.is_some_and(|rules| rules.iter().any(|rule| rule_allows(rule, &wants)))
    }
}

macro_rules! value {
    ($name:ty, $of:ident) => {
        impl Val for $name {
            fn get_type(&self) -> &Type {
                &$of
            }

            fn cel_type() -> &'static Type {
                &$of
            }

            fn clone_as_boxed<'v>(&self) -> Box<dyn Val + 'v> {
                Box::new(self.clone())
            }

            fn as_any(&self) -> Option<&dyn Any> {
                Some(self)
            }
        }

        impl StaticVal for $name {}
    };
}

value!(Authorizer, AUTHORIZER);
value!(Decision, DECISION);

/// Declares the functions of the authorizer.
pub(super) fn declare(env: &mut Env) -> Result<(), cel::DeclarationError> {
    macro_rules! step {
        ($name:literal, $field:ident) => {
            env.add_member_overload(
                $name,
                concat!("authorizer_", $name),
                authorizer(),
                vec![STRING_TYPE],
                |args| step(&args, |authorizer, text| authorizer.$field = text),
            )?;
        };
    }
    step!("group", group);
    step!("resource", resource);
    step!("subresource", subresource);
    step!("namespace", namespace);
    step!("name", name);
    step!("path", path);
    env.add_member_overload("check", "authorizer_check", authorizer(), vec![STRING_TYPE], |args| {
        let (authorizer, verb) = arguments(&args)?;
        Ok(CowVal::owned(Decision(authorizer.allows(verb))))
    })?;
    env.add_member_overload("allowed", "decision_allowed", decision(), vec![], |args| {
        let decision = args.first().and_then(|decision| decision.downcast_ref::<Decision>());
        let decision = decision.ok_or_else(missing)?;
        Ok(CowVal::owned(CelBool::from(decision.0)))
    })?;
    Ok(())
}

fn step<'b, 'v>(
    args: &[CowVal<'b, 'v>],
    change: impl FnOnce(&mut Authorizer, String),
) -> Result<CowVal<'b, 'v>, ExecutionError> {
    let (authorizer, text) = arguments(args)?;
    let mut authorizer = authorizer.clone();
    change(&mut authorizer, text.to_owned());
    Ok(CowVal::owned(authorizer))
}

fn arguments<'a>(args: &'a [CowVal<'_, '_>]) -> Result<(&'a Authorizer, &'a str), ExecutionError> {
    match args {
        [authorizer, text] => {
            let authorizer = authorizer.downcast_ref::<Authorizer>().ok_or_else(missing)?;
            let text = text.downcast_ref::<CelString<'_>>().ok_or_else(missing)?;
            Ok((authorizer, text.inner()))
        }
        _ => Err(missing()),
    }
}

fn missing() -> ExecutionError {
    ExecutionError::MissingArgumentOrTarget
}
