use super::*;
use crate::{
    install::manifests::tests::manifests,
    provider::kubeconfig::tests::{kubeconfig, parse},
};

fn seen() -> Installed {
    let document = kubeconfig(100, 100);
    Installed {
        secret: Some(
            manifests(Kubeconfig::Document(document.to_string().into_bytes()))
                .secret()
                .clone(),
        ),
        credential: parse(&document).ok(),
        ..Installed::default()
    }
}

#[test]
fn a_secret_is_shown_on_request_alone() {
    let at = |second: i64| Timestamp::from_second(second).unwrap();
    let shown = |seen: &Installed, show: bool, now: i64| match shown(seen, "kubeconfig", show, at(now)) {
        Kubeconfig::Document(document) => String::from_utf8(document).unwrap(),
        Kubeconfig::Hidden(words) => words.to_owned(),
    };
    assert_eq!(shown(&seen(), false, 50), KEPT);
    assert!(shown(&seen(), true, 50).contains("hunter2"));
    assert_eq!(shown(&seen(), true, 150), MINTED_LATER);
    assert_eq!(shown(&Installed::default(), true, 50), MINTED_LATER);
}
