//! `trials`: lists searches (OptimizationJobs), or the trials of one with their results.

use crate::args::{Format, TrialsArgs};
use crate::connect::{Cluster, Kind};
use crate::error::CliError;
use crate::exit;
use crate::output;
use crate::view::{Phase, age, condition};
use api::object;
use jiff::Timestamp;
use serde_json::{Value, json};

/// Label of a trial's TrainJob: its OptimizationJob.
pub(crate) const PARENT: &str = "trainyard.dev/optimizationjob";
/// Annotation of a trial's TrainJob: its values.
const PARAMETERS: &str = "trainyard.dev/optimization-parameters";

/// Lists searches, or the trials of one.
pub(crate) async fn trials(cluster: &Cluster, args: &TrialsArgs) -> Result<u8, CliError> {
    match &args.search {
        Some(name) => one(cluster, name, args.output.output).await,
        None => all(cluster, args.output.output).await,
    }
}

async fn all(cluster: &Cluster, format: Format) -> Result<u8, CliError> {
    let searches = cluster.list(Kind::OptimizationJob, "").await?;
    match format {
        Format::Json | Format::Yaml => {
            output::print(&json!({"apiVersion": "v1", "kind": "List", "items": searches}), format);
        }
        Format::Name => {
            searches.iter().for_each(|search| println!("optimizationjob.trainer.kubeflow.org/{}", name(search)));
        }
        Format::Table | Format::Wide if searches.is_empty() => {
            eprintln!("no OptimizationJobs in namespace {}", cluster.namespace);
        }
        Format::Table | Format::Wide => {
            let now = Timestamp::now();
            let trials = cluster.list(Kind::TrainJob, PARENT).await?;
            let rows = searches.iter().map(|search| {
                let its: Vec<Trial<'_>> = trials.iter().filter_map(|trial| Trial::of(trial, search)).collect();
                let best = its.iter().find(|trial| trial.is_best(search));
                let ended = its.iter().filter(|trial| trial.phase.is_finished()).count();
                vec![
                    name(search).to_owned(),
                    state(search).to_owned(),
                    format!("{ended}/{}", search["spec"]["numTrials"].as_i64().unwrap_or(1)),
                    metric(search).to_owned(),
                    best.and_then(|best| best.value.clone()).unwrap_or("-".to_owned()),
                    best.map_or("-".to_owned(), |best| name(best.object).to_owned()),
                    age(search, now),
                ]
            });
            output::table(&["NAME", "STATE", "TRIALS", "METRIC", "BEST", "TRIAL", "AGE"], rows.collect());
        }
    }
    Ok(exit::OK)
}

async fn one(cluster: &Cluster, of: &str, format: Format) -> Result<u8, CliError> {
    let found = cluster.find(Kind::OptimizationJob, of).await?;
    let Some(search) = found else {
        return Err(cluster.not_found(Kind::OptimizationJob, "OptimizationJob", of).await);
    };
    let objects = cluster.list(Kind::TrainJob, &format!("{PARENT}={of}")).await?;
    let mut trials: Vec<Trial<'_>> = objects.iter().filter_map(|object| Trial::of(object, &search)).collect();
    trials.sort_by_key(|trial| trial.index);
    match format {
        Format::Json | Format::Yaml => {
            output::print(&summary(&search, &trials), format);
        }
        Format::Name => {
            trials.iter().for_each(|trial| println!("trainjob.trainer.kubeflow.org/{}", name(trial.object)))
        }
        Format::Table | Format::Wide => {
            let parameters: Vec<&str> =
                list(&search["spec"], "parameters").iter().map(|p| object::text(p, "name")).collect();
            let mut header = vec!["TRIAL", "STATE", metric(&search)];
            header.extend(&parameters);
            let rows = trials.iter().map(|trial| {
                let mark = if trial.is_best(&search) { " (best)" } else { "" };
                let mut row = vec![
                    format!("{}{mark}", name(trial.object)),
                    trial.phase.as_str().to_owned(),
                    trial.value.clone().unwrap_or("-".to_owned()),
                ];
                row.extend(parameters.iter().map(|parameter| trial.told(parameter)));
                row
            });
            output::table(&header, rows.collect());
            // where it stands, and why trials failed
            let said = ["Complete", "Failed", "Created"].iter().find_map(|kind| condition(&search, kind));
            if let Some(said) = said {
                eprintln!("{}: {}", state(&search).to_lowercase(), object::text(said, "message"));
            }
        }
    }
    Ok(exit::OK)
}

/// A search and its trials, as JSON.
pub(crate) fn summary(search: &Value, trials: &[Trial<'_>]) -> Value {
    let trials: Vec<Value> = trials.iter().map(|trial| trial.json(search)).collect();
    json!({
        "name": name(search), "state": state(search), "metric": metric(search),
        "direction": search["spec"]["objectives"][0]["direction"], "trials": trials,
    })
}

/// One trial's TrainJob.
pub(crate) struct Trial<'a> {
    pub object: &'a Value,
    pub index: usize,
    pub phase: Phase,
    /// The objective, as it was reported.
    pub value: Option<String>,
    /// `name` and `value` of each parameter.
    parameters: Vec<Value>,
}

impl<'a> Trial<'a> {
    /// A TrainJob as a trial of this search, if it is one.
    pub(crate) fn of(object: &'a Value, search: &Value) -> Option<Self> {
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

    pub(crate) fn is_best(&self, search: &Value) -> bool {
        search["status"]["result"]["trainJobName"] == name(self.object)
    }

    /// A parameter's value.
    pub(crate) fn told(&self, parameter: &str) -> String {
        let told = self.parameters.iter().find(|told| object::text(told, "name") == parameter);
        told.map_or("-".to_owned(), |told| object::text(told, "value").to_owned())
    }

    fn json(&self, search: &Value) -> Value {
        json!({
            "name": name(self.object), "state": self.phase.as_str(), "value": self.value,
            "parameters": self.parameters, "best": self.is_best(search),
        })
    }
}

fn name(object: &Value) -> &str {
    object::meta(object, "name")
}

/// The metric that decides.
fn metric(search: &Value) -> &str {
    object::text(&search["spec"]["objectives"][0], "metric")
}

pub(crate) fn state(search: &Value) -> &'static str {
    let is_true = |kind| condition(search, kind).is_some_and(|found| found["status"] == "True");
    match (is_true("Complete"), is_true("Failed"), is_true("Created")) {
        (true, _, _) => "Complete",
        (_, true, _) => "Failed",
        (_, _, true) => "Running",
        (false, false, false) => "Pending",
    }
}

fn list<'a>(value: &'a Value, member: &str) -> &'a [Value] {
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
}
