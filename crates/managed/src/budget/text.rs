//! What budgets say.

use super::{Unit, account};
use api::sky::{Budget, BudgetAmount, BudgetStatus};
use jiff::Timestamp;

/// The beginning of the message of a task that waits for a budget.
pub const WAITS: &str = "it waits for budget ";

/// A number with at most four digits after the point.
fn short(number: f64) -> String {
    let text = format!("{number:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn name(budget: &Budget) -> &str {
    budget.metadata.name.as_deref().unwrap_or_default()
}

fn limit(budget: &Budget, unit: Unit) -> String {
    format!("{} {}", short((unit.limit)(&budget.spec.limit).unwrap_or(0.0)), unit.words)
}

/// What a user can do: raise the limit, or wait.
fn remedy(budget: &Budget, unit: Unit, now: Timestamp) -> String {
    let raise = format!("raise spec.limit.{} of the budget", unit.field);
    match account::period_end(budget.spec.period, now) {
        Some(end) => format!("{raise}, or wait until {end}"),
        None => raise,
    }
}

/// Why a job waits. The text stays the same while it does.
pub fn waits(budget: &Budget, unit: Unit, more: BudgetAmount, now: Timestamp) -> String {
    let (more, remedy) = (short((unit.amount)(&more)), remedy(budget, unit, now));
    let what = match budget.spec.reserve_minutes {
        Some(0) => "is used up".to_owned(),
        minutes => format!(
            "has no room for {} minutes of its machines ({more} {})",
            minutes.unwrap_or(super::RESERVE_MINUTES),
            unit.words
        ),
    };
    format!("{WAITS}{}: the limit of {} {what}; {remedy}", name(budget), limit(budget, unit))
}

/// Why a job is stopped.
pub fn halts(budget: &Budget, status: &BudgetStatus, unit: Unit) -> String {
    format!(
        "budget {}: the limit of {} is reached, {} were spent since {}; raise spec.limit.{} and launch the job again",
        name(budget),
        limit(budget, unit),
        short((unit.amount)(&status.spent)),
        status.period_start,
        unit.field
    )
}

/// What a budget whose limit is reached does.
pub fn exceeded(budget: &Budget, unit: Unit, now: Timestamp) -> String {
    format!(
        "The limit of {} is reached. Running jobs are stopped and other jobs wait. To continue, {}.",
        limit(budget, unit),
        remedy(budget, unit, now)
    )
}

/// What a budget says while jobs wait for it.
pub const FULL: &str = "Jobs wait because there is no room for their next attempts.";
