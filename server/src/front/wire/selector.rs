//! Label selectors in Kubernetes' notation: `tier=gold,region in (eu,us),!legacy`.

use std::collections::{BTreeMap, BTreeSet};

use kube::core::{Expression, Selector, SelectorExt as _};

const REQUIREMENTS_MAX: usize = 32;

/// A label selector and the text that it was parsed from. An empty one selects every object.
#[derive(Clone, Debug, Default)]
pub(crate) struct LabelSelector {
    text: String,
    selector: Selector,
}

/// Why a text is not a label selector.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SelectorError {
    /// A requirement cannot be parsed.
    #[error(
        "{0:?} is no requirement on a label; write key=value, key!=value, key in (a,b), key notin (a,b), key or !key"
    )]
    Requirement(String),
    /// There are too many requirements.
    #[error("has more than {REQUIREMENTS_MAX} requirements")]
    TooMany,
}

impl LabelSelector {
    /// Parses a label selector.
    pub(crate) fn parse(text: &str) -> Result<Self, SelectorError> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let parts = split(text);
        if parts.len() > REQUIREMENTS_MAX {
            return Err(SelectorError::TooMany);
        }
        let requirement = |part: &str| requirement(part).ok_or_else(|| SelectorError::Requirement(part.to_owned()));
        let requirements = parts.into_iter().map(|part| requirement(part.trim()));
        Ok(Self {
            text: text.to_owned(),
            selector: requirements.collect::<Result<_, _>>()?,
        })
    }

    /// The text that it was parsed from.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether an object with these labels is selected.
    pub(crate) fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.selector.matches(labels)
    }
}

/// Splits at commas that are not in parentheses.
fn split(text: &str) -> Vec<&str> {
    let mut is_open = false;
    let at_comma = |letter: char| {
        is_open = (is_open || letter == '(') && letter != ')';
        letter == ',' && !is_open
    };
    text.split(at_comma).collect()
}

fn requirement(text: &str) -> Option<Expression> {
    if let Some(key) = text.strip_prefix('!') {
        return Some(Expression::DoesNotExist(label_key(key)?));
    }
    if let Some(list) = text.strip_suffix(')') {
        let (head, values) = list.split_once('(')?;
        let values: BTreeSet<_> = values.split(',').map(label_value).collect::<Option<_>>()?;
        let (key, operator) = head.trim().split_once(char::is_whitespace)?;
        return match operator.trim() {
            "in" => Some(Expression::In(label_key(key)?, values)),
            "notin" => Some(Expression::NotIn(label_key(key)?, values)),
            _ => None,
        };
    }
    if let Some((key, value)) = text.split_once("!=") {
        return Some(Expression::NotEqual(label_key(key)?, label_value(value)?));
    }
    if let Some((key, value)) = text.split_once("==").or_else(|| text.split_once('=')) {
        return Some(Expression::Equal(label_key(key)?, label_value(value)?));
    }
    Some(Expression::Exists(label_key(text)?))
}

fn label_key(key: &str) -> Option<String> {
    let key = key.trim();
    let (prefix, name) = key
        .split_once('/')
        .map_or((None, key), |(prefix, name)| (Some(prefix), name));
    let is_part = |part: &str| !part.is_empty() && part.bytes().all(is_plain);
    let is_prefix = |prefix: &str| prefix.len() <= 253 && prefix.split('.').all(is_part);
    (!name.is_empty() && is_label_text(name) && prefix.is_none_or(is_prefix)).then(|| key.to_owned())
}

fn label_value(text: &str) -> Option<String> {
    let text = text.trim();
    is_label_text(text).then(|| text.to_owned())
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'-'
}

/// Whether a text can be the name or the value of a label. An empty value can.
fn is_label_text(text: &str) -> bool {
    let is_end = |byte: Option<&u8>| byte.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && bytes.iter().all(|byte| is_plain(*byte) || matches!(byte, b'_' | b'.'))
        && is_end(bytes.first())
        && is_end(bytes.last())
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
        let many = vec!["a"; 40].join(",");
        assert_eq!(LabelSelector::parse(&many).err(), Some(SelectorError::TooMany));
    }

    /// A part of a selector, or something like it.
    fn part() -> impl Strategy<Value = String> {
        let operator = prop::sample::select(vec!["", "=", "==", "!=", " in ", " notin ", "!", ","]);
        ("[a-c!]{0,2}", operator, "[(]?[a-c,]{0,3}[)]?").prop_map(|(key, operator, value)| key + operator + &value)
    }

    proptest! {
        #[test]
        fn a_text_that_parses_selects_as_kubernetes_reads_its_own_notation(
            text in prop_oneof![part(), "\\PC{0,40}"],
            labels in prop::collection::btree_map("[a-c]", "[a-c]?", 0..3),
        ) {
            if let Ok(selector) = LabelSelector::parse(&text) {
                // What kube writes means the same when it is read again.
                let again = LabelSelector::parse(&selector.selector.to_string()).expect("a selector");
                prop_assert_eq!(selector.matches(&labels), again.matches(&labels));
                // Each requirement holds alone.
                let each = split(&text).into_iter().all(|part| LabelSelector::parse(part).expect("a part").matches(&labels));
                prop_assert_eq!(selector.matches(&labels), each);
            }
        }
    }
}
