//! Types of CEL expressions, as far as they decide whether a rule may stand in a CRD.
//!
//! Not all of cel-go's checker: what it cannot tell is dynamic, so that no rule is refused that upstream admits. What is
//! refused: names, fields and functions that do not exist, operators on types they do not have, and results of the wrong
//! type.

use super::{Expression, NUMERIC_EQUALS, SORT_BY, TYPE_NAMES, UNBOOL, escape_field};
use crate::schema::{Schema, Type};
use kube_cel::cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};

#[derive(Clone, Debug, PartialEq)]
enum Ty<'s> {
    Dyn,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Timestamp,
    Duration,
    Null,
    Type,
    List(Box<Ty<'s>>),
    Map(Box<Ty<'s>>, Box<Ty<'s>>),
    Object(Object<'s>),
    Optional(Box<Ty<'s>>),
    /// Of a library: quantities, URLs, addresses.
    Other(&'static str),
}

/// An object's schema; two are the same type only if they are the same node.
#[derive(Clone, Copy, Debug)]
struct Object<'s>(&'s Schema);

impl PartialEq for Object<'_> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.0, other.0)
    }
}

impl<'s> Ty<'s> {
    fn of(schema: &'s Schema) -> Self {
        match schema.kind {
            Type::Any | Type::IntOrString => Self::Dyn,
            Type::Boolean => Self::Bool,
            Type::Integer => Self::Int,
            Type::Number => Self::Double,
            Type::String => match schema.format.as_deref() {
                Some("byte") => Self::Bytes,
                Some("date" | "date-time") => Self::Timestamp,
                Some("duration") => Self::Duration,
                Some(_) | None => Self::String,
            },
            Type::Array => Self::List(Box::new(schema.items.as_deref().map_or(Self::Dyn, Self::of))),
            Type::Object => match &schema.additional {
                Some(values) if schema.properties.is_empty() => {
                    Self::Map(Box::new(Self::String), Box::new(Self::of(values)))
                }
                Some(_) | None => Self::Object(Object(schema)),
            },
        }
    }

    fn text(&self) -> String {
        match self {
            Self::Dyn => "dyn".to_owned(),
            Self::Bool => "bool".to_owned(),
            Self::Int => "int".to_owned(),
            Self::Uint => "uint".to_owned(),
            Self::Double => "double".to_owned(),
            Self::String => "string".to_owned(),
            Self::Bytes => "bytes".to_owned(),
            Self::Timestamp => "google.protobuf.Timestamp".to_owned(),
            Self::Duration => "google.protobuf.Duration".to_owned(),
            Self::Null => "null".to_owned(),
            Self::Type => "type".to_owned(),
            Self::List(item) => format!("list({})", item.text()),
            Self::Map(key, value) => format!("map({}, {})", key.text(), value.text()),
            Self::Object(_) => "object".to_owned(),
            Self::Optional(inner) => format!("optional_type({})", inner.text()),
            Self::Other(name) => (*name).to_owned(),
        }
    }

    fn is_number(&self) -> bool {
        matches!(self, Self::Int | Self::Uint | Self::Double)
    }

    /// Whether two values can be of one type.
    fn agrees(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Dyn, _) | (_, Self::Dyn) | (Self::Null, _) | (_, Self::Null) => true,
            (Self::List(a), Self::List(b)) | (Self::Optional(a), Self::Optional(b)) => a.agrees(b),
            (Self::Map(k, v), Self::Map(l, w)) => k.agrees(l) && v.agrees(w),
            (Self::Map(..), Self::Object(_)) | (Self::Object(_), Self::Map(..)) => true,
            (a, b) => a == b,
        }
    }
}

/// Checks a rule of a node; returns whether it compares with what was (`oldSelf`).
///
/// # Errors
/// Why the rule cannot be compiled.
pub(crate) fn check_rule(source: &str, schema: &Schema, optional_old: bool) -> Result<bool, String> {
    let compiled = Expression::compile(source).map_err(|error| format!("compilation failed: {error}"))?;
    match infer(&compiled, schema, optional_old)? {
        Ty::Bool | Ty::Dyn => Ok(compiled.mentions("oldSelf")),
        _ => Err("cel expression must evaluate to a bool".to_owned()),
    }
}

/// Checks a message expression of a node.
///
/// # Errors
/// Why it cannot be compiled.
pub(crate) fn check_message(source: &str, schema: &Schema) -> Result<(), String> {
    let compiled =
        Expression::compile(source).map_err(|error| format!("messageExpression compilation failed: {error}"))?;
    match infer(&compiled, schema, false).map_err(|why| format!("messageExpression {why}"))? {
        Ty::String | Ty::Dyn => Ok(()),
        _ => Err("messageExpression must evaluate to a string".to_owned()),
    }
}

fn infer<'s>(expression: &Expression, schema: &'s Schema, optional_old: bool) -> Result<Ty<'s>, String> {
    let this = Ty::of(schema);
    let old = if optional_old { Ty::Optional(Box::new(this.clone())) } else { this.clone() };
    let mut scope = Scope { names: vec![("self".to_owned(), this), ("oldSelf".to_owned(), old)] };
    scope.ty(expression.ast()).map_err(|why| {
        let why = place_of_field(expression.source(), &why).unwrap_or(why);
        format!("compilation failed: {why}")
    })
}

/// The complaint about an undefined field with its place, where the text has just one: the syntax tree knows none.
fn place_of_field(source: &str, why: &str) -> Option<String> {
    let field = why.strip_prefix("undefined field '")?.strip_suffix('\'')?;
    if source.contains("has(") || source.contains(['\'', '"', '\n']) {
        return None;
    }
    let wanted = format!(".{field}");
    let mut found = source.match_indices(&wanted).filter(|(at, _)| {
        let next = source[at + wanted.len()..].chars().next();
        next.is_none_or(|c| !c.is_ascii_alphanumeric() && c != '_')
    });
    let (at, _) = found.next()?;
    if found.next().is_some() {
        return None;
    }
    let column = isize::try_from(source[..at].chars().count() + 1).ok()?;
    Some(super::syntax_error(source, (1, column), why))
}

/// Prefixes of functions; not variables.
const NAMESPACES: [&str; 10] =
    ["format", "math", "sets", "base64", "optional", "strings", "lists", "jsonpatch", "cel", "proto"];

struct Scope<'s> {
    names: Vec<(String, Ty<'s>)>,
}

impl<'s> Scope<'s> {
    fn ty(&mut self, expr: &IdedExpr) -> Result<Ty<'s>, String> {
        match &expr.expr {
            Expr::Unspecified => Ok(Ty::Dyn),
            Expr::Literal(literal) => Ok(match literal {
                LiteralValue::Boolean(_) => Ty::Bool,
                LiteralValue::Bytes(_) => Ty::Bytes,
                LiteralValue::Double(_) => Ty::Double,
                LiteralValue::Int(_) => Ty::Int,
                LiteralValue::Null => Ty::Null,
                LiteralValue::String(_) => Ty::String,
                LiteralValue::UInt(_) => Ty::Uint,
            }),
            Expr::Ident(name) => {
                if let Some((_, ty)) = self.names.iter().rev().find(|(known, _)| known == name) {
                    return Ok(ty.clone());
                }
                if TYPE_NAMES.contains(&name.as_str()) {
                    return Ok(Ty::Type);
                }
                Err(format!("undeclared reference to '{name}' (in container '')"))
            }
            Expr::Select(select) => {
                let of = self.ty(&select.operand)?;
                let field = select_field(&of, &select.field)?;
                Ok(if select.test { Ty::Bool } else { field })
            }
            Expr::Call(call) => self.call(call),
            Expr::List(list) => {
                let mut element: Option<Ty<'s>> = None;
                for item in &list.elements {
                    let ty = self.ty(item)?;
                    element = Some(match element {
                        Some(before) if before == ty => before,
                        Some(_) => Ty::Dyn,
                        None => ty,
                    });
                }
                Ok(Ty::List(Box::new(element.unwrap_or(Ty::Dyn))))
            }
            Expr::Map(map) => {
                for entry in &map.entries {
                    if let EntryExpr::MapEntry(entry) = &entry.expr {
                        self.ty(&entry.key)?;
                        self.ty(&entry.value)?;
                    }
                }
                Ok(Ty::Map(Box::new(Ty::Dyn), Box::new(Ty::Dyn)))
            }
            Expr::Struct(object) => Err(format!("undeclared reference to '{}' (in container '')", object.type_name)),
            Expr::Comprehension(inner) => self.comprehension(inner),
        }
    }

    fn comprehension(&mut self, inner: &ComprehensionExpr) -> Result<Ty<'s>, String> {
        let (first, second) = match self.ty(&inner.iter_range)? {
            Ty::Dyn => (Ty::Dyn, Ty::Dyn),
            Ty::List(item) if inner.iter_var2.is_some() => (Ty::Int, *item),
            Ty::List(item) => (*item, Ty::Dyn),
            Ty::Map(key, value) => (*key, *value),
            Ty::Object(_) => (Ty::String, Ty::Dyn),
            other => {
                return Err(format!(
                    "expression of type '{}' cannot be range of a comprehension (must be list, map, or dynamic)",
                    other.text()
                ));
            }
        };
        let init = self.ty(&inner.accu_init)?;
        let depth = self.names.len();
        self.names.push((inner.accu_var.clone(), init.clone()));
        self.names.push((inner.iter_var.clone(), first));
        if let Some(name) = &inner.iter_var2 {
            self.names.push((name.clone(), second));
        }
        let result = (|| {
            self.ty(&inner.loop_cond)?;
            let step = self.ty(&inner.loop_step)?;
            if let Some((_, accumulated)) = self.names.get_mut(depth)
                && *accumulated == Ty::List(Box::new(Ty::Dyn))
            {
                *accumulated = step;
            }
            // The iteration's own names end with it.
            self.names.truncate(depth + 1);
            self.ty(&inner.result)
        })();
        self.names.truncate(depth);
        result
    }

    fn call(&mut self, call: &CallExpr) -> Result<Ty<'s>, String> {
        let name = call.func_name.as_str();
        if let Some(target) = &call.target
            && let Expr::Ident(namespace) = &target.expr
            && NAMESPACES.contains(&namespace.as_str())
            && !self.names.iter().any(|(known, _)| known == namespace)
        {
            let args = call.args.iter().map(|arg| self.ty(arg)).collect::<Result<Vec<_>, _>>()?;
            return Ok(match (namespace.as_str(), name) {
                ("sets", _) => Ty::Bool,
                ("optional", "none") => Ty::Optional(Box::new(Ty::Dyn)),
                ("optional", _) => Ty::Optional(Box::new(args.into_iter().next().unwrap_or(Ty::Dyn))),
                ("base64", "encode") | ("strings" | "jsonpatch", _) => Ty::String,
                ("base64", _) => Ty::Bytes,
                _ => Ty::Dyn,
            });
        }
        let target = call.target.as_ref().map(|target| self.ty(target)).transpose()?;
        let args = call.args.iter().map(|arg| self.ty(arg)).collect::<Result<Vec<_>, _>>()?;
        let none = || {
            let shown: Vec<String> = args.iter().map(Ty::text).collect();
            let receiver = target.as_ref().map(|t| format!("{}.", t.text())).unwrap_or_default();
            Err(format!("found no matching overload for '{name}' applied to '{receiver}({})'", shown.join(", ")))
        };
        if let Some(result) = operator(name, &args) {
            return result.map_or_else(none, Ok);
        }
        match function(name, target.as_ref(), &args) {
            Some(Some(result)) => Ok(result),
            Some(None) => none(),
            None => Err(format!("undeclared reference to '{name}' (in container '')")),
        }
    }
}

fn select_field<'s>(of: &Ty<'s>, field: &str) -> Result<Ty<'s>, String> {
    match of {
        Ty::Dyn => Ok(Ty::Dyn),
        Ty::Map(_, value) => Ok((**value).clone()),
        Ty::Optional(inner) => Ok(Ty::Optional(Box::new(select_field(inner, field)?))),
        Ty::Object(Object(schema)) => {
            let named = |name: &str| name == field || escape_field(name).as_deref() == Some(field);
            let found = schema.properties.iter().find(|(name, _)| named(name));
            match found {
                Some((_, property)) => Ok(Ty::of(property)),
                None => Err(format!("undefined field '{field}'")),
            }
        }
        other => Err(format!("type '{}' does not support field selection", other.text())),
    }
}

/// The result of an operator; `Some(None)`: it does not apply to these types; `None`: it is none.
fn operator<'s>(name: &str, args: &[Ty<'s>]) -> Option<Option<Ty<'s>>> {
    let boolean = |ty: &Ty<'_>| matches!(ty, Ty::Bool | Ty::Dyn);
    let result = match (name, args) {
        (operators::LOGICAL_AND | operators::LOGICAL_OR, [a, b]) => (boolean(a) && boolean(b)).then_some(Ty::Bool),
        (operators::LOGICAL_NOT, [a]) => boolean(a).then_some(Ty::Bool),
        (operators::NOT_STRICTLY_FALSE, [_]) => Some(Ty::Bool),
        (operators::EQUALS | operators::NOT_EQUALS | NUMERIC_EQUALS, [a, b]) => a.agrees(b).then_some(Ty::Bool),
        (operators::LESS | operators::LESS_EQUALS | operators::GREATER | operators::GREATER_EQUALS, [a, b]) => {
            let ordered = |ty: &Ty<'_>| {
                matches!(ty, Ty::Dyn | Ty::Bool | Ty::String | Ty::Bytes | Ty::Timestamp | Ty::Duration)
                    || ty.is_number()
            };
            let fits = ordered(a) && ordered(b) && (a.agrees(b) || (a.is_number() && b.is_number()));
            fits.then_some(Ty::Bool)
        }
        (
            operators::ADD | operators::SUBSTRACT | operators::MULTIPLY | operators::DIVIDE | operators::MODULO,
            [a, b],
        ) => arithmetic(name, a, b),
        (operators::NEGATE, [a]) => (a.is_number() || *a == Ty::Dyn).then(|| a.clone()),
        (operators::IN, [item, of]) => match of {
            Ty::Dyn | Ty::Object(_) => Some(Ty::Bool),
            Ty::List(element) => item.agrees(element).then_some(Ty::Bool),
            Ty::Map(key, _) => item.agrees(key).then_some(Ty::Bool),
            _ => None,
        },
        (operators::CONDITIONAL, [condition, a, b]) => {
            boolean(condition).then(|| if a == b { a.clone() } else { Ty::Dyn })
        }
        (operators::INDEX, [of, key]) => index(of, key),
        (operators::OPT_INDEX, [of, key]) => {
            let of = match of {
                Ty::Optional(inner) => inner.as_ref(),
                other => other,
            };
            let inner = match of {
                // The key is the name of a field where it was written with a dot; then any field may be meant.
                Ty::Object(_) => Some(Ty::Dyn),
                other => index(other, key),
            };
            inner.map(|inner| Ty::Optional(Box::new(inner)))
        }
        (UNBOOL, [a]) => Some(a.clone()),
        (SORT_BY, [list, _]) => Some(list.clone()),
        _ => return None,
    };
    Some(result)
}

fn index<'s>(of: &Ty<'s>, key: &Ty<'s>) -> Option<Ty<'s>> {
    match of {
        Ty::Dyn | Ty::Object(_) => Some(Ty::Dyn),
        Ty::List(item) => (key.is_number() || *key == Ty::Dyn).then(|| (**item).clone()),
        Ty::Map(k, value) => key.agrees(k).then(|| (**value).clone()),
        Ty::Optional(inner) => index(inner, key).map(|ty| Ty::Optional(Box::new(ty))),
        _ => None,
    }
}

fn arithmetic<'s>(name: &str, a: &Ty<'s>, b: &Ty<'s>) -> Option<Ty<'s>> {
    match (a, b) {
        (Ty::Dyn, other) | (other, Ty::Dyn) => {
            Some(if matches!(other, Ty::String | Ty::List(_)) { other.clone() } else { Ty::Dyn })
        }
        (a, b) if a.is_number() && a == b => (name != operators::MODULO || *a != Ty::Double).then(|| a.clone()),
        (Ty::String, Ty::String) if name == operators::ADD => Some(Ty::String),
        (Ty::Bytes, Ty::Bytes) if name == operators::ADD => Some(Ty::Bytes),
        (Ty::List(x), Ty::List(y)) if name == operators::ADD => {
            let item = match (x.as_ref(), y.as_ref()) {
                (Ty::Dyn, item) | (item, Ty::Dyn) => item.clone(),
                (x, y) if x == y => x.clone(),
                _ => Ty::Dyn,
            };
            Some(Ty::List(Box::new(item)))
        }
        (Ty::Duration, Ty::Duration) if name == operators::ADD || name == operators::SUBSTRACT => Some(Ty::Duration),
        (Ty::Timestamp, Ty::Duration) if name == operators::ADD || name == operators::SUBSTRACT => Some(Ty::Timestamp),
        (Ty::Duration, Ty::Timestamp) if name == operators::ADD => Some(Ty::Timestamp),
        (Ty::Timestamp, Ty::Timestamp) if name == operators::SUBSTRACT => Some(Ty::Duration),
        _ => None,
    }
}

/// The result of a function or method; `Some(None)`: not on this receiver; `None`: there is none of that name.
fn function<'s>(name: &str, target: Option<&Ty<'s>>, args: &[Ty<'s>]) -> Option<Option<Ty<'s>>> {
    const QUANTITY: Ty<'static> = Ty::Other("kubernetes.Quantity");
    let strings = || Ty::List(Box::new(Ty::String));
    let on = target.or(args.first());
    // Methods of strings, and of what a library may have under the same name.
    let string = |result: Ty<'s>| match on {
        None | Some(Ty::String | Ty::Dyn | Ty::Other(_) | Ty::Optional(_)) => Some(result),
        Some(_) => None,
    };
    let list = |result: Ty<'s>| match on {
        Some(Ty::List(_) | Ty::Dyn) => Some(result),
        _ => None,
    };
    let item = || match on {
        Some(Ty::List(item)) => (**item).clone(),
        _ => Ty::Dyn,
    };
    let same = || on.cloned().unwrap_or(Ty::Dyn);
    Some(match name {
        "size" => match on {
            Some(Ty::String | Ty::Bytes | Ty::List(_) | Ty::Map(..) | Ty::Object(_) | Ty::Dyn) => Some(Ty::Int),
            _ => None,
        },
        "contains" | "startsWith" | "endsWith" | "matches" => string(Ty::Bool),
        "lowerAscii" | "upperAscii" | "trim" | "replace" | "substring" | "charAt" | "find" | "format" => {
            string(Ty::String)
        }
        "split" | "findAll" => string(strings()),
        "indexOf" | "lastIndexOf" => match on {
            Some(Ty::List(_)) => Some(Ty::Int),
            _ => string(Ty::Int),
        },
        "join" => list(Ty::String),
        "reverse" => list(same()),
        "isSorted" => list(Ty::Bool),
        "sum" | "min" | "max" => list(item()),
        "slice" | "distinct" | "sort" => list(same()),
        "flatten" => list(Ty::List(Box::new(Ty::Dyn))),
        "int" => Some(Ty::Int),
        "uint" => Some(Ty::Uint),
        "double" => Some(Ty::Double),
        "string" => Some(Ty::String),
        "bool" => Some(Ty::Bool),
        "bytes" => Some(Ty::Bytes),
        "duration" => Some(Ty::Duration),
        "timestamp" => Some(Ty::Timestamp),
        "dyn" => Some(Ty::Dyn),
        "type" => Some(Ty::Type),
        "getFullYear" | "getMonth" | "getDayOfYear" | "getDayOfMonth" | "getDate" | "getDayOfWeek" | "getHours"
        | "getMinutes" | "getSeconds" | "getMilliseconds" => match on {
            Some(Ty::Timestamp | Ty::Duration | Ty::Dyn) => Some(Ty::Int),
            _ => None,
        },
        "quantity" => Some(QUANTITY),
        "isQuantity" | "isURL" | "isIP" | "isCIDR" | "isSemver" | "ip.isCanonical" => Some(Ty::Bool),
        "sign" | "compareTo" | "asInteger" | "major" | "minor" | "patch" | "family" | "prefixLength" => Some(Ty::Int),
        "asApproximateFloat" => Some(Ty::Double),
        "isInteger"
        | "isGreaterThan"
        | "isLessThan"
        | "isEqual"
        | "containsIP"
        | "containsCIDR"
        | "isCanonical"
        | "isUnspecified"
        | "isLoopback"
        | "isLinkLocalMulticast"
        | "isLinkLocalUnicast"
        | "isGlobalUnicast" => Some(Ty::Bool),
        "add" | "sub" => Some(QUANTITY),
        "url" => Some(Ty::Other("kubernetes.URL")),
        "ip" => Some(Ty::Other("net.IP")),
        "cidr" | "masked" => Some(Ty::Other("net.CIDR")),
        "semver" => Some(Ty::Other("kubernetes.Semver")),
        "getScheme" | "getHost" | "getHostname" | "getPort" | "getEscapedPath" => Some(Ty::String),
        "getQuery" => Some(Ty::Map(Box::new(Ty::String), Box::new(strings()))),
        "validate" => Some(Ty::Optional(Box::new(strings()))),
        "hasValue" => match on {
            Some(Ty::Optional(_) | Ty::Dyn) => Some(Ty::Bool),
            _ => None,
        },
        "value" | "orValue" => match on {
            Some(Ty::Optional(inner)) if **inner == Ty::Dyn => Some(Ty::Dyn),
            Some(Ty::Optional(inner)) => Some((**inner).clone()),
            Some(Ty::Dyn) => Some(Ty::Dyn),
            _ => None,
        },
        "or" | "optMap" | "optFlatMap" | "first" | "last" => Some(Ty::Optional(Box::new(Ty::Dyn))),
        // Macros over two variables, which the parser leaves as calls.
        "transformList" | "transformMap" | "transformMapEntry" | "existsOne" | "exists_one" | "all" | "exists" => {
            Some(Ty::Dyn)
        }
        "path" | "group" | "resource" | "check" | "allowed" | "reason" | "errored" | "error" | "named" => Some(Ty::Dyn),
        _ => return None,
    })
}

#[cfg(test)]
mod tests;
