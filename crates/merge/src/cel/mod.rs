//! CEL expressions, as CRD rules and admission policies use them: compiling, Kubernetes' functions, values, error texts.
//!
//! The language comes from the crates `cel` and `kube-cel`. What this adds: optional syntax and `cel.bind`, `type()`,
//! names of fields escaped as Kubernetes escapes them, numbers typed by the schema, and errors in cel-go's words.

mod check;
pub(crate) mod cost;
mod depth;
mod guard;
pub(crate) mod meter;

pub(crate) use check::{check_message, check_rule};

use crate::schema::{Schema, Type};
use base64::Engine;
use kube_cel::KubeCelExt;
use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, IdedExpr, ListExpr, LiteralValue, operators,
};
use kube_cel::cel::extractors::This;
use kube_cel::cel::objects::{Key, Map as CelMap, OptionalValue};
use kube_cel::cel::parser::Parser;
use kube_cel::cel::{Context, ExecutionError, Value as Cel};
use serde_json::{Map, Value};
use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, LazyLock};

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

/// All functions. Building this is costly, evaluating in a scope of it is not.
static ROOT: LazyLock<Context<'static>> = LazyLock::new(|| {
    let mut context = Context::default().with_all();
    context.add_function("type", |value: Cel| -> Result<Cel, ExecutionError> { Ok(type_marker(&value)) });
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
            other => other,
        })
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
    for name in TYPE_NAMES {
        context.add_variable_from_value(name, marker(name));
    }
    context
});

/// `==` where a side is a number written out: `2.0 == 2` holds in CEL, not in the library.
const NUMERIC_EQUALS: &str = "@numericEquals";
/// Around the argument of `string()`, which the library cannot apply to booleans.
const UNBOOL: &str = "@unbool";
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

/// A syntax error as cel-go shows it: the place (line and column from 1), the line, and a mark under the column.
fn syntax_error(source: &str, (line, column): (isize, isize), message: &str) -> String {
    let text = usize::try_from(line - 1).ok().and_then(|line| source.lines().nth(line)).unwrap_or_default();
    let dots = ".".repeat(usize::try_from(column - 1).unwrap_or_default());
    format!("ERROR: <input>:{line}:{column}: {message}\n | {text}\n | {dots}^")
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
        let parsed = Parser::new().enable_optional_syntax(true).parse(source);
        let mut expr = parsed.map_err(|errors| {
            let texts: Vec<String> = errors.errors.iter().map(|e| syntax_error(source, e.pos, &e.msg)).collect();
            CelError(texts.join("\n"))
        })?;
        expand(&mut expr);
        let mut metered = expr.clone();
        meter::meter(&mut metered);
        Ok(Self { expr: Arc::new(expr), metered: Arc::new(metered), deep, source: source.into() })
    }

    /// The text that was compiled.
    pub fn source(&self) -> &str {
        &self.source
    }

    pub(crate) fn ast(&self) -> &IdedExpr {
        &self.expr
    }

    /// Whether the expression mentions the variable `name` outside of macros that define it themselves.
    pub fn mentions(&self, name: &str) -> bool {
        let mut found = BTreeSet::new();
        free_variables(&self.expr, &mut Vec::new(), &mut found);
        found.contains(name)
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

    /// As [`Expression::evaluate`], and what it cost, failed or not.
    pub fn evaluate_measured(&self, variables: &[(&str, &Value)]) -> (Result<Value, CelError>, u64) {
        let scope: Vec<(&str, Cel)> = variables.iter().map(|(name, value)| (*name, to_cel(value, None))).collect();
        let (result, cost) = self.resolve(scope);
        (result.map(|value| to_json(&value)), cost)
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

/// Variables that `expr` does not define itself.
fn free_variables(expr: &IdedExpr, bound: &mut Vec<String>, found: &mut BTreeSet<String>) {
    match &expr.expr {
        Expr::Unspecified | Expr::Literal(_) => {}
        Expr::Ident(name) => {
            if !bound.contains(name) {
                found.insert(name.clone());
            }
        }
        Expr::Select(select) => free_variables(&select.operand, bound, found),
        Expr::Call(call) => {
            for part in call.target.iter().map(AsRef::as_ref).chain(&call.args) {
                free_variables(part, bound, found);
            }
        }
        Expr::List(list) => list.elements.iter().for_each(|item| free_variables(item, bound, found)),
        Expr::Map(map) => map.entries.iter().for_each(|entry| free_in_entry(entry, bound, found)),
        Expr::Struct(object) => object.entries.iter().for_each(|entry| free_in_entry(entry, bound, found)),
        Expr::Comprehension(inner) => {
            free_variables(&inner.iter_range, bound, found);
            free_variables(&inner.accu_init, bound, found);
            let depth = bound.len();
            bound.push(inner.accu_var.clone());
            bound.push(inner.iter_var.clone());
            bound.extend(inner.iter_var2.clone());
            for part in [&inner.loop_cond, &inner.loop_step, &inner.result] {
                free_variables(part, bound, found);
            }
            bound.truncate(depth);
        }
    }
}

fn free_in_entry(entry: &IdedEntryExpr, bound: &mut Vec<String>, found: &mut BTreeSet<String>) {
    match &entry.expr {
        EntryExpr::StructField(field) => free_variables(&field.value, bound, found),
        EntryExpr::MapEntry(entry) => {
            free_variables(&entry.key, bound, found);
            free_variables(&entry.value, bound, found);
        }
    }
}

/// Replaces macros that the parser does not know (`cel.bind(name, value, body)` becomes a comprehension over nothing whose
/// accumulator is `name`), and what the library evaluates otherwise than CEL.
fn expand(expr: &mut IdedExpr) {
    match &mut expr.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => {}
        Expr::Select(select) => expand(&mut select.operand),
        Expr::Call(call) => {
            if let Some(target) = &mut call.target {
                expand(target);
            }
            call.args.iter_mut().for_each(expand);
        }
        Expr::List(list) => list.elements.iter_mut().for_each(expand),
        Expr::Map(map) => map.entries.iter_mut().for_each(expand_entry),
        Expr::Struct(object) => object.entries.iter_mut().for_each(expand_entry),
        Expr::Comprehension(inner) => {
            let inner = inner.as_mut();
            let parts = [
                &mut inner.iter_range,
                &mut inner.accu_init,
                &mut inner.loop_cond,
                &mut inner.loop_step,
                &mut inner.result,
            ];
            parts.into_iter().for_each(expand);
        }
    }
    let id = expr.id;
    let Expr::Call(call) = &mut expr.expr else { return };
    let node = |expr: Expr| IdedExpr { id, expr };
    let name_of = |expr: &IdedExpr| match &expr.expr {
        Expr::Ident(name) => Some(name.clone()),
        _ => None,
    };
    let number = |expr: &IdedExpr| {
        matches!(&expr.expr, Expr::Literal(LiteralValue::Int(_) | LiteralValue::Double(_) | LiteralValue::UInt(_)))
    };
    let target = call.target.as_deref().and_then(name_of);
    match (call.func_name.as_str(), call.args.len()) {
        // `x.?y` and `x[?'y']` mean the same; the library fails at the former where `y` is missing.
        (operators::OPT_SELECT, _) => call.func_name = operators::OPT_INDEX.to_owned(),
        (operators::EQUALS, 2) if call.args.iter().any(number) => call.func_name = NUMERIC_EQUALS.to_owned(),
        (operators::NOT_EQUALS, 2) if call.args.iter().any(number) => {
            let args = std::mem::take(&mut call.args);
            let equals = CallExpr { func_name: NUMERIC_EQUALS.to_owned(), target: None, args };
            call.func_name = operators::LOGICAL_NOT.to_owned();
            call.args = vec![node(Expr::Call(equals))];
        }
        ("dyn", 1) if call.target.is_none() => {
            if let Some(inner) = call.args.pop() {
                *expr = inner;
            }
        }
        ("string", 1) if call.target.is_none() => {
            let args = std::mem::take(&mut call.args);
            call.args = vec![node(Expr::Call(CallExpr { func_name: UNBOOL.to_owned(), target: None, args }))];
        }
        ("sortBy", 2) => {
            let (Some(list), Some(name)) = (call.target.take(), name_of(&call.args[0])) else { return };
            let Some(key) = call.args.pop() else { return };
            let result = || node(Expr::Ident("@result".to_owned()));
            let one = node(Expr::List(ListExpr::new(vec![key])));
            let append = CallExpr { func_name: operators::ADD.to_owned(), target: None, args: vec![result(), one] };
            let keys = node(Expr::Comprehension(Box::new(ComprehensionExpr {
                iter_range: (*list).clone(),
                iter_var: name,
                iter_var2: None,
                accu_var: "@result".to_owned(),
                accu_init: node(Expr::List(ListExpr::new(Vec::new()))),
                loop_cond: node(Expr::Literal(LiteralValue::Boolean(true.into()))),
                loop_step: node(Expr::Call(append)),
                result: result(),
            })));
            call.func_name = SORT_BY.to_owned();
            call.args = vec![*list, keys];
        }
        ("bind", 3) if target.as_deref() == Some("cel") => {
            let Some(name) = name_of(&call.args[0]) else { return };
            let [_, init, body] = std::mem::take(&mut call.args).try_into().unwrap_or_else(|_| Default::default());
            expr.expr = Expr::Comprehension(Box::new(ComprehensionExpr {
                iter_range: node(Expr::List(ListExpr::new(Vec::new()))),
                iter_var: "@unused".to_owned(),
                iter_var2: None,
                accu_init: init,
                loop_cond: node(Expr::Literal(LiteralValue::Boolean(false.into()))),
                loop_step: node(Expr::Ident(name.clone())),
                accu_var: name,
                result: body,
            }));
        }
        _ => {}
    }
}

fn expand_entry(entry: &mut IdedEntryExpr) {
    match &mut entry.expr {
        EntryExpr::StructField(field) => expand(&mut field.value),
        EntryExpr::MapEntry(entry) => {
            expand(&mut entry.key);
            expand(&mut entry.value);
        }
    }
}

/// cel-go's words for a failure at run time.
fn error_text(error: &ExecutionError) -> String {
    match error {
        ExecutionError::NoSuchKey(key) => format!("no such key: {key}"),
        ExecutionError::IndexOutOfBounds(index) => format!("index out of bounds: {}", shown(index)),
        ExecutionError::DivisionByZero(_) => "division by zero".to_owned(),
        ExecutionError::RemainderByZero(_) => "modulus by zero".to_owned(),
        ExecutionError::Overflow(..) => "integer overflow".to_owned(),
        ExecutionError::NoSuchOverload
        | ExecutionError::UnsupportedBinaryOperator(..)
        | ExecutionError::UnsupportedUnaryOperator(..)
        | ExecutionError::ValuesNotComparable(..)
        | ExecutionError::UnexpectedType { .. }
        | ExecutionError::NotSupportedAsMethod { .. }
        | ExecutionError::UnsupportedTargetType { .. } => "no such overload".to_owned(),
        ExecutionError::FunctionError { function, .. } if function == "duration" => {
            "type conversion error from 'string' to 'google.protobuf.Duration'".to_owned()
        }
        ExecutionError::FunctionError { function, .. } if function == "timestamp" => {
            "type conversion error from 'string' to 'google.protobuf.Timestamp'".to_owned()
        }
        ExecutionError::FunctionError { message, .. } => message.clone(),
        ExecutionError::UndeclaredReference(name) => format!("undeclared reference to '{name}'"),
        other => other.to_string(),
    }
}

fn shown(value: &Cel) -> String {
    match to_json(value) {
        Value::String(text) => text,
        other => other.to_string(),
    }
}

const RESERVED: [&str; 21] = [
    "true",
    "false",
    "null",
    "in",
    "as",
    "break",
    "const",
    "continue",
    "else",
    "for",
    "function",
    "if",
    "import",
    "let",
    "loop",
    "package",
    "namespace",
    "return",
    "var",
    "void",
    "while",
];

/// The name by which CEL reaches a field (`k8s.io/apiserver/pkg/cel.Escape`): `foo-bar` is `foo__dash__bar`, `namespace` is
/// `__namespace__`. `None`: the field cannot be reached.
pub fn escape_field(name: &str) -> Option<String> {
    if RESERVED.contains(&name) {
        return Some(format!("__{name}__"));
    }
    if name.is_empty() || name.starts_with(|c: char| c.is_ascii_digit()) {
        return None;
    }
    let mut out = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(c) = rest.chars().next() {
        if let Some(after) = rest.strip_prefix("__") {
            out += "__underscores__";
            rest = after;
            continue;
        }
        match c {
            '.' => out += "__dot__",
            '-' => out += "__dash__",
            '/' => out += "__slash__",
            '_' => out.push('_'),
            c if c.is_ascii_alphanumeric() => out.push(c),
            _ => return None,
        }
        rest = &rest[c.len_utf8()..];
    }
    Some(out)
}

/// A JSON value as CEL sees it. The schema decides what numbers are, which strings are times, and which names are fields.
pub(crate) fn to_cel(value: &Value, schema: Option<&Schema>) -> Cel {
    match value {
        Value::Null => Cel::Null,
        Value::Bool(flag) => Cel::Bool(*flag),
        Value::Number(number) => {
            let float = || Cel::Float(number.as_f64().unwrap_or(f64::NAN));
            match (schema.map(|s| s.kind), number.as_i64(), number.as_u64()) {
                (Some(Type::Number), _, _) => float(),
                (_, Some(int), _) => Cel::Int(int),
                (_, None, Some(uint)) => Cel::UInt(uint),
                #[expect(clippy::cast_possible_truncation, reason = "integers were validated to be whole")]
                (Some(Type::Integer), None, None) => Cel::Int(number.as_f64().unwrap_or_default() as i64),
                (_, None, None) => float(),
            }
        }
        Value::String(text) => string_to_cel(text, schema),
        Value::Array(items) => {
            let element = schema.and_then(|s| s.items.as_deref());
            Cel::List(Arc::new(items.iter().map(|item| to_cel(item, element)).collect()))
        }
        Value::Object(members) => {
            let mut entries: Vec<(Key, Cel)> = Vec::with_capacity(members.len());
            for (name, member) in members {
                let field = schema.and_then(|s| s.properties.get(name));
                let key = match field {
                    Some(_) => match escape_field(name) {
                        Some(key) => key,
                        None => continue,
                    },
                    None => name.clone(),
                };
                if key != *name && RESERVED.contains(&name.as_str()) {
                    // Rules that select a reserved word as it is written are admitted too (JobSet's `t.metadata.namespace`).
                    entries.push((Key::String(Arc::new(name.clone())), to_cel(member, field.map(AsRef::as_ref))));
                }
                let of = field.or_else(|| schema.and_then(|s| s.additional.as_ref()));
                entries.push((Key::String(Arc::new(key)), to_cel(member, of.map(AsRef::as_ref))));
            }
            Cel::Map(CelMap { map: Arc::new(entries.into_iter().collect()) })
        }
    }
}

fn string_to_cel(text: &str, schema: Option<&Schema>) -> Cel {
    let plain = || Cel::String(Arc::new(text.to_owned()));
    let Some(schema) = schema.filter(|s| s.kind == Type::String) else { return plain() };
    match schema.format.as_deref() {
        Some("byte") => {
            base64::engine::general_purpose::STANDARD.decode(text).map_or_else(|_| plain(), |b| Cel::Bytes(Arc::new(b)))
        }
        Some(format @ ("date-time" | "date" | "duration")) => {
            // Let CEL's own functions read them, so that they compare with what expressions make of texts.
            let text = if format == "date" { format!("{text}T00:00:00Z") } else { text.to_owned() };
            let function = if format == "duration" { "duration(self)" } else { "timestamp(self)" };
            static CONVERSIONS: LazyLock<[Option<Expression>; 2]> =
                LazyLock::new(|| ["duration(self)", "timestamp(self)"].map(|source| Expression::compile(source).ok()));
            let conversion = CONVERSIONS.iter().flatten().find(|e| e.source() == function);
            let run = conversion.and_then(|e| e.run(vec![("self", Cel::String(Arc::new(text)))]).ok());
            run.unwrap_or_else(plain)
        }
        Some(_) | None => plain(),
    }
}

/// An optional value, as `optionalOldSelf` rules get it.
pub(crate) fn optional(value: Option<Cel>) -> Cel {
    Cel::Opaque(Arc::new(value.map_or_else(OptionalValue::none, OptionalValue::of)))
}

/// A CEL value as JSON; times and durations as text, what JSON cannot hold as null.
pub(crate) fn to_json(value: &Cel) -> Value {
    match value {
        Cel::Null | Cel::Opaque(_) | Cel::Function(..) => Value::Null,
        Cel::Bool(flag) => (*flag).into(),
        Cel::Int(int) => (*int).into(),
        Cel::UInt(uint) => (*uint).into(),
        Cel::Float(float) => serde_json::Number::from_f64(*float).map_or(Value::Null, Value::Number),
        Cel::String(text) => text.strip_prefix("\u{0}type:").unwrap_or(text).into(),
        Cel::Bytes(bytes) => base64::engine::general_purpose::STANDARD.encode(bytes.as_slice()).into(),
        Cel::Duration(duration) => {
            let nanos = duration.num_nanoseconds().unwrap_or_default();
            format!("{}s", nanos as f64 / 1e9).into()
        }
        Cel::Timestamp(time) => time.to_rfc3339().replace("+00:00", "Z").into(),
        Cel::List(items) => items.iter().map(to_json).collect(),
        Cel::Map(map) => {
            let mut out = Map::new();
            for (key, value) in map.map.iter() {
                let name = match key {
                    Key::String(text) => text.as_str().to_owned(),
                    Key::Int(int) => int.to_string(),
                    Key::Uint(uint) => uint.to_string(),
                    Key::Bool(flag) => flag.to_string(),
                };
                out.insert(name, to_json(value));
            }
            Value::Object(out)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn evaluates() {
        let object = json!({
            "data": {"k": "v", "my_key": "u", "a-b": "c"}, "n": 3, "l": [3, 1, 2], "labels": {"x/y": "z"}, "q": "50%",
            "f": 1.5
        });
        let cases = [
            ("object.data.k == 'v'", json!(true)),
            ("object.data.my_key == 'u'", json!(true)),
            ("'x/y' in object.labels && object.labels['x/y'] == 'z'", json!(true)),
            ("object.data['a-b']", json!("c")),
            ("has(object.none) ? 1 : 2", json!(2)),
            ("object.?none.orValue('d')", json!("d")),
            ("object.l.exists_one(x, x == 3) && object.l.all(x, x > 0)", json!(true)),
            ("object.l.map(x, x * 2).sum() == 12", json!(true)),
            ("type(object.q) == string && type(object.n) == int && type(object.f) == double", json!(true)),
            ("type(object.n) == int ? 'int' : 'other'", json!("int")),
            ("object.?data.?k.orValue('d') + object.?no.?k.orValue('d')", json!("vd")),
            ("object.data[?'k'].hasValue() && !object.?none.hasValue()", json!(true)),
            ("cel.bind(x, object.n + 1, x * x)", json!(16)),
            ("'too many: ' + string(object.l.size())", json!("too many: 3")),
            ("quantity('2Gi').isGreaterThan(quantity('1Gi'))", json!(true)),
            ("duration('30m') <= duration('1h')", json!(true)),
            ("'abc'.matches('^[a-z]+$') && 'ab42'.find('[0-9]+') == '42'", json!(true)),
            ("!format.dns1123Label().validate('ok-1').hasValue()", json!(true)),
            ("isIP('1.2.3.4') && ip('1.2.3.4').family() == 4", json!(true)),
            ("cidr('10.0.0.0/8').containsIP('10.9.9.9')", json!(true)),
            ("isURL('https://x.example/p') && url('https://x.example/p').getHost() == 'x.example'", json!(true)),
            ("'%s-%d'.format(['a', 5])", json!("a-5")),
            ("1 < 1.5 && 2.0 == 2", json!(true)),
            ("object.missing == null || true", json!(true)),
            ("true || object.missing.x == 1", json!(true)),
            ("[1, 2].exists(x, x == 1 || object.missing)", json!(true)),
            ("{'a': 1}.map(k, k) == ['a'] && {'a': 1}.all(k, k == 'a')", json!(true)),
            ("object.l.isSorted() || object.l.filter(x, x > 1).size() == 2", json!(true)),
            ("'a,b'.split(',')[1] + 'x'.upperAscii() + 'abc'.substring(1)", json!("bXbc")),
            ("string(1) + string(true) + string(1.5)", json!("1true1.5")),
            ("int('5') + 5 == 10 && double('1.5') > 1.0", json!(true)),
            ("dyn(object.n) == 3", json!(true)),
            ("timestamp('2024-01-01T00:00:00Z') < timestamp('2025-01-01T00:00:00Z')", json!(true)),
            ("timestamp('2024-01-01T00:00:00Z').getFullYear() == 2024", json!(true)),
            ("sets.contains([1, 2, 3], [1]) && math.greatest(1, 2) == 2", json!(true)),
            ("'x' in ['x', 'y'] && !('k' in object.labels)", json!(true)),
            ("b'abc'.size() == 3 && '\\u00e9'.size() == 1", json!(true)),
            ("semver('1.2.3').isLessThan(semver('1.3.0')) && isSemver('1.0.0')", json!(true)),
            ("[[1], [2]].flatten() == [1, 2] && lists.range(3) == [0, 1, 2]", json!(true)),
            ("object.l.sortBy(x, x) == [1, 2, 3]", json!(true)),
        ];
        let mut wrong = Vec::new();
        for (source, expected) in cases {
            let result = Expression::compile(source).and_then(|e| e.evaluate(&[("object", &object)]));
            if result != Ok(expected) {
                wrong.push(format!("{source}: {result:?}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn fails_in_cel_gos_words() {
        let object = json!({"data": {}, "l": []});
        let cases = [
            ("object.data['k'].size() > 0", "no such key: k"),
            ("object.l[0] == 1", "index out of bounds: 0"),
            ("1 / 0 == 1", "division by zero"),
            ("duration('x') > duration('1s')", "type conversion error from 'string' to 'google.protobuf.Duration'"),
            ("object.data > 5", "no such overload"),
        ];
        for (source, expected) in cases {
            let expression = Expression::compile(source).expect(source);
            let error = expression.evaluate(&[("object", &object)]).expect_err(source);
            assert_eq!(error.to_string(), expected, "{source}");
        }
        assert!(Expression::compile("self ==").is_err());
    }

    #[test]
    fn names_are_escaped() {
        let cases = [
            ("plain", Some("plain")),
            ("my_field", Some("my_field")),
            ("a__b", Some("a__underscores__b")),
            ("foo-bar", Some("foo__dash__bar")),
            ("a.b/c", Some("a__dot__b__slash__c")),
            ("namespace", Some("__namespace__")),
            ("1st", None),
            ("$x", None),
        ];
        for (name, expected) in cases {
            assert_eq!(escape_field(name).as_deref(), expected);
        }
    }

    #[test]
    fn knows_what_it_mentions() {
        let mentions = |source: &str, name: &str| Expression::compile(source).expect(source).mentions(name);
        assert!(mentions("self == oldSelf", "oldSelf"));
        assert!(!mentions("self.all(oldSelf, oldSelf > 1)", "oldSelf"));
        assert!(!mentions("self.oldSelf == 1", "oldSelf"));
    }
}
