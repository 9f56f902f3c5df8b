//! Lists with selectors, in pages, and at revisions.

use serde_json::json;

use crate::generate::{
    draft::Draft,
    kind::{CONFIG_MAP, COWBOY, GADGET, Kind, SECRET},
    step::Call,
};

const SELECTORS: [&str; 14] = [
    "tier=gold",
    "tier==gold",
    "tier!=gold",
    "tier in (gold,silver)",
    "tier notin (gold)",
    "tier",
    "!tier",
    "tier=gold,many=true",
    "many=true,tier!=gold",
    "tier in ()",
    "tier=",
    "tier>1",
    "bad key=1",
    "=x",
];

const FIELDS: [&str; 6] = [
    "metadata.name=n1",
    "metadata.name!=n1",
    "metadata.name=n2,metadata.namespace=none",
    "spec.intent=ride",
    "metadata.name",
    "type=Opaque",
];

const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";

/// The page after `alpha` of the list of revision 1: `{"v":"meta.k8s.io/v1","rv":1,"start":"alpha\u0000"}`.
const EXPIRED: &str = "eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhbHBoYVx1MDAwMCJ9";

pub(super) fn act(draft: &mut Draft) {
    let kind = draft.kind(&[CONFIG_MAP, SECRET, COWBOY, GADGET]);
    for _ in 0..3 {
        let name = draft.fresh(kind);
        let tier = draft.random.pick(&["gold", "silver", "none"]);
        let labels = if tier == "none" {
            json!({"many": "true"})
        } else {
            json!({"many": "true", "tier": tier})
        };
        draft.create(kind, &name, &json!({"labels": labels}));
    }
    for _ in 0..3 {
        selected(draft, kind);
    }
    if draft.random.chance(60) {
        pages(draft, kind);
    } else {
        revisions(draft, kind);
    }
}

/// A version and a page that the API server has compacted. Only of custom resources, whose watch caches begin after it.
pub(super) fn expired(draft: &mut Draft) {
    let kind = draft.kind(&[COWBOY, GADGET]);
    let call = Call::get(draft.list(kind));
    let call = if draft.random.chance(50) {
        call.query("resourceVersion", "1")
            .query("resourceVersionMatch", "Exact")
    } else {
        call.query("limit", "1").query("continue", EXPIRED)
    };
    draft.call(call);
}

fn selected(draft: &mut Draft, kind: Kind) {
    let call = Call::get(draft.list(kind));
    let call = match draft.random.below(6) {
        0..3 => call.query("labelSelector", draft.random.one(&SELECTORS)),
        3 => call.query(
            "fieldSelector",
            format!("{},metadata.name!=kube-root-ca.crt", draft.random.one(&FIELDS)),
        ),
        4 => Call::get(kind.list("")).query("labelSelector", format!("sequence={}", draft.id)),
        _ => call.query("labelSelector", "many=true").accept(METADATA_ONLY),
    };
    // The API server itself adds a ConfigMap to each namespace, at a time of its own.
    let is_open = !call.query.iter().any(|(name, _)| name == "fieldSelector")
        && !call
            .query
            .iter()
            .any(|(name, value)| name == "labelSelector" && value.contains("tier="));
    let call = if kind == CONFIG_MAP && is_open {
        call.query("fieldSelector", "metadata.name!=kube-root-ca.crt")
    } else {
        call
    };
    draft.call(call);
}

fn pages(draft: &mut Draft, kind: Kind) {
    let list = draft.list(kind);
    let selector = draft.random.chance(50) || kind == CONFIG_MAP;
    let page = |call: Call| {
        // There are three objects at least, so that there are three pages.
        let call = call.query("limit", "1");
        if selector {
            call.query("labelSelector", "many=true")
        } else {
            call
        }
    };
    let first = draft.call(page(Call::get(&list)));
    let mut previous = first;
    for _ in 0..2 {
        if draft.random.chance(30) {
            // What is written meanwhile is on no page.
            let name = draft.fresh(kind);
            draft.create(kind, &name, &json!({"labels": {"many": "true"}}));
        }
        let next = format!("${{{previous}/metadata/continue}}");
        previous = draft.call(page(Call::get(&list)).query("continue", next));
    }
    match draft.random.below(4) {
        0 => drop(draft.call(page(Call::get(&list)).query("continue", "nonsense"))),
        1 => {
            let next = format!("${{{first}/metadata/continue}}");
            draft.call(
                page(Call::get(&list))
                    .query("continue", next)
                    .query("resourceVersion", "5"),
            );
        }
        _ => {}
    }
}

fn revisions(draft: &mut Draft, kind: Kind) {
    let list = draft.list(kind);
    let name = draft.fresh(kind);
    let before = draft.call(Call::get(&list).query("labelSelector", "many=true"));
    draft.create(kind, &name, &json!({"labels": {"many": "true"}}));
    let revision = format!("${{{before}/metadata/resourceVersion}}");
    for _ in 0..2 {
        let call = Call::get(&list).query("labelSelector", "many=true");
        let call = match draft.random.below(8) {
            0 => call.query("resourceVersion", "0").patient(),
            6 => call
                .query("resourceVersion", &revision)
                .query("resourceVersionMatch", "NotOlderThan")
                .patient(),
            1 => call
                .query("resourceVersion", &revision)
                .query("resourceVersionMatch", "Exact"),
            2 => call.query("resourceVersion", "nonsense"),
            3 => call.query("resourceVersionMatch", "Exact"),
            4 => call
                .query("resourceVersion", "0")
                .query("resourceVersionMatch", "Exact"),
            5 => call
                .query("resourceVersion", &revision)
                .query("resourceVersionMatch", "Wrong"),
            _ => call.query("resourceVersion", "0").query("limit", "1").patient(),
        };
        draft.call(call);
    }
}
