//! A strict parser of the text format of OpenMetrics and Prometheus, of what `top` needs: names, labels and values of samples.
//!
//! Comments, timestamps and exemplars are skipped. A line that is none of the format is an error, since the address may be of another
//! program.

/// A page of metrics.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Exposition(Vec<Sample>);

/// A value of a metric, with the labels that tell it from others of its name.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Sample {
    name: String,
    labels: Vec<(String, String)>,
    pub(crate) value: f64,
}

/// A line that is not of the text format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} is no sample of a metric")]
pub(crate) struct NoSample {
    line: usize,
}

impl Exposition {
    /// Reads a page.
    pub(crate) fn parse(text: &str) -> Result<Self, NoSample> {
        let lines = text.lines().enumerate();
        let samples = lines.filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
        let samples = samples.map(|(at, line)| sample(line).ok_or(NoSample { line: at + 1 }));
        Ok(Self(samples.collect::<Result<_, _>>()?))
    }

    /// The samples of this name.
    pub(crate) fn samples(&self, name: &str) -> impl Iterator<Item = &Sample> {
        self.0.iter().filter(move |sample| sample.name == name)
    }
}

impl Sample {
    /// The value of a label.
    pub(crate) fn label(&self, name: &str) -> Option<&str> {
        let found = self.labels.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| value.as_str())
    }
}

/// A number as the format writes it, such as `1.5`, `1e3` or `+Inf`.
pub(crate) fn number(text: &str) -> Option<f64> {
    text.parse().ok()
}

fn sample(line: &str) -> Option<Sample> {
    let end = line.find(|c: char| !is_in_name(c)).filter(|end| *end > 0)?;
    let (name, rest) = line.split_at(end);
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (Vec::new(), rest),
    };
    // Behind the value may stand a timestamp and an exemplar.
    let value = rest.strip_prefix(' ')?.split_whitespace().next()?;
    Some(Sample {
        name: name.to_owned(),
        labels,
        value: number(value)?,
    })
}

/// The labels behind an opening brace, and the text behind the closing one.
fn labels(mut rest: &str) -> Option<(Vec<(String, String)>, &str)> {
    let mut labels = Vec::new();
    loop {
        rest = rest.trim_start_matches(' ');
        if let Some(rest) = rest.strip_prefix('}') {
            return Some((labels, rest));
        }
        let (name, after) = rest.split_once("=\"")?;
        if name.is_empty() || !name.chars().all(is_in_name) {
            return None;
        }
        let (value, after) = text(after)?;
        labels.push((name.to_owned(), value));
        rest = match after.strip_prefix(',') {
            Some(after) => after,
            None if after.starts_with('}') => after,
            None => return None,
        };
    }
}

/// The value of a label behind its opening quote, and the text behind the closing one.
fn text(rest: &str) -> Option<(String, &str)> {
    let (mut value, mut is_escaped) = (String::new(), false);
    for (at, c) in rest.char_indices() {
        match c {
            _ if is_escaped => {
                value.push(if c == 'n' { '\n' } else { c });
                is_escaped = false;
            }
            '\\' => is_escaped = true,
            '"' => return Some((value, &rest[at + 1..])),
            _ => value.push(c),
        }
    }
    None
}

fn is_in_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == ':'
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn samples_are_read_with_their_labels() {
        let text = "# HELP a Help.\n# TYPE a counter\na_total{x=\"1\",y=\"a\\\\b\\\"c\\nd\"} 5 1700000000 # {trace=\"x\"} 1\n\
                    b 1e3\nc{} +Inf\n\n# EOF\n";
        let page = Exposition::parse(text).unwrap();
        let one = |name: &str| page.samples(name).next().unwrap().clone();
        assert_eq!(
            (one("a_total").label("x"), one("a_total").label("z")),
            (Some("1"), None)
        );
        assert_eq!(one("a_total").label("y"), Some("a\\b\"c\nd"));
        let values = ["a_total", "b", "c"].map(|name| one(name).value);
        assert_eq!(values.map(|value| value.to_string()), ["5", "1000", "inf"]);
        assert_eq!(page.samples("a").count(), 0);
    }

    #[test]
    fn what_is_no_sample_is_refused_with_its_line() {
        for bad in [
            "<html>",
            "a",
            "a one",
            "{x=\"1\"} 1",
            "a{x=1} 1",
            "a{x=\"1} 1",
            "a{x=\"1\" 1",
            "a{x=\"1\"y=\"2\"} 1",
            "a{=\"1\"} 1",
            "1a 1",
        ] {
            let text = format!("b 1\n{bad}\n");
            assert_eq!(Exposition::parse(&text), Err(NoSample { line: 2 }), "{bad}");
        }
    }

    proptest! {
        #[test]
        fn any_label_comes_back_as_it_was(value in any::<String>()) {
            let escaped = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            // A line ends at other characters for no format, and `lines` takes off a carriage return only before a line feed.
            prop_assume!(!value.contains('\r'));
            let page = Exposition::parse(&format!("a{{x=\"{escaped}\"}} 1\n")).unwrap();
            prop_assert_eq!(page.samples("a").next().unwrap().label("x"), Some(value.as_str()));
        }
    }
}
