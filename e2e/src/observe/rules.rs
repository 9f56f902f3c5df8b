//! The rules of Prometheus, as YAML.

use std::fmt::Write as _;

use super::{ALERTS, Alert, BURNS, Burn, Program, SLOS, Slo, Target, fill};

/// What a file of rules begins with.
const HEAD: &str =
    "# Written by `cargo xtask gen` from the table in e2e/src/observe. The chart has the same, with values.\n";

/// The rules of a program: a file for Prometheus, or the `spec` of a PrometheusRule in a chart.
pub fn rules(program: Program, target: &Target) -> String {
    let mut yaml = match target {
        Target::Chart => String::new(),
        Target::Plain | Target::Scaled(_) => HEAD.to_owned(),
    };
    yaml.push_str("groups:\n");
    add_recorded(&mut yaml, program, target);
    add_budgets(&mut yaml, program, target);
    add_symptoms(&mut yaml, program, target);
    yaml
}

/// The name of the recorded share of what was bad within a window.
pub fn recorded(slo: &Slo, window: &str) -> String {
    format!("bindery:{}_bad:ratio_rate{window}", slo.record)
}

fn slos(program: Program) -> impl Iterator<Item = &'static Slo> {
    SLOS.iter().filter(move |slo| slo.program == program)
}

/// The windows of all burn rates, each once, with the path of their values.
fn windows(target: &Target) -> Vec<String> {
    let all = BURNS.iter().flat_map(|burn| {
        let window = |name: &str, default| target.window(&format!("burnRates.{}.{name}", burn.key), default);
        [window("long", burn.long), window("short", burn.short)]
    });
    let mut unique = Vec::new();
    for window in all {
        if !unique.contains(&window) {
            unique.push(window);
        }
    }
    unique
}

fn add_recorded(yaml: &mut String, program: Program, target: &Target) {
    let _ = writeln!(yaml, "  - name: {}-objectives\n    rules:", program.name());
    if program == Program::Konnector {
        // A konnector that is away leaves no sample, and counts as one that does not lead.
        let job = target.job(program.name());
        let expression = format!("max(bindery_leading{{job=\"{job}\"}}) or vector(0)");
        let _ = writeln!(yaml, "      - record: bindery:konnector_leading:max");
        add_expression(yaml, &expression);
        let _ = writeln!(yaml, "        labels:\n          job: {job}");
    }
    let add = |yaml: &mut String, window: &str| {
        for slo in slos(program) {
            let _ = writeln!(yaml, "      - record: {}", recorded(slo, window));
            add_expression(yaml, &of_slo(slo, slo.bad, window, target));
        }
    };
    if let Target::Chart = target {
        let all = BURNS.iter().map(|burn| {
            let key = burn.key;
            format!("$values.burnRates.{key}.long $values.burnRates.{key}.short")
        });
        let all = all.collect::<Vec<_>>().join(" ");
        let _ = writeln!(yaml, "      {{{{- range $window := list {all} | uniq }}}}");
        add(yaml, "{{ $window }}");
        yaml.push_str("      {{- end }}\n");
    } else {
        for window in windows(target) {
            add(yaml, &window);
        }
    }
}

fn of_slo(slo: &Slo, template: &str, window: &str, target: &Target) -> String {
    fill(template, |name| match name {
        "job" => target.job(slo.program.name()),
        "window" => window.to_owned(),
        _ => target.value(&format!("slos.{}.{name}", slo.key), slo.seconds.unwrap_or_default()),
    })
}

fn add_budgets(yaml: &mut String, program: Program, target: &Target) {
    let _ = writeln!(yaml, "  - name: {}-budgets\n    rules:", program.name());
    for slo in slos(program) {
        let path = format!("slos.{}", slo.key);
        begin(yaml, target, &path);
        for burn in &BURNS {
            let _ = writeln!(yaml, "      - alert: {}", slo.alert);
            add_expression(yaml, &budget(slo, burn, target));
            let wait = target.wait(&format!("burnRates.{}.for", burn.key), burn.wait);
            let severity = target.value(&format!("burnRates.{}.severity", burn.key), burn.severity);
            let window = target.window(&format!("burnRates.{}.long", burn.key), burn.long);
            let labels = [("severity", &*severity), ("window", &*window)];
            let share = target.text(&format!(
                "{}: {{{{ $value | humanizePercentage }}}} of the last ",
                slo.summary
            ));
            add_tail(yaml, target, &wait, &labels, slo.alert, &format!("{share}{window}"));
        }
        end(yaml, target);
    }
}

/// The expression of an alert about a burn rate.
fn budget(slo: &Slo, burn: &Burn, target: &Target) -> String {
    let path = |name: &str| format!("burnRates.{}.{name}", burn.key);
    let (long, short) = (
        target.window(&path("long"), burn.long),
        target.window(&path("short"), burn.short),
    );
    let factor = target.value(&path("factor"), burn.factor);
    let objective = target.value(&format!("slos.{}.objective", slo.key), slo.objective);
    let limit = format!("{factor} * (1 - {objective} / 100)");
    let mut expression = format!(
        "{} > {limit}\nand\n{} > {limit}",
        recorded(slo, &long),
        recorded(slo, &short)
    );
    if let Some(total) = slo.total {
        let minimum = target.value(&format!("slos.{}.minimum", slo.key), MINIMUM);
        let _ = write!(expression, "\nand\n{} >= {minimum}", of_slo(slo, total, &long, target));
    }
    // Two programs of one Prometheus have objectives of their own.
    let job = format!("{{job=\"{}\"}}", target.job(slo.program.name()));
    for window in [&long, &short] {
        let name = recorded(slo, window);
        expression = expression.replace(&format!("{name} >"), &format!("{name}{job} >"));
    }
    expression
}

/// How many events a window must have had, so that one failure of two is nobody's night.
pub(super) const MINIMUM: &str = "10";

fn add_symptoms(yaml: &mut String, program: Program, target: &Target) {
    let _ = writeln!(yaml, "  - name: {}-symptoms\n    rules:", program.name());
    for alert in ALERTS.iter().filter(|alert| alert.program == program) {
        let path = format!("alerts.{}", alert.key);
        begin(yaml, target, &path);
        let _ = writeln!(yaml, "      - alert: {}", alert.name);
        add_expression(yaml, &symptom(alert, target));
        let wait = target.wait(&format!("{path}.for"), alert.wait);
        let severity = target.value(&format!("{path}.severity"), alert.severity);
        let labels = [("severity", &*severity)];
        add_tail(yaml, target, &wait, &labels, alert.name, &target.text(alert.summary));
        end(yaml, target);
    }
}

/// The expression of an alert about a symptom.
fn symptom(alert: &Alert, target: &Target) -> String {
    let path = |name: &str| format!("alerts.{}.{name}", alert.key);
    fill(alert.expression, |name| match name {
        "job" => target.job(alert.program.name()),
        "window" => target.window(&path("window"), alert.window.unwrap_or_default()),
        _ => target.value(&path(name), alert.threshold.unwrap_or_default()),
    })
}

/// Begins what a chart renders only while a value is true.
fn begin(yaml: &mut String, target: &Target, path: &str) {
    if let Target::Chart = target {
        let _ = writeln!(yaml, "      {{{{- if $values.{path}.enabled }}}}");
    }
}

fn end(yaml: &mut String, target: &Target) {
    if let Target::Chart = target {
        yaml.push_str("      {{- end }}\n");
    }
}

fn add_expression(yaml: &mut String, expression: &str) {
    yaml.push_str("        expr: |-\n");
    for line in expression.lines() {
        let _ = writeln!(yaml, "          {line}");
    }
}

/// Adds what follows the expression of an alert.
fn add_tail(yaml: &mut String, target: &Target, wait: &str, labels: &[(&str, &str)], alert: &str, summary: &str) {
    let _ = writeln!(yaml, "        for: {wait}\n        labels:");
    for (label, value) in labels {
        let _ = writeln!(yaml, "          {label}: {value}");
    }
    let section = anchor(alert);
    let _ = writeln!(
        yaml,
        "        annotations:\n          summary: \"{summary}\"\n          runbook: \"{RUNBOOKS}#{section}\""
    );
    if let Target::Chart = target {
        let _ = writeln!(
            yaml,
            "          {{{{- with $values.runbooks }}}}\n          runbook_url: {{{{ printf \"%s#{section}\" . | toJson }}}}\n          {{{{- end }}}}"
        );
    }
}

/// The page about alerts, from the folder of the project.
const RUNBOOKS: &str = "docs/runbooks.md";

/// The anchor of the section about an alert.
pub fn anchor(alert: &str) -> String {
    alert.to_lowercase()
}
