//! Rules about metrics: only one table spells their names, and the operators' page lists the table.

use super::source::{code, is_test_file};
use api::metrics::{Metric, OPERATOR, SERVER};
use std::collections::BTreeSet;

/// The table.
const TABLE: &str = "crates/api/src/metrics.rs";
/// The page that lists the table, and its section.
pub(super) const PAGE: &str = "docs/cluster.md";
const SECTION: &str = "## Metrics and traces";

/// Calls that make a metric, or name one.
const MAKERS: [&str; 6] = [
    "Metric::counter(",
    "Metric::gauge(",
    "Metric::histogram(",
    "Metric::long_histogram(",
    ".register(\"",
    "encode_descriptor(\"",
];

fn all() -> impl Iterator<Item = &'static Metric> {
    OPERATOR.iter().chain(SERVER).copied()
}

/// A metric's row in the page.
fn row(metric: &Metric) -> String {
    let labels: Vec<String> = metric.labels.iter().map(|label| format!("`{label}`")).collect();
    let Metric { name, kind, help, .. } = metric;
    format!("| `{name}` | {} | {} | {} | {help} |", kind.as_str(), metric.unit(), labels.join(", "))
}

/// Compares the page with the table, in both directions.
pub(super) fn listed(page: &str) -> Vec<String> {
    let section = page.lines().skip_while(|line| *line != SECTION).skip(1).take_while(|line| !line.starts_with("## "));
    let rows: BTreeSet<String> = section
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.split('|').map(str::trim).collect::<Vec<_>>().join(" | ").trim().to_owned())
        .collect();
    let as_listed = |metric| row(metric).split('|').map(str::trim).collect::<Vec<_>>().join(" | ").trim().to_owned();
    let wanted: BTreeSet<String> = all().map(as_listed).collect();
    let missing = all().filter(|metric| !rows.contains(&as_listed(metric)));
    let missing: BTreeSet<String> = missing.map(|metric| format!("{PAGE} lacks the row: {}", row(metric))).collect();
    let more = rows.difference(&wanted).map(|row| format!("{PAGE}: {row}: {TABLE} has no such metric"));
    missing.into_iter().chain(more).collect()
}

/// Metrics that are made or named outside of the table.
pub(super) fn spelled(file: &str, text: &str) -> Vec<String> {
    if file == TABLE {
        let made = code(text).filter(|(_, line)| line.contains(": Metric =")).count();
        let names: BTreeSet<&str> = all().map(|metric| metric.name).collect();
        let lacks = made != names.len();
        return lacks
            .then(|| format!("{file}: {made} metrics are made, {} are listed", names.len()))
            .into_iter()
            .collect();
    }
    // skip the rule's own words
    if is_test_file(file) || file.starts_with("crates/xtask/") {
        return Vec::new();
    }
    let mut findings = Vec::new();
    for (number, line) in code(text).filter(|(_, line)| line.contains('"')) {
        if let Some(metric) = all().find(|metric| says(line, metric.name) || says(line, metric.stem())) {
            findings.push(format!("{file}:{number}: names the metric {}, which is {TABLE}'s", metric.name));
        }
        if let Some(maker) = MAKERS.iter().find(|maker| line.contains(*maker)) {
            findings.push(format!("{file}:{number}: `{maker}…` makes a metric outside of {TABLE}"));
        }
    }
    findings
}

/// Whether a line has the name in quotes, whatever labels follow.
fn says(line: &str, name: &str) -> bool {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    line.split('"')
        .skip(1)
        .step_by(2)
        .any(|text| text.strip_prefix(name).is_some_and(|rest| !rest.starts_with(is_part)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_spelled_once() {
        let found = |text: &str| spelled("crates/driver/src/a.rs", &format!("//! A.\n{text}\n")).len();
        assert_eq!(found("let a = \"workqueue_depth\";"), 1);
        assert_eq!(found("let a = format!(\"workqueue_depth{{name}}\");"), 1);
        assert_eq!(found("registry.register(\"apiserver_request\", help, x);"), 2);
        assert_eq!(found("const A: Metric = Metric::gauge(\"size\", &[], \"\");"), 1);
        assert_eq!(found("let a = \"workqueue_depths\"; // \"workqueue_depth\""), 0);
        assert_eq!(found("#[cfg(test)]\nmod tests {\n    \"workqueue_depth\""), 0);
        assert_eq!(spelled(TABLE, "//! A.\npub const A: Metric = B;\n").len(), 1);
    }

    #[test]
    fn the_page_has_the_table() {
        let rows: String = all().map(|metric| row(metric) + "\n").collect();
        let page = format!("{SECTION}\n\n{rows}\n## Next\n| `other` |\n");
        assert!(listed(&page).is_empty());
        let page = page.replacen("| `workqueue_depth` | gauge", "| `workqueue_depth` | counter", 1);
        let found = listed(&page);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].starts_with("docs/cluster.md lacks the row: | `workqueue_depth` | gauge |"), "{found:?}");
    }
}
