//! What an evaluation costs, counted while it runs (`k8s.io/apiserver/pkg/apis/cel`: the limits; units are cel-go's, about one
//! for each step).
//!
//! The library has no such count, so the expression counts for itself: each turn of a comprehension first spends what its
//! steps cost. What has no loop is as long as its text.

use super::{Cel, guard};
use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedEntryExpr, IdedExpr, LiteralValue, operators,
};
use kube_cel::cel::{Context, ExecutionError};
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// What one evaluation may cost.
pub(super) const CALL_MAX: u64 = 1_000_000;
/// What all rules of one object may cost together.
pub(crate) const OBJECT_MAX: u64 = 10_000_000;

const SPEND: &str = "@spend";
const GROWN: &str = "@grown";
/// What `map` and `filter` gather their list with: the library would copy all of it for each element.
const GATHER: &str = "@gather";
const PUT: &str = "@put";
const GATHERED: &str = "@gathered";

/// Fails as a member that is not there does.
pub(super) const NO_MEMBER: &str = "@no_member";

/// cel-go's words.
pub(crate) const EXCEEDED: &str = "operation cancelled: actual cost limit exceeded";

thread_local! {
    /// What the evaluation on this thread has cost. An evaluation begins and ends on one thread, and none is inside another
    /// that a user wrote.
    static SPENT: Cell<u64> = const { Cell::new(0) };
    /// The lists that it gathers, the innermost last.
    static LISTS: RefCell<Vec<Vec<Cel>>> = const { RefCell::new(Vec::new()) };
}

pub(super) fn spend(units: u64) -> Result<(), ExecutionError> {
    let spent = SPENT.get().saturating_add(units);
    SPENT.set(spent);
    if spent > CALL_MAX { Err(ExecutionError::function_error(SPEND, EXCEEDED)) } else { Ok(()) }
}

/// Runs an evaluation and says what it cost; `Err`: more than one evaluation may. Then its result means nothing: `||` takes an
/// error for a side that does not matter.
pub(super) fn measured<T>(evaluate: impl FnOnce() -> T) -> (T, Result<u64, ()>) {
    let (around, lists) = (SPENT.replace(0), LISTS.take());
    let result = evaluate();
    let spent = SPENT.replace(around);
    LISTS.set(lists);
    (result, if spent > CALL_MAX { Err(()) } else { Ok(spent) })
}

/// The functions that metered expressions call.
pub(super) fn add_functions(context: &mut Context<'_>) {
    guard::add_functions(context);
    context.add_function(SPEND, |units: i64| -> Result<bool, ExecutionError> {
        spend(units.unsigned_abs()).map(|()| true)
    });
    context.add_function(NO_MEMBER, |name: Arc<String>| -> Result<bool, ExecutionError> {
        Err(ExecutionError::NoSuchKey(name))
    });
    context.add_function(GROWN, |value: Cel| -> Result<Cel, ExecutionError> {
        spend(guard::copied(&value))?;
        Ok(value)
    });
    context.add_function(GATHER, || -> Result<i64, ExecutionError> {
        LISTS.with_borrow_mut(|lists| {
            lists.push(Vec::new());
            i64::try_from(lists.len() - 1).map_err(|_| ExecutionError::NoSuchOverload)
        })
    });
    context.add_function(PUT, |at: i64, value: Cel| -> Result<i64, ExecutionError> {
        spend(guard::kept(&value))?;
        with_list(at, |list| list.push(value)).map(|()| at)
    });
    context.add_function(GATHERED, |at: i64| -> Result<Cel, ExecutionError> {
        let list = with_list(at, std::mem::take)?;
        LISTS.with_borrow_mut(Vec::pop);
        Ok(Cel::List(Arc::new(list)))
    });
}

/// What is gathered at this place. All that began later is over: an error left it, and was passed over.
fn with_list<T>(at: i64, with: impl FnOnce(&mut Vec<Cel>) -> T) -> Result<T, ExecutionError> {
    LISTS.with_borrow_mut(|lists| {
        let at = usize::try_from(at).map_err(|_| ExecutionError::NoSuchOverload)?;
        lists.truncate(at.saturating_add(1));
        lists.get_mut(at).map(with).ok_or(ExecutionError::NoSuchOverload)
    })
}

pub(super) fn node(id: u64, expr: Expr) -> IdedExpr {
    IdedExpr { id, expr }
}

pub(super) fn call(id: u64, name: &str, args: Vec<IdedExpr>) -> IdedExpr {
    node(id, Expr::Call(CallExpr { func_name: name.to_owned(), target: None, args }))
}

/// The expression with its own count in it, and the steps that one turn of it takes, loops apart.
pub(super) fn meter(expr: &mut IdedExpr) -> u64 {
    let below = match &mut expr.expr {
        Expr::Unspecified | Expr::Literal(_) | Expr::Ident(_) => 0,
        Expr::Select(select) => meter(&mut select.operand),
        Expr::Call(call) => call.target.iter_mut().map(AsMut::as_mut).chain(&mut call.args).map(meter).sum(),
        Expr::List(list) => list.elements.iter_mut().map(meter).sum(),
        Expr::Map(map) => map.entries.iter_mut().map(entry).sum(),
        Expr::Struct(object) => object.entries.iter_mut().map(entry).sum(),
        Expr::Comprehension(inner) => comprehension(expr.id, inner),
    };
    guard::guard(expr);
    // a sum of lists or texts is a copy of both
    if let Expr::Call(sum) = &expr.expr
        && sum.func_name == operators::ADD
    {
        let id = expr.id;
        let sum = std::mem::replace(expr, node(id, Expr::Unspecified));
        *expr = call(id, GROWN, vec![sum]);
    }
    below.saturating_add(1)
}

fn entry(entry: &mut IdedEntryExpr) -> u64 {
    match &mut entry.expr {
        EntryExpr::StructField(field) => meter(&mut field.value),
        EntryExpr::MapEntry(entry) => meter(&mut entry.key).saturating_add(meter(&mut entry.value)),
    }
}

/// Makes of `accu + [item]`, the step of `map` and `filter`, one that gathers in place.
fn gather(id: u64, inner: &mut ComprehensionExpr) {
    let accu = |expr: &IdedExpr| matches!(&expr.expr, Expr::Ident(name) if *name == inner.accu_var);
    let begins = matches!(&inner.accu_init.expr, Expr::List(list) if list.elements.is_empty());
    if !begins || !accu(&inner.result) {
        return;
    }
    let mut step = &inner.loop_step;
    if let Expr::Call(choice) = &step.expr
        && choice.func_name == operators::CONDITIONAL
        && let [_, chosen, other] = choice.args.as_slice()
        && accu(other)
    {
        step = chosen;
    }
    let one = |list: &IdedExpr| matches!(&list.expr, Expr::List(list) if list.elements.len() == 1 && list.optional_indices.is_empty());
    let gathers = matches!(&step.expr, Expr::Call(sum)
        if sum.func_name == operators::ADD && matches!(sum.args.as_slice(), [list, more] if accu(list) && one(more)));
    if !gathers {
        return;
    }
    let step = match &mut inner.loop_step.expr {
        Expr::Call(choice) if choice.func_name == operators::CONDITIONAL => &mut choice.args[1],
        _ => &mut inner.loop_step,
    };
    if let Expr::Call(sum) = &mut step.expr
        && let Some(IdedExpr { expr: Expr::List(mut list), .. }) = sum.args.pop()
    {
        sum.func_name = PUT.to_owned();
        sum.args.append(&mut list.elements);
    }
    inner.accu_init = call(id, GATHER, Vec::new());
    let list = std::mem::replace(&mut inner.result, node(id, Expr::Unspecified));
    inner.result = call(id, GATHERED, vec![list]);
}

/// `condition` becomes `@spend(steps) ? condition : false`: an error of the first is the error of all.
fn comprehension(id: u64, inner: &mut ComprehensionExpr) -> u64 {
    gather(id, inner);
    let once = [&mut inner.iter_range, &mut inner.accu_init, &mut inner.result].into_iter().map(meter).sum();
    let turn = meter(&mut inner.loop_cond).saturating_add(meter(&mut inner.loop_step));
    // upstream counts the steps that are taken, which may be half of those that are written
    let units = i64::try_from(turn / 2).unwrap_or(i64::MAX).max(1);
    let condition = std::mem::replace(&mut inner.loop_cond, node(id, Expr::Unspecified));
    let spend = call(id, SPEND, vec![node(id, Expr::Literal(LiteralValue::Int(units.into())))]);
    let no = node(id, Expr::Literal(LiteralValue::Boolean(false.into())));
    inner.loop_cond = call(id, operators::CONDITIONAL, vec![spend, condition, no]);
    once
}

#[cfg(test)]
mod tests {
    use super::EXCEEDED;
    use crate::cel::Expression;
    use serde_json::{Value, json};

    fn run(source: &str, elements: usize) -> Result<Value, String> {
        let object = json!({"l": (0..elements).collect::<Vec<_>>(), "s": "x".repeat(elements)});
        let expression = Expression::compile(source).map_err(|error| error.to_string())?;
        expression.evaluate(&[("object", &object)]).map_err(|error| error.to_string())
    }

    #[test]
    fn loops_end() {
        for source in [
            "object.l.all(x, object.l.all(y, x >= 0 || y == x))",
            "object.l.exists(x, object.l.exists(y, x < y && y < 0)) || true",
            "object.l.map(x, object.s).size() > 0",
            "object.l.filter(x, object.l.exists(y, y < 0)).size() > 0",
            "object.l.exists_one(x, object.l.all(y, object.l.all(z, true)))",
        ] {
            assert_eq!(run(source, 10_000), Err(EXCEEDED.to_owned()), "{source}");
        }
        let doubled = (0..30).fold("a.size() > 0".to_owned(), |text, _| format!("cel.bind(a, a + a, {text})"));
        let doubled = format!("cel.bind(a, object.s, {doubled})");
        assert_eq!(run(&doubled, 1000), Err(EXCEEDED.to_owned()));
    }

    #[test]
    fn usual_rules_do_not_notice() {
        assert_eq!(run("object.l.all(x, x >= 0)", 20_000), Ok(json!(true)));
        assert_eq!(run("object.l.all(x, object.l.exists(y, x == y))", 300), Ok(json!(true)));
        assert_eq!(run("object.l.map(x, x + 1).size()", 50_000), Ok(json!(50_000)));
        assert_eq!(run("object.l.filter(x, x % 2 == 0).map(x, x > 9, x).size()", 50_000), Ok(json!(24_995)));
        assert_eq!(run("object.s + object.s == object.s", 100_000), Ok(json!(false)));
    }

    #[test]
    fn lists_are_gathered_apart() {
        let nested = "object.l.map(x, object.l.filter(y, y <= x).map(z, [z])).filter(l, l.size() > 1)";
        assert_eq!(run(nested, 3), Ok(json!([[[0], [1]], [[0], [1], [2]]])));
        // an error in the middle of one, which the other side of an `||` makes up for
        let torn = "object.l.all(x, object.l.map(y, 1 / (y - x)).size() < 0 || object.l.map(y, y).size() == 3)";
        assert_eq!(run(torn, 3), Ok(json!(true)));
        assert_eq!(run("object.l.map(x, x) + object.l.filter(x, false) == object.l", 4), Ok(json!(true)));
        assert_eq!(run("[[]].map(x, x + [1])", 0), Ok(json!([[1]])));
    }
}
