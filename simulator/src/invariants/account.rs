//! Who wrote, by the name of the account.

use bindery_api::names;
use bindery_simulator_apiserver::Actor;

/// The role of the author of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Account<'a> {
    /// The konnector on its consumer.
    Konnector,
    /// The konnector of the contract of this name on a provider.
    Contract(&'a str),
    /// The server on its provider.
    Server,
    /// A controller of the control plane.
    Controller(&'a str),
    /// A user or an operator.
    User(&'a str),
}

impl<'a> Account<'a> {
    /// Tells the role of an actor.
    pub fn of(actor: &'a Actor) -> Self {
        let name = match actor {
            Actor::Controller(name) => return Self::Controller(name),
            Actor::User(name) => name,
        };
        let Some((namespace, account)) = name
            .strip_prefix("system:serviceaccount:")
            .and_then(|rest| rest.split_once(':'))
        else {
            return Self::User(name);
        };
        match (namespace, account) {
            (names::KUBE_BIND_NAMESPACE, names::KONNECTOR) => Self::Konnector,
            (names::KUBE_BIND_NAMESPACE, names::SERVER) => Self::Server,
            (contract, names::KUBE_BINDER) => Self::Contract(contract),
            _ => Self::User(name),
        }
    }

    /// Whether the product wrote.
    pub fn is_product(self) -> bool {
        matches!(self, Self::Konnector | Self::Contract(_) | Self::Server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_told_by_their_names() {
        let of = |name: &str| format!("{:?}", Account::of(&Actor::User(name.to_owned())));
        assert_eq!(of("system:serviceaccount:kube-bind:konnector"), "Konnector");
        assert_eq!(of("system:serviceaccount:kube-bind:bindery-server"), "Server");
        assert_eq!(
            of("system:serviceaccount:kube-bind-x:kube-binder"),
            r#"Contract("kube-bind-x")"#
        );
        assert_eq!(of("alice"), r#"User("alice")"#);
        assert!(!Account::of(&Actor::Controller("namespace")).is_product());
    }
}
