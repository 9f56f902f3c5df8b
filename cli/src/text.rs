//! Texts for messages and tables.

use std::fmt::Display;

/// Several values in one cell, separated by commas; `<none>` if there are none.
pub(crate) fn joined<T: ToString>(values: impl IntoIterator<Item = T>) -> String {
    let values: Vec<_> = values.into_iter().map(|value| value.to_string()).collect();
    if values.is_empty() {
        "<none>".to_owned()
    } else {
        values.join(",")
    }
}

/// A number of things in words; `thing` is the word for one of them.
pub(crate) fn counted<N: Copy + Display + From<u8> + PartialEq>(number: N, thing: &str) -> String {
    let plural = if number == N::from(1) { "" } else { "s" };
    format!("{number} {thing}{plural}")
}
