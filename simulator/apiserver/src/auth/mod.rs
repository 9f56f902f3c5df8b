//! Who asks, and what users may do: tokens of ServiceAccounts, and RBAC.

mod claims;
mod review;
mod rules;
mod token;

pub(crate) use self::{
    review::{review, user_json},
    rules::{authorize, is_superuser, may, rule_allows, rules_of, rules_of_role},
    token::TokenIssuer,
};

/// API group of the kinds of RBAC.
pub(crate) const RBAC: &str = "rbac.authorization.k8s.io";

/// What a request wants to do.
#[derive(Clone, Debug, Default)]
pub(crate) struct Attributes<'a> {
    /// Verb of RBAC, such as `deletecollection`.
    pub(crate) verb: &'a str,
    /// API group, empty for core kinds.
    pub(crate) group: &'a str,
    /// Plural name of the resource; empty for requests of a path.
    pub(crate) resource: &'a str,
    /// Subresource, empty if none.
    pub(crate) subresource: &'a str,
    /// Namespace, empty if none.
    pub(crate) namespace: &'a str,
    /// Name of the object, empty if none.
    pub(crate) name: &'a str,
    /// Path, for requests that are not about resources.
    pub(crate) path: &'a str,
}

#[cfg(test)]
pub(crate) mod tests;
