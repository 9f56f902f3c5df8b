//! Label selectors in Kubernetes' notation: `tier=gold,region in (eu,us),!legacy`.

use std::collections::{BTreeMap, BTreeSet};

const REQUIREMENTS_MAX: usize = 32;

/// A selector: all requirements must hold. The empty one selects everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LabelSelector {
    requirements: Vec<Requirement>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    In(BTreeSet<String>),
    NotIn(BTreeSet<String>),
    Exists,
    DoesNotExist,
}

/// Why a text is no selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SelectorError {
    /// A requirement cannot be read.
    #[error(
        "{0:?} is no requirement on a label; write key=value, key!=value, key in (a,b), key notin (a,b), key or !key"
    )]
    Requirement(String),
    /// There are too many.
    #[error("has more than {REQUIREMENTS_MAX} requirements")]
    TooMany,
}

impl LabelSelector {
    /// Reads a selector.
    pub(super) fn parse(text: &str) -> Result<Self, SelectorError> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let parts = split(text);
        if parts.len() > REQUIREMENTS_MAX {
            return Err(SelectorError::TooMany);
        }
        let requirements = parts
            .into_iter()
            .map(|part| requirement(part.trim()).ok_or_else(|| SelectorError::Requirement(part.trim().to_owned())))
            .collect::<Result<_, _>>()?;
        Ok(Self { requirements })
    }

    /// Whether an object with these labels is selected.
    pub(super) fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.requirements.iter().all(|requirement| {
            let value = labels.get(&requirement.key);
            match &requirement.test {
                Test::In(values) => value.is_some_and(|value| values.contains(value)),
                // As in Kubernetes, an object without the label is not in the list either.
                Test::NotIn(values) => value.is_none_or(|value| !values.contains(value)),
                Test::Exists => value.is_some(),
                Test::DoesNotExist => value.is_none(),
            }
        })
    }
}

/// At commas that stand outside of parentheses.
fn split(text: &str) -> Vec<&str> {
    let (mut parts, mut start, mut open) = (Vec::new(), 0, false);
    for (index, letter) in text.char_indices() {
        match letter {
            '(' => open = true,
            ')' => open = false,
            ',' if !open => {
                parts.push(&text[start..index]);
                start = index + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

fn requirement(text: &str) -> Option<Requirement> {
    if let Some(key) = text.strip_prefix('!') {
        return with(key, Test::DoesNotExist);
    }
    if let Some(list) = text.strip_suffix(')') {
        let (head, values) = list.split_once('(')?;
        let values: Option<BTreeSet<_>> = values.split(',').map(value).collect();
        let (key, operator) = head.trim().split_once(char::is_whitespace)?;
        return match operator.trim() {
            "in" => with(key, Test::In(values?)),
            "notin" => with(key, Test::NotIn(values?)),
            _ => None,
        };
    }
    let one = |text: &str| value(text).map(|value| BTreeSet::from([value]));
    if let Some((key, value)) = text.split_once("!=") {
        return with(key, Test::NotIn(one(value)?));
    }
    if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return with(key, Test::In(one(value)?));
    }
    with(text, Test::Exists)
}

fn with(key: &str, test: Test) -> Option<Requirement> {
    let key = key.trim();
    let (prefix, name) = key
        .split_once('/')
        .map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let is_prefix = |prefix: &str| {
        prefix.len() <= 253
            && prefix
                .split('.')
                .all(|label| !label.is_empty() && label.bytes().all(is_plain))
    };
    if name.is_empty() || !is_label_text(name) || !prefix.is_none_or(is_prefix) {
        return None;
    }
    Some(Requirement {
        key: key.to_owned(),
        test,
    })
}

fn value(text: &str) -> Option<String> {
    let text = text.trim();
    is_label_text(text).then(|| text.to_owned())
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

/// What a name or a value of a label may be; empty is a value.
fn is_label_text(text: &str) -> bool {
    let ends = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && bytes.iter().all(|byte| is_plain(*byte) || matches!(byte, b'_' | b'.'))
        && ends(bytes.first())
        && ends(bytes.last())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(selector: &str, labels: &[(&str, &str)], expect: bool) {
        let labels = labels
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
            .collect();
        let parsed = LabelSelector::parse(selector).expect("a selector");
        assert_eq!(parsed.matches(&labels), expect, "{selector} on {labels:?}");
    }

    #[test]
    fn selects_as_kubernetes_does() {
        let gold = &[("tier", "gold"), ("example.com/region", "eu")][..];
        check("", &[], true);
        check(" ", gold, true);
        check("tier=gold", gold, true);
        check("tier == gold", gold, true);
        check("tier=silver", gold, false);
        check("tier=", &[("tier", "")], true);
        check("tier!=gold", gold, false);
        check("tier!=gold", &[], true);
        check("tier", gold, true);
        check("tier", &[], false);
        check("!tier", gold, false);
        check("!tier", &[], true);
        check("example.com/region in (eu, us)", gold, true);
        check("tier notin (gold,silver)", gold, false);
        check("tier notin (gold,silver)", &[], true);
        check("tier in (gold,silver),example.com/region=eu,!legacy", gold, true);
        check("tier in (gold,silver),legacy", gold, false);
    }

    #[test]
    fn refuses_what_is_no_selector() {
        for text in [
            "=",
            "a b",
            "a in b",
            "a in (b",
            "a like (b)",
            ",",
            "a,",
            "a=b=c",
            "/a=b",
            "a//b",
            "a=-b",
            "a=b c",
        ] {
            assert!(LabelSelector::parse(text).is_err(), "{text:?}");
        }
        assert_eq!(
            LabelSelector::parse(&vec!["a"; 40].join(",")),
            Err(SelectorError::TooMany)
        );
    }

    proptest! {
        #[test]
        fn no_text_brings_it_down(text in "\\PC{0,40}") {
            let _ = LabelSelector::parse(&text);
        }
    }
}
