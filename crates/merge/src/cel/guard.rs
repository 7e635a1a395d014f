//! Functions whose cost or result grows with what they are given: an evaluation pays for it before they are called.
//!
//! The library counts nothing, and some of its functions make as much as they are told (`lists.range(1000000000000)`,
//! `'x'.replace('x', large)`). So an operand of such a call is handed through a function that counts it first.

use super::Cel;
use super::meter::{call, node, spend};
use crate::pattern::Pattern;
use kube_cel::cel::common::ast::{CallExpr, Expr, IdedExpr, LiteralValue, operators};
use kube_cel::cel::extractors::{Arguments, This};
use kube_cel::cel::{Context, ExecutionError};
use std::sync::Arc;

const GUARD: &str = "@guard";
/// Bytes of text, or elements, that are looked at for one unit (upstream's factor for texts).
const READ_FOR_ONE: u64 = 10;
/// Bytes or elements that are made for one unit.
const MADE_FOR_ONE: u64 = 20;
/// Bytes of text that are copied as fast as one element.
const TEXT_FOR_ELEMENT: u64 = 100;
/// Digits that `format` may be asked for.
const PRECISION_MAX: u64 = 1000;
/// What compiling a pattern costs beside reading the text, for each of its bytes; a count (`{1000}`) stands for as many.
const PATTERN_COST: u64 = 2;

/// Names that stand before a function and are no value.
const NAMESPACES: [&str; 9] = ["math", "strings", "optional", "sets", "lists", "base64", "format", "ip", "jsonpatch"];

/// Functions that read one operand once: a text from end to end, a list's elements as they stand.
const LINEAR: [&str; 28] = [
    "contains",
    "startsWith",
    "endsWith",
    "split",
    "lowerAscii",
    "upperAscii",
    "trim",
    "substring",
    "charAt",
    "reverse",
    "size",
    "string",
    "bytes",
    "int",
    "uint",
    "double",
    "quantity",
    "isQuantity",
    "url",
    "isURL",
    "duration",
    "timestamp",
    "sum",
    "min",
    "max",
    "isSorted",
    "flatten",
    "slice",
];

/// How much a call costs, by its operands.
#[derive(Clone, Copy)]
enum Cost {
    /// The operand is read once.
    Linear,
    /// The operand is read with all that is in it.
    Deep,
    /// Each element of one is compared with each of the other, or of itself.
    Product,
    /// The text may be replaced by longer ones.
    Replace,
    /// Texts of a list, with one between each two.
    Join,
    /// A pattern is compiled and looked for.
    Pattern,
    /// A pattern is looked for that may have been compiled.
    Compiled,
    /// Numbers are written with as many digits as are asked for.
    Format,
    /// As many elements as the number says.
    Range,
}

const COSTS: [Cost; 9] = [
    Cost::Linear,
    Cost::Deep,
    Cost::Product,
    Cost::Replace,
    Cost::Join,
    Cost::Pattern,
    Cost::Compiled,
    Cost::Format,
    Cost::Range,
];

/// Puts the guard before the operand that counts. `expr`: a call, whose operands have been done.
pub(super) fn guard(expr: &mut IdedExpr) {
    let id = expr.id;
    let Expr::Call(inner) = &mut expr.expr else { return };
    let namespace = match inner.target.as_deref().map(|target| &target.expr) {
        Some(Expr::Ident(name)) if NAMESPACES.contains(&name.as_str()) => name.clone(),
        _ => String::new(),
    };
    let member = inner.target.is_some() && namespace.is_empty();
    let (cost, first) = match (namespace.as_str(), inner.func_name.as_str()) {
        ("lists", "range") => (Cost::Range, 0),
        ("sets", _) => (Cost::Product, 0),
        ("base64" | "format" | "ip" | "jsonpatch" | "strings", _) => (Cost::Linear, 0),
        ("", operators::EQUALS | operators::NOT_EQUALS) => (Cost::Deep, 0),
        ("", operators::IN) => (Cost::Deep, 1),
        ("", "indexOf" | "lastIndexOf") if member => (Cost::Deep, 0),
        ("", "distinct") if member => (Cost::Product, 0),
        ("", "replace") if member => (Cost::Replace, 0),
        ("", "join") if member => (Cost::Join, 0),
        ("", "matches") => (Cost::Compiled, 0),
        ("", "find" | "findAll") => (Cost::Pattern, 0),
        ("", "format") if member => (Cost::Format, 0),
        ("", "sort") if member => (Cost::Deep, 0),
        ("", name) if LINEAR.contains(&name) => (Cost::Linear, 0),
        _ => return,
    };
    let others: Vec<IdedExpr> = match cost {
        Cost::Linear | Cost::Deep | Cost::Format | Cost::Range => Vec::new(),
        _ => inner.args.iter().skip(usize::from(!member)).cloned().collect(),
    };
    let Some(operand) = operand(inner, member, first) else { return };
    if matches!(&operand.expr, Expr::Literal(_)) && others.is_empty() && !matches!(cost, Cost::Range | Cost::Format) {
        return; // as long as it is written
    }
    let value = std::mem::replace(operand, node(id, Expr::Unspecified));
    let kind = node(id, Expr::Literal(LiteralValue::Int(i64::from(cost as u8).into())));
    *operand = call(id, GUARD, [kind, value].into_iter().chain(others).collect());
}

fn operand(call: &mut CallExpr, member: bool, first: usize) -> Option<&mut IdedExpr> {
    if member { call.target.as_deref_mut() } else { call.args.get_mut(first) }
}

pub(super) fn add_functions(context: &mut Context<'_>) {
    context.add_function("matches", |This(text): This<Arc<String>>, pattern: Arc<String>| matches(&text, &pattern));
    context.add_function(GUARD, |Arguments(given): Arguments| -> Result<Cel, ExecutionError> {
        let [Cel::Int(kind), value, others @ ..] = given.as_slice() else {
            return Err(ExecutionError::NoSuchOverload);
        };
        let cost = usize::try_from(*kind).ok().and_then(|kind| COSTS.get(kind)).copied().unwrap_or(Cost::Deep);
        spend(units(cost, value, others))?;
        Ok(value.clone())
    });
}

fn units(cost: Cost, value: &Cel, others: &[Cel]) -> u64 {
    let len = |value: &Cel| match value {
        Cel::String(text) => text.len() as u64,
        Cel::Bytes(bytes) => bytes.len() as u64,
        Cel::List(items) => items.len() as u64,
        _ => 0,
    };
    let other = |at: usize| others.get(at).map_or(0, len);
    match cost {
        Cost::Linear => len(value) / READ_FOR_ONE,
        Cost::Deep => match value {
            // looked up, not searched
            Cel::Map(_) if others.is_empty() => 1,
            value => deep(value) / READ_FOR_ONE,
        },
        Cost::Product => {
            let all = deep(value);
            let with = others.first().map_or(all, deep);
            all.saturating_mul(with) / READ_FOR_ONE
        }
        Cost::Replace => {
            let (Cel::String(text), Some(Cel::String(from)), Some(Cel::String(to))) =
                (value, others.first(), others.get(1))
            else {
                return 0;
            };
            // between any two letters, if there is nothing to be replaced
            let times = match from.len() {
                0 => text.len().saturating_add(1),
                from => text.len() / from,
            };
            let times =
                if times.saturating_mul(to.len()) > text.len() { text.matches(from.as_str()).count() } else { times };
            let made = (times as u64).saturating_mul(to.len() as u64).saturating_add(text.len() as u64);
            made / MADE_FOR_ONE
        }
        Cost::Join => {
            let Cel::List(items) = value else { return 0 };
            let texts: u64 = items.iter().map(len).fold(0, u64::saturating_add);
            let made = texts.saturating_add((items.len() as u64).saturating_mul(other(0)));
            made / MADE_FOR_ONE
        }
        Cost::Pattern | Cost::Compiled => {
            let Some(Cel::String(pattern)) = others.first() else { return 0 };
            let compiling = if matches!(cost, Cost::Pattern) { compiling(pattern) } else { 0 };
            let reading = (len(value) / READ_FOR_ONE).saturating_mul(1 + pattern.len() as u64 / 4);
            compiling.saturating_add(reading)
        }
        Cost::Format => {
            let Cel::String(text) = value else { return 0 };
            let digits = numbers(text).map(|n| if n > PRECISION_MAX { u64::MAX } else { n });
            digits.fold(text.len() as u64 / READ_FOR_ONE, u64::saturating_add)
        }
        Cost::Range => match value {
            Cel::Int(count) => u64::try_from(*count).unwrap_or(0),
            _ => 0,
        },
    }
}

/// What comparing a value costs at most: a text's bytes, and one for each value in it.
fn deep(value: &Cel) -> u64 {
    let mut sum: u64 = 0;
    let mut left = vec![value];
    while let Some(value) = left.pop() {
        sum = sum.saturating_add(match value {
            Cel::String(text) => 1 + text.len() as u64,
            Cel::Bytes(bytes) => 1 + bytes.len() as u64,
            _ => 1,
        });
        match value {
            Cel::List(items) => left.extend(items.iter()),
            Cel::Map(map) => left.extend(map.map.values()),
            _ => {}
        }
    }
    sum
}

/// What it costs to keep a value, with all that is in it.
pub(super) fn kept(value: &Cel) -> u64 {
    deep(value) / MADE_FOR_ONE
}

/// What a copy of a value costs: the library copies texts, too, a hundred bytes as fast as one element.
pub(super) fn copied(value: &Cel) -> u64 {
    match value {
        Cel::String(text) => text.len() as u64 / MADE_FOR_ONE,
        Cel::Bytes(bytes) => bytes.len() as u64 / MADE_FOR_ONE,
        Cel::List(items) => {
            let within = items.iter().map(|item| match item {
                Cel::List(_) | Cel::Map(_) => deep(item),
                Cel::String(text) => 1 + text.len() as u64 / TEXT_FOR_ELEMENT,
                _ => 1,
            });
            within.fold(0, u64::saturating_add) / MADE_FOR_ONE
        }
        _ => 0,
    }
}

fn compiling(pattern: &str) -> u64 {
    repeated(pattern).saturating_mul(PATTERN_COST)
}

/// Whether a text matches a pattern. Compiling one costs far more than looking for it, and rules have few.
fn matches(text: &str, pattern: &str) -> Result<bool, ExecutionError> {
    let known = match Pattern::known(pattern) {
        Some(known) => known,
        None => {
            spend(compiling(pattern))?;
            Pattern::compile(pattern)
        }
    };
    let made = known.map_err(|error| {
        ExecutionError::function_error("matches", format!("'{pattern}' not a valid regex:\n{error}"))
    })?;
    Ok(made.is_match(text))
}

/// How long a pattern is with its counts written out; the counts of groups in groups multiply.
fn repeated(pattern: &str) -> u64 {
    let counts = pattern.split('{').skip(1).filter_map(|rest| numbers(rest.split('}').next()?).max());
    counts.fold(pattern.len() as u64, |length, count| length.saturating_mul(count.max(1)))
}

/// The numbers in a text. One that is too large counts as the largest.
fn numbers(text: &str) -> impl Iterator<Item = u64> + '_ {
    let digits = text.split(|c: char| !c.is_ascii_digit()).filter(|digits| !digits.is_empty());
    digits.map(|digits| digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::super::meter::EXCEEDED;
    use crate::cel::Expression;
    use serde_json::{Value, json};

    fn run(source: &str) -> Result<Value, String> {
        let object =
            json!({"s": "x".repeat(100_000), "l": (0..10_000).collect::<Vec<_>>(), "n": 1_000_000_000_000_i64});
        let expression = Expression::compile(source).map_err(|error| error.to_string())?;
        expression.evaluate(&[("object", &object)]).map_err(|error| error.to_string())
    }

    #[test]
    fn what_would_fill_the_memory_or_the_day_ends() {
        for source in [
            "lists.range(object.n).size() > 0",
            "lists.range(1000000000000).size() > 0",
            "object.s.replace('x', object.s).size() > 0",
            "object.s.replace('', object.s).size() > 0",
            "object.l.map(x, object.s).join(object.s).size() > 0",
            "object.l.all(x, !object.s.contains('y'))",
            "object.l.all(x, !(object.n in object.l))",
            "object.l.all(x, object.l == object.l)",
            "object.l.all(x, !object.s.matches('y$'))",
            "object.l.all(x, object.l.indexOf(-1) < 0)",
            "object.l.all(x, object.s.split('').size() > 0)",
            "object.l.all(x, object.s.lowerAscii() != '')",
            "sets.contains(object.l, object.l)",
            "object.l.distinct().size() > 0",
            "'%.1000000000f'.format([1.5]) == ''",
            "object.l.all(x, !'a'.matches('((a{900}){900}){900}'))",
        ] {
            assert_eq!(run(source), Err(EXCEEDED.to_owned()), "{source}");
        }
    }

    #[test]
    fn usual_calls_do_not_notice() {
        for source in [
            "lists.range(1000).size() == 1000",
            "object.s.replace('x', 'yz').size() == 200000",
            "lists.range(1000).map(x, string(x)).join(', ').size() > 0",
            "object.l.all(x, 'a-b-c'.matches('^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$'))",
            "object.l.all(x, x in [x, 1, 2] && string(x).size() > 0)",
            "sets.contains([1, 2, 3], [1, 2])",
            "object.l == object.l",
            "'%.2f'.format([1.5]) == '1.50'",
            "math.greatest(1, 2) == 2 && 'abc'.contains('b') && quantity('1Gi').isGreaterThan(quantity('1Mi'))",
            "base64.decode(base64.encode(b'x')) == b'x'",
            "optional.of(1).orValue(2) == 1",
            "ip('127.0.0.1').family() == 4 && url('https://a/b').getHost() == 'a'",
        ] {
            assert_eq!(run(source), Ok(json!(true)), "{source}");
        }
    }
}
