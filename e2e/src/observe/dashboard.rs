//! The dashboards of Grafana, as JSON.

use anyhow::Result;
use serde_json::{Value, json};

use super::{PANELS, Panel, Program};

/// The width of the grid on which Grafana places panels.
const WIDTH: usize = 24;
/// How many panels stand beside each other.
const BESIDE: usize = 2;
const HEIGHT: usize = 8;

/// The dashboard of a program.
pub fn dashboard(program: Program) -> Result<String> {
    let (title, probe) = match program {
        Program::Server => ("Bindery: provider", "bindery_grpc_token_checks_total"),
        Program::Konnector => ("Bindery: consumer", "bindery_sessions"),
    };
    let dashboard = json!({
        "uid": program.name(),
        "title": title,
        "description": "Written by `cargo xtask gen` from the table in e2e/src/observe.",
        "tags": ["bindery"],
        "editable": true,
        "schemaVersion": 38,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "templating": {"list": [
            {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"},
            {
                "name": "job", "label": "Job", "type": "query", "datasource": source(), "refresh": 2,
                "query": {"query": format!("label_values({probe}, job)"), "refId": "job"},
            },
        ]},
        "panels": panels(program),
    });
    Ok(serde_json::to_string_pretty(&dashboard)? + "\n")
}

fn source() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}

fn panels(program: Program) -> Vec<Value> {
    let (mut placed, mut row, mut column, mut y) = (Vec::new(), "", 0, 0);
    for panel in PANELS.iter().filter(|panel| panel.program == program) {
        if panel.row != row {
            if column > 0 {
                y += HEIGHT;
            }
            (row, column) = (panel.row, 0);
            let id = placed.len() + 1;
            placed.push(json!({
                "id": id, "type": "row", "title": row, "collapsed": false, "panels": [],
                "gridPos": {"x": 0, "y": y, "w": WIDTH, "h": 1},
            }));
            y += 1;
        }
        let id = placed.len() + 1;
        placed.push(graph(panel, id, column * WIDTH / BESIDE, y));
        column += 1;
        if column == BESIDE {
            (column, y) = (0, y + HEIGHT);
        }
    }
    placed
}

fn graph(panel: &Panel, id: usize, x: usize, y: usize) -> Value {
    let expressions = panel.expressions("$job", "$__rate_interval");
    let queries = panel.queries.iter().zip(expressions).zip('A'..);
    let targets = queries.map(|(((_, legend), expression), name)| {
        json!({"refId": name.to_string(), "expr": expression, "legendFormat": legend, "datasource": source()})
    });
    json!({
        "id": id, "type": "timeseries", "title": panel.title, "datasource": source(),
        "gridPos": {"x": x, "y": y, "w": WIDTH / BESIDE, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
        "targets": targets.collect::<Vec<_>>(),
    })
}
