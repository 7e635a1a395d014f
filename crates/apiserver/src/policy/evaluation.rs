//! The expressions of a policy, asked about one request: match conditions, variables, and what they decide.

use super::{Facts, items, text};
use merge::cel::{CelError, Computed, Expression, Given};
use serde_json::Value;
use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::{LazyLock, Mutex, PoisonError};

/// Compiled expressions kept at most; policies have few.
const KEPT: usize = 1024;

/// Compiled expressions by their text.
static COMPILED: LazyLock<Mutex<BTreeMap<String, Expression>>> = LazyLock::new(Mutex::default);

fn compile(source: &str) -> Result<Expression, CelError> {
    let mut compiled = COMPILED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(expression) = compiled.get(source) {
        return Ok(expression.clone());
    }
    let expression = Expression::compile(source)?;
    if compiled.len() >= KEPT {
        compiled.clear();
    }
    compiled.insert(source.to_owned(), expression.clone());
    Ok(expression)
}

/// A policy with one parameter, ready to be asked.
pub(super) struct Evaluation<'a> {
    facts: &'a Facts<'a>,
    object: Option<&'a Value>,
    pub policy: &'a Value,
    params: &'a Value,
    variables: BTreeMap<String, Computed>,
    /// Variables that could not be computed, as errors of expressions that use them say it.
    broken: BTreeMap<String, String>,
    /// What its expressions may still cost together; `None`: they have cost too much.
    left: Cell<Option<u64>>,
}

/// What the expressions of a policy may cost together (upstream's `RuntimeCELCostBudget`; what one may is checked as it runs).
const COST_MAX: u64 = 10_000_000;
/// What its match conditions may cost together, apart from the others (`RuntimeCELCostBudgetMatchConditions`).
const CONDITIONS_COST_MAX: u64 = COST_MAX / 4;
/// Why an expression of a policy yields nothing, in upstream's words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum EvaluationError {
    #[error("compilation error: {why}")]
    Compilation { why: String },
    /// Its expressions have cost more than they may.
    #[error("validation failed due to running out of cost budget, no further validation rules will be run")]
    TooDear,
    /// The expression, or a variable that it uses.
    #[error("{why}")]
    Failed { why: String },
    #[error("expression '{source_text}' resulted in error: {why}")]
    Condition { source_text: String, why: Box<Self> },
    #[error("[{}]", .0.iter().map(Self::to_string).collect::<Vec<_>>().join(", "))]
    Conditions(Vec<Self>),
}

impl<'a> Evaluation<'a> {
    /// `object`: as it is now.
    pub fn new(facts: &'a Facts<'a>, object: Option<&'a Value>, policy: &'a Value, params: &'a Value) -> Self {
        let left = Cell::new(Some(CONDITIONS_COST_MAX));
        Self { facts, object, policy, params, variables: BTreeMap::new(), broken: BTreeMap::new(), left }
    }

    /// Whether the match conditions let the policy speak; an error of theirs, where it counts as a failure.
    ///
    /// # Errors
    /// A condition that cannot be evaluated, unless the policy says to ignore such.
    pub fn speaks(&self) -> Result<bool, EvaluationError> {
        let spec = &self.policy["spec"];
        let mut errors = Vec::new();
        for condition in items(spec, "matchConditions") {
            let source = text(condition, "expression");
            match self.evaluate(source) {
                Ok(Value::Bool(true)) => {}
                // one that does not hold says more than another that cannot be evaluated
                Ok(_) => return Ok(false),
                Err(_) if self.is_spent() => {
                    errors = vec![EvaluationError::TooDear];
                    break;
                }
                Err(error) => {
                    let (source_text, why) = (source.to_owned(), Box::new(error));
                    errors.push(EvaluationError::Condition { source_text, why });
                }
            }
        }
        match errors.as_slice() {
            [] => Ok(true),
            _ if text(spec, "failurePolicy") == "Ignore" => Ok(false),
            [only] => Err(only.clone()),
            _ => Err(EvaluationError::Conditions(errors)),
        }
    }

    /// Whether its expressions have cost more than they may.
    pub fn is_spent(&self) -> bool {
        self.left.get().is_none()
    }

    /// Works the variables out.
    pub fn compute(&mut self) {
        self.left.set(Some(COST_MAX));
        for variable in items(&self.policy["spec"], "variables") {
            let name = text(variable, "name").to_owned();
            match self.computed(text(variable, "expression")) {
                Ok(value) => {
                    self.variables.insert(name, value);
                }
                Err(error) => {
                    let why = format!("composited variable {name:?} fails to evaluate: {error}");
                    self.broken.insert(name, why);
                }
            }
        }
    }

    pub fn evaluate(&self, source: &str) -> Result<Value, EvaluationError> {
        self.computed(source).map(|value| value.json())
    }

    /// # Errors
    /// What went wrong, or that the policy has cost too much.
    pub fn computed(&self, source: &str) -> Result<Computed, EvaluationError> {
        let none = Value::Null;
        let expression = compile(source).map_err(|error| EvaluationError::Compilation { why: error.to_string() })?;
        let namespace = self.facts.namespace.as_deref().unwrap_or(&none);
        let left = self.left.get().ok_or(EvaluationError::TooDear)?;
        let given = Given {
            values: &[
                ("object", self.object.unwrap_or(&none)),
                ("oldObject", self.facts.old.unwrap_or(&none)),
                ("request", &self.facts.request),
                ("params", self.params),
                ("namespaceObject", namespace),
            ],
            variables: Some(&self.variables),
            rights: Some(&self.facts.rights),
        };
        let (result, cost) = expression.evaluate_policy(&given);
        // an expression without a loop is not free
        self.left.set(left.checked_sub(cost.saturating_add(1)));
        if self.is_spent() {
            return Err(EvaluationError::TooDear);
        }
        result.map_err(|error| {
            let used = expression.variables();
            let broken = used.iter().find_map(|name| self.broken.get(name.as_str()));
            EvaluationError::Failed { why: broken.cloned().unwrap_or_else(|| error.to_string()) }
        })
    }
}
