//! Latency over time as an image: a panel for each phase, a colour for each contestant.

mod axis;
mod canvas;

use std::path::Path;

use anyhow::{Context as _, Result};
use embedded_graphics::{
    mono_font::ascii::{FONT_7X13, FONT_9X15_BOLD, FONT_10X20},
    pixelcolor::Rgb888,
    prelude::*,
    primitives::Rectangle,
    text::Alignment,
};

use self::{
    axis::{Axis, label},
    canvas::Canvas,
};

const COLUMNS: usize = 2;
const MARGIN: u32 = 20;
/// Height of title and legend of the whole.
const HEAD: u32 = 64;
/// A panel with everything around it.
const PANEL: Size = Size::new(640, 350);
/// What a panel has around the area of its dots.
const LEFT: u32 = 64;
const RIGHT: u32 = 16;
const TOP: u32 = 62;
const BOTTOM: u32 = 44;

const INK: Rgb888 = Rgb888::new(40, 40, 46);
const FAINT: Rgb888 = Rgb888::new(110, 110, 120);
const GRID: Rgb888 = Rgb888::new(230, 230, 234);
/// Told apart also by those who tell red and green not apart.
const COLORS: [Rgb888; 4] = [
    Rgb888::new(0, 104, 190),
    Rgb888::new(226, 112, 20),
    Rgb888::new(20, 150, 110),
    Rgb888::new(170, 70, 160),
];

/// An image.
#[derive(Clone, Debug, Default)]
pub(super) struct Plot {
    pub(super) title: String,
    pub(super) panels: Vec<Panel>,
}

/// One phase.
#[derive(Clone, Debug)]
pub(super) struct Panel {
    pub(super) title: String,
    pub(super) series: Vec<Series>,
}

/// What one contestant did in a phase.
#[derive(Clone, Debug)]
pub(super) struct Series {
    pub(super) name: String,
    /// Seconds since the phase began, and milliseconds that the change took.
    pub(super) points: Vec<(f64, f64)>,
}

/// Where the dots of a panel are.
struct Frame {
    area: Rectangle,
    across: Axis,
    up: Axis,
}

// === impl Plot ===

impl Plot {
    /// Writes it as a PNG.
    pub(super) fn write(&self, path: &Path) -> Result<()> {
        std::fs::write(path, self.png()?).with_context(|| format!("cannot write {}", path.display()))
    }

    fn png(&self) -> Result<Vec<u8>> {
        let columns = self.panels.len().clamp(1, COLUMNS);
        let rows = self.panels.len().div_ceil(columns);
        let width = 2 * MARGIN + times(PANEL.width, columns);
        let height = HEAD + times(PANEL.height, rows) + MARGIN;
        let mut canvas = Canvas::new(Size::new(width, height), Rgb888::WHITE);
        let left = pixels(MARGIN);
        canvas.text(&self.title, Point::new(left, 32), Alignment::Left, &FONT_10X20, INK);
        let names = self.names();
        legend(&mut canvas, &names);
        for (index, panel) in self.panels.iter().enumerate() {
            let x = MARGIN + times(PANEL.width, index % columns);
            let y = HEAD + times(PANEL.height, index / columns);
            let area = Rectangle::new(Point::new(pixels(x), pixels(y)), PANEL);
            panel.draw(&mut canvas, area, &names);
        }
        canvas.png()
    }

    /// All contestants, in the order of their appearance.
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
    fn draw(&self, canvas: &mut Canvas, panel: Rectangle, names: &[&str]) {
        let corner = panel.top_left;
        let frame = Frame::of(self, panel);
        canvas.text(
            &self.title,
            corner + Point::new(pixels(LEFT), 18),
            Alignment::Left,
            &FONT_9X15_BOLD,
            INK,
        );
        frame.draw_axes(canvas);
        for (row, series) in (0_i32..).zip(&self.series) {
            let color = color(names, &series.name);
            let at = corner + Point::new(pixels(LEFT), 36 + 15 * row);
            canvas.text(&series.summary(), at, Alignment::Left, &FONT_7X13, color);
        }
        // Ours comes first in a list, and is not hidden below the others here.
        for series in self.series.iter().rev() {
            let color = color(names, &series.name);
            for point in &series.points {
                canvas.dot(frame.place(*point), color);
            }
        }
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
        let [p50, p99, max] = [at(50), at(99), at(100)].map(milliseconds);
        format!("{}: p50 {p50}  p99 {p99}  max {max} ms", self.name)
    }
}

// === impl Frame ===

impl Frame {
    fn of(panel: &Panel, whole: Rectangle) -> Self {
        let points = || panel.series.iter().flat_map(|series| series.points.iter().copied());
        let latencies: Vec<_> = points().map(|(_, latency)| latency).collect();
        let corner = whole.top_left + Point::new(pixels(LEFT), pixels(TOP));
        let size = PANEL.saturating_sub(Size::new(LEFT + RIGHT, TOP + BOTTOM));
        Self {
            area: Rectangle::new(corner, size),
            across: Axis::linear(points().map(|(at, _)| at), 8.0),
            up: Axis::fitting(&latencies, 6.0),
        }
    }

    fn place(&self, (at, latency): (f64, f64)) -> Point {
        Point::new(self.x(at), self.y(latency))
    }

    fn x(&self, at: f64) -> i32 {
        self.area.top_left.x + part(self.across.place(at), self.area.size.width)
    }

    fn y(&self, latency: f64) -> i32 {
        self.area.top_left.y + part(1.0 - self.up.place(latency), self.area.size.height)
    }

    fn draw_axes(&self, canvas: &mut Canvas) {
        let Point { x: left, y: top } = self.area.top_left;
        let (right, bottom) = (left + pixels(self.area.size.width), top + pixels(self.area.size.height));
        for tick in self.up.ticks() {
            let y = self.y(tick);
            canvas.line(Point::new(left, y), Point::new(right, y), GRID);
            canvas.text(
                &label(tick),
                Point::new(left - 8, y + 4),
                Alignment::Right,
                &FONT_7X13,
                FAINT,
            );
        }
        for tick in self.across.ticks() {
            let x = self.x(tick);
            canvas.line(Point::new(x, top), Point::new(x, bottom), GRID);
            canvas.text(
                &label(tick),
                Point::new(x, bottom + 16),
                Alignment::Center,
                &FONT_7X13,
                FAINT,
            );
        }
        canvas.line(Point::new(left, bottom), Point::new(right, bottom), FAINT);
        canvas.line(Point::new(left, top), Point::new(left, bottom), FAINT);
        let middle = Point::new(left.midpoint(right), bottom + 32);
        canvas.text("seconds", middle, Alignment::Center, &FONT_7X13, FAINT);
        let unit = if self.up.is_logarithmic() { "ms (log)" } else { "ms" };
        canvas.text(
            unit,
            Point::new(left - 8, top - 14),
            Alignment::Right,
            &FONT_7X13,
            FAINT,
        );
    }
}

fn legend(canvas: &mut Canvas, names: &[&str]) {
    let mut x = pixels(MARGIN);
    for name in names {
        canvas.fill(Rectangle::new(Point::new(x, 46), Size::new(12, 12)), color(names, name));
        canvas.text(name, Point::new(x + 18, 57), Alignment::Left, &FONT_9X15_BOLD, INK);
        x += 18 + text_width(name, 9) + 24;
    }
    let what = "each dot: one change, from when it was due to when its effect was seen";
    canvas.text(what, Point::new(x, 56), Alignment::Left, &FONT_7X13, FAINT);
}

/// A contestant has one colour in all panels.
fn color(names: &[&str], name: &str) -> Rgb888 {
    let index = names.iter().position(|known| *known == name).unwrap_or_default();
    COLORS[index % COLORS.len()]
}

fn milliseconds(value: f64) -> String {
    if value < 100.0 {
        format!("{value:.1}")
    } else {
        format!("{value:.0}")
    }
}

fn text_width(text: &str, per_character: i32) -> i32 {
    i32::try_from(text.len()).unwrap_or_default() * per_character
}

fn times(length: u32, count: usize) -> u32 {
    length * u32::try_from(count).unwrap_or_default()
}

fn pixels(length: u32) -> i32 {
    i32::try_from(length).unwrap_or_default()
}

/// So much of a length, 1 being all of it.
#[expect(clippy::cast_possible_truncation, reason = "a share of an image's width")]
fn part(share: f64, length: u32) -> i32 {
    (share * f64::from(length)).round() as i32
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

    #[test]
    fn a_contestant_has_one_colour_everywhere() {
        let panel = |title: &str, series: Vec<Series>| Panel {
            title: title.to_owned(),
            series,
        };
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
    fn a_summary_tells_what_the_dots_are_too_many_for() {
        let points: Vec<_> = (1..=200_u8).map(|n| (0.0, f64::from(n))).collect();
        assert_eq!(series("ours", &points).summary(), "ours: p50 101  p99 199  max 200 ms");
        assert_eq!(
            series("ours", &[(0.0, 1.25)]).summary(),
            "ours: p50 1.2  p99 1.2  max 1.2 ms"
        );
        assert_eq!(series("ours", &[]).summary(), "ours: nothing was seen");
    }

    #[test]
    fn dots_lie_within_their_panel_and_early_is_left_and_slow_is_up() {
        let panel = Panel {
            title: String::new(),
            series: vec![series("ours", &[(0.0, 1.0), (30.0, 900.0), (31.0, 4.0)])],
        };
        let whole = Rectangle::new(Point::new(100, 200), PANEL);
        let frame = Frame::of(&panel, whole);
        let [first, second, third] = [(0.0, 1.0), (30.0, 900.0), (31.0, 4.0)].map(|point| frame.place(point));
        assert!([first, second, third].into_iter().all(|point| whole.contains(point)));
        assert!(first.x < second.x && second.x < third.x);
        assert!(second.y < third.y && third.y < first.y);
    }

    #[test]
    fn panels_stand_two_in_a_row() {
        let panel = Panel {
            title: "create".to_owned(),
            series: vec![series("ours", &[(0.0, 1.0)])],
        };
        let plot = Plot {
            title: "t".to_owned(),
            panels: vec![panel; 3],
        };
        let reader = png::Decoder::new(std::io::Cursor::new(plot.png().unwrap()))
            .read_info()
            .unwrap();
        let expect = (2 * MARGIN + 2 * PANEL.width, HEAD + 2 * PANEL.height + MARGIN);
        assert_eq!((reader.info().width, reader.info().height), expect);
    }
}
