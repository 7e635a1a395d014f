//! What a view of the table asks for, and the page that answers it: filters, order, place. Pure.
//!
//! Every part of a query is a parameter of the page's own address, so a view can be kept and sent.

use crate::row::{Kind, Row};
use serde::{Deserialize, Serialize};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

/// Rows of a page, unless it asks for fewer or more.
const LIMIT: usize = 50;
pub const LIMIT_MAX: usize = 200;
/// Bytes of a search text.
const TEXT_MAX: usize = 200;

/// By which column rows are sorted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Column {
    /// By age, the youngest first.
    #[default]
    Created,
    Name,
    Namespace,
    Kind,
    State,
    Progress,
    Nodes,
    Gpus,
}

impl Column {
    const ALL: [(&'static str, Self); 8] = [
        ("created", Self::Created),
        ("name", Self::Name),
        ("namespace", Self::Namespace),
        ("kind", Self::Kind),
        ("state", Self::State),
        ("progress", Self::Progress),
        ("nodes", Self::Nodes),
        ("gpus", Self::Gpus),
    ];

    fn of(self, row: &Row) -> Place {
        match self {
            Self::Created => Place::Number(row.created),
            Self::Name => Place::Text(row.name.clone()),
            Self::Namespace => Place::Text(row.namespace.clone()),
            Self::Kind => Place::Text(row.kind.as_str().to_owned()),
            Self::State => Place::Text(row.state.clone()),
            Self::Progress => Place::Number(row.progress.unwrap_or(-1)),
            Self::Nodes => Place::Number(row.nodes.unwrap_or(-1)),
            Self::Gpus => Place::Number(row.gpus),
        }
    }
}

/// The value of a row in the sorted column.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Place {
    Number(i64),
    Text(String),
}

/// The last row of a page, after which the next page begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct After {
    place: Place,
    kind: String,
    namespace: String,
    name: String,
}

/// A view of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Query {
    /// Empty: all.
    pub kinds: BTreeSet<Kind>,
    /// Empty: all.
    pub namespaces: Vec<String>,
    /// Groups of states; empty: all.
    pub states: BTreeSet<String>,
    /// Rows whose name, namespace, runtime, queue or owner contains this, in any case.
    pub text: String,
    /// The trials of this search; empty: no trials, which are folded into their search.
    pub search: String,
    pub column: Column,
    /// From the greatest value down.
    pub descending: bool,
    pub limit: usize,
    after: Option<After>,
}

/// A parameter that cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadQuery {
    #[error("kind {0:?} is none of trainjob, mpijob, optimizationjob, jobset, managedjob")]
    Kind(String),
    #[error("jobs cannot be sorted by {0:?}; columns: created, name, namespace, kind, state, progress, nodes, gpus")]
    Column(String),
    #[error("order {0:?} is none of asc, desc")]
    Order(String),
    #[error("limit {0:?} is not a number from 1 to {LIMIT_MAX}")]
    Limit(String),
    #[error("the text to search for is longer than {TEXT_MAX} bytes")]
    Text,
    #[error("this page of the table does not exist: its cursor was not made for this order; open the first page")]
    Cursor,
    #[error("there is no parameter {0:?}")]
    Unknown(String),
}

impl Query {
    /// From the parameters of a request. `kind`, `namespace` and `state` may be repeated.
    ///
    /// Errors: the first parameter that cannot be understood.
    pub fn parse(parameters: &[(String, String)]) -> Result<Self, BadQuery> {
        let mut query = Self { limit: LIMIT, descending: true, ..Self::default() };
        let mut order = None;
        let mut cursor = None;
        for (name, value) in parameters {
            match name.as_str() {
                "kind" => {
                    query.kinds.insert(Kind::parse(value).ok_or_else(|| BadQuery::Kind(value.clone()))?);
                }
                "namespace" => query.namespaces.push(value.clone()),
                "state" => {
                    query.states.insert(value.to_lowercase());
                }
                "text" if value.len() > TEXT_MAX => return Err(BadQuery::Text),
                "text" => query.text = value.to_lowercase(),
                "search" => query.search.clone_from(value),
                "sort" => {
                    let found = Column::ALL.iter().find(|(name, _)| name == value);
                    query.column = found.ok_or_else(|| BadQuery::Column(value.clone()))?.1;
                }
                "order" => match value.as_str() {
                    "asc" => order = Some(false),
                    "desc" => order = Some(true),
                    _ => return Err(BadQuery::Order(value.clone())),
                },
                "limit" => {
                    let limit = value.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit));
                    query.limit = limit.ok_or_else(|| BadQuery::Limit(value.clone()))?;
                }
                "cursor" => cursor = Some(value),
                _ => return Err(BadQuery::Unknown(name.clone())),
            }
        }
        // the youngest first, but names from A on
        query.descending =
            order.unwrap_or(matches!(query.column, Column::Created | Column::Progress | Column::Nodes | Column::Gpus));
        query.after = cursor.map(|text| query.cursor(text)).transpose()?;
        Ok(query)
    }

    fn cursor(&self, text: &str) -> Result<After, BadQuery> {
        let bytes: Option<Vec<u8>> = (text.len().is_multiple_of(2) && text.is_ascii()).then(|| {
            (0..text.len()).step_by(2).filter_map(|at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok()).collect()
        });
        let after: After = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok()).ok_or(BadQuery::Cursor)?;
        let is_number = matches!(after.place, Place::Number(_));
        let wants_number = matches!(self.column, Column::Created | Column::Progress | Column::Nodes | Column::Gpus);
        (is_number == wants_number).then_some(after).ok_or(BadQuery::Cursor)
    }

    fn is_meant(&self, row: &Row) -> bool {
        (self.kinds.is_empty() || self.kinds.contains(&row.kind))
            && (self.namespaces.is_empty() || self.namespaces.contains(&row.namespace))
            && row.search == self.search
            && (self.text.is_empty()
                || [&row.name, &row.namespace, &row.runtime, &row.queue, &row.owner]
                    .into_iter()
                    .any(|cell| cell.to_lowercase().contains(&self.text)))
    }

    fn compare(&self, a: &Row, b: &Row) -> Ordering {
        self.order(&self.column.of(a), &self.column.of(b)).then_with(|| identity(a).cmp(&identity(b)))
    }

    fn order(&self, a: &Place, b: &Place) -> Ordering {
        if self.descending { b.cmp(a) } else { a.cmp(b) }
    }

    fn is_after(&self, row: &Row) -> bool {
        self.after.as_ref().is_none_or(|after| {
            let identity_of = (after.namespace.as_str(), after.name.as_str(), after.kind.as_str());
            self.order(&self.column.of(row), &after.place).then_with(|| identity(row).cmp(&identity_of)).is_gt()
        })
    }

    /// The page of these rows that the view shows.
    pub fn page(&self, rows: impl IntoIterator<Item = Row>) -> Page {
        let mut counts: BTreeMap<String, usize> = BTreeMap::new();
        let mut meant: Vec<Row> = Vec::new();
        for row in rows {
            if !self.is_meant(&row) {
                continue;
            }
            let count = counts.entry(row.group.clone()).or_default();
            *count = count.saturating_add(1);
            if self.states.is_empty() || self.states.contains(&row.group) {
                meant.push(row);
            }
        }
        let total = meant.len();
        meant.retain(|row| self.is_after(row));
        let before = total.saturating_sub(meant.len());
        // only a page of them has to be in order
        let last = self.limit.min(meant.len());
        if meant.len() > last && last > 0 {
            meant.select_nth_unstable_by(last.saturating_sub(1), |a, b| self.compare(a, b));
        }
        let has_more = meant.len() > last;
        meant.truncate(last);
        meant.sort_by(|a, b| self.compare(a, b));
        let next = meant.last().filter(|_| has_more).map(|row| {
            let Row { kind, namespace, name, .. } = row;
            let kind = kind.as_str().to_owned();
            let after = After { place: self.column.of(row), kind, namespace: namespace.clone(), name: name.clone() };
            let text = serde_json::to_vec(&after).expect("plain data");
            text.iter().map(|byte| format!("{byte:02x}")).collect()
        });
        Page { rows: meant, total, before, counts, next }
    }
}

fn identity(row: &Row) -> (&str, &str, &str) {
    (&row.namespace, &row.name, row.kind.as_str())
}

/// A page of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Page {
    pub rows: Vec<Row>,
    /// Rows of the view, on all its pages.
    pub total: usize,
    /// Rows on the pages before this one.
    pub before: usize,
    /// Rows by group of states, whichever states the view shows.
    pub counts: BTreeMap<String, usize>,
    /// The cursor of the next page.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

#[cfg(test)]
mod tests;
