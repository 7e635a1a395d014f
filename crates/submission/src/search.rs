//! A search over all combinations of values, as an OptimizationJob.

use crate::spec::Spec;
use api::trainer::API_VERSION;
use client::ClientError;
use client::codes::ErrorCode;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use view::trials::Trial;

/// Upstream's limit on the number of trials, and on the values of a parameter.
const TRIALS_MAX: usize = 100;
/// Prefix of the variable that holds a parameter of a trial.
const VARIABLE: &str = "KUBEFLOW_TRAINER_OPT_";

/// The search that flags describe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Search {
    /// The metric that is optimized.
    pub metric: String,
    direction: &'static str,
    parameters: Vec<Parameter>,
    /// How many trials run at the same time.
    pub parallel: i32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Parameter {
    name: String,
    choices: Vec<String>,
}

impl Parameter {
    /// `lr=1e-3,1e-4`.
    fn of(flag: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("--sweep {flag}: {why}");
        let (name, values) = flag.split_once('=').ok_or_else(|| wrong("it is not NAME=VALUE,VALUE…"))?;
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
            return Err(wrong("a name has letters, digits, dashes, dots and underscores"));
        }
        let choices: Vec<String> = values.split(',').map(|value| value.trim().to_owned()).collect();
        if choices.iter().any(String::is_empty) {
            return Err(wrong("a value is missing"));
        }
        if choices.iter().collect::<BTreeSet<_>>().len() < choices.len() {
            return Err(wrong("a value is there twice"));
        }
        Ok(Self { name: name.to_owned(), choices })
    }

    /// How a trial's arguments and variables refer to its value.
    fn reference(&self) -> String {
        let name = self.name.to_uppercase().replace(|c: char| !c.is_ascii_alphanumeric(), "_");
        format!("$({VARIABLE}{name})")
    }

    fn is_variable(&self) -> bool {
        self.name.chars().any(char::is_alphabetic) && self.name == self.name.to_uppercase()
    }
}

impl Search {
    /// Of the flags; `None` without `--sweep`.
    /// Reads the flags; `None` without `--sweep`.
    /// Errors: `Usage` for flags that do not make a search.
    pub fn of(spec: &Spec) -> Result<Option<Self>, ClientError> {
        if spec.sweep.is_empty() {
            return Ok(None);
        }
        let parameters: Result<Vec<Parameter>, String> = spec.sweep.iter().map(|flag| Parameter::of(flag)).collect();
        let parameters = parameters.map_err(|why| ClientError::Usage(ErrorCode::FlagRefused, why))?;
        let objective = spec.objective.as_deref().unwrap_or_default();
        let (metric, direction) = match objective.rsplit_once(':') {
            Some((metric, "min")) => (metric, "Minimize"),
            Some((metric, "max")) => (metric, "Maximize"),
            Some(_) => {
                return Err(ClientError::Usage(
                    ErrorCode::FlagRefused,
                    format!("--objective {objective}: only min or max can follow the colon"),
                ));
            }
            None => (objective, "Minimize"),
        };
        let names: BTreeSet<String> = parameters.iter().map(Parameter::reference).collect();
        if names.len() < parameters.len() {
            return Err(ClientError::Usage(
                ErrorCode::FlagRefused,
                "--sweep names a parameter twice; put all of its values into one flag".to_owned(),
            ));
        }
        let search = Self { metric: metric.to_owned(), direction, parameters, parallel: spec.parallel_trials };
        if search.count() > TRIALS_MAX {
            return Err(ClientError::Usage(
                ErrorCode::SearchTooLarge,
                format!(
                    "--sweep: {} trials are more than the limit of {TRIALS_MAX}; for samples of a large space see docs/optimization.md",
                    search.count()
                ),
            ));
        }
        Ok(Some(search))
    }

    /// How many trials there are.
    pub fn count(&self) -> usize {
        self.parameters.iter().fold(1, |product, parameter| product.saturating_mul(parameter.choices.len()))
    }

    /// The flags of one trial: each parameter is an argument of the script, or a variable.
    pub fn arguments(&self, spec: &Spec) -> Spec {
        let mut spec = spec.clone();
        for parameter in &self.parameters {
            let (place, value) = (format!("{{{}}}", parameter.name), parameter.reference());
            if parameter.is_variable() {
                spec.env.push(format!("{}={value}", parameter.name));
            } else if spec.arguments.iter().any(|word| word.contains(&place)) {
                spec.arguments.iter_mut().for_each(|word| *word = word.replace(&place, &value));
            } else {
                spec.arguments.push(format!("--{}={value}", parameter.name));
            }
        }
        spec
    }

    /// The OptimizationJob whose trials are such TrainJobs.
    pub(crate) fn of_trials(&self, mut job: Value) -> Value {
        let mut metadata = job["metadata"].take();
        let template = json!({"annotations": metadata["annotations"].take()});
        if let Some(members) = metadata.as_object_mut() {
            members.remove("annotations");
        }
        let parameters: Vec<Value> = self
            .parameters
            .iter()
            .map(|p| json!({"name": p.name, "searchSpace": {"categorical": {"choices": p.choices}}}))
            .collect();
        json!({
            "apiVersion": API_VERSION, "kind": "OptimizationJob", "metadata": metadata,
            "spec": {
                "objectives": [{"metric": self.metric, "direction": self.direction}],
                "searchAlgorithm": {"grid": {}},
                "parameters": parameters,
                "numTrials": self.count(),
                "parallelTrials": i64::from(self.parallel).min(self.count() as i64),
                "trainJobTemplate": {"metadata": template, "spec": job["spec"].take()},
            },
        })
    }
}

impl Search {
    /// `lr=1e-3 wd=0.1`.
    pub fn line(&self, trial: &Trial<'_>) -> String {
        let told = self.parameters.iter().map(|p| format!("{}={}", p.name, trial.told(&p.name)));
        told.collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(words: &[&str]) -> Result<(Spec, Search), String> {
        let spec = Spec::of_words(words);
        let search = Search::of(&spec).map_err(|error| error.to_string())?.expect("there is --sweep");
        Ok((search.arguments(&spec), search))
    }

    #[test]
    fn flags_become_a_grid() {
        let (spec, search) = search(&[
            "--sweep",
            "lr=1e-3,1e-4",
            "--sweep",
            "SEED=1,2,3",
            "--sweep",
            "batch-size=8",
            "--objective",
            "accuracy:max",
            "--parallel-trials",
            "4",
            "t.py",
            "--size",
            "{batch-size}",
        ])
        .unwrap();
        assert_eq!(spec.arguments, ["--size", "$(KUBEFLOW_TRAINER_OPT_BATCH_SIZE)", "--lr=$(KUBEFLOW_TRAINER_OPT_LR)"]);
        assert_eq!(spec.env, ["SEED=$(KUBEFLOW_TRAINER_OPT_SEED)"]);
        let job = json!({"metadata": {"generateName": "t-", "annotations": {"a": "b"}}, "spec": {"trainer": {}}});
        let made = search.of_trials(job);
        assert_eq!(made["metadata"], json!({"generateName": "t-"}));
        let spec = &made["spec"];
        assert_eq!(spec["objectives"], json!([{"metric": "accuracy", "direction": "Maximize"}]));
        assert_eq!((&spec["numTrials"], &spec["parallelTrials"]), (&6.into(), &4.into()));
        assert_eq!(spec["parameters"][0]["searchSpace"]["categorical"]["choices"], json!(["1e-3", "1e-4"]));
        assert_eq!(spec["trainJobTemplate"], json!({"metadata": {"annotations": {"a": "b"}}, "spec": {"trainer": {}}}));
    }

    #[test]
    fn what_is_no_search_is_refused() {
        let many: Vec<String> = (0..101).map(|n| n.to_string()).collect();
        let many = format!("x={}", many.join(","));
        let cases = [
            (&["--sweep", "lr"][..], "--sweep lr: it is not NAME=VALUE"),
            (&["--sweep", "lr=1,,2"], "a value is missing"),
            (&["--sweep", "lr=1,1"], "a value is there twice"),
            (&["--sweep", "l r=1"], "a name has letters"),
            (&["--sweep", "lr=1", "--sweep", "LR=2"], "names a parameter twice"),
            (&["--sweep", &many], "101 trials are more than the limit of 100"),
        ];
        for (words, told) in cases {
            let error = search(&[words, &["--objective", "loss", "t.py"]].concat()).unwrap_err();
            assert!(error.contains(told), "{words:?}: {error}");
        }
        assert!(search(&["--sweep", "a=1", "--objective", "x:up", "t.py"]).unwrap_err().contains("min or max"));
    }
}
