//! Metrics as programs serve them.

use anyhow::Result;
use bindery_e2e::http;

/// The metrics of a program at one moment.
#[derive(Clone, Debug, Default)]
pub(super) struct Metrics {
    samples: Vec<Metric>,
}

/// One line of them.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Metric {
    name: String,
    labels: Vec<(String, String)>,
    pub(super) value: f64,
}

impl Metrics {
    /// Reads all of the program with this admin port.
    pub(super) async fn of(port: u16) -> Result<Self> {
        let (_, text) = http::get(port, "/metrics").await?;
        Ok(Self::parse(&text, |_| true))
    }

    /// Reads those whose line a filter lets pass; an API server has very many.
    pub(super) fn parse(text: &str, is_wanted: impl Fn(&str) -> bool) -> Self {
        let lines = text
            .lines()
            .filter(|line| !line.starts_with('#'))
            .filter(|line| is_wanted(line));
        Self {
            samples: lines.filter_map(Metric::parse).collect(),
        }
    }

    /// All of this name, with or without what the program puts in front of all its names.
    pub(super) fn each(&self, name: &str) -> impl Iterator<Item = &Metric> {
        self.samples.iter().filter(move |sample| sample.is_named(name))
    }

    /// The sum of those of this name that have these labels.
    pub(super) fn sum(&self, name: &str, labels: &[(&str, &str)]) -> f64 {
        let of = self.each(name).filter(|sample| sample.has(labels));
        // Of none it is -0.
        of.map(|sample| sample.value).sum::<f64>() + 0.0
    }
}

impl Metric {
    fn parse(line: &str) -> Option<Self> {
        let (key, value) = line.rsplit_once(' ')?;
        let (name, labels) = match key.split_once('{') {
            Some((name, labels)) => (name, labels.strip_suffix('}')?),
            None => (key, ""),
        };
        let labels = labels.split_terminator("\",").filter_map(|label| {
            let (label, value) = label.split_once("=\"")?;
            Some((label.to_owned(), value.trim_end_matches('"').to_owned()))
        });
        Some(Self {
            name: name.to_owned(),
            labels: labels.collect(),
            value: value.parse().ok()?,
        })
    }

    fn is_named(&self, name: &str) -> bool {
        self.name
            .strip_suffix(name)
            .is_some_and(|prefix| prefix.is_empty() || prefix.ends_with('_'))
    }

    /// What one of its labels says.
    pub(super) fn label(&self, name: &str) -> &str {
        let found = self.labels.iter().find(|(label, _)| label == name);
        found.map_or("", |(_, value)| value)
    }

    fn has(&self, labels: &[(&str, &str)]) -> bool {
        labels.iter().all(|(name, value)| self.label(name) == *value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = r#"# HELP bindery_sync_objects Objects.
bindery_sync_objects{binding="gadgets",resource="gadgets.bench.bindery.dev"} 12
bindery_sync_objects{binding="widgets",resource="widgets.bench.bindery.dev"} 3
bindery_leading 1
not_sync_objects{binding="gadgets"} 1e3
"#;

    #[test]
    fn values_are_told_by_name_and_labels() {
        let metrics = Metrics::parse(TEXT, |line| !line.starts_with("not_"));
        let sum = |name, labels: &[_]| format!("{}", metrics.sum(name, labels));
        assert_eq!(sum("sync_objects", &[]), "15");
        assert_eq!(sum("sync_objects", &[("binding", "gadgets")]), "12");
        assert_eq!(sum("leading", &[]), "1");
        assert_eq!(sum("objects_of_none", &[]), "0");
        let widgets = metrics.each("sync_objects").nth(1).unwrap();
        assert_eq!(widgets.label("resource"), "widgets.bench.bindery.dev");
    }
}
