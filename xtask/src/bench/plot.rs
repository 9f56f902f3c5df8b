//! Latency over time as an SVG image: a panel for each phase, a colour for each contestant.

use std::path::Path;

use anyhow::{Context as _, Result};
use plotters::prelude::*;

const COLUMNS: usize = 2;
/// Width and height of a panel, in pixels.
const PANEL: (u32, u32) = (680, 360);
/// Height of the title above all panels, in pixels.
const TITLE: u32 = 48;
const FONT: &str = "sans-serif";
/// Colours that stay apart for people who do not tell red from green.
const COLORS: [RGBColor; 4] = [
    RGBColor(0, 104, 190),
    RGBColor(226, 112, 20),
    RGBColor(20, 150, 110),
    RGBColor(170, 70, 160),
];

/// An image of several panels.
#[derive(Clone, Debug, Default)]
pub(super) struct Plot {
    pub(super) title: String,
    pub(super) panels: Vec<Panel>,
}

/// The changes of one phase.
#[derive(Clone, Debug)]
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) series: Vec<Series>,
}

/// The changes of one contestant in a phase.
#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) name: String,
    /// Seconds since the phase began, and milliseconds that the change took.
    pub(super) points: Vec<(f64, f64)>,
}

// === impl Plot ===

impl Plot {
    /// Writes the image to a file.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        std::fs::write(path, self.svg()?).with_context(|| format!("cannot write {}", path.display()))
    }

    fn svg(&self) -> Result<String> {
        let columns = self.panels.len().clamp(1, COLUMNS);
        let rows = self.panels.len().div_ceil(columns).max(1);
        let size = (
            PANEL.0 * u32::try_from(columns)?,
            TITLE + PANEL.1 * u32::try_from(rows)?,
        );
        let mut svg = String::new();
        {
            let image = SVGBackend::with_string(&mut svg, size).into_drawing_area();
            image.fill(&WHITE)?;
            let what = "each dot is one change, from when it was due to when its effect was seen";
            let body = image.titled(&format!("{}: {what}", self.title), (FONT, 18))?;
            let names = self.names();
            for (area, panel) in body.split_evenly((rows, columns)).iter().zip(&self.panels) {
                panel.draw(area, &names)?;
            }
            image.present()?;
        }
        Ok(svg)
    }

    /// Names of all contestants, in the order of their first appearance.
    fn names(&self) -> Vec<&str> {
        let mut names = Vec::new();
        for series in self.panels.iter().flat_map(|panel| &panel.series) {
            if !names.contains(&series.name.as_str()) {
                names.push(series.name.as_str());
            }
        }
        names
    }
}

// === impl Panel ===

impl Panel {
    fn draw(&self, area: &DrawingArea<SVGBackend<'_>, plotters::coord::Shift>, names: &[&str]) -> Result<()> {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let seconds = points().map(|point| point.0).fold(1.0, f64::max);
        let fastest = points().map(|point| point.1).fold(1.0, f64::min).max(0.1);
        let slowest = points().map(|point| point.1).fold(10.0, f64::max);
        let mut chart = ChartBuilder::on(area)
            .caption(&self.title, (FONT, 16))
            .margin(10)
            .x_label_area_size(36)
            .y_label_area_size(56)
            .build_cartesian_2d(0.0..seconds, (fastest..slowest * 1.5).log_scale())?;
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .x_desc("seconds")
            .y_desc("ms")
            .draw()?;
        // The konnector is the first of each list. It is drawn last, so that no other contestant hides it.
        for series in self.series.iter().rev() {
            let color = color(names, &series.name);
            let dots = series
                .points
                .iter()
                .map(|point| Circle::new(*point, 2, color.mix(0.4).filled()));
            chart
                .draw_series(dots)?
                .label(series.summary())
                .legend(move |(x, y)| Circle::new((x + 8, y), 4, color.filled()));
        }
        chart
            .configure_series_labels()
            .label_font((FONT, 12))
            .background_style(WHITE.mix(0.8))
            .draw()?;
        Ok(())
    }
}

// === impl Series ===

impl Series {
    fn summary(&self) -> String {
        let mut values: Vec<_> = self.points.iter().map(|(_, latency)| *latency).collect();
        if values.is_empty() {
            return format!("{}: nothing was seen", self.name);
        }
        values.sort_by(f64::total_cmp);
        let at = |percent: usize| values[(values.len() * percent / 100).min(values.len() - 1)];
        format!(
            "{}: p50 {:.1}  p99 {:.1}  max {:.1} ms",
            self.name,
            at(50),
            at(99),
            at(100)
        )
    }
}

/// The colour of a contestant, the same in all panels.
fn color(names: &[&str], name: &str) -> RGBColor {
    let index = names.iter().position(|known| *known == name).unwrap_or_default();
    COLORS[index % COLORS.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn series(name: &str, points: &[(f64, f64)]) -> Series {
        Series {
            name: name.to_owned(),
            points: points.to_vec(),
        }
    }

    fn panel(title: &str, series: Vec<Series>) -> Panel {
        Panel {
            title: title.to_owned(),
            series,
        }
    }

    #[test]
    fn a_contestant_has_one_colour_everywhere() {
        let plot = Plot {
            title: "t".to_owned(),
            panels: vec![
                panel("one", vec![series("ours", &[]), series("floor", &[])]),
                panel("two", vec![series("relay", &[]), series("ours", &[])]),
            ],
        };
        let names = plot.names();
        assert_eq!(names, ["ours", "floor", "relay"]);
        assert_eq!(color(&names, "relay"), COLORS[2]);
    }

    #[test]
    fn a_summary_gives_median_tail_and_maximum() {
        let points: Vec<_> = (1..=200_u8).map(|n| (0.0, f64::from(n))).collect();
        assert_eq!(
            series("ours", &points).summary(),
            "ours: p50 101.0  p99 199.0  max 200.0 ms"
        );
        assert_eq!(series("ours", &[]).summary(), "ours: nothing was seen");
    }

    #[test]
    fn each_change_is_a_dot_and_each_panel_has_its_title() {
        let plot = Plot {
            title: "rate".to_owned(),
            panels: vec![
                panel(
                    "create",
                    vec![series("ours", &[(0.0, 1.0), (30.0, 900.0), (31.0, 4.0)])],
                ),
                panel("status", vec![series("floor", &[])]),
            ],
        };
        let svg = plot.svg().unwrap();
        // A dot per change, and one per contestant in the legends.
        assert_eq!(svg.matches("<circle").count(), 3 + 2);
        for title in ["rate: each dot", "create", "status", "floor: nothing was seen"] {
            assert!(svg.contains(title), "{title:?} is missing");
        }
    }
}
