//! Makes the reference of metrics from the source of the programs: each metric stands where it is registered or told, with its name and
//! help, beside a type that names its labels.
//!
//! A registry tells nothing of a family without values, and never the labels of one, so the source is read instead. What cannot be read is
//! an error, so that no metric is left out.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
};

use super::markdown::cell;

/// The programs with the folders of their metrics.
const PROGRAMS: [(&str, &str); 2] = [("server", "server/src"), ("konnector", "agent/src")];
/// The files of the metrics that both have.
const SHARED: [&str; 2] = ["runtime/src/client/traffic.rs", "runtime/src/policy/metric.rs"];

const HEAD: &str = "\
# Metrics

What server and konnector serve at `/metrics` of their port named `admin`, in the text format of OpenMetrics. [Observe](../observe.md) says
which of them to look at. This page is made by `cargo xtask gen`.

A counter is named as it is queried, with `_total`. A histogram has `_bucket`, `_sum` and `_count`. Times are in seconds, and the values of
all labels but `binding`, `resource` and `issuer` are few and fixed. A metric with labels may be absent until it counts something.
";

/// One metric.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Metric {
    /// As it is queried.
    name: String,
    kind: String,
    labels: Vec<String>,
    help: String,
}

/// The page, made of the source in a folder.
pub(super) fn page(root: &Path) -> Result<String, String> {
    let mut page = HEAD.to_owned();
    for (program, folder) in PROGRAMS {
        let mut metrics = Vec::new();
        for source in [folder].into_iter().chain(SHARED) {
            for file in files(&root.join(source))? {
                let text = fs::read_to_string(&file).map_err(|error| format!("{}: {error}", file.display()))?;
                let found = read(&text).map_err(|error| format!("{}: {error}", file.display()))?;
                metrics.extend(found);
            }
        }
        metrics.sort();
        let _ = writeln!(page, "\n## {program}\n");
        page.push_str("| name | type | unit | labels | what it tells |\n|---|---|---|---|---|\n");
        for metric in metrics {
            let labels: Vec<_> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
            let _ = writeln!(
                page,
                "| `{}` | {} | {} | {} | {} |",
                metric.name,
                metric.kind,
                unit(&metric.name),
                labels.join(", "),
                cell(&metric.help)
            );
        }
    }
    Ok(page)
}

fn unit(name: &str) -> &'static str {
    match name.trim_end_matches("_total").rsplit('_').next() {
        Some("seconds") => "seconds",
        Some("bytes") => "bytes",
        _ => "",
    }
}

/// All source files of a folder, or the file itself, without tests.
fn files(path: &Path) -> Result<Vec<PathBuf>, String> {
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let mut found = Vec::new();
    let entries = fs::read_dir(path).map_err(|error| format!("{}: {error}", path.display()))?;
    for entry in entries {
        let path = entry.map_err(|error| error.to_string())?.path();
        let is_test = path.file_stem().is_some_and(|stem| stem == "tests");
        if !is_test && (path.is_dir() || path.extension().is_some_and(|ext| ext == "rs")) {
            found.extend(files(&path)?);
        }
    }
    found.sort();
    Ok(found)
}

/// The metrics that a source file registers or tells.
fn read(source: &str) -> Result<Vec<Metric>, String> {
    let source = source.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let prefix = after(source, "sub_registry_with_prefix(")
        .and_then(|rest| literal(rest.split(')').next()?))
        .map(|prefix| format!("{prefix}_"))
        .unwrap_or_default();
    let mut metrics = Vec::new();
    for marker in ["registry.register(", "encode_descriptor(", "tell(", ".encode("] {
        for (at, _) in source.match_indices(marker) {
            let arguments = arguments(&source[at + marker.len()..])?;
            // Name and help stand side by side; `&mut encoder` may be before them.
            let Some(first) = arguments
                .iter()
                .take(2)
                .position(|argument| literal(argument).is_some())
            else {
                continue;
            };
            let Some([name, help]) = arguments.get(first..first + 2) else {
                return Err(format!("{marker}{arguments:?}) has no help"));
            };
            let (Some(name), Some(help)) = (literal(name), literal(help)) else {
                return Err(format!("{marker}{arguments:?}) has a help that is no text"));
            };
            let value = arguments.get(first + 2).map(String::as_str);
            // Behind the last argument there may be a comma.
            let value = value.filter(|value| !value.is_empty());
            let (labels, kind) = of_value(source, at, value.filter(|_| marker != "encode_descriptor("))
                .ok_or_else(|| format!("the type of metric {name} is not found"))?;
            let suffix = if kind == "Counter" { "_total" } else { "" };
            metrics.push(Metric {
                name: format!("bindery_{prefix}{name}{suffix}"),
                kind: kind.to_lowercase(),
                labels: match labels {
                    Some(labels) => fields(source, &labels).ok_or_else(|| format!("{labels} is not found"))?,
                    None => Vec::new(),
                },
                help,
            });
        }
    }
    Ok(metrics)
}

/// The type of labels, if any, and the type of a metric: of the value that is registered, or of the last family before this place, or
/// else the first one after it.
fn of_value(source: &str, at: usize, value: Option<&str>) -> Option<(Option<String>, String)> {
    let Some(value) = value else {
        let before = source[..at].rmatch_indices("Family").map(|(at, _)| at);
        let mut families = before.chain(source[at..].match_indices("Family").map(|(after, _)| at + after));
        return families.find_map(|at| of_type(&source[at..]));
    };
    let value = value.trim().trim_start_matches('&');
    if let Some(field) = value.strip_suffix(".clone()").and_then(|path| path.rsplit('.').next()) {
        return if field.starts_with(|first: char| first.is_ascii_digit()) {
            // A struct of one field.
            source
                .match_indices("(Family")
                .find_map(|(at, _)| of_type(&source[at + 1..]))
        } else {
            let declaration = format!(" {field}: ");
            let mut declared = source.match_indices(&*declaration).map(|(at, found)| at + found.len());
            declared.find_map(|at| of_type(&source[at..]))
        };
    }
    // What is computed at a scrape is a gauge. Its labels are in the value, or in the closure that makes it.
    let maker: String = value.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    let made = after(source, &format!("let {maker} = ")).and_then(|rest| rest.split("};").next());
    let labels = labels_in(value).or_else(|| labels_in(made.filter(|_| value.contains('('))?));
    Some((labels, "Gauge".to_owned()))
}

/// The name of a struct of labels in a text.
fn labels_in(text: &str) -> Option<String> {
    let mut words = text.split(|c: char| !c.is_alphanumeric());
    words
        .find(|word| word.len() > 6 && word.ends_with("Labels"))
        .map(str::to_owned)
}

/// Reads `Family<Labels, Type…`, also with `::` before its arguments, or the type of a metric without labels.
fn of_type(text: &str) -> Option<(Option<String>, String)> {
    let known = |kind: &str| ["Counter", "Gauge", "Histogram"].contains(&kind);
    let word = |text: &str| -> String { text.trim().chars().take_while(|c| c.is_alphanumeric()).collect() };
    let kind = word(text);
    if known(&kind) {
        return Some((None, kind));
    }
    let inner = text
        .strip_prefix("Family")?
        .trim_start_matches("::")
        .strip_prefix('<')?;
    let (labels, rest) = inner.split_once(',')?;
    let kind = word(rest);
    known(&kind).then(|| (Some(word(labels)), kind))
}

/// The names of the fields of a struct.
fn fields(source: &str, name: &str) -> Option<Vec<String>> {
    let body = after(source, &format!("struct {name} {{"))?.split('}').next()?;
    let lines = body.lines().map(str::trim).filter(|line| !line.starts_with('/'));
    Some(
        lines
            .filter_map(|line| Some(line.split_once(':')?.0.to_owned()))
            .collect(),
    )
}

fn after<'a>(text: &'a str, marker: &str) -> Option<&'a str> {
    text.split_once(marker).map(|(_, rest)| rest)
}

/// The arguments of a call, from behind its opening parenthesis on.
fn arguments(text: &str) -> Result<Vec<String>, String> {
    let (mut depth, mut in_text, mut is_escaped) = (0_usize, false, false);
    let mut arguments = vec![String::new()];
    for c in text.chars() {
        if in_text {
            in_text = is_escaped || c != '"';
            is_escaped = !is_escaped && c == '\\';
        } else {
            match c {
                '"' => in_text = true,
                '(' | '[' | '{' => depth += 1,
                ')' if depth == 0 => {
                    return Ok(arguments.iter().map(|argument| argument.trim().to_owned()).collect());
                }
                ')' | ']' | '}' => depth = depth.saturating_sub(1),
                ',' if depth == 0 => {
                    arguments.push(String::new());
                    continue;
                }
                _ => {}
            }
        }
        if let Some(last) = arguments.last_mut() {
            last.push(c);
        }
    }
    Err("a call has no end".to_owned())
}

/// The text of a literal; `None` for another expression. A backslash at the end of a line joins the lines.
fn literal(argument: &str) -> Option<String> {
    let text = argument.trim().strip_prefix('"')?.strip_suffix('"')?;
    let lines: Vec<_> = text.split("\\\n").collect();
    let joined: Vec<_> = lines
        .iter()
        .enumerate()
        .map(|(number, line)| if number == 0 { line } else { line.trim_start() })
        .collect();
    Some(joined.concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    const SOURCE: &str = r#"
struct Families {
    calls: Family<CallLabels, Counter>,
    seconds: Family<CallLabels, Histogram, fn() -> Histogram>,
    released: Counter,
}
struct CallLabels {
    /// How it was called: by name.
    method: &'static str,
    code: &'static str,
}
struct StateLabels {
    state: &'static str,
}
fn register(registry: &mut Registry) {
    registry.register("calls", "Calls, by (method) and \
        code", families.calls.clone());
    registry.register("call_seconds", "Time", self.seconds.clone());
    registry.register("released", "Released", self.released.clone());
}
fn encode() {
    let by_state = |counts| { counts.map(|state| StateLabels { state }) };
    tell(&mut encoder, "bindings", "Bindings", &by_state(counts))?;
    tell(&mut encoder, "left_seconds", "Left", &left)
}
fn tell() {
    metric.encode(encoder.encode_descriptor(name, help, None, metric.metric_type())?)
}
"#;

    #[test]
    fn each_kind_of_registration_is_read() {
        let metric = |name: &str, kind: &str, labels: &[&str], help: &str| Metric {
            name: name.to_owned(),
            kind: kind.to_owned(),
            labels: labels.iter().map(|label| (*label).to_owned()).collect(),
            help: help.to_owned(),
        };
        let mut found = read(SOURCE).unwrap();
        found.sort();
        let expect = [
            metric("bindery_bindings", "gauge", &["state"], "Bindings"),
            metric("bindery_call_seconds", "histogram", &["method", "code"], "Time"),
            metric(
                "bindery_calls_total",
                "counter",
                &["method", "code"],
                "Calls, by (method) and code",
            ),
            metric("bindery_left_seconds", "gauge", &[], "Left"),
            metric("bindery_released_total", "counter", &[], "Released"),
        ];
        assert_eq!(found, expect);
    }

    #[test]
    fn what_cannot_be_read_is_an_error() {
        for source in [
            r#"registry.register("a", help, self.a.clone());"#,
            r#"registry.register("a", "b", self.a.clone());"#,
            r#"a: Family<NoLabels, Counter> registry.register("a", "b", self.a.clone());"#,
            r#"registry.register("a", "b", "#,
        ] {
            assert!(read(source).is_err(), "{source}");
        }
    }
}
