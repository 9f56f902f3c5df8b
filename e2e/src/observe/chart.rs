//! The parts of the charts that are made of the table: the template of the rules, and the section `monitoring` of values and their
//! schema, which stands in a file that people write.

use std::{fmt::Write as _, fs};

use anyhow::{Context as _, Result};
use serde_json::{Map, Value, json};

use super::{ALERTS, BURNS, Program, SLOS, Target, rules::MINIMUM};
use crate::charts::folder;

/// The upper bounds of the histogram of the lag that the value of an objective may be.
const BOUNDS: [&str; 8] = ["0.1", "0.25", "0.5", "1.0", "2.5", "5.0", "10.0", "30.0"];
/// A duration of Prometheus.
const DURATION: &str = "^[0-9]+(ms|[smhdwy])$";

/// The template of the PrometheusRule.
pub(super) fn rules(program: Program) -> String {
    let mut template = "\
{{- /* Written by `cargo xtask gen` from the table in e2e/src/observe. */ -}}
{{- $values := .Values.monitoring.rules }}
{{- if $values.enabled }}
# Objectives and alerts. docs/reference/alerts.md has them as a table.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: {{ .Release.Name | toYaml }}
  namespace: {{ .Release.Namespace | toYaml }}
  labels:
    app.kubernetes.io/name: {{ .Release.Name | toYaml }}
    {{- with .Values.monitoring.labels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
spec:
"
    .to_owned();
    for line in super::rules(program, &Target::Chart).lines() {
        let _ = writeln!(template, "  {line}");
    }
    template + "{{- end }}\n"
}

/// `values.yaml` with the section `monitoring` of the table.
pub(super) fn values(program: Program) -> Result<String> {
    let known = read(program, "values.yaml")?;
    let mut own = String::new();
    add_yaml(&mut own, 0, "monitoring", &section(program).0);
    splice(
        &known,
        "monitoring:",
        |line| !line.starts_with(' '),
        &own,
        "createNamespace:",
    )
}

/// `values.schema.json` with the section `monitoring` of the table.
pub(super) fn schema(program: Program) -> Result<String> {
    let known = read(program, "values.schema.json")?;
    let text = serde_json::to_string_pretty(&section(program).1)?;
    let mut lines = text.lines();
    let mut own = format!("    \"monitoring\": {}\n", lines.next().unwrap_or_default());
    for line in lines {
        let _ = writeln!(own, "    {line}");
    }
    own.truncate(own.trim_end().len());
    own.push_str(",\n");
    // The line that ends the section is not of the next one.
    let known = known.replace("\n    \"monitoring\": {", "\n    \"monitoring\":\n     {");
    let known = known.as_str();
    splice(
        known,
        "    \"monitoring\":",
        |line| line.starts_with("    \""),
        &own,
        "    \"createNamespace\":",
    )
}

fn read(program: Program, name: &str) -> Result<String> {
    let path = folder(program.name()).join(name);
    fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
}

/// Replaces the section that begins with a line, up to the line that is of another section, or puts it before another one.
fn splice(known: &str, begin: &str, ends: impl Fn(&str) -> bool, own: &str, before: &str) -> Result<String> {
    let mut text = String::new();
    let mut is_inside = false;
    for line in known.lines() {
        if line.starts_with(begin) {
            is_inside = true;
            continue;
        }
        if is_inside && ends(line) {
            is_inside = false;
        }
        if is_inside {
            continue;
        }
        if line.starts_with(before) {
            text.push_str(own);
        }
        text.push_str(line);
        text.push('\n');
    }
    anyhow::ensure!(text.contains(own), "there is no line {before}");
    Ok(text)
}

/// A part of the values in the order of its names, with its schema.
struct Section {
    about: String,
    entries: Vec<(&'static str, Entry)>,
}

enum Entry {
    Value(Value, Value),
    Section(Section),
}

impl Section {
    fn new(about: impl Into<String>) -> Self {
        Self {
            about: about.into(),
            entries: Vec::new(),
        }
    }

    fn value(&mut self, name: &'static str, default: Value, mut schema: Value, about: impl Into<String>) {
        schema["description"] = Value::String(about.into());
        self.entries.push((name, Entry::Value(default, schema)));
    }

    fn section(&mut self, name: &'static str, section: Self) {
        self.entries.push((name, Entry::Section(section)));
    }

    fn schema(&self) -> Value {
        let properties = self.entries.iter().map(|(name, entry)| {
            let schema = match entry {
                Entry::Value(_, schema) => schema.clone(),
                Entry::Section(section) => section.schema(),
            };
            ((*name).to_owned(), schema)
        });
        let properties: Map<String, Value> = properties.collect();
        json!({
            "description": self.about, "type": "object", "additionalProperties": false, "properties": properties,
        })
    }
}

fn add_yaml(yaml: &mut String, indent: usize, name: &str, section: &Section) {
    let _ = writeln!(yaml, "{:indent$}{name}:", "");
    let indent = indent + 2;
    for (name, entry) in &section.entries {
        match entry {
            Entry::Value(value, _) => {
                let text = match value {
                    // Such as a duration, which is a text in YAML too.
                    Value::String(text) if text.starts_with(|first: char| first.is_ascii_alphabetic()) => text.clone(),
                    _ => value.to_string(),
                };
                let _ = writeln!(yaml, "{:indent$}{name}: {text}", "");
            }
            Entry::Section(section) => add_yaml(yaml, indent, name, section),
        }
    }
}

fn number(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|_| Value::String(text.to_owned()))
}

fn boolean() -> Value {
    json!({"type": "boolean"})
}

fn labels() -> Value {
    json!({"type": "object", "additionalProperties": {"type": "string"}})
}

fn duration() -> Value {
    json!({"type": "string", "pattern": DURATION})
}

fn severity() -> Value {
    json!({"type": "string", "minLength": 1})
}

fn at_least(minimum: u32) -> Value {
    json!({"type": "number", "minimum": minimum})
}

fn section(program: Program) -> (Section, Value) {
    let monitor = match program {
        Program::Server => "a ServiceMonitor, and a Service of the port `admin` for it",
        Program::Konnector => "a PodMonitor",
    };
    let mut all = Section::new("Prometheus and Grafana, by the CRDs of the Prometheus operator.");
    all.value(
        "job",
        json!(program.name()),
        json!({"type": "string", "pattern": "^[-a-zA-Z0-9_./]+$"}),
        "The label `job` of the samples, by which rules and dashboards find them. Two releases of one Prometheus need two.",
    );
    all.value(
        "labels",
        json!({}),
        labels(),
        "Labels of the monitor and the PrometheusRule, by which a Prometheus selects them.",
    );
    let mut scrape = Section::new("How Prometheus finds the program.");
    scrape.value(
        "enabled",
        json!(false),
        boolean(),
        format!("Whether there is {monitor}."),
    );
    scrape.value("interval", json!("30s"), duration(), "Time between two scrapes.");
    all.section("scrape", scrape);
    let mut dashboards = Section::new("The dashboard.");
    dashboards.value(
        "enabled",
        json!(false),
        boolean(),
        "Whether there is a ConfigMap with the dashboard, as the sidecar of Grafana's chart looks for it.",
    );
    dashboards.value(
        "labels",
        json!({"grafana_dashboard": "1"}),
        labels(),
        "Labels of that ConfigMap.",
    );
    all.section("dashboards", dashboards);
    all.section("rules", rules_section(program));
    let schema = all.schema();
    (all, schema)
}

fn rules_section(program: Program) -> Section {
    let mut rules = Section::new("Objectives and alerts.");
    rules.value("enabled", json!(false), boolean(), "Whether there is a PrometheusRule.");
    rules.value(
        "runbooks",
        json!(""),
        json!({"type": "string"}),
        "The URL at which you serve the page Runbooks: then alerts have annotation `runbook_url`.",
    );
    let mut burns = Section::new("How fast a budget may be spent.");
    for burn in &BURNS {
        let mut one = Section::new("A burn rate and its windows.");
        let about = "How many times as fast as would spend the budget just within its period.";
        one.value("factor", number(burn.factor), at_least(1), about);
        one.value(
            "long",
            json!(burn.long),
            duration(),
            "The window that says that it matters.",
        );
        one.value(
            "short",
            json!(burn.short),
            duration(),
            "The window that says that it goes on.",
        );
        one.value("for", json!(burn.wait), duration(), "How long both must hold.");
        one.value("severity", json!(burn.severity), severity(), "The label `severity`.");
        burns.section(burn.key, one);
    }
    rules.section("burnRates", burns);
    let mut slos = Section::new("The objectives.");
    for slo in SLOS.iter().filter(|slo| slo.program == program) {
        let mut one = Section::new(format!("Of which so many percent have to be so: {}.", slo.says));
        one.value(
            "enabled",
            json!(true),
            boolean(),
            format!("Whether {} exists.", slo.alert),
        );
        one.value(
            "objective",
            number(slo.objective),
            json!({"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 100}),
            format!("Percent: {}.", slo.says),
        );
        if let Some(seconds) = slo.seconds {
            let about = "The time in seconds: an upper bound of a bucket of the histogram.";
            one.value(
                "seconds",
                json!(seconds),
                json!({"type": "string", "enum": BOUNDS}),
                about,
            );
        }
        if slo.total.is_some() {
            let about =
                "How many events the long window must have had, so that few failures of few events tell nobody.";
            one.value("minimum", number(MINIMUM), at_least(0), about);
        }
        slos.section(slo.key, one);
    }
    rules.section("slos", slos);
    let mut alerts = Section::new("The alerts by symptom.");
    for alert in ALERTS.iter().filter(|alert| alert.program == program) {
        let mut one = Section::new(format!("{}.", alert.name));
        let name = alert.name;
        one.value("enabled", json!(true), boolean(), format!("Whether {name} exists."));
        if let Some(threshold) = alert.threshold {
            one.value(
                "threshold",
                number(threshold),
                at_least(0),
                format!("The limit of {name}."),
            );
        }
        if let Some(window) = alert.window {
            let about = format!("The time that {name} looks back.");
            one.value("window", json!(window), duration(), about);
        }
        one.value(
            "for",
            json!(alert.wait),
            duration(),
            format!("How long {name} waits until it fires."),
        );
        one.value(
            "severity",
            json!(alert.severity),
            severity(),
            format!("The label `severity` of {name}."),
        );
        alerts.section(alert.key, one);
    }
    rules.section("alerts", alerts);
    rules
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_section_is_put_in_and_replaced() {
        let ends = |line: &str| !line.starts_with(' ');
        let first = splice("a: 1\nz: 2\n", "m:", ends, "m:\n  b: 1\n", "z:").unwrap();
        assert_eq!(first, "a: 1\nm:\n  b: 1\nz: 2\n");
        assert_eq!(
            splice(&first, "m:", ends, "m:\n  c: 1\n", "z:").unwrap(),
            "a: 1\nm:\n  c: 1\nz: 2\n"
        );
        assert!(splice("a: 1\n", "m:", ends, "m:\n  b: 1\n", "z:").is_err());
    }
}
