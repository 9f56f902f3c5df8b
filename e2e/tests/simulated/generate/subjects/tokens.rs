//! TokenRequests and TokenReviews, and what a token may.

use serde_json::{Value, json};

use crate::generate::{
    draft::Draft,
    kind::{CONFIG_MAP, SECRET, SERVICE_ACCOUNT},
    step::{Call, User},
};

const REVIEWS: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
const SELF: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

pub(super) fn act(draft: &mut Draft) {
    let account = draft.fresh(SERVICE_ACCOUNT);
    let account_path = draft.path(SERVICE_ACCOUNT, &account);
    draft.create(SERVICE_ACCOUNT, &account, &json!({}));
    let anchor = draft.fresh(SECRET);
    let anchored = draft.create(SECRET, &anchor, &json!({}));
    let anchor_path = draft.path(SECRET, &anchor);
    let bound = json!({
        "apiVersion": "v1", "kind": "Secret", "name": anchor, "uid": format!("${{{anchored}/metadata/uid}}"),
    });
    let tokens = format!("{account_path}/token");
    for _ in 0..2 {
        let call = odd(draft, &account_path, &bound);
        draft.call(call);
    }
    let spec = json!({"audiences": ["https://simulated.test"], "boundObjectRef": bound, "expirationSeconds": 3600});
    let foreign = draft.call(Call::post(&tokens, request(spec)));
    let own = draft.call(Call::post(
        &tokens,
        request(json!({"boundObjectRef": bound, "expirationSeconds": 700})),
    ));
    let reviews = [
        review(foreign, &json!(["https://simulated.test"])),
        review(foreign, &json!(["https://simulated.test", "other"])),
        review(foreign, &json!(["other"])),
        review(foreign, &Value::Null),
        review(own, &Value::Null),
        Call::post(
            REVIEWS,
            json!({
                "apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": "nonsense"},
            }),
        ),
        Call::post(
            REVIEWS,
            json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {}}),
        ),
    ];
    for _ in 0..3 {
        let review = reviews[draft.random.below(reviews.len())].clone();
        draft.call(review);
    }
    let user = User::Token(format!("${{{own}/status/token}}"));
    draft.call(whoami().by(&user));
    draft.call(Call::get(draft.list(CONFIG_MAP)).by(&user));
    let unfit = User::Token(format!("${{{foreign}/status/token}}"));
    draft.call(Call::get(draft.list(CONFIG_MAP)).by(&unfit));
    draft.call(Call::get(draft.list(CONFIG_MAP)).by(&User::Token("nonsense".to_owned())));
    // What a token is bound to ends it. The API server remembers tokens for some seconds.
    let end = if draft.random.chance(50) {
        anchor_path
    } else {
        account_path
    };
    draft.call(Call::delete(end));
    if draft.random.chance(25) {
        draft.call(review(own, &Value::Null).patient());
        draft.call(Call::get(draft.list(CONFIG_MAP)).by(&user).patient());
    }
}

fn whoami() -> Call {
    Call::post(
        SELF,
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}),
    )
}

fn request(spec: Value) -> Value {
    let mut request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"});
    request["spec"] = spec;
    request
}

fn review(answer: usize, audiences: &Value) -> Call {
    let mut spec = json!({"token": format!("${{{answer}/status/token}}")});
    json_patch::merge(&mut spec, &json!({ "audiences": audiences }));
    Call::post(
        REVIEWS,
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}),
    )
}

/// A request for a token that is refused, or has something of its own.
fn odd(draft: &mut Draft, account: &str, bound: &Value) -> Call {
    let with = |field: &str, value: Value| {
        let mut bound = bound.clone();
        bound[field] = value;
        json!({ "boundObjectRef": bound })
    };
    let spec = match draft.random.below(8) {
        0 => json!({"expirationSeconds": 60}),
        1 => json!({"expirationSeconds": 1u64 << 33}),
        2 => with("name", "none".into()),
        3 => with("uid", "11111111-2222-3333-4444-555555555555".into()),
        4 => with("kind", "ConfigMap".into()),
        5 => json!({"audiences": ["a", "b"]}),
        6 => return Call::post("/api/v1/namespaces/none/serviceaccounts/none/token", request(json!({}))),
        _ => return Call::get(format!("{account}/token")),
    };
    Call::post(format!("{account}/token"), request(spec))
}
