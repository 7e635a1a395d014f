//! What calls of functions and operators cost, and how large their results may be.

use super::*;
use crate::cel::signatures::Signature;

/// Cost of going once through a string, for each character.
const PER_CHARACTER: f64 = 0.1;
/// Cost of a regular expression for each of its characters, and for each character of the text.
const PER_PATTERN_CHARACTER: f64 = 0.25;
/// Of a check of rights: two fit into what a rule may cost.
const CHECK: u64 = 350_000;
/// Characters of the longest pattern of a named format.
const FORMAT_PATTERN: f64 = 128.0;
/// Characters of the longest name of one.
const FORMAT_NAME: u64 = 64;
/// Most bytes of an address.
const ADDRESS: u64 = 16;

/// A call, with one of the signatures that its arguments fit.
pub(super) struct Call<'a> {
    pub signature: &'static Signature,
    pub expr: &'a IdedExpr,
    pub target: Option<&'a IdedExpr>,
    pub args: &'a [IdedExpr],
    pub costs: &'a [u64],
}

impl Coster<'_, '_> {
    /// What a call costs with its arguments, and the size of its result where that is known.
    pub(super) fn function(&mut self, call: &Call<'_>) -> (u64, Option<Size>) {
        let below = call.costs.iter().fold(0, |sum: u64, cost| sum.saturating_add(*cost));
        if let (operators::LOGICAL_AND | operators::LOGICAL_OR, _) = (call.signature.name, ()) {
            return (below, None);
        }
        if let (operators::CONDITIONAL, [condition, yes, no]) = (call.signature.name, call.costs) {
            let entries = self.entries(&call.args[1]).zip(self.entries(&call.args[2]));
            self.entries.extend(entries.map(|(yes, no)| (call.expr.id, yes.or(no))));
            let size = self.sized(&call.args[1]).or(self.sized(&call.args[2]));
            return (condition.saturating_add(*yes.max(no)), Some(size));
        }
        let (own, size) = self.own(call);
        (own.saturating_add(below), size)
    }

    fn sized(&self, expr: &IdedExpr) -> Size {
        self.size(expr).unwrap_or(Size::UNKNOWN)
    }

    /// The size of the elements of a list, with the list's type and place.
    fn element(&self, list: &IdedExpr) -> Size {
        self.place(list).elements().size().unwrap_or(Size::UNKNOWN)
    }

    fn own(&mut self, call: &Call<'_>) -> (u64, Option<Size>) {
        let args: Vec<Size> = call.args.iter().map(|arg| self.sized(arg)).collect();
        let on = call.target.map(|target| self.sized(target));
        let first = args.first().copied().unwrap_or(Size::UNKNOWN);
        let once = |size: Size| size.at(PER_CHARACTER);
        let twice = |size: Size| size.at(2.0 * PER_CHARACTER);
        let pattern = |text: Size, pattern: Size| {
            let text = once(text.plus(Size::exactly(1)));
            text.saturating_mul(pattern.at(PER_PATTERN_CHARACTER))
        };
        // a new list whose elements cost so much each
        let list = |each: f64, size: Size| (size.at(each).saturating_add(STEP).saturating_add(NEW_LIST), Some(size));
        let params = call.signature.params.as_slice();
        match (call.signature.name, on, args.as_slice()) {
            ("check", ..) => (CHECK, None),
            ("fieldSelector" | "labelSelector", _, [text]) => {
                let requirements = Size::exactly(text.at(0.5));
                let each = NEW_LIST.saturating_add(NEW_OBJECT);
                (NEW_LIST + once(*text) + requirements.max.saturating_mul(each), None)
            }
            ("slice", Some(on), [_, _]) => {
                let (from, to) = (number(&call.args[0]).unwrap_or(0), number(&call.args[1]).unwrap_or(on.max));
                list(1.0, Size::exactly(to.wrapping_sub(from)))
            }
            ("lists.range", _, [_]) => list(1.0, Size::exactly(number(&call.args[0]).unwrap_or(u64::MAX))),
            ("reverse", Some(on), []) => list(1.0, on),
            ("flatten", Some(on), depth) => {
                let depth = if depth.is_empty() { Some(1) } else { number(&call.args[0]) };
                (
                    Size::exactly(on.max.saturating_mul(depth.unwrap_or(u64::MAX))).max.saturating_add(STEP + NEW_LIST),
                    Some(on),
                )
            }
            ("distinct", Some(on), []) => list(2.0, on.times(on)),
            ("sort", Some(on), []) => list(sorting(params.first()), on.times(on)),
            ("@sortByAssociatedKeys", Some(_), [keys]) => list(sorting(params.get(1)), keys.times(*keys)),
            ("sets.contains" | "sets.intersects", _, [a, b]) => (a.times(*b).max.saturating_add(STEP), None),
            ("sets.equivalent", _, [a, b]) => (a.times(*b).at(2.0).saturating_add(STEP), None),
            ("isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf", Some(on), _) => {
                let target = call.target.map(|target| (target, self.checked.ty(target)));
                let Some((target, Ty::List(item))) = target else { return (once(on), None) };
                let texts = matches!(**item, Ty::String | Ty::Bytes);
                let each = if texts { once(self.element(target)).saturating_add(1) } else { 1 };
                (on.max.saturating_mul(each), None)
            }
            ("url", _, [text]) => (once(*text), Some(*text)),
            ("lowerAscii" | "upperAscii" | "substring" | "trim", Some(on), _) => (once(on), Some(on)),
            ("replace", Some(on), [what, with, ..]) => (twice(on), Some(replaced(on, *what, *with))),
            ("split", Some(on), rest) => {
                let most = if rest.len() > 1 { number(&call.args[1]) } else { None };
                (twice(on), Some(Size { min: 0, max: most.unwrap_or(on.max) }))
            }
            ("join", Some(on), rest) => {
                let target = call.target.map(|target| self.element(target));
                let mut size = on.times(target.unwrap_or(Size::UNKNOWN));
                if let [between, ..] = rest {
                    let gaps = Size { min: on.min.saturating_sub(1), max: on.max.saturating_sub(1) };
                    size = size.plus(between.times(gaps));
                }
                (once(size), Some(size))
            }
            ("find" | "findAll", Some(on), [by, ..]) => (pattern(on, *by), Some(Size { min: 0, max: on.max })),
            ("ip", Some(_), _) => (STEP, None),
            ("cidr" | "isIP" | "isCIDR" | "ip" | "quantity" | "isQuantity" | "semver" | "isSemver", ..) => {
                (once(first), None)
            }
            ("ip.isCanonical", ..) => (twice(first), None),
            ("containsIP" | "containsCIDR", Some(_), [other]) => {
                let addresses = Size::exactly(ADDRESS);
                let mut cost = once(addresses.plus(addresses));
                if call.signature.name == "containsCIDR" {
                    cost += once(addresses) + 1;
                }
                let parsed = if params.get(1) == Some(&Ty::String) { once(*other) } else { 0 };
                (cost.saturating_add(parsed), None)
            }
            ("validate", Some(_), [text]) => (scaled(once(*text), FORMAT_PATTERN * PER_PATTERN_CHARACTER), None),
            ("format", Some(on), _) => (once(on), None),
            ("bytes", _, [text]) if params == [Ty::String] => {
                (once(*text), Some(Size { min: text.min, max: text.max.wrapping_mul(4) }))
            }
            ("string", _, [bytes]) if params == [Ty::Bytes] => {
                (once(*bytes), Some(Size { min: bytes.min / 4, max: bytes.max }))
            }
            ("strings.quote", _, [text]) => {
                let max = text.max.wrapping_mul(2).wrapping_add(2);
                (once(*text), Some(Size { min: text.min.saturating_add(2), max }))
            }
            ("startsWith" | "endsWith", Some(_), [part]) => (once(*part), None),
            (operators::IN, _, [_, of]) if matches!(params, [_, Ty::List(_)]) => (of.max, None),
            ("matches", Some(on), [by]) => (pattern(on, *by), None),
            ("contains", Some(on), [part]) => (once(on).saturating_mul(once(*part)), None),
            (operators::ADD, _, [a, b]) if matches!(params, [Ty::String | Ty::Bytes | Ty::List(_), ..]) => {
                let entries = self.entries(&call.args[0]).zip(self.entries(&call.args[1]));
                self.entries.extend(entries.map(|(a, b)| (call.expr.id, a.or(b))));
                let size = a.plus(*b);
                // lists are joined without a copy
                (if matches!(params, [Ty::List(_), ..]) { STEP } else { once(size) }, Some(size))
            }
            (operators::EQUALS | operators::NOT_EQUALS, _, [a, b]) => (self.equality(call, *a, *b), None),
            (operators::LESS | operators::LESS_EQUALS | operators::GREATER | operators::GREATER_EQUALS, _, [a, b])
                if matches!(params, [Ty::String | Ty::Bytes, ..]) =>
            {
                (once(Size::exactly(a.max.min(b.max))), None)
            }
            _ => (STEP, None),
        }
    }

    fn equality(&self, call: &Call<'_>, a: Size, b: Size) -> u64 {
        let types: Vec<&Ty<'_>> = call.args.iter().map(|arg| self.checked.ty(arg)).collect();
        if let (operators::EQUALS, [Ty::Other(name), Ty::Other(other)]) = (call.signature.name, types.as_slice())
            && name == other
        {
            return match *name {
                "kubernetes.NamedFormat" => scaled(FORMAT_NAME, PER_CHARACTER),
                "kubernetes.URL" => {
                    scaled(call.args.get(1).and_then(|url| self.size(url)).map_or(1, |size| size.max), PER_CHARACTER)
                }
                _ => STEP,
            };
        }
        scaled(a.max.min(b.max), PER_CHARACTER)
    }
}

/// Each comparison of a sort costs two, and texts are gone through.
fn sorting(keys: Option<&Ty<'_>>) -> f64 {
    let texts = matches!(keys, Some(Ty::List(item)) if matches!(**item, Ty::String | Ty::Bytes));
    if texts { 2.0 + PER_CHARACTER } else { 2.0 }
}

/// The number that is written as an argument.
fn number(expr: &IdedExpr) -> Option<u64> {
    match &expr.expr {
        Expr::Literal(LiteralValue::Int(number)) => u64::try_from(*number.inner()).ok(),
        _ => None,
    }
}

/// How long a text may be in which some parts were replaced by others.
fn replaced(text: Size, what: Size, with: Size) -> Size {
    let max = if what.min == 0 {
        // nothing is found around each character
        text.max.saturating_add(1).saturating_mul(with.max).saturating_add(text.max)
    } else if with.max <= what.min {
        text.max
    } else {
        text.max.div_ceil(what.min).saturating_mul(with.max)
    };
    let min = if what.max == 0 {
        text.min.saturating_add(1).saturating_mul(with.min).saturating_add(text.min)
    } else if what.max <= with.min {
        text.min
    } else {
        text.min.div_ceil(what.max).saturating_mul(with.min)
    };
    Size { min, max }
}
