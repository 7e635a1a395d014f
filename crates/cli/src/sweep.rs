//! `run --sweep`: a search over all combinations of values, as an OptimizationJob, followed to its best trial.

use crate::args::{Format, RunArgs};
use crate::create::{What, create};
use crate::exit;
use crate::output;
use crate::run::Prepared;
use api::object;
use api::trainer::API_VERSION;
use client::codes::ErrorCode;
use client::{ClientError, Kind};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use view::state::{Phase, condition};
use view::trials::{PARENT, Trial, state, summary};

/// Upstream's bound on trials, and on values of a parameter.
const TRIALS_MAX: usize = 100;
/// What the variable of a trial's parameter begins with.
const VARIABLE: &str = "KUBEFLOW_TRAINER_OPT_";
/// Between two looks at the trials.
const POLL: Duration = Duration::from_millis(200);

/// What to search.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Search {
    metric: String,
    direction: &'static str,
    parameters: Vec<Parameter>,
    parallel: i32,
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
    ///
    /// Errors: `Usage` for flags that do not make a search.
    pub(crate) fn of(args: &RunArgs) -> Result<Option<Self>, ClientError> {
        if args.sweep.is_empty() {
            return Ok(None);
        }
        let parameters: Result<Vec<Parameter>, String> = args.sweep.iter().map(|flag| Parameter::of(flag)).collect();
        let parameters = parameters.map_err(|why| ClientError::Usage(ErrorCode::FlagRefused, why))?;
        let objective = args.objective.as_deref().unwrap_or_default();
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
        let search = Self { metric: metric.to_owned(), direction, parameters, parallel: args.parallel_trials };
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

    fn count(&self) -> usize {
        self.parameters.iter().fold(1, |product, parameter| product.saturating_mul(parameter.choices.len()))
    }

    /// The flags of one trial: each parameter is an argument of the script, or a variable.
    pub(crate) fn arguments(&self, args: &RunArgs) -> RunArgs {
        let mut args = args.clone();
        for parameter in &self.parameters {
            let (place, value) = (format!("{{{}}}", parameter.name), parameter.reference());
            if parameter.is_variable() {
                args.env.push(format!("{}={value}", parameter.name));
            } else if args.script_args().iter().any(|word| word.contains(&place)) {
                args.words.iter_mut().skip(1).for_each(|word| *word = word.replace(&place, &value));
            } else {
                args.words.push(format!("--{}={value}", parameter.name));
            }
        }
        args
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

/// Creates the search and follows it; prints trials as they end, and the best.
pub(crate) async fn run(prepared: &Prepared<'_>, search: &Search) -> Result<u8, ClientError> {
    let (args, cluster) = (prepared.args, &prepared.cluster);
    let created = create(cluster, prepared.draft(), What::Search(search)).await?;
    let name = object::meta(&created, "name");
    if args.detach {
        output::created(&created, args.output.output);
        return Ok(exit::OK);
    }
    let flags = &cluster.flags;
    eprintln!("search {name} created: {} trials, {} at a time", search.count(), search.parallel);
    tokio::select! {
        code = follow(prepared, search, name) => code,
        _ = tokio::signal::ctrl_c() => {
            eprintln!("\nsearch {name} continues");
            eprintln!("  look at it: trainyard trials {name}{flags}");
            eprintln!("  end it:     kubectl delete optimizationjob {name} -n {}", cluster.namespace);
            Ok(exit::INTERRUPTED)
        }
    }
}

async fn follow(prepared: &Prepared<'_>, search: &Search, name: &str) -> Result<u8, ClientError> {
    let (format, cluster) = (prepared.args.output.output, &prepared.cluster);
    let mut told = BTreeSet::new();
    loop {
        let Some(job) = cluster.find(Kind::OptimizationJob, name).await? else {
            eprintln!("search {name} was deleted");
            return Ok(exit::FAILURE);
        };
        let objects = cluster.list(Kind::TrainJob, &format!("{PARENT}={name}")).await?;
        let mut trials: Vec<Trial<'_>> = objects.iter().filter_map(|object| Trial::of(object, &job)).collect();
        trials.sort_by_key(|trial| trial.index);
        let state = state(&job);
        let ended = matches!(state, "Complete" | "Failed");
        for trial in &trials {
            // its metric may come a little later than its end
            let known = trial.value.is_some() || trial.phase == Phase::Failed || ended;
            if trial.phase.is_finished() && known && told.insert(trial.index) {
                let value = trial.value.as_deref().unwrap_or("none");
                let how = if trial.phase == Phase::Failed { " (failed)" } else { "" };
                let title = search.line(trial);
                eprintln!("trial {}/{}: {title}  {} {value}{how}", told.len(), search.count(), search.metric);
            }
        }
        if !ended {
            tokio::time::sleep(POLL).await;
            continue;
        }
        if matches!(format, Format::Json | Format::Yaml) {
            output::print(&summary(&job, &trials), format);
        } else if let Some(best) = trials.iter().find(|trial| trial.is_best(&job)) {
            let value = best.value.as_deref().unwrap_or_default();
            println!("best: {}  {} {value}  ({})", search.line(best), search.metric, object::meta(best.object, "name"));
        }
        if state == "Complete" {
            return Ok(exit::OK);
        }
        let why = condition(&job, "Failed").map(|failed| object::text(failed, "message")).unwrap_or_default();
        eprintln!("search {name} failed: {why}");
        eprintln!("  see the trials: trainyard trials {name}{}", cluster.flags);
        return Ok(exit::FAILURE);
    }
}

impl Search {
    /// `lr=1e-3 wd=0.1`.
    fn line(&self, trial: &Trial<'_>) -> String {
        let told = self.parameters.iter().map(|p| format!("{}={}", p.name, trial.told(&p.name)));
        told.collect::<Vec<_>>().join(" ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    fn search(words: &[&str]) -> Result<(RunArgs, Search), String> {
        let Command::Run(args) = Cli::parse_from([&["trainyard", "run"], words].concat()).command else {
            panic!("{words:?}")
        };
        let search = Search::of(&args).map_err(|error| error.to_string())?.expect("there is --sweep");
        Ok((search.arguments(&args), search))
    }

    #[test]
    fn flags_become_a_grid() {
        let (args, search) = search(&[
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
        assert_eq!(
            args.words[1..],
            ["--size", "$(KUBEFLOW_TRAINER_OPT_BATCH_SIZE)", "--lr=$(KUBEFLOW_TRAINER_OPT_LR)"]
        );
        assert_eq!(args.env, ["SEED=$(KUBEFLOW_TRAINER_OPT_SEED)"]);
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
