//! Parsed expressions: the variables that are free in them, and macros that the parser leaves as calls.

use super::*;
use kube_cel::cel::common::ast::{MapExpr, StructExpr};
use std::collections::BTreeMap;

/// The members of `of` that `expr` selects, in the order of its text.
pub(super) fn selected(expr: &IdedExpr, of: &str, found: &mut Vec<String>) {
    match &expr.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => {}
        Expr::Select(select) => match &select.operand.expr {
            Expr::Ident(name) if name == of => found.push(select.field.clone()),
            _ => selected(&select.operand, of, found),
        },
        Expr::Call(call) => {
            let parts = call.target.iter().map(AsRef::as_ref).chain(&call.args);
            parts.for_each(|part| selected(part, of, found));
        }
        Expr::List(list) => list.elements.iter().for_each(|item| selected(item, of, found)),
        Expr::Map(MapExpr { entries }) | Expr::Struct(StructExpr { entries, .. }) => {
            for entry in entries {
                match &entry.expr {
                    EntryExpr::StructField(field) => selected(&field.value, of, found),
                    EntryExpr::MapEntry(entry) => {
                        selected(&entry.key, of, found);
                        selected(&entry.value, of, found);
                    }
                }
            }
        }
        Expr::Comprehension(inner) => {
            let parts = [&inner.iter_range, &inner.accu_init, &inner.loop_cond, &inner.loop_step, &inner.result];
            parts.into_iter().for_each(|part| selected(part, of, found));
        }
    }
}

/// Variables that `expr` does not define itself.
pub(super) fn free_variables(expr: &IdedExpr, bound: &mut Vec<String>, found: &mut BTreeSet<String>) {
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

pub(super) fn free_in_entry(entry: &IdedEntryExpr, bound: &mut Vec<String>, found: &mut BTreeSet<String>) {
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
pub(super) fn expand(expr: &mut IdedExpr) {
    match &mut expr.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => {}
        Expr::Select(select) if !select.test && select.field == "requestResource" && is_authorizer(&select.operand) => {
            expr.expr = Expr::Ident(super::authorizer::REQUEST_RESOURCE.to_owned());
        }
        Expr::Select(select) => expand(&mut select.operand),
        Expr::Call(call) => {
            if let Some(target) = &mut call.target {
                expand(target);
            }
            call.args.iter_mut().for_each(expand);
        }
        Expr::List(list) => list.elements.iter_mut().for_each(expand),
        Expr::Map(map) => map.entries.iter_mut().for_each(expand_entry),
        Expr::Struct(object) => {
            object.entries.iter_mut().for_each(expand_entry);
            expr.expr = super::patch::as_map(std::mem::take(object), expr.id);
        }
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
            let unbool = CallExpr { func_name: UNBOOL.to_owned(), target: None, args };
            call.target = Some(Box::new(node(Expr::Call(unbool))));
        }
        // of an argument that fails, the library says that it is missing; of a receiver, it says why
        ("int" | "uint" | "double" | "size", 1) if call.target.is_none() => {
            call.target = call.args.pop().map(Box::new);
        }
        // a text that is no address is refused in upstream's words
        ("ip", 1) if call.target.is_none() => {
            let args = std::mem::take(&mut call.args);
            call.target = Some(Box::new(node(Expr::Call(checked(network::ADDRESS, args)))));
        }
        ("cidr" | "containsCIDR", 1) => {
            call.args = vec![node(Expr::Call(checked(network::NETWORK, std::mem::take(&mut call.args))))];
        }
        ("isCanonical", 1) if target.as_deref() == Some("ip") => {
            call.args = vec![node(Expr::Call(checked(network::ADDRESS, std::mem::take(&mut call.args))))];
        }
        ("escapeKey", 1) if target.as_deref() == Some("jsonpatch") => {
            call.func_name = super::patch::ESCAPE_KEY.to_owned();
            call.target = None;
        }
        ("named", 1) if target.as_deref() == Some("format") => {
            let format = CallExpr {
                func_name: std::mem::take(&mut call.func_name),
                target: call.target.take(),
                args: std::mem::take(&mut call.args),
            };
            call.func_name = OPTIONAL.to_owned();
            call.args = vec![node(Expr::Call(format))];
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

/// A call of a function on the operand of a call.
fn checked(name: &str, operand: Vec<IdedExpr>) -> CallExpr {
    let mut operand = operand.into_iter();
    CallExpr { func_name: name.to_owned(), target: operand.next().map(Box::new), args: Vec::new() }
}

fn is_authorizer(expr: &IdedExpr) -> bool {
    matches!(&expr.expr, Expr::Ident(name) if name == "authorizer")
}

pub(super) fn expand_entry(entry: &mut IdedEntryExpr) {
    match &mut entry.expr {
        EntryExpr::StructField(field) => expand(&mut field.value),
        EntryExpr::MapEntry(entry) => {
            expand(&mut entry.key);
            expand(&mut entry.value);
        }
    }
}

/// The names of macros' own variables: no expression can mention them.
const RESULT: &str = "@result";
const UNUSED: &str = "#unused";
const SORTED: &str = "@__sortBy_input__";

/// Replaces macros that the parser leaves as calls by what they stand for, for checks of types and costs. Returns which part
/// of the text each new part comes from.
pub(super) fn macros(expr: &mut IdedExpr) -> BTreeMap<u64, u64> {
    let mut macros = Macros { next: 0, copies: BTreeMap::new() };
    visit(expr, &mut |part| macros.next = macros.next.max(part.id + 1));
    visit(expr, &mut |part| macros.replace(part));
    macros.copies
}

/// Makes failures of the members of variables that are null: the library has `false` for a member of what has none.
pub(super) fn without_members(expr: &mut IdedExpr, nulls: &[&str]) {
    match &mut expr.expr {
        Expr::Comprehension(inner) => {
            let inner = inner.as_mut();
            for once in [&mut inner.iter_range, &mut inner.accu_init] {
                without_members(once, nulls);
            }
            let of_macro = [Some(&inner.iter_var), inner.iter_var2.as_ref(), Some(&inner.accu_var)];
            let left: Vec<&str> =
                nulls.iter().copied().filter(|name| !of_macro.iter().flatten().any(|own| own == name)).collect();
            for turn in [&mut inner.loop_cond, &mut inner.loop_step, &mut inner.result] {
                without_members(turn, &left);
            }
        }
        other => parts(other).into_iter().for_each(|part| without_members(part, nulls)),
    }
    if let Expr::Select(select) = &expr.expr
        && let Expr::Ident(name) = &select.operand.expr
        && !select.test
        && nulls.contains(&name.as_str())
    {
        let member = Expr::Literal(LiteralValue::String(select.field.clone().into()));
        *expr = meter::call(expr.id, meter::NO_MEMBER, vec![meter::node(expr.id, member)]);
    }
}

/// Calls `change` for each part, those below it first.
fn visit(expr: &mut IdedExpr, change: &mut impl FnMut(&mut IdedExpr)) {
    parts(&mut expr.expr).into_iter().for_each(|part| visit(part, change));
    change(expr);
}

/// The parts of an expression, one level down.
fn parts(expr: &mut Expr) -> Vec<&mut IdedExpr> {
    match expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => Vec::new(),
        Expr::Select(select) => vec![&mut select.operand],
        Expr::Call(call) => call.target.iter_mut().map(AsMut::as_mut).chain(&mut call.args).collect(),
        Expr::List(list) => list.elements.iter_mut().collect(),
        Expr::Map(map) => map.entries.iter_mut().flat_map(parts_of_entry).collect(),
        Expr::Struct(object) => object.entries.iter_mut().flat_map(parts_of_entry).collect(),
        Expr::Comprehension(inner) => {
            let inner = inner.as_mut();
            vec![
                &mut inner.iter_range,
                &mut inner.accu_init,
                &mut inner.loop_cond,
                &mut inner.loop_step,
                &mut inner.result,
            ]
        }
    }
}

fn parts_of_entry(entry: &mut IdedEntryExpr) -> Vec<&mut IdedExpr> {
    match &mut entry.expr {
        EntryExpr::StructField(field) => vec![&mut field.value],
        EntryExpr::MapEntry(entry) => vec![&mut entry.key, &mut entry.value],
    }
}

struct Macros {
    next: u64,
    copies: BTreeMap<u64, u64>,
}

/// What a comprehension does with its elements.
struct Loop {
    start: Expr,
    condition: IdedExpr,
    step: IdedExpr,
    result: IdedExpr,
}

impl Macros {
    fn node(&mut self, of: u64, expr: Expr) -> IdedExpr {
        let id = self.next;
        self.next += 1;
        self.copies.insert(id, of);
        IdedExpr { id, expr }
    }

    fn name(&mut self, of: u64, name: &str) -> IdedExpr {
        self.node(of, Expr::Ident(name.to_owned()))
    }

    fn call(&mut self, of: u64, name: &str, target: Option<IdedExpr>, args: Vec<IdedExpr>) -> IdedExpr {
        self.node(of, Expr::Call(CallExpr { func_name: name.to_owned(), target: target.map(Box::new), args }))
    }

    fn flag(&mut self, of: u64, flag: bool) -> IdedExpr {
        self.node(of, Expr::Literal(LiteralValue::Boolean(flag.into())))
    }

    /// `name` is what `value` gives, in `body`.
    fn binding(&mut self, of: u64, name: &str, value: IdedExpr, body: IdedExpr) -> Expr {
        Expr::Comprehension(Box::new(ComprehensionExpr {
            iter_range: self.node(of, Expr::List(ListExpr::new(Vec::new()))),
            iter_var: UNUSED.to_owned(),
            iter_var2: None,
            accu_var: name.to_owned(),
            accu_init: value,
            loop_cond: self.flag(of, false),
            loop_step: self.name(of, name),
            result: body,
        }))
    }

    fn replace(&mut self, expr: &mut IdedExpr) {
        let id = expr.id;
        let Expr::Call(call) = &mut expr.expr else { return };
        let Some(target) = &call.target else { return };
        let name = |arg: &IdedExpr| match &arg.expr {
            Expr::Ident(name) => Some(name.clone()),
            _ => None,
        };
        let names: Vec<Option<String>> = call.args.iter().map(name).collect();
        let target = (**target).clone();
        let args = call.args.clone();
        let new = match (call.func_name.as_str(), names.as_slice(), args.as_slice()) {
            ("optMap" | "optFlatMap", [Some(name), _], [_, body]) => {
                self.of_optional(id, call.func_name == "optMap", target, name, body.clone())
            }
            ("sortBy", [Some(name), _], [_, key]) => self.sorted(id, target, name, key.clone()),
            (called, [Some(first), Some(second), ..], [_, _, rest @ ..]) => {
                let Some(turns) = self.over_two(id, called, first, rest) else { return };
                Expr::Comprehension(Box::new(ComprehensionExpr {
                    iter_range: target,
                    iter_var: first.clone(),
                    iter_var2: Some(second.clone()),
                    accu_var: RESULT.to_owned(),
                    accu_init: self.node(id, turns.start),
                    loop_cond: turns.condition,
                    loop_step: turns.step,
                    result: turns.result,
                }))
            }
            _ => return,
        };
        *expr = self.node(id, new);
    }

    fn of_optional(&mut self, id: u64, wrap: bool, target: IdedExpr, name: &str, body: IdedExpr) -> Expr {
        let has = self.call(id, "hasValue", Some(target.clone()), Vec::new());
        let value = self.call(id, "value", Some(target), Vec::new());
        let bound = self.binding(id, name, value, body);
        let bound = self.node(id, bound);
        let optional = self.name(id, "optional");
        let some = if wrap { self.call(id, "of", Some(optional.clone()), vec![bound]) } else { bound };
        let none = self.call(id, "none", Some(optional), Vec::new());
        self.call(id, operators::CONDITIONAL, None, vec![has, some, none]).expr
    }

    fn sorted(&mut self, id: u64, target: IdedExpr, name: &str, key: IdedExpr) -> Expr {
        let range = self.name(id, SORTED);
        let one = self.node(id, Expr::List(ListExpr::new(vec![key])));
        let result = self.name(id, RESULT);
        let keys = Expr::Comprehension(Box::new(ComprehensionExpr {
            iter_range: range.clone(),
            iter_var: name.to_owned(),
            iter_var2: None,
            accu_var: RESULT.to_owned(),
            accu_init: self.node(id, Expr::List(ListExpr::new(Vec::new()))),
            loop_cond: self.flag(id, true),
            loop_step: self.call(id, operators::ADD, None, vec![result.clone(), one]),
            result,
        }));
        let keys = self.node(id, keys);
        let sorted = self.call(id, "@sortByAssociatedKeys", Some(range), vec![keys]);
        self.binding(id, SORTED, target, sorted)
    }

    /// A macro over positions or keys, and values.
    fn over_two(&mut self, id: u64, called: &str, first: &str, rest: &[IdedExpr]) -> Option<Loop> {
        let result = self.name(id, RESULT);
        let always = self.flag(id, true);
        let int = |number: i64| Expr::Literal(LiteralValue::Int(number.into()));
        let flag = |flag: bool| Expr::Literal(LiteralValue::Boolean(flag.into()));
        let (filter, body) = match rest {
            [body] => (None, body.clone()),
            [filter, body] if called.starts_with("transform") => (Some(filter.clone()), body.clone()),
            _ => return None,
        };
        let (start, condition, step) = match called {
            "all" => {
                let condition = self.call(id, operators::NOT_STRICTLY_FALSE, None, vec![result.clone()]);
                (flag(true), condition, self.call(id, operators::LOGICAL_AND, None, vec![result.clone(), body]))
            }
            "exists" => {
                let not = self.call(id, operators::LOGICAL_NOT, None, vec![result.clone()]);
                let condition = self.call(id, operators::NOT_STRICTLY_FALSE, None, vec![not]);
                (flag(false), condition, self.call(id, operators::LOGICAL_OR, None, vec![result.clone(), body]))
            }
            "existsOne" | "exists_one" => {
                let one = self.node(id, int(1));
                let more = self.call(id, operators::ADD, None, vec![result.clone(), one.clone()]);
                let step = self.call(id, operators::CONDITIONAL, None, vec![body, more, result.clone()]);
                let result = self.call(id, operators::EQUALS, None, vec![result, one]);
                return Some(Loop { start: int(0), condition: always, step, result });
            }
            "transformList" => {
                let one = self.node(id, Expr::List(ListExpr::new(vec![body])));
                let step = self.call(id, operators::ADD, None, vec![result.clone(), one]);
                (Expr::List(ListExpr::new(Vec::new())), always, step)
            }
            "transformMap" | "transformMapEntry" => {
                let mut args = vec![result.clone()];
                if called == "transformMap" {
                    args.push(self.name(id, first));
                }
                args.push(body);
                let cel = self.name(id, "cel");
                (Expr::Map(MapExpr::default()), always, self.call(id, "@mapInsert", Some(cel), args))
            }
            _ => return None,
        };
        let step = match filter {
            Some(filter) => self.call(id, operators::CONDITIONAL, None, vec![filter, step, result.clone()]),
            None => step,
        };
        Some(Loop { start, condition, step, result })
    }
}
