//! Budgets: what managed jobs may spend, have spent and have reserved.

use super::{Reader, address, object, timeline, yaml};
use crate::problem::Problem;
use crate::sheet::{Cell, Command, Part, Sheet, facts, main_table, table};
use api::object as read;
use api::sky::{Budget, BudgetAction, BudgetPeriod};
use client::Kind;
use managed::budget::{RESERVE_MINUTES, UNITS, Unit, plus};
use serde_json::Value;

fn parse(object: &Value) -> Budget {
    serde_json::from_value(object.clone()).unwrap_or_default()
}

/// What is spent and reserved of the limit in a unit; empty where there is no limit in it.
fn used(budget: &Budget, unit: &Unit) -> Cell {
    let Some(limit) = (unit.limit)(&budget.spec.limit) else { return Cell::number(-1.0, "") };
    let spent = (unit.amount)(&budget.status.spent);
    let reserved = (unit.amount)(&budget.status.reserved);
    let taken = (unit.amount)(&plus(budget.status.spent, budget.status.reserved));
    let reserved = if reserved > 0.0 { format!(" + {reserved:.2} reserved") } else { String::new() };
    // a limit of 0 is always reached
    let part = if limit > 0.0 { taken } else { 1.0 };
    Cell::part(part, limit.max(f64::MIN_POSITIVE), format!("{spent:.2} spent{reserved} of {limit:.2}"))
}

fn state(budget: &Budget) -> Cell {
    match budget.status.exceeded_at.as_str() {
        "" => Cell::state("within its limit", "complete"),
        _ => Cell::state("exceeded", "failed"),
    }
}

/// For whose jobs it is.
fn covers(budget: &Budget) -> String {
    let labels = budget.spec.selector.match_labels.iter().map(|(name, value)| format!("{name}={value}"));
    let labels = labels.collect::<Vec<_>>().join(", ");
    match (budget.spec.user.as_str(), labels.as_str()) {
        ("", "") => "all jobs".to_owned(),
        ("", labels) => format!("jobs with {labels}"),
        (user, "") => format!("jobs of {user}"),
        (user, labels) => format!("jobs of {user} with {labels}"),
    }
}

fn period(budget: &Budget) -> &'static str {
    match budget.spec.period {
        BudgetPeriod::Total => "in total",
        BudgetPeriod::Day => "each day",
        BudgetPeriod::Month => "each month",
    }
}

pub(super) async fn list(reader: &Reader<'_>) -> Result<Sheet, Problem> {
    let mut sheet = Sheet { title: "Budgets".to_owned(), ..Sheet::default() };
    let all = reader.objects(Kind::Budget, "", &mut sheet).await?;
    let row = |object: &Value| {
        let budget = parse(object);
        let (namespace, name) = (read::meta(object, "namespace"), read::meta(object, "name"));
        let mut row = vec![
            Cell::link(address(&["budgets", namespace, name]), name),
            Cell::text(namespace),
            state(&budget),
            Cell::text(covers(&budget)),
            Cell::text(period(&budget)),
        ];
        row.extend(UNITS.iter().map(|unit| used(&budget, unit)));
        row.extend([Cell::text(&budget.status.message), Cell::time(&budget.status.accrued_at)]);
        row
    };
    let headings = [
        "Name",
        "Namespace",
        "State",
        "Applies to",
        "Period",
        "Dollars",
        "GPU-hours",
        "Machine-hours",
        "Effect on jobs",
        "Counted up to",
    ];
    let empty = "There are no budgets. To create one, apply a Budget object. Its fields:";
    sheet.parts.push(main_table(
        &headings,
        all.iter().map(row).collect(),
        empty,
        &format!("kubectl{} explain budgets.spec", reader.cluster().kubectl_flags),
    ));
    Ok(sheet)
}

pub(super) async fn one(reader: &Reader<'_>, namespace: &str, name: &str) -> Result<Sheet, Problem> {
    let within = reader.within(namespace);
    let found = object(&within, Kind::Budget, name).await?;
    let budget = parse(&found);
    let (spec, status) = (&budget.spec, &budget.status);
    let mut overview = vec![
        ("Effect on jobs", Cell::text(&status.message)),
        ("Applies to", Cell::text(covers(&budget))),
        ("Period", Cell::text(period(&budget))),
    ];
    let titles = ["Dollars", "GPU-hours", "Machine-hours"];
    overview.extend(titles.into_iter().zip(UNITS.iter().map(|unit| used(&budget, unit))));
    let minutes = spec.reserve_minutes.unwrap_or(RESERVE_MINUTES);
    overview.extend([
        ("Reserve per attempt", Cell::text(format!("{minutes} minutes"))),
        ("Exceeded", Cell::time(&status.exceeded_at)),
        ("Period began", Cell::time(&status.period_start)),
        ("Counted up to", Cell::time(&status.accrued_at)),
    ]);
    let rows = status.jobs.iter().rev().map(|job| {
        let did = match job.action {
            BudgetAction::Waits => Cell::state("delays the next attempt", "pending"),
            BudgetAction::Stopped => Cell::state("stopped the job", "failed"),
        };
        vec![Cell::link(address(&["jobs", "managedjob", namespace, &job.name]), &job.name), did, Cell::time(&job.at)]
    });
    let jobs = table(
        "Jobs",
        &["Job", "What the budget did", "Since"],
        rows.collect(),
        "It delays no job and has stopped none.",
    );
    let kubectl = format!("kubectl{} -n {namespace}", within.kubectl_flags);
    Ok(Sheet {
        title: name.to_owned(),
        subtitle: format!("Budget in namespace {namespace}"),
        state: Some(state(&budget)),
        parts: vec![
            facts("Overview", overview),
            jobs,
            timeline(&within, &found).await,
            Part::Commands {
                title: "Commands".to_owned(),
                commands: vec![
                    Command { title: "Change it", command: format!("{kubectl} edit budgets.sky.trainyard.dev {name}") },
                    Command {
                        title: "Delete it",
                        command: format!("{kubectl} delete budgets.sky.trainyard.dev {name}"),
                    },
                ],
            },
            yaml(found.clone()),
        ],
        ..Sheet::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_budget_says_what_is_taken_of_each_limit() {
        let budget = parse(&json!({
            "spec": {"limit": {"dollars": 10, "gpuHours": 0}, "user": "ann", "selector": {"matchLabels": {"team": "a"}}},
            "status": {"spent": {"dollars": 2.5}, "reserved": {"dollars": 2.5}},
        }));
        let [dollars, gpus, machines] = UNITS.map(|unit| used(&budget, &unit));
        assert_eq!(dollars, Cell::Bar { percent: 50, text: "2.50 spent + 2.50 reserved of 10.00".to_owned() });
        assert_eq!(gpus, Cell::Bar { percent: 100, text: "0.00 spent of 0.00".to_owned() });
        assert_eq!(machines, Cell::number(-1.0, ""));
        assert_eq!(covers(&budget), "jobs of ann with team=a");
    }
}
