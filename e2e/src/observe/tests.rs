use std::{collections::BTreeSet, fs, path::Path};

use super::*;

/// A metric that the rules make.
const RECORDED: &str = "bindery:konnector_leading:max";

fn docs() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs")
}

/// The templates of all expressions.
fn templates() -> Vec<&'static str> {
    let slos = SLOS.iter().flat_map(|slo| [Some(slo.bad), slo.total]).flatten();
    let alerts = ALERTS.iter().map(|alert| alert.expression);
    let panels = PANELS
        .iter()
        .flat_map(|panel| panel.queries.iter().map(|(query, _)| *query));
    slos.chain(alerts).chain(panels).collect()
}

/// The names of metrics in a text: words that begin with `bindery_`, or with `bindery:`.
fn names(text: &str) -> BTreeSet<String> {
    let is_part = |char: char| char.is_ascii_alphanumeric() || "_:".contains(char);
    let words = text.split(|char| !is_part(char));
    words
        .filter(|word| word.starts_with("bindery_") || word.starts_with("bindery:"))
        .map(str::to_owned)
        .collect()
}

/// The name under which a metric is documented: without what a histogram adds.
fn documented(name: &str) -> &str {
    ["_bucket", "_count", "_sum"]
        .iter()
        .find_map(|suffix| name.strip_suffix(suffix))
        .unwrap_or(name)
}

#[test]
fn every_metric_in_an_expression_is_one_that_the_programs_have() {
    let pages =
        ["observe.md", "reference/metrics.md"].map(|page| fs::read_to_string(docs().join(page)).unwrap_or_default());
    let known: BTreeSet<_> = pages.iter().flat_map(|page| names(page)).collect();
    assert!(known.len() > 30, "{known:?}");
    let used: BTreeSet<_> = templates().iter().flat_map(|template| names(template)).collect();
    assert!(used.len() > 30, "{used:?}");
    for name in used {
        let is_known = known.contains(documented(&name)) || name == RECORDED;
        assert!(is_known, "{name} is in no page about metrics");
    }
}

#[test]
fn every_placeholder_has_a_value() {
    for template in templates() {
        let filled = fill(template, |name| {
            assert!(
                ["job", "window", "threshold", "seconds", "rate"].contains(&name),
                "{name} in {template}"
            );
            "1".to_owned()
        });
        assert!(!filled.contains('%'), "{filled}");
    }
    for alert in &ALERTS {
        assert_eq!(
            alert.expression.contains("%{threshold}"),
            alert.threshold.is_some(),
            "{}",
            alert.name
        );
        assert_eq!(
            alert.expression.contains("%{window}"),
            alert.window.is_some(),
            "{}",
            alert.name
        );
    }
}

#[test]
fn names_and_keys_are_there_once() {
    let names: BTreeSet<_> = SLOS
        .iter()
        .map(|slo| slo.alert)
        .chain(ALERTS.iter().map(|alert| alert.name))
        .collect();
    let keys: BTreeSet<_> = SLOS
        .iter()
        .map(|slo| slo.key)
        .chain(ALERTS.iter().map(|alert| alert.key))
        .collect();
    assert_eq!(
        (names.len(), keys.len()),
        (SLOS.len() + ALERTS.len(), SLOS.len() + ALERTS.len())
    );
}

#[test]
fn rules_and_dashboards_are_read_as_yaml_and_json() {
    for program in Program::ALL {
        let rules: serde_json::Value = serde_saphyr::from_str(&rules(program, &Target::Plain)).unwrap();
        let groups = rules["groups"].as_array().unwrap();
        assert_eq!(groups.len(), 3);
        for rule in groups.iter().flat_map(|group| group["rules"].as_array().unwrap()) {
            assert!(
                rule["expr"]
                    .as_str()
                    .is_some_and(|expression| !expression.contains('%')),
                "{rule}"
            );
        }
        let dashboard: serde_json::Value = serde_json::from_str(&dashboard(program).unwrap()).unwrap();
        assert!(dashboard["panels"].as_array().unwrap().len() > 10);
    }
}

/// The names of all alerts.
fn alerts() -> impl Iterator<Item = &'static str> {
    let symptoms = ALERTS.iter().map(|alert| alert.name);
    symptoms.chain(SLOS.iter().map(|slo| slo.alert))
}

#[test]
fn every_alert_has_a_runbook() {
    let page = fs::read_to_string(docs().join("runbooks.md")).unwrap();
    for alert in alerts() {
        assert!(page.contains(&format!("\n## {alert}\n")), "{alert} has no section");
    }
}

#[test]
fn promtool_sees_every_alert_silent_and_firing_and_silent_again() {
    let folder = docs().join("../deploy/observe/tests");
    let cases = Program::ALL.map(|program| {
        let text = fs::read_to_string(folder.join(format!("{}.yaml", program.name()))).unwrap();
        serde_saphyr::from_str::<serde_json::Value>(&text).unwrap()
    });
    let tests: Vec<_> = cases
        .iter()
        .flat_map(|file| file["tests"].as_array().unwrap())
        .flat_map(|test| test["alert_rule_test"].as_array().unwrap())
        .collect();
    for alert in alerts() {
        let of_alert = tests.iter().filter(|test| test["alertname"] == alert);
        let fires: Vec<_> = of_alert.map(|test| !test["exp_alerts"].is_null()).collect();
        assert_eq!(fires, [false, true, false], "{alert}");
    }
}
