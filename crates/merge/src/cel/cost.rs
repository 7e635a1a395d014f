//! What a rule may cost at worst (`k8s.io/apiserver/pkg/cel`, cel-go's cost estimation).
//!
//! Only good for telling rules that are hopeless, because nothing bounds the values they look at, from all others: the
//! estimate stays below upstream's where it is unsure. Units are cel-go's, about one per step of evaluation.

use super::{Expression, NUMERIC_EQUALS};
use crate::schema::{Schema, Type};
use kube_cel::cel::common::ast::{CallExpr, ComprehensionExpr, Expr, IdedExpr, LiteralValue, operators};

/// Largest request, bytes: what has no bound of its own is bounded by this.
const REQUEST_BYTES_MAX: f64 = 3.0 * 1024.0 * 1024.0;

/// Size of what is made by a function of which upstream bounds no result: all that its numbers can hold (`u64::MAX`).
const UNKNOWN: f64 = 1.8e19;

/// Cost of looking at one character.
const PER_CHARACTER: f64 = 0.1;

/// What an expression yields at most, and what that costs.
#[derive(Clone, Copy)]
struct Estimate<'s> {
    cost: f64,
    /// Characters or elements; 1 where neither.
    size: f64,
    /// A string, so that adding to it copies it.
    text: bool,
    schema: Option<&'s Schema>,
}

impl<'s> Estimate<'s> {
    fn plain(cost: f64) -> Self {
        Self { cost, size: 1.0, text: false, schema: None }
    }

    fn value(schema: &'s Schema) -> Self {
        Self { cost: 1.0, size: size_max(schema), text: schema.kind == Type::String, schema: Some(schema) }
    }
}

/// Fewest bytes of JSON that a value can take.
fn bytes_min(schema: &Schema) -> f64 {
    match schema.kind {
        Type::Any | Type::Integer | Type::Number | Type::IntOrString => 1.0,
        Type::Boolean => 4.0,
        Type::String | Type::Array => 2.0,
        Type::Object => {
            let required = schema.required.iter().filter_map(|name| Some((name, schema.properties.get(name)?)));
            let required = required.filter(|(_, property)| property.default.is_none());
            required.fold(2.0, |sum, (name, property)| sum + f64_of(name.len()) + 4.0 + bytes_min(property))
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn f64_of(count: usize) -> f64 {
    count as f64
}

#[expect(clippy::cast_precision_loss, reason = "an estimate")]
fn bound(count: Option<u64>) -> Option<f64> {
    count.map(|count| count as f64)
}

/// Most characters of a string, or elements of a list or map.
fn size_max(schema: &Schema) -> f64 {
    let constraints = schema.constraints.as_deref();
    match schema.kind {
        Type::String => {
            let enumerated = constraints.filter(|c| !c.enumeration.is_empty()).map(|c| {
                let longest = c.enumeration.iter().filter_map(|v| v.as_str()).map(str::len).max();
                f64_of(longest.unwrap_or(1))
            });
            let formatted = schema.format.as_ref().map(|_| 40.0);
            let limit = bound(constraints.and_then(|c| c.max_length)).or(enumerated).or(formatted);
            limit.unwrap_or(REQUEST_BYTES_MAX - 2.0)
        }
        Type::Array => items_max(schema).unwrap_or_else(|| {
            let each = schema.items.as_deref().map_or(1.0, bytes_min) + 1.0;
            (REQUEST_BYTES_MAX - 2.0) / each
        }),
        Type::Object => match &schema.additional {
            Some(values) => {
                properties_max(schema).unwrap_or_else(|| (REQUEST_BYTES_MAX - 2.0) / (bytes_min(values) + 6.0))
            }
            None => 1.0,
        },
        Type::Any | Type::Integer | Type::Number | Type::Boolean | Type::IntOrString => 1.0,
    }
}

fn items_max(schema: &Schema) -> Option<f64> {
    bound(schema.constraints.as_deref().and_then(|c| c.max_items))
}

fn properties_max(schema: &Schema) -> Option<f64> {
    bound(schema.constraints.as_deref().and_then(|c| c.max_properties))
}

/// How often a node's rules run at most: once for each value in the lists and maps around it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cardinality(Option<f64>);

impl Cardinality {
    pub(crate) fn once() -> Self {
        Self(Some(1.0))
    }

    /// For the elements of a list, or the values of a map.
    pub(crate) fn of_elements(self, holder: &Schema) -> Self {
        let most = if holder.kind == Type::Array { items_max(holder) } else { properties_max(holder) };
        Self(self.0.zip(most).map(|(outer, inner)| outer * inner))
    }

    fn times(self, node: &Schema) -> f64 {
        self.0.unwrap_or_else(|| REQUEST_BYTES_MAX / (bytes_min(node) + 1.0))
    }
}

/// What all runs of a rule of `node` on one object may cost.
pub(crate) fn of_rule(source: &str, node: &Schema, cardinality: Cardinality) -> f64 {
    of_message(source, node) * cardinality.times(node)
}

/// What one run of a rule or a message of `node` may cost.
pub(crate) fn of_message(source: &str, node: &Schema) -> f64 {
    let Ok(expression) = Expression::compile(source) else { return 0.0 };
    let this = Estimate::value(node);
    let mut scope = Scope { names: vec![("self".to_owned(), this), ("oldSelf".to_owned(), this)] };
    scope.estimate(expression.ast()).cost
}

struct Scope<'s> {
    names: Vec<(String, Estimate<'s>)>,
}

impl<'s> Scope<'s> {
    fn estimate(&mut self, expr: &IdedExpr) -> Estimate<'s> {
        match &expr.expr {
            Expr::Literal(LiteralValue::String(text)) => {
                Estimate { cost: 0.0, size: f64_of(text.inner().len()), text: true, schema: None }
            }
            Expr::Unspecified | Expr::Literal(_) | Expr::Struct(_) | Expr::Map(_) => Estimate::plain(0.0),
            Expr::Ident(name) => {
                let known = self.names.iter().rev().find(|(known, _)| known == name);
                known.map_or(Estimate::plain(1.0), |(_, estimate)| Estimate { cost: 1.0, ..*estimate })
            }
            Expr::Select(select) => {
                let of = self.estimate(&select.operand);
                let unescaped = |schema: &'s Schema| {
                    let named = |name: &str| {
                        name == select.field || super::escape_field(name).as_deref() == Some(&select.field)
                    };
                    let property = schema.properties.iter().find(|(name, _)| named(name)).map(|(_, s)| s);
                    property.or(schema.additional.as_ref())
                };
                match of.schema.and_then(unescaped) {
                    Some(child) if !select.test => Estimate { cost: of.cost + 1.0, ..Estimate::value(child) },
                    Some(_) | None => Estimate::plain(of.cost + 1.0),
                }
            }
            Expr::List(list) => {
                let cost = list.elements.iter().map(|item| self.estimate(item).cost).sum();
                Estimate { cost, size: f64_of(list.elements.len()), text: false, schema: None }
            }
            Expr::Call(call) => self.call(call),
            Expr::Comprehension(inner) => self.comprehension(inner),
        }
    }

    fn comprehension(&mut self, inner: &ComprehensionExpr) -> Estimate<'s> {
        let range = self.estimate(&inner.iter_range);
        let init = self.estimate(&inner.accu_init);
        let item = match range.schema {
            Some(schema) if schema.kind == Type::Array => schema.items.as_deref().map(Estimate::value),
            Some(_) | None => None,
        };
        let depth = self.names.len();
        self.names.push((inner.accu_var.clone(), init));
        self.names.push((inner.iter_var.clone(), item.unwrap_or(Estimate::plain(1.0))));
        let each = self.estimate(&inner.loop_cond).cost + self.estimate(&inner.loop_step).cost;
        let result = self.estimate(&inner.result);
        self.names.truncate(depth);
        let cost = range.cost + init.cost + range.size * each + result.cost;
        Estimate { cost, size: range.size, text: false, schema: None }
    }

    fn call(&mut self, call: &CallExpr) -> Estimate<'s> {
        let target = call.target.as_ref().map(|target| self.estimate(target));
        let args: Vec<Estimate<'s>> = call.args.iter().map(|arg| self.estimate(arg)).collect();
        let below: f64 = target.iter().chain(&args).map(|e| e.cost).sum();
        let on = target.or(args.first().copied()).unwrap_or(Estimate::plain(0.0));
        let last = args.last().copied().unwrap_or(Estimate::plain(0.0));
        let own = match (call.func_name.as_str(), args.as_slice()) {
            (operators::CONDITIONAL, [condition, a, b]) => {
                let larger = if a.cost >= b.cost { a } else { b };
                return Estimate { cost: condition.cost + larger.cost, ..*larger };
            }
            (operators::INDEX | operators::OPT_INDEX, [of, _]) => {
                let inner = of.schema.and_then(|s| s.items.as_deref().or(s.additional.as_deref()));
                return inner.map_or(Estimate::plain(below + 1.0), |inner| Estimate {
                    cost: below + 1.0,
                    ..Estimate::value(inner)
                });
            }
            (operators::EQUALS | operators::NOT_EQUALS | NUMERIC_EQUALS, [a, b])
            | (operators::LESS | operators::LESS_EQUALS | operators::GREATER | operators::GREATER_EQUALS, [a, b]) => {
                (a.size.min(b.size) * PER_CHARACTER).max(1.0)
            }
            (operators::IN, [_, of]) => of.size,
            (operators::ADD, [a, b]) if a.text || b.text => {
                let size = a.size + b.size;
                return Estimate { cost: below + size * PER_CHARACTER, size, text: true, schema: None };
            }
            ("string", [of]) if of.schema.is_none_or(|schema| schema.kind != Type::String) => {
                return Estimate { cost: below + 1.0, size: UNKNOWN, text: true, schema: None };
            }
            ("contains", _) => (on.size * PER_CHARACTER) * (last.size * PER_CHARACTER).max(1.0),
            ("matches" | "find" | "findAll", _) => (on.size * PER_CHARACTER) * (last.size * 0.25).max(1.0),
            ("startsWith" | "endsWith", _) => last.size * PER_CHARACTER,
            (
                "lowerAscii" | "upperAscii" | "trim" | "replace" | "split" | "indexOf" | "lastIndexOf" | "substring",
                _,
            ) => on.size * PER_CHARACTER,
            _ => 1.0,
        };
        let keeps_size = matches!(
            call.func_name.as_str(),
            "lowerAscii" | "upperAscii" | "trim" | "replace" | "substring" | "split" | "distinct" | "sort" | "reverse"
        );
        let size = if keeps_size { on.size } else { 1.0 };
        Estimate { cost: below + own, size, text: keeps_size && on.text, schema: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn cost(schema: Value, rule: &str, around: Option<Value>) -> f64 {
        let read = |value: &Value| Schema::node_from_openapi(value).expect("a schema");
        let cardinality = around.map_or(Cardinality::once(), |list| Cardinality::once().of_elements(&read(&list)));
        of_rule(rule, &read(&schema), cardinality)
    }

    #[test]
    fn only_the_unbounded_is_hopeless() {
        const HOPELESS: f64 = 1e10;
        let texts = json!({"type": "array", "items": {"type": "string"}});
        let few = json!({"type": "array", "maxItems": 10, "items": {"type": "string", "maxLength": 30}});
        assert!(cost(texts.clone(), "self.all(x, self.all(y, x == y))", None) > HOPELESS);
        assert!(cost(few, "self.all(x, self.all(y, x == y))", None) < 1e5);
        assert!(cost(json!({"type": "string"}), "self == oldSelf", Some(texts)) > HOPELESS);
        assert!(cost(json!({"type": "string"}), "self == oldSelf", None) < 1e6);
        let list = json!({"type": "array", "maxItems": 10, "items": {"type": "string"}});
        assert!(cost(json!({"type": "string", "maxLength": 20}), "self.contains('abcdefgh')", Some(list)) < 1e4);
        // nobody says how long the text of a number is, and adding to it copies it
        let number = json!({"type": "integer"});
        assert!(cost(number.clone(), "string(self) + '!' == 'a'", None) > HOPELESS);
        assert!(cost(number.clone(), "string(self) == 'a'", None) < 10.0);
        assert!(cost(number, "self + self == 2", None) < 10.0);
        assert!(cost(json!({"type": "string", "maxLength": 20}), "self + '!' == 'a'", None) < 10.0);
    }
}
