//! Tables as SkyPilot prints them.

/// Columns of text with two spaces between them, without lines; no spaces at the ends of lines.
pub fn plain(head: &[&str], rows: &[Vec<String>]) -> String {
    padded(head, rows).split('\n').map(str::trim_end).collect::<Vec<_>>().join("\n")
}

/// The same with two spaces after each cell, also at the ends of lines.
pub(super) fn padded(head: &[&str], rows: &[Vec<String>]) -> String {
    let head: Vec<String> = head.iter().map(|name| (*name).to_owned()).collect();
    let rows: Vec<&Vec<String>> = std::iter::once(&head).chain(rows).collect();
    let widths = widths(&rows);
    let line = |row: &&Vec<String>| -> String {
        row.iter().zip(&widths).map(|(cell, width)| format!("{cell:width$}  ")).collect()
    };
    rows.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// The same between lines of dashes, with three spaces between columns.
pub fn ruled(head: &[&str], rows: &[Vec<String>]) -> String {
    let head: Vec<String> = head.iter().map(|name| (*name).to_owned()).collect();
    let all: Vec<&Vec<String>> = std::iter::once(&head).chain(rows).collect();
    let widths = widths(&all);
    // a space before each cell, two behind it, and one more at the end
    let rule = "-".repeat(widths.iter().fold(1, |sum: usize, width| sum.saturating_add(*width).saturating_add(3)));
    let line = |row: &&Vec<String>| {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!(" {cell:width$}  "));
        cells.collect::<String>().trim_end().to_owned()
    };
    let mut lines = vec![rule.clone()];
    for (at, row) in all.iter().enumerate() {
        lines.push(line(row));
        if at == 0 {
            lines.push(rule.clone());
        }
    }
    lines.push(rule);
    lines.join("\n")
}

fn widths(rows: &[&Vec<String>]) -> Vec<usize> {
    let columns = rows.iter().map(|row| row.len()).max().unwrap_or(0);
    let width = |column: usize| rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count()).max();
    (0..columns).map(|column| width(column).unwrap_or(0)).collect()
}

/// A cell; `-` where there is nothing to show.
pub(super) fn or_dash(text: &Option<String>) -> String {
    text.clone().unwrap_or_else(|| "-".to_owned())
}
