//! An OptimizationJob's spec, parsed once: what to vary, by which algorithm, how often.

use super::chance::seed_of;
use super::grid;
use super::space::Space;
use super::template;
use api::field::{Error, ErrorList, Path};
use api::object;
use api::trainer::{Direction, Objective, Parameter as Declared, SearchAlgorithm};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::collections::BTreeMap;

/// Annotation of an OptimizationJob that chooses an algorithm that upstream's API does not have. Only value: [`TPE`].
pub const ANNOTATION_ALGORITHM: &str = "trainyard.dev/search-algorithm";
/// Value of [`ANNOTATION_ALGORITHM`]: the tree-structured Parzen estimator in place of random search, with its seed.
pub const TPE: &str = "tpe";
/// In front of a parameter's name in the variable that tells its value to a trial (KEP-3562 of Kubeflow Trainer).
pub const VARIABLE_PREFIX: &str = "KUBEFLOW_TRAINER_OPT_";

/// A search that can be run.
#[derive(Clone, Debug, PartialEq)]
pub struct Search {
    /// Name of the metric that decides.
    pub metric: String,
    pub direction: Direction,
    pub algorithm: Algorithm,
    /// In the order of the spec; names and variables are unique.
    pub parameters: Vec<Parameter>,
    /// `numTrials`.
    pub trials: usize,
    /// `parallelTrials`.
    pub parallel: usize,
}

/// How values are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    Random { seed: u64 },
    Grid,
    Tpe { seed: u64 },
}

/// One parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Parameter {
    pub name: String,
    /// The variable that tells its value to a trial.
    pub variable: String,
    pub space: Space,
}

impl Search {
    /// Reads an OptimizationJob that the schema has let through.
    ///
    /// # Errors
    /// What the schema cannot say: see [`Space::parse`], and [`template::faults`]; two parameters
    /// with one variable, a name that is too long for the trials' names, an unknown algorithm.
    pub fn parse(object: &Value) -> Result<Self, ErrorList> {
        let spec = object.get("spec").unwrap_or(&Value::Null);
        let root = Path::new("spec");
        let mut errors = ErrorList::new();
        let objective = member::<Vec<Objective>>(spec, "objectives", &root, &mut errors)
            .and_then(|objectives| objectives.into_iter().next())
            .unwrap_or_default();
        if objective.metric.is_empty() {
            errors.push(Error::required(&root.child("objectives").index(0).child("metric"), ""));
        }
        let declared = member::<Vec<Declared>>(spec, "parameters", &root, &mut errors).unwrap_or_default();
        let parameters = parameters(&declared, &root.child("parameters"), &mut errors);
        let told: Vec<(&str, String)> = declared.iter().map(|p| (p.name.as_str(), variable(&p.name))).collect();
        let algorithm = algorithm(object, spec, &mut errors);
        if algorithm == Algorithm::Grid
            && grid::size(&parameters.iter().map(|p| &p.space).collect::<Vec<_>>()).is_none()
        {
            let text = "a grid needs categorical parameters: there is no end of numbers between two bounds";
            errors.push(Error::forbidden(&root.child("searchAlgorithm").child("grid"), text));
        }
        let count = |name| spec.get(name).and_then(Value::as_u64).map_or(1, |count| count.max(1) as usize);
        let (trials, parallel) = (count("numTrials"), count("parallelTrials"));
        errors.extend(template::faults(object, &told, trials));
        if !errors.is_empty() {
            return Err(errors);
        }
        let direction = objective.direction.unwrap_or(Direction::Minimize);
        Ok(Self { metric: objective.metric, direction, algorithm, parameters, trials, parallel })
    }

    /// How many trials there will be: as many as asked for, and no more than a grid has points.
    pub fn budget(&self) -> usize {
        match self.algorithm {
            Algorithm::Grid => self.grid_size().min(self.trials),
            Algorithm::Random { .. } | Algorithm::Tpe { .. } => self.trials,
        }
    }

    /// How many points the grid of all choices has.
    pub fn grid_size(&self) -> usize {
        let spaces: Vec<&Space> = self.parameters.iter().map(|parameter| &parameter.space).collect();
        grid::size(&spaces).unwrap_or(usize::MAX)
    }

    /// A metric's value turned so that less is better.
    pub fn loss(&self, value: f64) -> f64 {
        match self.direction {
            Direction::Minimize => value,
            Direction::Maximize => -value,
        }
    }
}

/// The variable of a parameter: in capitals, with `_` for whatever a variable's name cannot have.
pub fn variable(parameter: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    VARIABLE_PREFIX.chars().chain(parameter.chars().map(letter)).collect()
}

fn member<T: DeserializeOwned>(spec: &Value, name: &str, root: &Path, errors: &mut ErrorList) -> Option<T> {
    let value = spec.get(name).unwrap_or(&Value::Null);
    let read = T::deserialize(value);
    read.map_err(|error| errors.push(Error::type_invalid(&root.child(name), value.clone(), error.to_string()))).ok()
}

fn parameters(declared: &[Declared], field: &Path, errors: &mut ErrorList) -> Vec<Parameter> {
    let mut found: Vec<Parameter> = Vec::new();
    let mut first: BTreeMap<String, usize> = BTreeMap::new();
    for (at, declared) in declared.iter().enumerate() {
        let (field, variable) = (field.index(at), variable(&declared.name));
        if let Some(first) = first.get(&variable) {
            let text = format!("is passed to trials as {variable}, and so is parameters[{first}]: rename one of them");
            errors.push(Error::invalid(&field.child("name"), &*declared.name, text));
        }
        first.entry(variable.clone()).or_insert(at);
        match Space::parse(&declared.search_space, &field.child("searchSpace")) {
            Ok(space) => found.push(Parameter { name: declared.name.clone(), variable, space }),
            Err(faults) => errors.extend(faults),
        }
    }
    if declared.is_empty() && errors.is_empty() {
        errors.push(Error::required(field, "there must be at least one"));
    }
    found
}

fn algorithm(object: &Value, spec: &Value, errors: &mut ErrorList) -> Algorithm {
    let given: SearchAlgorithm = match spec.get("searchAlgorithm") {
        Some(given) => SearchAlgorithm::deserialize(given).unwrap_or_default(),
        None => SearchAlgorithm::default(),
    };
    let seed = given.random.and_then(|random| random.seed);
    // by the same seed the same trials, whatever the search is called
    let seed = seed.map_or_else(|| seed_of(object::uid(object)), |seed| seed as u64);
    let field = Path::new("metadata").child("annotations").key(ANNOTATION_ALGORITHM);
    match object::annotation(object, ANNOTATION_ALGORITHM) {
        None if given.grid.is_some() => Algorithm::Grid,
        None => Algorithm::Random { seed },
        Some(TPE) if given.grid.is_none() => Algorithm::Tpe { seed },
        Some(TPE) => {
            let text = "spec.searchAlgorithm.grid is set: take one of them out";
            errors.push(Error::forbidden(&field, text));
            Algorithm::Grid
        }
        Some(other) => {
            errors.push(Error::not_supported(&field, other, &[TPE]));
            Algorithm::Random { seed }
        }
    }
}
