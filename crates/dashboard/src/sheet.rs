//! A page as values: facts, tables and texts, which `web/` draws without knowing what they are about.
//!
//! What a page shows, in which order and in which words, is decided here. So every page of this kind is drawn, sorted and searched by the same
//! code, and `web/` judges nothing.

use crate::problem::Problem;
use serde::Serialize;
use std::cmp::Ordering;

/// Rows of a table that are sent; the page says how many are left out.
const ROWS_MAX: usize = 1000;
/// Bytes of a search text.
const TEXT_MAX: usize = 200;

/// A value in a table or in a list of facts.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "is", rename_all = "camelCase")]
pub(crate) enum Cell {
    Text {
        text: String,
    },
    /// A number with its unit, sorted by `value`.
    Number {
        value: f64,
        text: String,
    },
    /// `group` chooses the colour.
    State {
        state: String,
        group: String,
    },
    /// A moment, in seconds since 1970.
    Age {
        at: Option<i64>,
    },
    /// A page of this dashboard.
    Link {
        to: String,
        text: String,
    },
    /// A part of a whole, 0 to 100.
    Bar {
        percent: i64,
        text: String,
    },
}

impl Cell {
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }

    pub fn link(to: impl Into<String>, text: impl Into<String>) -> Self {
        Self::Link { to: to.into(), text: text.into() }
    }

    pub fn state(state: impl Into<String>, group: &str) -> Self {
        Self::State { state: state.into(), group: group.to_owned() }
    }

    pub fn number(value: f64, text: impl Into<String>) -> Self {
        Self::Number { value, text: text.into() }
    }

    #[expect(clippy::cast_precision_loss, reason = "counts of things that exist")]
    pub fn count(value: usize) -> Self {
        Self::Number { value: value as f64, text: value.to_string() }
    }

    /// The moment of an RFC 3339 time; none if it does not parse.
    pub fn time(time: &str) -> Self {
        Self::Age { at: time.parse().ok().map(jiff::Timestamp::as_second) }
    }

    /// How much of a whole: `2 of 8`.
    pub fn part(part: f64, whole: f64, text: String) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "between 0 and 100")]
        let percent = if whole > 0.0 { (part / whole * 100.0).clamp(0.0, 100.0).round() as i64 } else { 0 };
        Self::Bar { percent, text }
    }

    /// What it says, for searches.
    fn words(&self) -> &str {
        match self {
            Self::Text { text }
            | Self::Number { text, .. }
            | Self::State { state: text, .. }
            | Self::Link { text, .. }
            | Self::Bar { text, .. } => text,
            Self::Age { .. } => "",
        }
    }

    /// Whether the cell has a value: an empty text and a dash are none.
    fn says_something(&self) -> bool {
        match self {
            Self::Age { at } => at.is_some(),
            other => !matches!(other.words(), "" | "-"),
        }
    }

    /// By value where both have one, the youngest moment first; else by text.
    fn order(&self, other: &Self) -> Ordering {
        #[expect(clippy::cast_precision_loss, reason = "seconds since 1970, and parts of a hundred")]
        let value = |cell: &Self| match cell {
            Self::Number { value, .. } => Some(*value),
            Self::Age { at } => Some(at.map_or(f64::INFINITY, |at| -(at as f64))),
            Self::Bar { percent, .. } => Some(*percent as f64),
            _ => None,
        };
        match (value(self), value(other)) {
            (Some(a), Some(b)) => a.total_cmp(&b),
            _ => self.words().to_lowercase().cmp(&other.words().to_lowercase()),
        }
    }
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Heading {
    pub title: &'static str,
}

/// A part of a page.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "part", rename_all = "camelCase")]
pub(crate) enum Part {
    Facts {
        title: String,
        facts: Vec<Fact>,
    },
    #[serde(rename_all = "camelCase")]
    Table {
        title: String,
        headings: Vec<Heading>,
        rows: Vec<Vec<Cell>>,
        /// What stands in place of a table without rows, and the command that would add one.
        empty: String,
        empty_command: Option<String>,
        /// Rows that were left out.
        left_out: usize,
        /// Whether the address says how it is sorted and searched.
        is_main: bool,
    },
    /// Sentences, each a paragraph.
    Lines {
        title: String,
        lines: Vec<String>,
    },
    /// Text with its own line breaks: YAML.
    Text {
        title: String,
        text: String,
    },
    Commands {
        title: String,
        commands: Vec<Command>,
    },
}

/// A fact about the object of a page.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(crate) struct Fact {
    pub term: &'static str,
    pub value: Cell,
}

/// What does or shows the same in a terminal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Command {
    pub title: &'static str,
    pub command: String,
}

/// Facts without those that have nothing to say.
pub(crate) fn facts(title: &str, facts: Vec<(&'static str, Cell)>) -> Part {
    let facts = facts
        .into_iter()
        .filter(|(_, value)| value.says_something())
        .map(|(term, value)| Fact { term, value })
        .collect();
    Part::Facts { title: title.to_owned(), facts }
}

/// A table of a page about one object.
pub(crate) fn table(title: &str, headings: &[&'static str], rows: Vec<Vec<Cell>>, empty: &str) -> Part {
    Part::Table {
        title: title.to_owned(),
        headings: headings.iter().map(|title| Heading { title }).collect(),
        rows,
        empty: empty.to_owned(),
        empty_command: None,
        left_out: 0,
        is_main: false,
    }
}

/// The main table of a page. Without rows the page shows `empty`, and `command`, which creates the first object.
pub(crate) fn main_table(headings: &[&'static str], rows: Vec<Vec<Cell>>, empty: &str, command: &str) -> Part {
    Part::Table {
        title: String::new(),
        headings: headings.iter().map(|title| Heading { title }).collect(),
        rows,
        empty: empty.to_owned(),
        empty_command: Some(command.to_owned()).filter(|command| !command.is_empty()),
        left_out: 0,
        is_main: true,
    }
}

/// A page.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Sheet {
    pub title: String,
    /// Under the title.
    pub subtitle: String,
    pub state: Option<Cell>,
    pub parts: Vec<Part>,
    /// What is not shown, and why.
    pub hidden: Vec<String>,
    /// The server's time, seconds since 1970.
    pub now: i64,
}

/// How the main table is sorted and searched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct View {
    /// Only these; empty: those of all namespaces, as far as they may be listed.
    pub namespaces: Vec<String>,
    /// Rows in which a cell contains this, in any case.
    text: String,
    /// The title of a column; empty: as the page has them.
    sort: String,
    descending: bool,
}

impl View {
    pub fn parse(parameters: &[(String, String)]) -> Result<Self, Problem> {
        let mut view = Self::default();
        for (name, value) in parameters {
            match name.as_str() {
                "namespace" => match api::names::subdomain_faults(value, false).first() {
                    None => view.namespaces.push(value.clone()),
                    Some(fault) => {
                        return Err(Problem::bad_request(format!("{value:?} is not a namespace: {fault}")));
                    }
                },
                "text" if value.len() > TEXT_MAX => {
                    return Err(Problem::bad_request(format!(
                        "the text to search for is longer than {TEXT_MAX} bytes"
                    )));
                }
                "text" => view.text = value.to_lowercase(),
                "sort" => view.sort.clone_from(value),
                "order" if matches!(value.as_str(), "asc" | "desc") => view.descending = value == "desc",
                "order" => return Err(Problem::bad_request(format!("order {value:?} is none of asc, desc"))),
                _ => return Err(Problem::bad_request(format!("there is no parameter {name:?}"))),
            }
        }
        Ok(view)
    }

    /// The page as this view shows it.
    pub fn of(&self, mut sheet: Sheet) -> Result<Sheet, Problem> {
        for part in &mut sheet.parts {
            let Part::Table { headings, rows, left_out, is_main, empty, empty_command, .. } = part else { continue };
            if *is_main {
                let had = rows.len();
                rows.retain(|row| row.iter().any(|cell| cell.words().to_lowercase().contains(&self.text)));
                if rows.is_empty() && had > 0 {
                    *empty = "No row contains that text.".to_owned();
                    *empty_command = None;
                }
                if !self.sort.is_empty() {
                    let Some(at) = headings.iter().position(|heading| heading.title == self.sort) else {
                        let titles: Vec<&str> = headings.iter().map(|heading| heading.title).collect();
                        let (sort, titles) = (&self.sort, titles.join(", "));
                        return Err(Problem::bad_request(format!(
                            "rows cannot be sorted by {sort:?}; columns: {titles}"
                        )));
                    };
                    rows.sort_by(|a, b| match (a.get(at), b.get(at)) {
                        (Some(a), Some(b)) if self.descending => b.order(a),
                        (Some(a), Some(b)) => a.order(b),
                        _ => Ordering::Equal,
                    });
                }
            }
            *left_out = rows.len().saturating_sub(ROWS_MAX);
            rows.truncate(ROWS_MAX);
            keep_columns(headings, rows);
        }
        Ok(sheet)
    }
}

/// Drops the columns in which no row has anything to say.
fn keep_columns(headings: &mut Vec<Heading>, rows: &mut [Vec<Cell>]) {
    for at in (0..headings.len()).rev() {
        let is_used = rows.iter().any(|row| row.get(at).is_some_and(Cell::says_something));
        if !is_used && !rows.is_empty() {
            headings.remove(at);
            rows.iter_mut().filter(|row| at < row.len()).for_each(|row| drop(row.remove(at)));
        }
    }
}

#[cfg(test)]
mod tests;
