//! One trial as its TrainJob shows it.

use super::search::Search;
use super::template::{parent_of, values};
use crate::conditions;
use crate::job::list;
use crate::names::ConditionType;
use api::object;
use api::trainer::Assignment;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

/// How long after a trial's end its last report may still come: the status server gathers reports before it writes them.
pub const REPORT_GRACE: SignedDuration = SignedDuration::from_secs(10);

/// A trial that has been started.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    pub index: usize,
    pub name: String,
    /// What it was started with.
    pub parameters: Vec<Assignment>,
    pub outcome: Outcome,
}

/// What became of a trial.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Not ended, or on its way out: it has its place among those that run at once.
    Running,
    /// Complete, but the objective has not been reported. Until then it may be.
    Awaited { until: Timestamp },
    /// Complete, with the objective's last value.
    Succeeded(f64),
    /// Why it has no result.
    Failed(String),
}

impl Trial {
    /// Reads a TrainJob; `None` if its name is not one of this search's.
    pub fn read(object: &Value, parent: &str, search: &Search, now: Timestamp) -> Option<Self> {
        let name = object::meta(object, "name");
        let (_, index) = parent_of(name).filter(|(its, index)| *its == parent && *index < search.budget())?;
        let outcome = outcome(object, &search.metric, now);
        Some(Self { index, name: name.to_owned(), parameters: values(object, &search.parameters), outcome })
    }

    /// The objective, of one that has succeeded.
    pub fn value(&self) -> Option<f64> {
        match self.outcome {
            Outcome::Succeeded(value) => Some(value),
            Outcome::Running | Outcome::Awaited { .. } | Outcome::Failed(_) => None,
        }
    }
}

fn outcome(object: &Value, metric: &str, now: Timestamp) -> Outcome {
    if object::is_terminating(object) {
        // its name is free again when it is gone: then it is tried anew
        return Outcome::Running;
    }
    let status = object.get("status").unwrap_or(&Value::Null);
    let conditions = list(status, "conditions");
    if conditions::is_true(conditions, ConditionType::Failed) {
        let failed = conditions::find(conditions, ConditionType::Failed.as_str()).unwrap_or(&Value::Null);
        let (reason, message) = (object::text(failed, "reason"), object::text(failed, "message"));
        return Outcome::Failed(if message.is_empty() { reason.to_owned() } else { message.to_owned() });
    }
    if !conditions::is_true(conditions, ConditionType::Complete) {
        return Outcome::Running;
    }
    if let Some(reported) = reported(status, metric) {
        return match reported.parse::<f64>() {
            Ok(value) if value.is_finite() => Outcome::Succeeded(value),
            _ => Outcome::Failed(format!("its metric {metric:?} is {reported:?}, which is no finite number")),
        };
    }
    let ended = conditions::find(conditions, ConditionType::Complete.as_str())
        .and_then(|complete| object::text(complete, "lastTransitionTime").parse::<Timestamp>().ok());
    let until = ended.unwrap_or(now).saturating_add(REPORT_GRACE).unwrap_or(now);
    if ended.is_some() && now < until {
        return Outcome::Awaited { until };
    }
    let others: Vec<&str> =
        list(&status["trainerStatus"], "metrics").iter().map(|metric| object::text(metric, "name")).collect();
    Outcome::Failed(match others.as_slice() {
        [] => format!("it ended without reporting its metric {metric:?}"),
        others => format!("it ended without reporting its metric {metric:?}, only {}", others.join(", ")),
    })
}

/// The last value of a metric, as the training code wrote it.
fn reported(status: &Value, metric: &str) -> Option<String> {
    let metrics = list(status.get("trainerStatus")?, "metrics");
    let value = metrics.iter().find(|given| object::text(given, "name") == metric)?.get("value")?;
    Some(value.as_str().map_or_else(|| value.to_string(), |text| text.trim().to_owned()))
}
