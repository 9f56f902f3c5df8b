//! The reference of the CRDs, made of their schemas.

use std::fmt::Write as _;

use anyhow::Result;
use serde_json::Value;

use super::{
    conditions,
    markdown::{cell, prose},
};

const HEAD: &str = "\
# Resources

<!-- Written by `cargo xtask gen` from the types of sdk/api. -->

The kinds of `kube-bind.io/v1alpha2`, with their fields. [Conditions and reasons](conditions.md) says what is in
`status.conditions`. The konnector installs APIServiceBinding and APIServiceBindingBundle on consumers; the server installs all others on
its cluster. `kubectl explain KIND` shows the same on a cluster.
";

/// The page.
pub(super) fn page() -> Result<String> {
    let mut page = HEAD.to_owned();
    for crd in bindery_api::crds::all() {
        add(&mut page, &serde_json::to_value(crd)?)?;
    }
    Ok(page)
}

/// Writes a CRD with its first version.
fn add(page: &mut String, crd: &Value) -> Result<()> {
    let spec = &crd["spec"];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let schema = &spec["versions"][0]["schema"]["openAPIV3Schema"];
    let short: Vec<_> = spec["names"]["shortNames"]
        .as_array()
        .into_iter()
        .flatten()
        .map(text)
        .collect();
    let kind = text(&spec["names"]["kind"]);
    let conditions = if conditions::explains(&kind) {
        format!(" [Its conditions](conditions.md#{}).", kind.to_lowercase())
    } else {
        String::new()
    };
    writeln!(
        page,
        "\n## {kind}\n\n{}\n\n`{}`, {}{}.{conditions}\n\n| field | type | meaning |\n|---|---|---|",
        prose(&text(&schema["description"])),
        text(&crd["metadata"]["name"]),
        match spec["scope"].as_str() {
            Some("Cluster") => "cluster-scoped",
            _ => "namespaced",
        },
        if short.is_empty() {
            String::new()
        } else {
            format!("; short: `{}`", short.join("`, `"))
        },
    )?;
    for name in ["spec", "status"] {
        rows(page, &format!("{name}."), &schema["properties"][name])?;
    }
    Ok(())
}

/// Writes a row for each field below an object, and for each field below that, in the order of their names.
fn rows(page: &mut String, prefix: &str, schema: &Value) -> Result<()> {
    let is_required = |name: &str| {
        let mut required = schema["required"].as_array().into_iter().flatten();
        required.any(|required| required == name)
    };
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        let path = format!("{prefix}{name}");
        writeln!(
            page,
            "| `{path}` | {}{} | {}{} |",
            kind(field),
            if is_required(name) { ", required" } else { "" },
            cell(field["description"].as_str().unwrap_or_default()),
            limits(field),
        )?;
        // All conditions have the same fields, which another page explains.
        if name != "conditions" {
            rows(page, &format!("{path}."), field)?;
            rows(page, &format!("{path}[]."), &field["items"])?;
        }
    }
    Ok(())
}

/// The type of a field, in words.
fn kind(field: &Value) -> String {
    match field["type"].as_str() {
        Some("array") => format!("list of {}s", field["items"]["type"].as_str().unwrap_or("value")),
        Some("object") if field["additionalProperties"].is_object() => "map".to_owned(),
        Some("string") if field["format"].is_string() => field["format"].as_str().unwrap_or_default().to_owned(),
        Some(name) => name.to_owned(),
        None => "value".to_owned(),
    }
}

/// What a field may hold, and what it holds if it is absent.
fn limits(field: &Value) -> String {
    let choices = field["enum"].as_array().map(|choices| {
        let choices: Vec<_> = choices
            .iter()
            .filter_map(Value::as_str)
            .map(|choice| format!("`{choice}`"))
            .collect();
        format!(" One of {}.", choices.join(", "))
    });
    let default = Some(&field["default"])
        .filter(|default| !default.is_null())
        .map(|default| format!(" Default: `{default}`."));
    choices.into_iter().chain(default).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_field_has_a_row_and_conditions_have_one() {
        let schema = json!({"required": ["a"], "properties": {
            "a": {"type": "string", "description": "First\n  <one>.", "enum": ["X", "Y"], "default": "X"},
            "b": {"type": "array", "description": "More.", "items": {"type": "object", "properties": {
                "c": {"type": "integer", "description": "Count."},
            }}},
            "conditions": {"type": "array", "description": "State.", "items": {"type": "object", "properties": {"type": {}}}},
        }});
        let mut page = String::new();
        rows(&mut page, "spec.", &schema).unwrap();
        assert_eq!(
            page.lines().collect::<Vec<_>>(),
            [
                "| `spec.a` | string, required | First &lt;one>. One of `X`, `Y`. Default: `\"X\"`. |",
                "| `spec.b` | list of objects | More. |",
                "| `spec.b[].c` | integer | Count. |",
                "| `spec.conditions` | list of objects | State. |",
            ]
        );
    }

    #[test]
    fn all_kinds_are_there() {
        let page = page().unwrap();
        for kind in [
            "APIServiceBinding",
            "APIServiceBindingBundle",
            "BindableResourcesRequest",
            "Collection",
        ] {
            assert!(page.contains(&format!("\n## {kind}\n")), "{kind}");
        }
    }
}
