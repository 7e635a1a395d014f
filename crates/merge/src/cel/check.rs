//! Whether an expression may stand in a CRD: its types, and the faults that cel-go's checker finds, in its words and places.

mod checker;

use self::checker::Checker;
use super::expand::macros;
use super::parser;
use super::signatures::Signature;
use super::types::{Known, Ty};
use crate::schema::{Schema, Type};
use kube_cel::cel::common::ast::IdedExpr;
use std::collections::BTreeMap;
use std::sync::Arc;

/// An expression whose types are known.
pub(super) struct Checked<'s> {
    pub expr: IdedExpr,
    /// By the number of an expression.
    pub types: BTreeMap<u64, Ty<'s>>,
    /// Of calls: the signatures that fit.
    pub calls: BTreeMap<u64, Vec<&'static Signature>>,
    /// Whether it looks at `oldSelf`.
    pub uses_old: bool,
    /// A type of patches whose name stands as a value.
    pub mentioned: Option<String>,
}

impl<'s> Checked<'s> {
    pub fn ty(&self, expr: &IdedExpr) -> &Ty<'s> {
        self.types.get(&expr.id).unwrap_or(&Ty::Dyn)
    }
}

/// What may be looked at in the rules of a node.
#[derive(Clone, Copy)]
pub(crate) struct Scope<'s> {
    pub schema: &'s Schema,
    /// The node is a whole custom resource.
    pub root: bool,
    /// `oldSelf` is an optional.
    pub optional_old: bool,
}

/// A rule or a message that may stand in a CRD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Accepted {
    /// Whether it compares with what was (`oldSelf`).
    pub uses_old: bool,
    /// What one run of it costs at most.
    pub cost: u64,
}

/// The faults that the parser and cel-go's checker find, in their words.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Faults(String);

/// Why a rule, or its message, cannot stand in a CRD.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum RuleError {
    #[error("compilation failed: {0}")]
    Rule(Faults),
    #[error("cel expression must evaluate to a bool")]
    NoBool,
    #[error("messageExpression compilation failed: {0}")]
    Message(Faults),
    #[error("messageExpression must evaluate to a string")]
    NoString,
}

/// Checks a rule of a node.
///
/// # Errors
/// Why the rule cannot be compiled.
pub(crate) fn check_rule(source: &str, scope: Scope<'_>) -> Result<Accepted, RuleError> {
    let checked = check(source, names(scope)).map_err(RuleError::Rule)?;
    match checked.ty(&checked.expr) {
        Ty::Bool => Ok(accepted(&checked, scope)),
        _ => Err(RuleError::NoBool),
    }
}

/// Checks a message expression of a node.
///
/// # Errors
/// Why it cannot be compiled.
pub(crate) fn check_message(source: &str, scope: Scope<'_>) -> Result<Accepted, RuleError> {
    let checked = check(source, names(scope)).map_err(RuleError::Message)?;
    match checked.ty(&checked.expr) {
        Ty::String => Ok(accepted(&checked, scope)),
        _ => Err(RuleError::NoString),
    }
}

fn accepted(checked: &Checked<'_>, scope: Scope<'_>) -> Accepted {
    Accepted { uses_old: checked.uses_old, cost: super::cost::of(checked, scope.schema) }
}

/// What the expressions of an admission policy may look at beside the request.
#[derive(Clone, Copy, Debug)]
pub struct PolicyScope<'a> {
    /// The policy has parameters.
    pub params: bool,
    /// It may ask about rights: everything but messages may.
    pub authorizer: bool,
    /// The names of its variables that are known here, with the names of their types; `None`: it has none.
    pub variables: Option<&'a [(&'a str, &'a str)]>,
    /// It makes a patch: the types `Object` and `JSONPatch` are known.
    pub patch: bool,
}

/// What an expression of an admission policy yields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Yields {
    /// The name of its type (`bool`, `dyn`, `list(int)`).
    pub ty: String,
    /// A type of patches that it mentions as a value: no program can be made of it.
    pub undefined: Option<String>,
}

/// Checks an expression of an admission policy: what it is about has any type.
///
/// # Errors
/// The faults that cel-go's checker finds, in its words.
pub fn check_policy(source: &str, scope: PolicyScope<'_>) -> Result<Yields, Faults> {
    let declared = scope.variables.unwrap_or_default().iter().map(|(name, ty)| {
        let kind = match *ty {
            "bool" => Type::Boolean,
            "string" => Type::String,
            "int" => Type::Integer,
            "double" => Type::Number,
            _ => Type::IntOrString,
        };
        ((*name).to_owned(), Arc::new(Schema { kind, ..<Schema as Default>::default() }))
    });
    let variables = Schema { kind: Type::Object, properties: declared.collect(), ..<Schema as Default>::default() };
    let mut names: Vec<(String, Ty<'_>)> = ["object", "oldObject"].map(|name| (name.to_owned(), Ty::Dyn)).to_vec();
    for (name, schema) in [("request", &*super::request::REQUEST), ("namespaceObject", &*super::request::NAMESPACE)] {
        names.push((name.to_owned(), Ty::of(schema, false).unwrap_or(Ty::Dyn)));
    }
    if scope.authorizer {
        names.push(("authorizer".to_owned(), Ty::Other("kubernetes.authorization.Authorizer")));
        let own = Ty::Other("kubernetes.authorization.ResourceCheck");
        names.push(("authorizer.requestResource".to_owned(), own));
    }
    if scope.params {
        names.push(("params".to_owned(), Ty::Dyn));
    }
    if scope.variables.is_some() {
        names.push(("variables".to_owned(), Ty::of(&variables, false).unwrap_or(Ty::Dyn)));
    }
    let checked = check_with(source, names, scope.patch)?;
    Ok(Yields { ty: checked.ty(&checked.expr).text(), undefined: checked.mentioned })
}

/// `self`, and what it was.
fn names<'s>(scope: Scope<'s>) -> Vec<(String, Ty<'s>)> {
    let this = Ty::of(scope.schema, scope.root).unwrap_or(Ty::Dyn);
    let old = if scope.optional_old { Ty::Optional(Box::new(this.clone())) } else { this.clone() };
    vec![("self".to_owned(), this), (OLD.to_owned(), old)]
}

const OLD: &str = "oldSelf";

fn check<'s>(source: &str, names: Vec<(String, Ty<'s>)>) -> Result<Checked<'s>, Faults> {
    check_with(source, names, false)
}

/// `patch`: the types of which patches are made are known.
fn check_with<'s>(source: &str, names: Vec<(String, Ty<'s>)>, patch: bool) -> Result<Checked<'s>, Faults> {
    let deep = super::depth::check(source).map_err(|error| Faults(error.to_string()))?;
    super::depth::with_enough_stack(deep, || {
        let mut expr = parser().parse(source).map_err(|errors| Faults(super::syntax_errors(source, &errors)))?;
        let copies = macros(&mut expr);
        let given = names.len();
        let mut checker = Checker {
            names,
            given,
            known: Known::default(),
            variables: 0,
            types: BTreeMap::new(),
            calls: BTreeMap::new(),
            faults: Vec::new(),
            uses_old: false,
            patch,
            mentioned: None,
        };
        checker.check(&expr);
        let Checker { known, types, calls, mut faults, uses_old, mentioned, .. } = checker;
        if faults.is_empty() {
            let resolved = |part: &IdedExpr| types.get(&part.id).map_or(Ty::Dyn, |ty| known.resolve(ty, true));
            faults = super::literals::faults(&expr, &resolved);
        }
        if !faults.is_empty() {
            let places = Places::of(source);
            let mut placed: Vec<((isize, isize), String)> =
                faults.into_iter().map(|(id, why)| (places.of_id(*copies.get(&id).unwrap_or(&id)), why)).collect();
            placed.sort_by_key(|(place, _)| *place);
            let texts: Vec<String> =
                placed.into_iter().map(|(place, why)| super::syntax_error(source, place, &why)).collect();
            return Err(Faults(texts.join("\n")));
        }
        let types = types.into_iter().map(|(id, ty)| (id, known.resolve(&ty, true))).collect();
        Ok(Checked { expr, types, calls, uses_old, mentioned })
    })
}

/// Where the parts of an expression stand in its text.
struct Places {
    /// Of each part: its number of characters from the start of the text.
    offsets: Box<dyn Fn(u64) -> Option<u32>>,
    /// Where lines start.
    lines: Vec<usize>,
}

impl Places {
    /// The parser tells places only with an error: the text gets one at its end, behind all that has a number.
    fn of(source: &str) -> Self {
        let mut lines = vec![0];
        lines.extend(source.chars().enumerate().filter(|(_, c)| *c == '\n').map(|(at, _)| at + 1));
        let broken = format!("({source}\n) == has(1)");
        let info = match parser().parse(&broken) {
            Err(errors) => errors.errors.into_iter().find_map(|error| error.source_info),
            Ok(_) => None,
        };
        // the parenthesis stands before all
        let offsets = move |id| info.as_ref()?.offset_for(id)?.0.checked_sub(1);
        Self { offsets: Box::new(offsets), lines }
    }

    /// Line and column, from 1.
    fn of_id(&self, id: u64) -> (isize, isize) {
        let offset = (self.offsets)(id).unwrap_or_default() as usize;
        let line = self.lines.partition_point(|start| *start <= offset).max(1);
        let column = offset - self.lines.get(line - 1).copied().unwrap_or_default() + 1;
        let number = |n: usize| isize::try_from(n).unwrap_or_default();
        (number(line), number(column))
    }
}

#[cfg(test)]
mod tests;
