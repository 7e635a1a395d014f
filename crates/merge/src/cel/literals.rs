//! Literals in an expression that will never be what they are taken for (cel-go's validators of literals): texts that are no
//! patterns or times, lists and maps of different things.

use super::types::Ty;
use kube_cel::cel::common::ast::{CallExpr, EntryExpr, Expr, IdedExpr, LiteralValue};

/// Faults by the number of the expression at fault; `ty` tells the type of one.
pub(super) fn faults<'s>(expr: &IdedExpr, ty: &dyn Fn(&IdedExpr) -> Ty<'s>) -> Vec<(u64, String)> {
    let mut out = Vec::new();
    visit(expr, false, ty, &mut out);
    out
}

/// `mixed`: what is formatted may be of different types.
fn visit<'s>(expr: &IdedExpr, mixed: bool, ty: &dyn Fn(&IdedExpr) -> Ty<'s>, out: &mut Vec<(u64, String)>) {
    match &expr.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => {}
        Expr::Select(select) => visit(&select.operand, false, ty, out),
        Expr::Call(call) => {
            out.extend(fault(call));
            call.target.iter().for_each(|target| visit(target, false, ty, out));
            call.args.iter().for_each(|arg| visit(arg, call.func_name == "format", ty, out));
        }
        Expr::List(list) => {
            if !mixed {
                out.extend(differs(list.elements.iter(), ty));
            }
            list.elements.iter().for_each(|item| visit(item, mixed, ty, out));
        }
        Expr::Map(map) => {
            let entries = map.entries.iter().filter_map(|entry| match &entry.expr {
                EntryExpr::MapEntry(entry) => Some(entry),
                EntryExpr::StructField(_) => None,
            });
            let entries = entries.collect::<Vec<_>>();
            if !mixed {
                out.extend(differs(entries.iter().map(|entry| &entry.key), ty));
                out.extend(differs(entries.iter().map(|entry| &entry.value), ty));
            }
            for entry in entries {
                visit(&entry.key, mixed, ty, out);
                visit(&entry.value, mixed, ty, out);
            }
        }
        Expr::Struct(object) => {
            for entry in &object.entries {
                if let EntryExpr::StructField(field) = &entry.expr {
                    visit(&field.value, false, ty, out);
                }
            }
        }
        Expr::Comprehension(inner) => {
            let parts = [&inner.iter_range, &inner.accu_init, &inner.loop_cond, &inner.loop_step, &inner.result];
            parts.into_iter().for_each(|part| visit(part, false, ty, out));
        }
    }
}

/// The first of some elements that is of another type than the first.
fn differs<'a, 's>(
    elements: impl Iterator<Item = &'a IdedExpr>,
    ty: &dyn Fn(&IdedExpr) -> Ty<'s>,
) -> Option<(u64, String)> {
    let mut elements = elements.map(|element| (element.id, ty(element).unwrapped().0.clone()));
    let (_, first) = elements.next()?;
    let (id, other) = elements.find(|(_, other)| *other != first)?;
    Some((id, format!("expected type '{}' but found '{}'", first.text(), other.text())))
}

fn fault(call: &CallExpr) -> Option<(u64, String)> {
    let arg = call.args.first()?;
    let Expr::Literal(LiteralValue::String(text)) = &arg.expr else { return None };
    let text = text.inner();
    let sound = match call.func_name.as_str() {
        "matches" => regex::Regex::new(text).is_ok(),
        "duration" => crate::schema::is_go_duration(text),
        "timestamp" => text.parse::<jiff::Timestamp>().is_ok(),
        _ => true,
    };
    (!sound).then(|| (arg.id, format!("invalid {} argument", call.func_name)))
}
