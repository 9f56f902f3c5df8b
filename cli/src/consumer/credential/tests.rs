use super::*;
use crate::provider::kubeconfig::tests::{kubeconfig, parse};

fn credential(expires: i64, namespace: &str) -> Credential {
    let mut document = kubeconfig(expires, expires);
    document["contexts"][0]["context"]["namespace"] = namespace.into();
    parse(&document).unwrap()
}

#[test]
fn the_newest_credential_of_the_contract_is_used() {
    let check = |renewed: &[(i64, &str)], expect: (i64, bool)| {
        let renewed = renewed
            .iter()
            .map(|(expires, namespace)| credential(*expires, namespace));
        let (newest, is_renewed) = newest(credential(100, "kube-bind-x"), renewed);
        assert_eq!((newest.expires.unwrap().as_second(), is_renewed), expect);
    };
    check(&[], (100, false));
    check(&[(90, "kube-bind-x")], (100, false));
    check(
        &[(110, "kube-bind-x"), (130, "kube-bind-x"), (120, "kube-bind-x")],
        (130, true),
    );
    check(&[(120, "kube-bind-y")], (100, false));
}
