//! CEL expressions, as CRD rules and admission policies use them: compiling, Kubernetes' functions, values, error texts.
//!
//! The language comes from the crates `cel` and `kube-cel`. What this adds: optional syntax and `cel.bind`, `type()`,
//! names of fields escaped as Kubernetes escapes them, numbers typed by the schema, and errors in cel-go's words.

mod authorizer;
mod check;
mod convert;
pub(crate) mod cost;
mod depth;
mod expand;
mod faults;
mod guard;
mod literals;
pub(crate) mod meter;
mod names;
mod network;
mod patch;
mod quantity;
mod request;
mod signatures;
mod types;
mod url;

use crate::schema::{Schema, Type};
pub use authorizer::{Attributes, Authorizer, Question, Subject};
use base64::Engine;
pub use check::{Faults, PolicyScope, Yields, check_policy};
pub(crate) use check::{Scope, check_message, check_rule};
pub(crate) use convert::{optional, to_cel, to_json};
use expand::{expand, free_variables};
use faults::{error_text, syntax_error, syntax_errors};
use kube_cel::KubeCelExt;
use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, IdedExpr, ListExpr, LiteralValue, operators,
};
use kube_cel::cel::extractors::This;
use kube_cel::cel::objects::{Key, Map as CelMap, OptionalValue};
use kube_cel::cel::parser::Parser;
use kube_cel::cel::{Context, ExecutionError, Value as Cel};
pub use names::{escape_field, is_identifier};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};
pub use url::{Url, UrlError};

/// Why an expression does not compile or evaluate.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct CelError(pub String);

/// A compiled expression. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Expression {
    expr: Arc<IdedExpr>,
    /// The same, counting what it costs.
    metered: Arc<IdedExpr>,
    /// Evaluating it may take more stack than threads have.
    deep: bool,
    source: Arc<str>,
}

/// What an expression of an admission policy may look at.
#[derive(Default)]
pub struct Given<'a> {
    /// `object`, `oldObject`, `request`, `params`, `namespaceObject`.
    pub values: &'a [(&'a str, &'a Value)],
    /// The members of `variables`.
    pub variables: Option<&'a BTreeMap<String, Computed>>,
    /// `authorizer`, and the resource of the request (`authorizer.requestResource`).
    pub rights: Option<&'a (Arc<dyn Authorizer>, Attributes)>,
}

/// What an expression gave: a value of CEL, which may be one that JSON does not have (a duration, a quantity).
#[derive(Clone, Debug)]
pub struct Computed(Cel);

impl Computed {
    /// As JSON; times and durations as text, what JSON cannot hold as null.
    pub fn json(&self) -> Value {
        to_json(&self.0)
    }
}

/// The first number beyond 64-bit integers.
const TWO_63: f64 = 9_223_372_036_854_775_808.0;

/// A text that is none of this type.
fn unreadable(ty: &str) -> ExecutionError {
    ExecutionError::function_error(ty, format!("type conversion error from 'string' to '{ty}'"))
}

/// All functions. Building this is costly, evaluating in a scope of it is not.
static ROOT: LazyLock<Context<'static>> = LazyLock::new(|| {
    let mut context = Context::default().with_all();
    context.add_function("type", |value: Cel| -> Result<Cel, ExecutionError> { Ok(type_marker(&value)) });
    context.add_function("bool", |value: Cel| -> Result<Cel, ExecutionError> {
        match &value {
            Cel::Bool(_) => Ok(value),
            Cel::String(text) => match text.as_str() {
                "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Cel::Bool(true)),
                "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Cel::Bool(false)),
                _ => Err(unreadable("bool")),
            },
            _ => Err(ExecutionError::NoSuchOverload),
        }
    });
    context.add_function("double", |This(value): This<Cel>| -> Result<Cel, ExecutionError> {
        #[expect(clippy::cast_precision_loss, reason = "as CEL has it")]
        match &value {
            Cel::Float(_) => Ok(value),
            Cel::Int(int) => Ok(Cel::Float(*int as f64)),
            Cel::UInt(uint) => Ok(Cel::Float(*uint as f64)),
            // as Go has it, what is too large is no number
            Cel::String(text) => match text.parse::<f64>() {
                Ok(float) if float.is_infinite() && text.contains(|c: char| c.is_ascii_digit()) => {
                    Err(unreadable("double"))
                }
                read => read.map(Cel::Float).map_err(|_| unreadable("double")),
            },
            _ => Err(ExecutionError::NoSuchOverload),
        }
    });
    context.add_function("int", |This(value): This<Cel>| -> Result<Cel, ExecutionError> {
        let overflow = || ExecutionError::function_error("int", "integer overflow");
        #[expect(clippy::cast_possible_truncation, reason = "in its bounds")]
        match &value {
            Cel::Int(_) => Ok(value),
            Cel::UInt(uint) => i64::try_from(*uint).map(Cel::Int).map_err(|_| overflow()),
            Cel::Float(float) if (-TWO_63..TWO_63).contains(float) => Ok(Cel::Int(*float as i64)),
            Cel::Float(_) => Err(overflow()),
            Cel::Timestamp(time) => Ok(Cel::Int(time.timestamp())),
            Cel::String(text) => text.parse().map(Cel::Int).map_err(|_| unreadable("int")),
            _ => Err(ExecutionError::NoSuchOverload),
        }
    });
    context.add_function("uint", |This(value): This<Cel>| -> Result<Cel, ExecutionError> {
        let overflow = || ExecutionError::function_error("uint", "unsigned integer overflow");
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in its bounds")]
        match &value {
            Cel::UInt(_) => Ok(value),
            Cel::Int(int) => u64::try_from(*int).map(Cel::UInt).map_err(|_| overflow()),
            Cel::Float(float) if (0.0..2.0 * TWO_63).contains(float) => Ok(Cel::UInt(*float as u64)),
            Cel::Float(_) => Err(overflow()),
            Cel::String(text) => text.parse().map(Cel::UInt).map_err(|_| unreadable("uint")),
            _ => Err(ExecutionError::NoSuchOverload),
        }
    });
    // The library measures strings in bytes; CEL counts code points.
    context.add_function("size", |This(value): This<Cel>| -> Result<Cel, ExecutionError> {
        let size = match &value {
            Cel::String(text) => text.chars().count(),
            Cel::Bytes(bytes) => bytes.len(),
            Cel::List(items) => items.len(),
            Cel::Map(map) => map.map.len(),
            _ => return Err(ExecutionError::NoSuchOverload),
        };
        Ok(Cel::Int(i64::try_from(size).unwrap_or(i64::MAX)))
    });
    context
        .add_function(NUMERIC_EQUALS, |a: Cel, b: Cel| -> Result<bool, ExecutionError> { Ok(numeric_equals(&a, &b)) });
    context.add_function(UNBOOL, |value: Cel| -> Result<Cel, ExecutionError> {
        Ok(match value {
            Cel::Bool(flag) => Cel::String(Arc::new(flag.to_string())),
            Cel::Duration(duration) => {
                let nanos = duration.num_nanoseconds().unwrap_or_default();
                #[expect(clippy::cast_precision_loss, reason = "as Go has it")]
                let seconds = nanos as f64 / 1e9;
                Cel::String(Arc::new(format!("{seconds}s")))
            }
            other => other,
        })
    });
    context.add_function(OPTIONAL, |value: Cel| -> Result<Cel, ExecutionError> {
        let optional = if matches!(value, Cel::Null) { OptionalValue::none() } else { OptionalValue::of(value) };
        Ok(Cel::Opaque(Arc::new(optional)))
    });
    context.add_function(SORT_BY, |items: Arc<Vec<Cel>>, keys: Arc<Vec<Cel>>| -> Result<Cel, ExecutionError> {
        let mut pairs: Vec<(&Cel, &Cel)> = keys.iter().zip(items.iter()).collect();
        if pairs.windows(2).any(|pair| pair[0].0.partial_cmp(pair[1].0).is_none()) {
            return Err(ExecutionError::NoSuchOverload);
        }
        pairs.sort_by(|a, b| a.0.partial_cmp(b.0).unwrap_or(std::cmp::Ordering::Equal));
        Ok(Cel::List(Arc::new(pairs.into_iter().map(|(_, item)| item.clone()).collect())))
    });
    meter::add_functions(&mut context);
    quantity::add_functions(&mut context);
    network::add_functions(&mut context);
    url::add_functions(&mut context);
    patch::add_functions(&mut context);
    authorizer::add_functions(&mut context);
    for name in TYPE_NAMES {
        context.add_variable_from_value(name, marker(name));
    }
    context
});

/// `==` where a side is a number written out: `2.0 == 2` holds in CEL, not in the library.
const NUMERIC_EQUALS: &str = "@numericEquals";

/// Around the argument of `string()`, which the library cannot apply to booleans, and writes durations in its own way.
const UNBOOL: &str = "@unbool";

/// Around `format.named()`: the library returns the format itself, where CEL has an optional.
const OPTIONAL: &str = "@optional";

/// `@sortBy(list, keys)`.
const SORT_BY: &str = "@sortBy";

fn numeric_equals(a: &Cel, b: &Cel) -> bool {
    #[expect(clippy::cast_precision_loss, reason = "as CEL compares numbers of different types")]
    let float = |value: &Cel| match value {
        Cel::Int(int) => Some(*int as f64),
        Cel::UInt(uint) => Some(*uint as f64),
        Cel::Float(float) => Some(*float),
        _ => None,
    };
    match (a, b) {
        (Cel::Int(a), Cel::Int(b)) => a == b,
        (a, b) => match (float(a), float(b)) {
            (Some(a), Some(b)) => a == b,
            _ => a == b,
        },
    }
}

const TYPE_NAMES: [&str; 10] = ["int", "uint", "double", "bool", "string", "bytes", "list", "map", "null_type", "type"];

/// What a name of a type evaluates to. Types are only ever compared with types.
fn marker(name: &str) -> Cel {
    Cel::String(Arc::new(format!("\u{0}type:{name}")))
}

fn type_marker(value: &Cel) -> Cel {
    marker(match value {
        Cel::Int(_) => "int",
        Cel::UInt(_) => "uint",
        Cel::Float(_) => "double",
        Cel::Bool(_) => "bool",
        Cel::String(text) if text.starts_with('\u{0}') => "type",
        Cel::String(_) => "string",
        Cel::Bytes(_) => "bytes",
        Cel::List(_) => "list",
        Cel::Map(_) => "map",
        Cel::Null => "null_type",
        Cel::Timestamp(_) => "google.protobuf.Timestamp",
        Cel::Duration(_) => "google.protobuf.Duration",
        Cel::Opaque(_) | Cel::Function(..) => "opaque",
    })
}

fn parser() -> Parser {
    Parser::new().enable_optional_syntax(true)
}

impl Expression {
    /// Compiles `source`.
    ///
    /// # Errors
    /// Where `source` is no CEL expression.
    pub fn compile(source: &str) -> Result<Self, CelError> {
        let deep = depth::check(source)?;
        depth::deeply(|| Self::parse(source, deep))
    }

    fn parse(source: &str, deep: bool) -> Result<Self, CelError> {
        let mut expr = parser().parse(source).map_err(|errors| CelError(syntax_errors(source, &errors)))?;
        expand(&mut expr);
        let mut metered = expr.clone();
        meter::meter(&mut metered);
        Ok(Self { expr: Arc::new(expr), metered: Arc::new(metered), deep, source: source.into() })
    }

    /// The text that was compiled.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Whether the expression mentions the variable `name` outside of macros that define it themselves.
    pub fn mentions(&self, name: &str) -> bool {
        let mut found = BTreeSet::new();
        free_variables(&self.expr, &mut Vec::new(), &mut found);
        found.contains(name)
    }

    /// The members of `variables` that the expression uses, in the order of its text.
    pub fn variables(&self) -> Vec<String> {
        let mut found = Vec::new();
        expand::selected(&self.expr, "variables", &mut found);
        found
    }

    /// Evaluates with these variables (`object`, `oldObject`, `request`, `params`, …).
    ///
    /// # Errors
    /// What went wrong, in cel-go's words (`no such key: k`).
    pub fn evaluate(&self, variables: &[(&str, &Value)]) -> Result<Value, CelError> {
        let scope: Vec<(&str, Cel)> = variables.iter().map(|(name, value)| (*name, to_cel(value, None))).collect();
        self.run(scope).map(|value| to_json(&value))
    }

    /// Evaluates with variables that are already CEL values.
    ///
    /// # Errors
    /// What went wrong, or that it took more than one evaluation may.
    pub(crate) fn run(&self, variables: Vec<(&str, Cel)>) -> Result<Cel, CelError> {
        self.run_measured(variables).map(|(value, _)| value)
    }

    /// Evaluates an expression of an admission policy. Returns also what it cost, failed or not.
    pub fn evaluate_policy(&self, given: &Given<'_>) -> (Result<Computed, CelError>, u64) {
        let mut scope: Vec<(&str, Cel)> =
            given.values.iter().map(|(name, value)| (*name, to_cel(value, None))).collect();
        let variables = given
            .variables
            .into_iter()
            .flatten()
            .map(|(name, value)| (Key::String(Arc::new(name.clone())), value.0.clone()));
        scope.push(("variables", Cel::Map(CelMap { map: Arc::new(variables.collect()) })));
        if let Some((authorizer, own)) = given.rights {
            scope.extend(authorizer::variables(authorizer, own.clone()));
        }
        let nulls = given.values.iter().filter(|(_, value)| value.is_null());
        let nulls: Vec<&str> = nulls.map(|(name, _)| *name).filter(|name| self.mentions(name)).collect();
        let (result, cost) = if nulls.is_empty() {
            self.resolve(scope)
        } else {
            let mut metered = (*self.metered).clone();
            depth::with_enough_stack(self.deep, || expand::without_members(&mut metered, &nulls));
            Self { metered: Arc::new(metered), ..self.clone() }.resolve(scope)
        };
        (result.map(Computed), cost)
    }

    /// As [`Expression::run`], with what it cost.
    pub(crate) fn run_measured(&self, variables: Vec<(&str, Cel)>) -> Result<(Cel, u64), CelError> {
        let (result, cost) = self.resolve(variables);
        Ok((result?, cost))
    }

    fn resolve(&self, variables: Vec<(&str, Cel)>) -> (Result<Cel, CelError>, u64) {
        let mut scope = ROOT.new_inner_scope();
        for (name, value) in variables {
            scope.add_variable_from_value(name, value);
        }
        // the library panics where it was not thought of: that is this expression's fault, not its caller's
        let resolve = || catch_unwind(AssertUnwindSafe(|| scope.resolve(&self.metered)));
        let (result, cost) = depth::with_enough_stack(self.deep, || meter::measured(resolve));
        let result = match (result, cost) {
            (_, Err(())) => Err(CelError(meter::EXCEEDED.to_owned())),
            (Err(_panic), _) => Err(CelError("internal error".to_owned())),
            (Ok(result), Ok(_)) => result.map_err(|error| CelError(error_text(&error))),
        };
        (result, cost.unwrap_or(meter::CALL_MAX))
    }
}

#[cfg(test)]
mod tests;
