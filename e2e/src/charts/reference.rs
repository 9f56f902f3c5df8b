//! The reference of the charts' values, made of `values.schema.json` and `values.yaml`.

use std::{fmt::Write as _, fs};

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::{CHARTS, folder};

const HEAD: &str = "\
# Values of the charts

<!-- Written by `cargo xtask gen` from deploy/charts/*/values.schema.json and values.yaml. -->

`helm install` and `helm upgrade` take these values with `--set NAME=VALUE` or `--values FILE`. Helm refuses a value that is not
listed here or has another type. An empty default leaves the choice to the program; the text says what it chooses.
[Install with Helm](../guides/install-with-helm.md) shows the commands. Each chart has a file `values-ha.yaml` for several
replicas.
";

/// The page.
pub(super) fn page() -> Result<String> {
    let mut page = HEAD.to_owned();
    for chart in CHARTS {
        let read = |name: &str| {
            let path = folder(chart).join(name);
            fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))
        };
        let schema: Value = serde_json::from_str(&read("values.schema.json")?).context("values.schema.json")?;
        let values: Value = serde_saphyr::from_str(&read("values.yaml")?).context("values.yaml")?;
        write!(
            page,
            "\n## {chart}\n\n| value | type | default | meaning |\n|---|---|---|---|\n"
        )?;
        rows(&mut page, "", &schema, &values)?;
    }
    Ok(page)
}

/// A row for each value that has no values below it, in the order of their names.
fn rows(page: &mut String, prefix: &str, schema: &Value, values: &Value) -> Result<()> {
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        let (path, value) = (format!("{prefix}{name}"), &values[name]);
        if schema["properties"].is_object() {
            rows(page, &format!("{path}."), schema, value)?;
            continue;
        }
        let meaning = schema["description"].as_str();
        let meaning = meaning.with_context(|| format!("value {path} has no description"))?;
        writeln!(page, "| `{path}` | {} | `{value}` | {meaning} |", kind(schema))?;
    }
    Ok(())
}

/// The type of a value, in words.
fn kind(schema: &Value) -> String {
    if let Some(choices) = schema["enum"].as_array() {
        let choices: Vec<_> = choices.iter().map(|choice| format!("`{choice}`")).collect();
        return choices.join(", ");
    }
    match &schema["type"] {
        Value::String(name) if name == "array" => {
            let items = schema["items"]["type"].as_str().unwrap_or("value");
            format!("list of {items}s")
        }
        Value::String(name) => name.clone(),
        Value::Array(names) => {
            let names: Vec<_> = names.iter().filter_map(Value::as_str).collect();
            names.join(" or ")
        }
        _ => "value".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_value_has_a_row() {
        let schema = json!({"properties": {
            "log": {"properties": {"format": {"description": "How.", "enum": ["", "json"]}}},
            "args": {"description": "More.", "type": "array", "items": {"type": "string"}},
        }});
        let mut page = String::new();
        rows(&mut page, "", &schema, &json!({"log": {"format": ""}, "args": []})).unwrap();
        assert_eq!(
            page,
            "| `args` | list of strings | `[]` | More. |\n| `log.format` | `\"\"`, `\"json\"` | `\"\"` | How. |\n"
        );
        let nameless = json!({"properties": {"args": {"type": "array"}}});
        assert!(rows(&mut page, "", &nameless, &json!({})).is_err());
    }
}
