//! A search (OptimizationJob) and its trials, which are TrainJobs.

use crate::state::{Phase, condition};
use api::object;
use serde_json::{Value, json};

/// Label of a trial's TrainJob: its OptimizationJob.
pub const PARENT: &str = "trainyard.dev/optimizationjob";
/// Annotation of a trial's TrainJob: its values.
const PARAMETERS: &str = "trainyard.dev/optimization-parameters";

/// A search and its trials, as JSON.
pub fn summary(search: &Value, trials: &[Trial<'_>]) -> Value {
    let trials: Vec<Value> = trials.iter().map(|trial| trial.json(search)).collect();
    json!({
        "name": name(search), "state": state(search), "metric": metric(search),
        "direction": search["spec"]["objectives"][0]["direction"], "trials": trials,
    })
}

/// One trial's TrainJob.
pub struct Trial<'a> {
    pub object: &'a Value,
    pub index: usize,
    pub phase: Phase,
    /// The objective, as it was reported.
    pub value: Option<String>,
    /// `name` and `value` of each parameter.
    pub parameters: Vec<Value>,
}

impl<'a> Trial<'a> {
    /// A TrainJob as a trial of this search, if it is one.
    pub fn of(object: &'a Value, search: &Value) -> Option<Self> {
        let owner = object::controller_of(object)?;
        let (_, index) = name(object).rsplit_once('-').filter(|_| object::text(owner, "uid") == object::uid(search))?;
        let metrics = list(&object["status"]["trainerStatus"], "metrics");
        let reported = metrics.iter().find(|given| object::text(given, "name") == metric(search));
        let parameters = object::annotation(object, PARAMETERS).and_then(|text| serde_json::from_str(text).ok());
        Some(Self {
            object,
            index: index.parse().ok()?,
            phase: Phase::of(object),
            value: reported.map(|metric| object::text(metric, "value").to_owned()),
            parameters: parameters.unwrap_or_default(),
        })
    }

    pub fn is_best(&self, search: &Value) -> bool {
        search["status"]["result"]["trainJobName"] == name(self.object)
    }

    /// A parameter's value.
    pub fn told(&self, parameter: &str) -> String {
        let told = self.parameters.iter().find(|told| object::text(told, "name") == parameter);
        told.map_or("-".to_owned(), |told| object::text(told, "value").to_owned())
    }

    /// Its state; a trial that is complete and has not reported the objective counts as failed.
    pub fn told_state(&self) -> String {
        match self.phase {
            Phase::Complete if self.value.is_none() => "Complete (no report)".to_owned(),
            phase => phase.as_str().to_owned(),
        }
    }

    fn json(&self, search: &Value) -> Value {
        json!({
            "name": name(self.object), "state": self.phase.as_str(), "value": self.value,
            "parameters": self.parameters, "best": self.is_best(search),
        })
    }

    /// Its value as a result: of a trial that is complete, and reported a finite number.
    pub fn result(&self) -> Option<f64> {
        let value = self.value.as_ref().filter(|_| self.phase == Phase::Complete)?;
        value.parse::<f64>().ok().filter(|value| value.is_finite())
    }
}

/// The best value of a search over time.
#[derive(Clone, Debug, PartialEq)]
pub struct BestSoFar {
    /// When the trial ended, RFC 3339.
    pub at: String,
    pub value: f64,
    /// The trial's TrainJob.
    pub trial: String,
}

/// Each trial that was better than all that had ended before it, in the order in which they ended.
pub fn best_over_time(search: &Value, trials: &[Trial<'_>]) -> Vec<BestSoFar> {
    let is_minimized = search["spec"]["objectives"][0]["direction"] != "Maximize";
    let end = |trial: &Trial<'_>| {
        let ended = condition(trial.object, "Complete").map(|found| object::text(found, "lastTransitionTime"));
        Some(BestSoFar { at: ended?.to_owned(), value: trial.result()?, trial: name(trial.object).to_owned() })
    };
    let mut ended: Vec<BestSoFar> = trials.iter().filter_map(end).collect();
    ended.sort_by(|a, b| a.at.cmp(&b.at).then_with(|| a.trial.cmp(&b.trial)));
    let mut best: Option<f64> = None;
    ended.retain(|one| {
        let is_better = best.is_none_or(|best| if is_minimized { one.value < best } else { one.value > best });
        if is_better {
            best = Some(one.value);
        }
        is_better
    });
    ended
}

pub fn name(object: &Value) -> &str {
    object::meta(object, "name")
}

/// The metric that decides.
pub fn metric(search: &Value) -> &str {
    object::text(&search["spec"]["objectives"][0], "metric")
}

pub fn state(search: &Value) -> &'static str {
    let is_true = |kind| condition(search, kind).is_some_and(|found| found["status"] == "True");
    match (is_true("Complete"), is_true("Failed"), is_true("Created")) {
        (true, _, _) => "Complete",
        (_, true, _) => "Failed",
        (_, _, true) => "Running",
        (false, false, false) => "Pending",
    }
}

pub fn list<'a>(value: &'a Value, member: &str) -> &'a [Value] {
    value.get(member).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn trials_are_those_that_the_search_controls() {
        let search = json!({
            "metadata": {"name": "s", "uid": "u"}, "spec": {"objectives": [{"metric": "loss"}]},
            "status": {"conditions": [{"type": "Created", "status": "True"}], "result": {"trainJobName": "s-trial-3"}},
        });
        let told = json!([{"name": "lr", "value": "0.1"}]).to_string();
        let trial = |uid: &str| {
            json!({
                "metadata": {"name": "s-trial-3", "annotations": {PARAMETERS: told},
                    "ownerReferences": [{"uid": uid, "controller": true}]},
                "status": {"trainerStatus": {"metrics": [{"name": "loss", "value": "0.5"}]},
                    "conditions": [{"type": "Complete", "status": "True"}]},
            })
        };
        assert!(Trial::of(&trial("other"), &search).is_none());
        let object = trial("u");
        let trial = Trial::of(&object, &search).expect("it is one");
        assert_eq!((trial.index, trial.told("lr"), trial.told("x")), (3, "0.1".to_owned(), "-".to_owned()));
        assert_eq!(
            trial.json(&search),
            json!({"name": "s-trial-3", "state": "Complete", "value": "0.5", "best": true,
                "parameters": [{"name": "lr", "value": "0.1"}]})
        );
        assert_eq!((state(&search), state(&json!({}))), ("Running", "Pending"));
    }

    #[test]
    fn only_trials_that_ended_well_are_results() {
        let search = |direction: &str| json!({"metadata": {"name": "s", "uid": "u"}, "spec": {"objectives": [{"metric": "loss", "direction": direction}]}});
        let trial = |number: u32, value: &str, kind: &str, minute: u32| {
            json!({
                "metadata": {"name": format!("s-trial-{number}"), "ownerReferences": [{"uid": "u", "controller": true}]},
                "status": {"trainerStatus": {"metrics": [{"name": "loss", "value": value}]}, "conditions": [
                    {"type": kind, "status": "True", "lastTransitionTime": format!("2026-01-01T00:0{minute}:00Z")}]},
            })
        };
        let objects = [
            trial(0, "0.5", "Complete", 3),
            trial(1, "0.1", "Failed", 1),
            trial(2, "0.7", "Complete", 1),
            trial(3, "NaN", "Complete", 2),
            trial(4, "0.6", "Complete", 4),
            trial(5, "0.0", "Created", 0),
        ];
        let told = |direction: &str| {
            let search = search(direction);
            let trials: Vec<Trial<'_>> = objects.iter().filter_map(|object| Trial::of(object, &search)).collect();
            assert_eq!(trials.len(), 6);
            best_over_time(&search, &trials).into_iter().map(|one| (one.trial, one.value)).collect::<Vec<_>>()
        };
        assert_eq!(told("Minimize"), [("s-trial-2".to_owned(), 0.7), ("s-trial-0".to_owned(), 0.5)]);
        assert_eq!(told("Maximize"), [("s-trial-2".to_owned(), 0.7)]);
    }
}
