use bindery_api::{annotations, v1alpha2::APIServiceBindingSpec};
use serde_json::json;

use super::*;
use crate::claims::{selection, tests::claim};

#[track_caller]
fn check_news(accepted: &[serde_json::Value], now: serde_json::Value, expect: Option<&str>) {
    let claim = |selector: serde_json::Value| PermissionClaim {
        group_resource: GroupResource::new("", "secrets"),
        selector: serde_json::from_value(selector).unwrap(),
    };
    let accepted = Accepted::Claims(accepted.iter().cloned().map(claim).collect());
    let news = news(&accepted, &claim(now)).map(|news| selection(&news));
    assert_eq!(news.as_deref(), expect);
}

#[test]
fn only_what_is_new_is_told() {
    let all = || json!({ "labelSelector": {} });
    let named = |names: &[&str]| {
        let names: Vec<_> = names.iter().map(|name| json!({ "name": name })).collect();
        json!({ "namedResources": names })
    };
    check_news(&[all()], named(&["a"]), None);
    check_news(&[named(&["a", "b"])], named(&["b"]), None);
    check_news(
        &[named(&["a"])],
        named(&["a", "b"]),
        Some("those named b in any namespace"),
    );
    check_news(&[named(&["a"])], all(), Some("EVERY Secret"));
    check_news(&[], named(&["a"]), Some("those named a in any namespace"));
    let mut labelled = named(&["a"]);
    labelled["labelSelector"] = json!({ "matchLabels": { "app": "x" } });
    check_news(&[named(&["a"])], labelled, Some("those labelled app=x"));
    assert_eq!(news(&Accepted::Unrecorded, &claim("secrets", None)), None);
    assert!(news(&Accepted::Unreadable, &claim("secrets", None)).is_some());
}

const OLD: Option<(&str, &str)> = Some(("app", "old"));

/// Recorded (as `None` for no record), offered, accepted and rejected resources; expected record, if it changes.
#[track_caller]
fn check(
    recorded: Option<&[PermissionClaim]>,
    offered: Option<&[PermissionClaim]>,
    accept: &[&str],
    reject: &[&str],
    expect: Option<&[PermissionClaim]>,
) {
    let mut binding = APIServiceBinding::new("west", APIServiceBindingSpec::default());
    binding.metadata.annotations =
        recorded.map(|claims| [(annotations::ACCEPTED_CLAIMS.to_owned(), json!(claims).to_string())].into());
    let core = |names: &[&str]| names.iter().map(|name| GroupResource::new("", *name)).collect();
    let after = record_after(&binding, offered, &core(accept), &core(reject));
    assert_eq!(after.as_deref(), expect);
}

#[test]
fn the_record_says_what_was_accepted_and_nothing_else() {
    let (old, new, maps) = (claim("secrets", OLD), claim("secrets", None), claim("configmaps", OLD));
    let offered = [maps.clone(), new.clone()];
    let both = [maps.clone(), old.clone()];
    let now = Some(&offered[..]);
    let [one_map, one_old, one_new] = [&maps, &old, &new].map(std::slice::from_ref);
    check(Some(one_old), now, &["secrets"], &[], Some(one_new));
    check(Some(one_old), now, &["configmaps"], &[], Some(&both));
    check(Some(&offered), now, &["secrets"], &[], None);
    check(Some(&offered), now, &[], &["secrets"], Some(one_map));
    check(Some(one_map), now, &[], &["secrets"], None);
    // The provider no longer makes the claim.
    check(Some(&offered), Some(one_map), &["secrets"], &[], Some(one_map));
    // Without the export, claims cannot be accepted as they are now, and those accepted before stay.
    check(Some(one_old), None, &["secrets"], &[], None);
    check(Some(&both), None, &["secrets"], &["configmaps"], Some(one_old));
    check(None, now, &[], &["secrets"], None);
    check(None, None, &["secrets"], &[], None);
    check(None, now, &["secrets"], &["configmaps"], Some(one_new));
}
