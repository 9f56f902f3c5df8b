//! The page with all objectives and alerts.

use std::fmt::Write as _;

use super::{ALERTS, BURNS, Program, SLOS, Target, anchor, fill};

const HEAD: &str = "\
# Objectives and alerts

<!-- Written by `cargo xtask gen` from the table in e2e/src/observe. -->

What the rules of `deploy/observe/rules`, and of the charts with `monitoring.rules.enabled`, record and tell.
[Observe](../observe.md#objectives-alerts-and-dashboards) shows how to install them; each threshold, window and objective is a
[value](charts.md). An alert of severity `page` is for now, one of severity `ticket` for working hours.

";

/// The page.
pub(super) fn page() -> String {
    let mut page = HEAD.to_owned();
    page.push_str("## Objectives\n\n| of | objective | that | alert | value |\n|---|---|---|---|---|\n");
    for slo in &SLOS {
        let seconds = slo.seconds.map(|it| format!(" ({it} s)")).unwrap_or_default();
        let _ = writeln!(
            page,
            "| {} | {} % | {}{seconds} | {} | `monitoring.rules.slos.{}` |",
            slo.program.name(),
            slo.objective,
            slo.says,
            name_of(slo.alert),
            slo.key,
        );
    }
    page.push_str(
        "\nAn objective has a budget: the share that may be bad in 30 days. The burn rate says how fast it is spent: at a rate of 1 it \
         lasts 30 days. The alert of an objective fires while the burn rates of a long and of a short window are above that of a line:\n\n\
         | burn rate | long window | short window | for | severity | value |\n|---|---|---|---|---|---|\n",
    );
    for burn in &BURNS {
        let _ = writeln!(
            page,
            "| {} | {} | {} | {} | {} | `monitoring.rules.burnRates.{}` |",
            burn.factor, burn.long, burn.short, burn.wait, burn.severity, burn.key
        );
    }
    page.push_str("\nPrometheus records the share that was bad, as `bindery:NAME_bad:ratio_rateWINDOW`, such as ");
    let _ = writeln!(page, "`{}`.", super::recorded(&SLOS[0], BURNS[0].long));
    for program in Program::ALL {
        let _ = writeln!(
            page,
            "\n## Alerts of {}\n\n| alert | severity | for | fires while | the fault that it is for |\n|---|---|---|---|---|",
            program.name()
        );
        for alert in ALERTS.iter().filter(|alert| alert.program == program) {
            let expression = fill(alert.expression, |name| match name {
                "job" => Target::Plain.job(program.name()),
                "window" => alert.window.unwrap_or_default().to_owned(),
                _ => alert.threshold.unwrap_or_default().to_owned(),
            });
            let words: Vec<_> = expression.split_whitespace().collect();
            let _ = writeln!(
                page,
                "| {} | {} | {} | `{}` | {} |",
                name_of(alert.name),
                alert.severity,
                alert.wait,
                words.join(" ").replace('|', "\\|"),
                alert.fault,
            );
        }
    }
    page
}

fn name_of(alert: &str) -> String {
    format!("[`{alert}`](../runbooks.md#{})", anchor(alert))
}
