//! Columns of text for people.

use std::fmt;

/// Lines of cells below a head. Columns are as wide as their widest cell.
#[derive(Clone, Debug)]
pub(crate) struct Table {
    /// Number of first columns that hold names, aligned left; the others hold numbers, aligned right.
    names: usize,
    lines: Vec<Vec<String>>,
}

impl Table {
    pub(crate) fn new(head: &[&str], names: usize) -> Self {
        Self {
            names,
            lines: vec![head.iter().map(|cell| (*cell).to_owned()).collect()],
        }
    }

    /// Adds one line. What it has beyond the head is not shown.
    pub(crate) fn line(&mut self, cells: impl IntoIterator<Item = String>) {
        self.lines.push(cells.into_iter().collect());
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.lines.iter().filter_map(|line| line.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let columns = self.lines.first().map_or(0, Vec::len);
        let widths: Vec<_> = (0..columns).map(|column| self.width(column)).collect();
        for line in &self.lines {
            let padded = line.iter().zip(&widths).enumerate();
            let padded = padded.map(|(column, (cell, &width))| match column {
                name if name < self.names => format!("{cell:<width$}"),
                _ => format!("{cell:>width$}"),
            });
            writeln!(f, "{}", padded.collect::<Vec<_>>().join("  ").trim_end())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_in_line() {
        let mut table = Table::new(&["phase", "by", "ms"], 2);
        table.line(["create", "floor", "1.25"].map(str::to_owned));
        table.line(["status", "konnector", "10"].map(str::to_owned));
        let expect = concat!(
            "phase   by           ms\n",
            "create  floor      1.25\n",
            "status  konnector    10\n",
        );
        assert_eq!(table.to_string(), expect);
    }
}
