//! What an expression may cost at worst, by its types and the bounds that its schema sets (cel-go's estimate with the
//! functions of `k8s.io/apiserver/pkg/cel/library`). Units are cel-go's, about one for each step of evaluation.

mod functions;

use super::check::Checked;
use super::types::{Ty, map_values};
use crate::schema::{Schema, Type};
use functions::Call;
use kube_cel::cel::common::ast::{CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, operators};
use std::collections::BTreeMap;

/// Largest request, bytes: what has no bound of its own is bounded by this.
const REQUEST_BYTES_MAX: u64 = 3 * 1024 * 1024;
/// Most bytes of a character: `maxLength` counts characters.
const CHARACTER_BYTES: u64 = 4;

/// Cost of a name or a field, of a new list, map and object.
const STEP: u64 = 1;
const NEW_LIST: u64 = 10;
const NEW_MAP: u64 = 30;
const NEW_OBJECT: u64 = 40;

/// Fewest and most characters, bytes or elements of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size {
    min: u64,
    max: u64,
}

impl Size {
    const UNKNOWN: Self = Self { min: 0, max: u64::MAX };

    fn exactly(count: u64) -> Self {
        Self { min: count, max: count }
    }

    fn of(count: usize) -> Self {
        Self::exactly(u64::try_from(count).unwrap_or(u64::MAX))
    }

    fn or(self, other: Self) -> Self {
        Self { min: self.min.min(other.min), max: self.max.max(other.max) }
    }

    fn plus(self, other: Self) -> Self {
        Self { min: self.min.saturating_add(other.min), max: self.max.saturating_add(other.max) }
    }

    fn times(self, other: Self) -> Self {
        Self { min: self.min.saturating_mul(other.min), max: self.max.saturating_mul(other.max) }
    }

    /// The cost of going through all of it, at so much each.
    fn at(self, each: f64) -> u64 {
        scaled(self.max, each)
    }
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an estimate, in upstream's arithmetic; a cast from float saturates"
)]
fn scaled(count: u64, each: f64) -> u64 {
    (count as f64 * each).ceil() as u64
}

/// Fewest bytes of JSON that a value can take.
fn bytes_min(schema: &Schema) -> u64 {
    match schema.kind {
        Type::Any | Type::Integer | Type::Number | Type::IntOrString => 1,
        Type::Boolean => 4,
        Type::Array => 2,
        Type::String => match schema.format.as_deref() {
            Some("duration") => 3,
            Some("date") => 12,
            Some("date-time") => 21,
            Some(_) | None => 2,
        },
        Type::Object if map_values(schema).is_some() => 2,
        Type::Object => {
            let required = schema.required.iter().filter_map(|name| Some((name, schema.properties.get(name)?)));
            let stated = required.filter(|(_, property)| property.default.is_none() && property.kind != Type::Any);
            stated.fold(2, |sum, (name, property)| sum + Size::of(name.len()).max + 4 + bytes_min(property))
        }
    }
}

/// Most characters of a string, or elements of a list or map; 0 of what has neither.
fn elements_max(schema: &Schema) -> u64 {
    let constraints = schema.constraints.as_deref();
    let max_length = constraints.and_then(|c| c.max_length);
    let text = REQUEST_BYTES_MAX - 2;
    match schema.kind {
        Type::Any | Type::Integer | Type::Number | Type::Boolean => 0,
        Type::IntOrString => max_length.map_or(text, |most| most.saturating_mul(CHARACTER_BYTES)),
        Type::String => match (schema.format.as_deref(), max_length) {
            (Some("byte"), most) => most.unwrap_or(text),
            (Some("duration" | "date-time"), _) => 32,
            (Some("date"), _) => 12,
            (_, Some(most)) => most.saturating_mul(CHARACTER_BYTES),
            (_, None) => match constraints.map_or(&[][..], |c| &c.enumeration) {
                [] => text,
                words => words
                    .iter()
                    .filter_map(|word| word.as_str())
                    .map(|word| Size::of(word.len()).max)
                    .max()
                    .unwrap_or(0),
            },
        },
        Type::Array => constraints.and_then(|c| c.max_items).unwrap_or_else(|| {
            let each = schema.items.as_deref().map_or(1, bytes_min) + 1;
            (REQUEST_BYTES_MAX - 2) / each
        }),
        Type::Object => map_values(schema).map_or(0, |values| {
            let most = constraints.and_then(|c| c.max_properties);
            most.unwrap_or_else(|| (REQUEST_BYTES_MAX - 2) / (bytes_min(values) + 6))
        }),
    }
}

/// How often a node's rules run at most: once for each value in the lists and maps around it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cardinality(Option<u64>);

impl Cardinality {
    pub(crate) fn once() -> Self {
        Self(Some(1))
    }

    /// For the parts of a value that has `parts` of them at most.
    pub(crate) fn times(self, parts: Option<u64>) -> Self {
        Self(self.0.zip(parts).map(|(outer, inner)| outer.saturating_mul(inner)))
    }

    /// What all runs of a rule of `node` on one object may cost, of which one costs `cost`.
    pub(crate) fn total(self, cost: u64, node: &Schema) -> u64 {
        let runs = self.0.unwrap_or_else(|| REQUEST_BYTES_MAX / (bytes_min(node) + 1));
        cost.saturating_mul(runs)
    }
}

/// What one run of an expression in the rules of `schema` may cost.
pub(super) fn of(checked: &Checked<'_>, schema: &Schema) -> u64 {
    let mut coster = Coster {
        checked,
        root: schema,
        sizes: BTreeMap::new(),
        entries: BTreeMap::new(),
        places: BTreeMap::new(),
        locals: Vec::new(),
    };
    coster.cost(&checked.expr)
}

/// Where in the data a value comes from.
#[derive(Clone, Copy, Debug)]
enum Place<'s> {
    /// It was made, or comes from where the schema says nothing.
    Nowhere,
    At(&'s Schema),
    /// A key of a map.
    Key,
}

impl<'s> Place<'s> {
    fn size(self) -> Option<Size> {
        match self {
            Self::Nowhere => None,
            Self::At(schema) => Some(Size { min: 0, max: elements_max(schema) }),
            Self::Key => Some(Size::exactly(0)),
        }
    }

    fn field(self, name: &str) -> Self {
        let Self::At(schema) = self else { return Self::Nowhere };
        let named = |known: &str| super::escape_field(known).as_deref() == Some(name);
        let found = schema.properties.iter().find(|(known, _)| named(known)).map(|(_, child)| child.as_ref());
        found.filter(|child| child.kind != Type::Any && map_values(schema).is_none()).map_or(Self::Nowhere, Self::At)
    }

    /// Of the elements of a list, or the values of a map.
    fn elements(self) -> Self {
        let Self::At(schema) = self else { return Self::Nowhere };
        schema.items.as_deref().or_else(|| map_values(schema)).map_or(Self::Nowhere, Self::At)
    }

    fn keys(self) -> Self {
        match self {
            Self::At(schema) if map_values(schema).is_some() => Self::Key,
            _ => Self::Nowhere,
        }
    }
}

/// Sizes of what is in a list or a map that an expression makes.
#[derive(Clone, Copy, Debug)]
struct Entries {
    list: bool,
    key: Size,
    value: Size,
}

impl Entries {
    fn or(self, other: Self) -> Self {
        Self { list: self.list, key: self.key.or(other.key), value: self.value.or(other.value) }
    }
}

/// What is known of a variable inside a macro.
#[derive(Clone, Copy, Debug)]
struct Local<'s> {
    place: Place<'s>,
    size: Option<Size>,
    entries: Option<Entries>,
}

struct Coster<'c, 's> {
    checked: &'c Checked<'s>,
    root: &'s Schema,
    /// By the number of an expression.
    sizes: BTreeMap<u64, Size>,
    entries: BTreeMap<u64, Entries>,
    places: BTreeMap<u64, Place<'s>>,
    locals: Vec<(String, Local<'s>)>,
}

impl<'s> Coster<'_, 's> {
    fn local(&self, name: &str) -> Option<Local<'s>> {
        self.locals.iter().rev().find(|(known, _)| known == name).map(|(_, local)| *local)
    }

    fn place(&self, expr: &IdedExpr) -> Place<'s> {
        if let Expr::Ident(name) = &expr.expr
            && let Some(local) = self.local(name)
        {
            return local.place;
        }
        self.places.get(&expr.id).copied().unwrap_or(Place::Nowhere)
    }

    fn size(&self, expr: &IdedExpr) -> Option<Size> {
        let written = || match &expr.expr {
            Expr::Literal(LiteralValue::String(text)) => Some(Size::of(text.inner().chars().count())),
            Expr::Literal(LiteralValue::Bytes(bytes)) => Some(Size::of(bytes.inner().len())),
            Expr::Literal(_) => Some(Size::exactly(1)),
            Expr::List(list) => Some(Size::of(list.elements.len())),
            Expr::Map(map) => Some(Size::of(map.entries.len())),
            _ => None,
        };
        let scalar = || is_scalar(self.checked.ty(expr)).then(|| Size::exactly(1));
        let named = || match &expr.expr {
            Expr::Ident(name) => self.local(name)?.size,
            _ => None,
        };
        let known = self.sizes.get(&expr.id).copied().or_else(written);
        known.or_else(|| self.place(expr).size()).or_else(scalar).or_else(named)
    }

    fn entries(&self, expr: &IdedExpr) -> Option<Entries> {
        let named = || match &expr.expr {
            Expr::Ident(name) => self.local(name)?.entries,
            _ => None,
        };
        self.entries.get(&expr.id).copied().or_else(named)
    }

    fn keep(&mut self, expr: &IdedExpr, size: Option<Size>) {
        self.sizes.extend(size.map(|size| (expr.id, size)));
    }

    fn cost(&mut self, expr: &IdedExpr) -> u64 {
        match &expr.expr {
            Expr::Unspecified | Expr::Literal(_) => 0,
            Expr::Ident(name) => {
                let place = self.local(name).map_or(Place::At(self.root), |local| local.place);
                self.places.insert(expr.id, place);
                STEP
            }
            Expr::Select(select) => {
                let of = self.cost(&select.operand);
                if select.test {
                    return of;
                }
                let place = self.place(&select.operand).field(&select.field);
                self.places.insert(expr.id, place);
                let looks = matches!(self.checked.ty(&select.operand), Ty::Map(..) | Ty::Object(_) | Ty::Other(_));
                of.saturating_add(if looks { STEP } else { 0 })
            }
            Expr::Call(call) => self.call(expr, call),
            Expr::List(list) => {
                let cost = self.all(&list.elements);
                let value = self.united(&list.elements);
                self.entries.insert(expr.id, Entries { list: true, key: Size::exactly(1), value });
                cost.saturating_add(NEW_LIST)
            }
            Expr::Map(map) => {
                let (mut cost, mut key, mut value) = (0_u64, None, None);
                for entry in &map.entries {
                    let EntryExpr::MapEntry(entry) = &entry.expr else { continue };
                    cost = cost.saturating_add(self.cost(&entry.key)).saturating_add(self.cost(&entry.value));
                    let with = |all: Option<Size>, size: Size| Some(all.map_or(size, |all| all.or(size)));
                    key = with(key, self.size(&entry.key).unwrap_or(Size::UNKNOWN));
                    value = with(value, self.size(&entry.value).unwrap_or(Size::UNKNOWN));
                }
                let none = Size::exactly(0);
                let entries = Entries { list: false, key: key.unwrap_or(none), value: value.unwrap_or(none) };
                self.entries.insert(expr.id, entries);
                cost.saturating_add(NEW_MAP)
            }
            Expr::Struct(_) => NEW_OBJECT,
            Expr::Comprehension(inner) => self.comprehension(expr, inner),
        }
    }

    fn all(&mut self, exprs: &[IdedExpr]) -> u64 {
        exprs.iter().fold(0, |sum: u64, expr| sum.saturating_add(self.cost(expr)))
    }

    /// The size that any of these may have; none of them: nothing.
    fn united(&self, exprs: &[IdedExpr]) -> Size {
        let sizes = exprs.iter().map(|expr| self.size(expr).unwrap_or(Size::UNKNOWN));
        sizes.reduce(Size::or).unwrap_or(Size::exactly(0))
    }

    fn call(&mut self, expr: &IdedExpr, call: &CallExpr) -> u64 {
        let costs: Vec<u64> = call.args.iter().map(|arg| self.cost(arg)).collect();
        let below = costs.iter().fold(0, |sum: u64, cost| sum.saturating_add(*cost));
        if call.func_name == operators::OPT_SELECT {
            return below.saturating_add(STEP);
        }
        if let ("dyn", [inner]) = (call.func_name.as_str(), call.args.as_slice()) {
            let (size, entries) = (self.size(inner), self.entries(inner));
            self.keep(expr, size);
            self.entries.extend(entries.map(|entries| (expr.id, entries)));
            return below.saturating_add(STEP);
        }
        let signatures = self.checked.calls.get(&expr.id).cloned().unwrap_or_default();
        let mut on = 0;
        let mut target = None;
        if let Some(of) = call.target.as_deref()
            && signatures.iter().any(|signature| signature.method)
        {
            on = self.cost(of);
            target = Some(of);
        }
        let (mut most, mut size): (u64, Option<Size>) = (0, None);
        for signature in &signatures {
            let call = Call { signature, expr, target, args: &call.args, costs: &costs };
            let (cost, result) = self.function(&call);
            most = most.max(cost);
            if let Some(result) = result {
                size = Some(size.map_or(result, |size| size.or(result)));
            }
            if let (operators::INDEX, [of, _]) = (signature.name, call.args)
                && matches!(signature.params.first(), Some(Ty::List(_) | Ty::Map(..)))
            {
                size = self.entries(of).map(|entries| entries.value);
                let place = self.place(of).elements();
                self.places.insert(expr.id, place);
            }
            if size.is_none() {
                size = self.size(expr);
            }
        }
        self.keep(expr, size);
        on.saturating_add(most)
    }

    fn comprehension(&mut self, expr: &IdedExpr, inner: &ComprehensionExpr) -> u64 {
        let mut cost = self.cost(&inner.iter_range).saturating_add(self.cost(&inner.accu_init));
        let accumulated = Local {
            place: self.place(&inner.accu_init),
            size: self.size(&inner.accu_init),
            entries: self.entries(&inner.accu_init),
        };
        let depth = self.locals.len();
        self.locals.push((inner.accu_var.clone(), accumulated));
        if is_binding(inner) {
            cost = cost.saturating_add(self.cost(&inner.result));
            let (size, entries) = (self.size(&inner.result), self.entries(&inner.result));
            self.locals.truncate(depth);
            self.keep(expr, size);
            self.entries.extend(entries.map(|entries| (expr.id, entries)));
            return cost;
        }
        let (entries, place) = (self.entries(&inner.iter_range), self.place(&inner.iter_range));
        let list = match &entries {
            Some(entries) => entries.list,
            None => matches!(self.checked.ty(&inner.iter_range), Ty::List(_)),
        };
        let key = Local { place: place.keys(), size: entries.map(|entries| entries.key), entries: None };
        let value = Local { place: place.elements(), size: entries.map(|entries| entries.value), entries: None };
        let first = if list && inner.iter_var2.is_none() { value } else { key };
        self.locals.push((inner.iter_var.clone(), first));
        self.locals.extend(inner.iter_var2.iter().map(|name| (name.clone(), value)));
        let turn = self.cost(&inner.loop_cond).saturating_add(self.cost(&inner.loop_step));
        self.locals.truncate(depth + 1);
        cost = cost.saturating_add(self.cost(&inner.result));
        self.locals.truncate(depth);
        let turns = self.size(&inner.iter_range).unwrap_or(Size::UNKNOWN);
        cost = cost.saturating_add(turns.max.saturating_mul(turn));
        match &inner.accu_init.expr {
            Expr::Literal(_) => {
                let size = self.size(&inner.accu_init);
                self.keep(expr, size);
            }
            Expr::List(_) | Expr::Map(_) => {
                self.keep(expr, Some(turns));
                let entries = self.entries(&inner.loop_step);
                self.entries.extend(entries.map(|entries| (expr.id, entries)));
            }
            _ => {}
        }
        cost
    }
}

/// Whether values of the type all have the same size.
fn is_scalar(ty: &Ty<'_>) -> bool {
    match ty {
        Ty::Bool | Ty::Double | Ty::Duration | Ty::Int | Ty::Timestamp | Ty::Uint => true,
        Ty::Optional(inner) => is_scalar(inner),
        _ => false,
    }
}

/// Whether a comprehension gives a name to a value and loops over nothing.
fn is_binding(inner: &ComprehensionExpr) -> bool {
    let over_nothing = matches!(&inner.iter_range.expr, Expr::List(list) if list.elements.is_empty());
    let never = matches!(&inner.loop_cond.expr, Expr::Literal(LiteralValue::Boolean(flag)) if !*flag.inner());
    over_nothing && never
}

#[cfg(test)]
mod tests;
