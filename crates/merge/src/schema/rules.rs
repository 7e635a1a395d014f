//! CEL rules of a schema (`x-kubernetes-validations`), and what else a node works out once.

use super::validate::{Correlation, unchanged};
use super::{Facts, Findings, Schema, Type};
use crate::cel::{self, Expression};
use api::field::{Error, ErrorType, Path};
use serde_json::{Map, Value};
use std::cell::OnceCell;
use std::fmt;
use std::sync::OnceLock;

/// Longest message that a `messageExpression` may yield, bytes.
const MESSAGE_BYTES_MAX: usize = 5 * 1024;

/// One rule as the CRD states it; members that it does not state are empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rule {
    pub rule: String,
    pub message: String,
    pub message_expression: String,
    /// `FieldValueInvalid` (also where empty), `FieldValueForbidden`, `FieldValueRequired`, `FieldValueDuplicate`.
    pub reason: String,
    pub field_path: String,
    pub optional_old_self: bool,
}

impl Rule {
    pub(super) fn to_openapi(&self) -> Value {
        let mut out = Map::new();
        let members = [
            ("rule", &self.rule),
            ("message", &self.message),
            ("messageExpression", &self.message_expression),
            ("reason", &self.reason),
            ("fieldPath", &self.field_path),
        ];
        for (name, value) in members {
            if !value.is_empty() {
                out.insert(name.to_owned(), value.as_str().into());
            }
        }
        if self.optional_old_self {
            out.insert("optionalOldSelf".to_owned(), true.into());
        }
        Value::Object(out)
    }
}

/// The CEL rules of a node, compiled on first use.
#[derive(Default)]
pub struct Rules {
    list: Vec<Rule>,
    facts: OnceLock<Facts>,
    programs: OnceLock<Vec<Program>>,
}

/// A compiled rule.
struct Program {
    rule: Result<Expression, String>,
    message: Option<Expression>,
    uses_old: bool,
    /// It forbids changes, and nothing else.
    is_immutability: bool,
}

impl Rules {
    pub fn new(list: Vec<Rule>) -> Self {
        Self { list, ..Self::default() }
    }

    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    pub fn iter(&self) -> std::slice::Iter<'_, Rule> {
        self.list.iter()
    }

    fn programs(&self) -> &[Program] {
        self.programs.get_or_init(|| {
            self.list
                .iter()
                .map(|rule| {
                    let compiled = Expression::compile(&rule.rule).map_err(|error| error.to_string());
                    let message = Expression::compile(&rule.message_expression).ok();
                    let uses_old = compiled.as_ref().is_ok_and(|e| e.mentions("oldSelf"));
                    let message = message.filter(|m| !m.source().is_empty());
                    let is_immutability = rule.rule.trim() == "self == oldSelf";
                    Program { rule: compiled, message, uses_old, is_immutability }
                })
                .collect()
        })
    }

    pub(super) fn facts(&self, derive: impl FnOnce() -> Facts) -> &Facts {
        self.facts.get_or_init(derive)
    }
}

impl Clone for Rules {
    /// What was derived is not taken over: the holder of a clone may change it.
    fn clone(&self) -> Self {
        Self::new(self.list.clone())
    }
}

impl fmt::Debug for Rules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.list.fmt(f)
    }
}

/// A node that has an old value. Whether it changed is asked by each of its elements that fails, and looked at once.
struct Above<'a> {
    schema: &'a Schema,
    value: &'a Value,
    old: &'a Value,
    unchanged: OnceCell<bool>,
}

/// The node that ratcheting looks at: what is correlated with an old value, or below something that is.
#[derive(Clone, Copy)]
struct Ratchet<'p, 'a> {
    current: Option<&'a Value>,
    /// The nearest node above that has an old value.
    parent: Option<&'p Above<'a>>,
}

impl<'p, 'a> Ratchet<'p, 'a> {
    /// The node itself, for what is below it; `None` where it has no old value.
    fn above(self, schema: &'a Schema, value: &'a Value) -> Option<Above<'a>> {
        self.current.map(|old| Above { schema, value, old, unchanged: OnceCell::new() })
    }

    /// For a part of the node, which was `old` before.
    fn below<'q>(self, above: Option<&'q Above<'a>>, old: Option<&'a Value>) -> Ratchet<'q, 'a>
    where
        'p: 'q,
    {
        match above {
            None => self,
            Some(above) => Ratchet { current: old, parent: Some(above) },
        }
    }

    /// Whether nothing changed here, so that old faults may stay. Those of the whole object never may: each write counts as a
    /// change of it upstream.
    fn holds(self, schema: &Schema, value: &Value) -> bool {
        match (self.current, self.parent) {
            (Some(_), None) => false,
            (Some(old), Some(_)) => unchanged(schema, value, old),
            (None, Some(above)) => *above.unchanged.get_or_init(|| unchanged(above.schema, above.value, above.old)),
            (None, None) => false,
        }
    }
}

impl Schema {
    /// Faults of all CEL rules in this subtree.
    pub(super) fn rule_faults(&self, value: &Value, old: Option<&Value>, path: &Path, found: &mut Findings) {
        let ratchet = Ratchet { current: old, parent: None };
        Walk { found, left: Some(cel::meter::OBJECT_MAX) }.node(self, self, value, old, ratchet, path);
    }
}

struct Walk<'f> {
    found: &'f mut Findings,
    /// What the object's rules may still cost. `None`: no more rules are run, and why has been said.
    left: Option<u64>,
}

impl Walk<'_> {
    /// Evaluates the rules of `stated` for a value of `node`: the same schema, or a branch of its `allOf`.
    fn node<'a>(
        &mut self,
        stated: &'a Schema,
        node: &'a Schema,
        value: &'a Value,
        old: Option<&'a Value>,
        ratchet: Ratchet<'_, 'a>,
        path: &Path,
    ) {
        if value.is_null() || self.left.is_none() || !stated.facts().rules {
            return;
        }
        let old = old.filter(|old| !old.is_null());
        if !stated.rules.is_empty() {
            self.rules(stated, node, value, old, ratchet, path);
        }
        for branch in stated.constraints.iter().flat_map(|c| &c.all_of) {
            let ratchet = Ratchet { current: None, parent: ratchet.parent };
            self.node(branch, node, value, old, ratchet, path);
        }
        match value {
            Value::Array(items) => {
                let (Some(stated), Some(element)) = (&stated.items, &node.items) else { return };
                let above = ratchet.above(node, value);
                let (olds, currents) = (Correlation::new(node, old), Correlation::new(node, ratchet.current));
                for (i, item) in items.iter().enumerate() {
                    let below = ratchet.below(above.as_ref(), currents.of(item));
                    self.node(stated, element, item, olds.of(item), below, &path.index(i));
                }
            }
            Value::Object(members) => {
                let above = ratchet.above(node, value);
                for (name, member) in members {
                    let before = |old: &'a Value| old.get(name);
                    let (child, schema, at) = match (stated.properties.get(name), node.properties.get(name)) {
                        (Some(stated), Some(schema)) => (stated, schema, None),
                        (_, Some(_)) => continue,
                        _ => match (&stated.additional, &node.additional) {
                            (Some(stated), Some(schema)) => (stated, schema, Some(name)),
                            _ => continue,
                        },
                    };
                    // Changes of these cannot be seen: both sides were brought to the same version.
                    let hidden = ratchet.parent.is_none() && matches!(name.as_str(), "apiVersion" | "kind");
                    let below = if hidden {
                        Ratchet { current: None, parent: None }
                    } else {
                        ratchet.below(above.as_ref(), ratchet.current.and_then(before))
                    };
                    let at = at.map_or_else(|| path.child(name), |key| path.key(key));
                    self.node(child, schema, member, old.and_then(before), below, &at);
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    fn rules(
        &mut self,
        stated: &Schema,
        node: &Schema,
        value: &Value,
        old: Option<&Value>,
        ratchet: Ratchet<'_, '_>,
        path: &Path,
    ) {
        let kind = node.kind.as_str();
        let programs = stated.rules.programs();
        let (this, before) = (OnceCell::new(), OnceCell::new());
        let this = || this.get_or_init(|| cel::to_cel(value, Some(node))).clone();
        let uses_old = programs.iter().any(|p| p.uses_old);
        let before = || {
            let old = old.filter(|_| uses_old);
            before.get_or_init(|| old.map(|old| cel::to_cel(old, Some(node)))).clone()
        };
        for (rule, program) in stated.rules.iter().zip(programs) {
            if rule.rule.trim().is_empty() {
                continue;
            }
            let expression = match &program.rule {
                Ok(expression) => expression,
                Err(why) => {
                    self.found.errors.push(Error::invalid(path, kind, format!("rule compile error: {why}")));
                    continue;
                }
            };
            if program.uses_old && old.is_none() && !rule.optional_old_self {
                continue;
            }
            // most rules of most kinds, and most parts stay as they are
            if program.is_immutability && !rule.optional_old_self && old == Some(value) {
                continue;
            }
            let scope = || {
                let mut scope = vec![("self", this())];
                if rule.optional_old_self {
                    scope.push(("oldSelf", cel::optional(before())));
                } else if let Some(before) = before() {
                    scope.push(("oldSelf", before));
                }
                scope
            };
            let Some(left) = self.left else { return };
            let outcome = expression.run_measured(scope()).map(|(result, cost)| (cel::to_json(&result), cost));
            if let Ok((_, cost)) = &outcome {
                // an evaluation without a loop is not free
                let Some(left) = left.checked_sub(cost.saturating_add(1)) else {
                    self.left = None;
                    let why =
                        "validation failed due to running out of cost budget, no further validation rules will be run";
                    return self.found.errors.push(Error::invalid(path, kind, why));
                };
                self.left = Some(left);
            }
            match outcome {
                Ok((Value::Bool(true), _)) => continue,
                Ok(_) => {}
                Err(error) if error.to_string() == cel::meter::EXCEEDED => {
                    self.left = None;
                    let why = format!(
                        "'{error}': no further validation rules will be run due to call cost exceeds limit for rule: {}",
                        rule.shown()
                    );
                    return self.found.errors.push(Error::invalid(path, kind, why));
                }
                Err(error) => {
                    let text = error.to_string();
                    let shown = rule.shown();
                    let why = if text.starts_with("no such overload") {
                        format!(
                            "'{text}': call arguments did not match a supported operator, function or macro signature \
                             for rule: {shown}"
                        )
                    } else {
                        format!("{text} evaluating rule: {shown}")
                    };
                    self.found.errors.push(Error::invalid(path, kind, why));
                    continue;
                }
            }
            let said = program.message.as_ref().and_then(|message| message_of(&message.run(scope()).ok()?));
            let detail = said.unwrap_or_else(|| rule.fixed_message());
            let at = match field_path(&rule.field_path, node) {
                Some(relative) => path.child(&relative),
                None => path.clone(),
            };
            let shown = (!matches!(node.kind, Type::Object | Type::Array)).then(|| value.clone());
            let (kind, detail) = match rule.reason.as_str() {
                "FieldValueForbidden" => (ErrorType::Forbidden, detail),
                "FieldValueRequired" => (ErrorType::Required, detail),
                "FieldValueDuplicate" => (ErrorType::Duplicate, String::new()),
                _ => (ErrorType::Invalid, detail),
            };
            let error = Error { kind, field: at, value: shown, detail, shown: None };
            if !program.uses_old && ratchet.holds(node, value) {
                self.found.warnings.push(error.to_string());
            } else {
                self.found.errors.push(error);
            }
        }
    }
}

impl Rule {
    /// The rule as messages about it name it.
    fn shown(&self) -> &str {
        if self.message.is_empty() { self.rule.trim() } else { self.message.trim() }
    }

    fn fixed_message(&self) -> String {
        if self.message.is_empty() {
            format!("failed rule: {}", self.rule.trim())
        } else {
            self.message.trim().to_owned()
        }
    }
}

/// What a message expression yields, where that can be a message.
fn message_of(result: &kube_cel::cel::Value) -> Option<String> {
    match cel::to_json(result) {
        Value::String(text) => {
            let text = text.trim();
            (!text.is_empty() && text.len() <= MESSAGE_BYTES_MAX && !text.contains('\n')).then(|| text.to_owned())
        }
        _ => None,
    }
}

/// A rule's `fieldPath` (`.a.b`, `.m['k']`) as the rest of a field's path (`a.b`, `m[k]`); `None` where it is empty or
/// leads nowhere in the schema.
pub(crate) fn field_path(text: &str, schema: &Schema) -> Option<String> {
    let mut out = String::new();
    let mut node = schema;
    let mut rest = text.trim();
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let (name, after) = if let Some(after) = rest.strip_prefix("['") {
            let mut name = String::new();
            let mut chars = after.char_indices();
            loop {
                match chars.next()? {
                    (_, '\\') => name.push(chars.next()?.1),
                    (at, '\'') => break (name, after[at..].strip_prefix("']")?),
                    (_, c) => name.push(c),
                }
            }
        } else {
            let after = rest.strip_prefix('.')?;
            let end = after.find(['.', '[']).unwrap_or(after.len());
            let (name, after) = after.split_at(end);
            if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
                return None;
            }
            (name.to_owned(), after)
        };
        rest = after;
        if let Some(property) = node.properties.get(&name) {
            if !out.is_empty() {
                out.push('.');
            }
            out += &name;
            node = property;
        } else if node.properties.is_empty() {
            node = node.additional.as_ref()?;
            out += &format!("[{name}]");
        } else {
            return None;
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests;
