//! Tables and lines as SkyPilot's messages have them.

/// A text in lines of at most `width` characters, broken at spaces and behind hyphens between words.
pub(super) fn wrapped(text: &str, width: usize) -> String {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        for (at, piece) in at_hyphens(word).into_iter().enumerate() {
            let space = if at == 0 { " " } else { "" };
            match lines.last_mut() {
                Some(line) if line.chars().count() + space.len() + piece.chars().count() <= width => {
                    line.push_str(space);
                    line.push_str(piece);
                }
                _ => lines.push(piece.to_owned()),
            }
        }
    }
    lines.join("\n")
}

/// A word in pieces, each but the last with a hyphen at its end: a hyphen parts what has a letter before it and a word behind it.
fn at_hyphens(word: &str) -> Vec<&str> {
    let mut pieces = Vec::new();
    let mut rest = word;
    let mut from = 0;
    while let Some(at) = rest.get(from..).and_then(|tail| tail.find('-')).map(|at| from + at) {
        let before = rest.get(..at).unwrap_or_default();
        let after = rest.get(at + 1..).unwrap_or_default();
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let head: Vec<char> = before.chars().rev().take_while(|c| is_word(*c)).take(2).collect();
        let tail: Vec<char> = after.chars().take_while(|c| is_word(*c)).collect();
        let letter = |c: &char| is_word(*c) && !c.is_numeric();
        if head.len() == 2 && head.first().is_some_and(letter) && tail.iter().skip(1).any(letter) {
            pieces.push(rest.get(..=at).unwrap_or_default());
            rest = after;
            from = 0;
        } else {
            from = at + 1;
        }
    }
    pieces.push(rest);
    pieces
}

/// A table without lines: columns as wide as their widest cell, and two spaces behind each.
pub(super) fn table(head: [&str; 2], rows: Vec<Vec<String>>) -> String {
    let rows: Vec<Vec<String>> =
        std::iter::once(head.iter().map(|name| (*name).to_owned()).collect()).chain(rows).collect();
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).flat_map(|cell| cell.lines());
        cells.map(|line| line.chars().count()).max().unwrap_or(0)
    };
    let widths = [width(0), width(1)];
    let mut lines = Vec::new();
    for row in &rows {
        let height = row.iter().map(|cell| cell.lines().count()).max().unwrap_or(0).max(1);
        for at in 0..height {
            let cells =
                row.iter().zip(widths).map(|(cell, width)| format!("{:width$}  ", cell.lines().nth(at).unwrap_or("")));
            lines.push(cells.collect::<String>());
        }
    }
    lines.join("\n")
}
