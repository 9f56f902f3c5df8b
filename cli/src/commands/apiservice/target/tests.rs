use bindery_proto::v1alpha2 as proto;
use bindery_sdk::{Code, Error, StatusError};

use super::*;

fn answer<T>(found: Option<T>, code: Code) -> Result<T, ProviderError> {
    found.ok_or_else(|| ProviderError::Call {
        doing: "look".to_owned(),
        template: None,
        principal: None,
        audience: "https://b".to_owned(),
        source: Box::new(Error::Status(Box::new(StatusError {
            code,
            ..StatusError::default()
        }))),
    })
}

/// What is chosen for these answers: a word, or the exit code of the failure.
fn chosen(template: Option<Code>, collection: Option<Code>) -> Result<&'static str, Exit> {
    let details = || TemplateDetails {
        template: proto::Template::default(),
        schemas: Vec::new(),
    };
    let found = choose(
        "west",
        answer(template.is_none().then(details), template.unwrap_or(Code::Unknown)),
        answer(
            collection.is_none().then(Collection::default),
            collection.unwrap_or(Code::Unknown),
        ),
    );
    match found {
        Ok(Found::Template(_)) => Ok("template"),
        Ok(Found::Collection(_)) => Ok("collection"),
        Err(failure) => Err(failure.exit()),
    }
}

#[test]
fn a_name_is_what_the_provider_has_and_two_are_refused() {
    use Code::{NotFound, PermissionDenied, Unavailable};
    for (template, collection, expect) in [
        (None, Some(NotFound), Ok("template")),
        (None, Some(PermissionDenied), Ok("template")),
        (Some(NotFound), None, Ok("collection")),
        (Some(PermissionDenied), None, Ok("collection")),
        (None, None, Err(Exit::Usage)),
        (Some(PermissionDenied), Some(NotFound), Err(Exit::Denied)),
        (Some(NotFound), Some(NotFound), Err(Exit::NotFound)),
        // Whether there are two is unknown.
        (None, Some(Unavailable), Err(Exit::Failed)),
        (Some(Unavailable), None, Err(Exit::Failed)),
    ] {
        assert_eq!(chosen(template, collection), expect, "{template:?} {collection:?}");
    }
}

#[test]
fn one_resource_is_brought_once() {
    let [cowboys, sheriffs] =
        ["cowboys", "sheriffs"].map(|name| BTreeSet::from([GroupResource::new("wildwest.dev", name)]));
    assert!(refuse_overlap([("a", &cowboys), ("b", &sheriffs)]).is_ok());
    let error = refuse_overlap([("a", &cowboys), ("b", &sheriffs), ("c", &cowboys)]).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("templates a,c both bring cowboys.wildwest.dev"),
        "{error}"
    );
}
