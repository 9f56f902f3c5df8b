//! Texts for messages and tables.

/// Several values in one cell, separated by commas; `<none>` if there are none.
pub(crate) fn joined<T: ToString>(values: impl IntoIterator<Item = T>) -> String {
    let values: Vec<_> = values.into_iter().map(|value| value.to_string()).collect();
    if values.is_empty() {
        "<none>".to_owned()
    } else {
        values.join(",")
    }
}
