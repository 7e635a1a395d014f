//! Parsed expressions: the variables that are free in them, and macros that the parser leaves as calls.

use super::*;

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

pub(super) fn expand_entry(entry: &mut IdedEntryExpr) {
    match &mut entry.expr {
        EntryExpr::StructField(field) => expand(&mut field.value),
        EntryExpr::MapEntry(entry) => {
            expand(&mut entry.key);
            expand(&mut entry.value);
        }
    }
}
