//! The table of service level objectives, alerts and panels, and the files that are made of it: Prometheus rules, Grafana dashboards,
//! the parts of the charts that install them, and the page about alerts.
//!
//! Expressions are templates. `%{NAME}` stands for a value of the chart, or for what differs between a dashboard and a rule:
//!
//! | placeholder | stands for |
//! |---|---|
//! | `%{job}` | the label `job` of the samples of the program |
//! | `%{window}` | the range of an SLO, or the value `window` of an alert |
//! | `%{threshold}` | the value `threshold` of an alert |
//! | `%{seconds}` | the time within which an SLO wants something to be done |
//! | `%{rate}` | the range of a rate on a dashboard |
//! | `%{failed}` | the codes of calls that failed through the server, as a regular expression |

mod alerts;
mod burns;
mod chart;
mod dashboard;
mod page;
mod panels;
mod rules;
mod slos;
mod target;

use std::path::PathBuf;

use anyhow::Result;

pub use self::{
    alerts::{ALERTS, Alert, Fault},
    burns::{BURNS, Burn},
    dashboard::dashboard,
    panels::{PANELS, Panel},
    rules::{anchor, recorded, rules},
    slos::{SLOS, Slo},
    target::{Scale, Target},
};

/// A program that is observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// The backend, on the provider.
    Server,
    /// The konnector, on the consumer.
    Konnector,
}

impl Program {
    /// Both programs.
    pub const ALL: [Self; 2] = [Self::Server, Self::Konnector];

    /// The name of its chart, and by default the label `job` of its samples.
    pub fn name(self) -> &'static str {
        match self {
            Self::Server => "bindery-server",
            Self::Konnector => "bindery-konnector",
        }
    }

    /// The port that serves its metrics in a Pod.
    pub fn port(self) -> u16 {
        match self {
            Self::Server => 8081,
            Self::Konnector => 8090,
        }
    }
}

/// All files that are made of the table, by their path from the folder of the project.
pub fn generated() -> Result<Vec<(PathBuf, String)>> {
    let mut files = Vec::new();
    for program in Program::ALL {
        let name = program.name();
        let chart = format!("deploy/charts/{name}");
        let dashboard = dashboard(program)?;
        let plain = rules(program, &Target::Plain);
        files.push((format!("deploy/observe/rules/{name}.yaml"), plain));
        files.push((format!("deploy/observe/dashboards/{name}.json"), dashboard.clone()));
        files.push((format!("{chart}/dashboards/{name}.json"), dashboard));
        files.push((
            format!("{chart}/templates/monitoring-rules.yaml"),
            chart::rules(program),
        ));
        files.push((format!("{chart}/values.yaml"), chart::values(program)?));
        files.push((format!("{chart}/values.schema.json"), chart::schema(program)?));
    }
    files.push(("docs/reference/alerts.md".to_owned(), page::page()));
    Ok(files.into_iter().map(|(path, text)| (path.into(), text)).collect())
}

/// The codes of gRPC calls that failed through the server: the others blame the call, or its deadline.
const FAILED: &str = "UNKNOWN|INTERNAL|UNAVAILABLE|DATA_LOSS";

/// Puts values into a template: `value` tells what a placeholder stands for.
fn fill(template: &str, value: impl Fn(&str) -> String) -> String {
    let mut parts = template.split("%{");
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once('}').unwrap_or((part, ""));
        match name {
            "failed" => filled.push_str(FAILED),
            _ => filled.push_str(&value(name)),
        }
        filled.push_str(rest);
    }
    filled
}

#[cfg(test)]
mod tests;
