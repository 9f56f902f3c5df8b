use bindery_api::v1alpha2::{APIServiceBindingBundleSpec, APIServiceBindingSpec};
use kube::Resource as _;

use super::*;

fn bundle(name: &str) -> APIServiceBindingBundle {
    let mut bundle = APIServiceBindingBundle::new(name, APIServiceBindingBundleSpec::default());
    bundle.metadata.uid = Some(format!("uid-of-{name}"));
    bundle
}

fn binding(name: &str, of: Option<&str>) -> APIServiceBinding {
    let mut binding = APIServiceBinding::new(name, APIServiceBindingSpec::default());
    binding.metadata.owner_references = of.and_then(|of| Some(vec![bundle(of).controller_owner_ref(&())?]));
    binding
}

/// Names that are shown.
#[track_caller]
fn check_select(name: Option<&str>, expect: Option<(&[&str], &[&str])>) {
    let bindings = vec![
        binding("a", Some("acme")),
        binding("acme2", None),
        binding("b", Some("acme2")),
    ];
    let found = select(name, vec![bundle("acme"), bundle("acme2")], bindings).ok();
    let found = found.map(|found| {
        let bundles: Vec<_> = found.bundles.iter().map(ResourceExt::name_any).collect();
        (
            bundles,
            found.bindings.iter().map(ResourceExt::name_any).collect::<Vec<_>>(),
        )
    });
    let expect = expect.map(|(bundles, bindings)| {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        (owned(bundles), owned(bindings))
    });
    assert_eq!(found, expect, "{name:?}");
}

#[test]
fn a_name_is_that_of_a_binding_and_else_of_a_bundle() {
    check_select(None, Some((&["acme", "acme2"], &["a", "acme2", "b"])));
    check_select(Some("a"), Some((&[], &["a"])));
    check_select(Some("acme"), Some((&["acme"], &["a"])));
    check_select(Some("acme2"), Some((&[], &["acme2"])));
    check_select(Some("x"), None);
}
