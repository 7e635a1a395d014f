//! The types of an expression's parts, from the leaves up.

use super::super::TYPE_NAMES;
use super::super::names::RESERVED;
use super::super::patch::{JSON_PATCH, OBJECT, is_below_object};
use super::super::signatures::{self, Signature, VARIABLES};
use super::super::types::{Known, Ty};
use super::OLD;
use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr, IdedExpr, LiteralValue, StructExpr, operators,
};
use std::collections::BTreeMap;

pub(super) struct Checker<'s> {
    pub names: Vec<(String, Ty<'s>)>,
    /// So many of them are not of a macro.
    pub given: usize,
    pub known: Known<'s>,
    /// How many variables of types there are.
    pub variables: u32,
    pub types: BTreeMap<u64, Ty<'s>>,
    pub calls: BTreeMap<u64, Vec<&'static Signature>>,
    /// By the number of the part at fault.
    pub faults: Vec<(u64, String)>,
    pub uses_old: bool,
    /// The types of which patches are made are known.
    pub patch: bool,
    pub mentioned: Option<String>,
}

impl<'s> Checker<'s> {
    fn fault(&mut self, id: u64, why: String) -> Ty<'s> {
        self.faults.push((id, why));
        Ty::Error
    }

    fn variable(&mut self) -> Ty<'s> {
        self.variables += 1;
        Ty::Var(self.variables - 1)
    }

    pub fn check(&mut self, expr: &IdedExpr) -> Ty<'s> {
        let ty = self.infer(expr);
        self.types.insert(expr.id, ty.clone());
        ty
    }

    fn infer(&mut self, expr: &IdedExpr) -> Ty<'s> {
        let undeclared = |name: &str| format!("undeclared reference to '{name}' (in container '')");
        match &expr.expr {
            Expr::Unspecified => Ty::Dyn,
            Expr::Literal(literal) => match literal {
                LiteralValue::Boolean(_) => Ty::Bool,
                LiteralValue::Bytes(_) => Ty::Bytes,
                LiteralValue::Double(_) => Ty::Double,
                LiteralValue::Int(_) => Ty::Int,
                LiteralValue::Null => Ty::Null,
                LiteralValue::String(_) => Ty::String,
                LiteralValue::UInt(_) => Ty::Uint,
            },
            Expr::Ident(name) => {
                let found = self.names.iter().rposition(|(known, _)| known == name);
                self.uses_old |= name == OLD && found.is_some_and(|at| at < self.given);
                match found.and_then(|at| self.names.get(at)) {
                    Some((_, ty)) => ty.clone(),
                    None => type_name(name).or_else(|| self.mention(name)).unwrap_or_else(|| {
                        match RESERVED.contains(&name.as_str()) {
                            true => self.fault(expr.id, format!("reserved identifier: {name}")),
                            false => self.fault(expr.id, undeclared(name)),
                        }
                    }),
                }
            }
            Expr::Select(select) => {
                if let Some(name) = qualified(expr)
                    && let Some((_, ty)) = self.names.iter().find(|(known, _)| *known == name)
                {
                    return ty.clone();
                }
                if !select.test
                    && let Some(ty) = qualified(expr).and_then(|name| self.mention(&name))
                {
                    return ty;
                }
                let field = self.select(expr.id, &select.operand, &select.field, false);
                let field = self.known.resolve(&field, false);
                if select.test { Ty::Bool } else { field }
            }
            Expr::Call(call) => self.call(expr.id, call),
            Expr::List(list) => {
                let mut joined = None;
                for (at, item) in list.elements.iter().enumerate() {
                    let ty = self.check(item);
                    let ty = self.optional(item.id, ty, list.optional_indices.contains(&at));
                    joined = Some(self.join(joined, ty));
                }
                let item = joined.unwrap_or_else(|| self.variable());
                Ty::List(Box::new(item))
            }
            Expr::Map(map) => {
                let (mut keys, mut values) = (None, None);
                for entry in &map.entries {
                    let EntryExpr::MapEntry(entry) = &entry.expr else { continue };
                    let key = self.check(&entry.key);
                    keys = Some(self.join(keys, key));
                    let value = self.check(&entry.value);
                    let value = self.optional(entry.value.id, value, entry.optional);
                    values = Some(self.join(values, value));
                }
                let key = keys.unwrap_or_else(|| self.variable());
                let value = values.unwrap_or_else(|| self.variable());
                Ty::Map(Box::new(key), Box::new(value))
            }
            Expr::Struct(object) => match self.patch_type(&object.type_name) {
                Some(ty) => self.patch(object, ty),
                None => self.fault(expr.id, undeclared(&object.type_name)),
            },
            Expr::Comprehension(inner) => self.comprehension(inner),
        }
    }

    /// The type of that name of which patches are made.
    fn patch_type(&self, name: &str) -> Option<Ty<'s>> {
        let known = self.patch && (name == JSON_PATCH || name == OBJECT || is_below_object(name));
        known.then(|| Ty::Patch(name.to_owned()))
    }

    /// The type of the name of such a type.
    fn mention(&mut self, name: &str) -> Option<Ty<'s>> {
        let ty = self.patch_type(name)?;
        self.mentioned = Some(name.to_owned());
        Some(Ty::Type(Box::new(ty)))
    }

    /// A part of a patch, made of its fields (`Object.spec{replicas: 1}`).
    fn patch(&mut self, object: &StructExpr, ty: Ty<'s>) -> Ty<'s> {
        for entry in &object.entries {
            let EntryExpr::StructField(field) = &entry.expr else { continue };
            let value = self.check(&field.value);
            let value = self.optional(field.value.id, value, field.optional);
            if object.type_name != JSON_PATCH {
                continue;
            }
            let wanted = match field.field.as_str() {
                "op" | "path" | "from" => Some(Ty::String),
                "value" => Some(Ty::Dyn),
                // cel-go has a field of any name there, of a type that has none
                _ => None,
            };
            let fits = wanted.as_ref().is_some_and(|ty| self.known.all_agree(&[(ty.clone(), value.clone())]));
            if !fits {
                let wanted = wanted.map_or_else(String::new, |ty| ty.text());
                let found = self.known.resolve(&value, true).text();
                let name = &field.field;
                self.fault(
                    entry.id,
                    format!("expected type of field '{name}' is '{wanted}' but provided type is '{found}'"),
                );
            }
        }
        ty
    }

    /// The type of an element that may be left out, which an optional says.
    fn optional(&mut self, id: u64, ty: Ty<'s>, may_be_absent: bool) -> Ty<'s> {
        if !may_be_absent {
            return ty;
        }
        let (inner, is_optional) = ty.unwrapped();
        if !is_optional && *inner != Ty::Dyn {
            self.mismatch(id, &Ty::Optional(Box::new(inner.clone())), inner);
        }
        inner.clone()
    }

    /// The type of elements, some of which have this type and others that one.
    fn join(&mut self, before: Option<Ty<'s>>, ty: Ty<'s>) -> Ty<'s> {
        let Some(before) = before else { return ty };
        self.known.join(&before, &ty).unwrap_or(Ty::Dyn)
    }

    fn mismatch(&mut self, id: u64, wanted: &Ty<'s>, found: &Ty<'s>) -> Ty<'s> {
        self.fault(id, format!("expected type '{}' but found '{}'", wanted.text(), found.text()))
    }

    fn select(&mut self, id: u64, operand: &IdedExpr, field: &str, optional: bool) -> Ty<'s> {
        let of = self.check(operand);
        let of = self.known.resolve(&of, false);
        let (target, is_optional) = of.unwrapped();
        let result = match target {
            Ty::Map(_, value) => (**value).clone(),
            Ty::Object(object) => match object.field(field) {
                Some((ty, _)) => ty,
                None => self.fault(id, format!("undefined field '{field}'")),
            },
            Ty::Patch(name) if name == JSON_PATCH && ["op", "path", "from"].contains(&field) => Ty::String,
            Ty::Dyn | Ty::Error | Ty::Patch(_) => Ty::Dyn,
            Ty::Var(_) => {
                self.known.all_agree(&[(Ty::Dyn, target.clone())]);
                Ty::Dyn
            }
            // the library declares these as objects whose fields nobody knows
            Ty::Other(name) if name.starts_with("kubernetes.") => {
                self.fault(id, format!("unexpected failed resolution of '{name}'"));
                Ty::Dyn
            }
            other => {
                self.fault(id, format!("type '{}' does not support field selection", other.text()));
                Ty::Dyn
            }
        };
        if is_optional || optional { Ty::Optional(Box::new(result)) } else { result }
    }

    fn call(&mut self, id: u64, call: &CallExpr) -> Ty<'s> {
        let name = call.func_name.as_str();
        if let (operators::OPT_SELECT, [operand, field]) = (name, call.args.as_slice())
            && let Expr::Literal(LiteralValue::String(field)) = &field.expr
        {
            let field = self.select(id, operand, field.inner(), true);
            return self.known.resolve(&field, false);
        }
        let mut args: Vec<(u64, Ty<'s>)> = call.args.iter().map(|arg| (arg.id, self.check(arg))).collect();
        let undeclared = |name: &str| format!("undeclared reference to '{name}' (in container '')");
        let Some(target) = &call.target else {
            return match signatures::of(name) {
                Some(overloads) => self.overload(id, overloads, false, &args),
                None => self.fault(id, undeclared(name)),
            };
        };
        if let Some(prefix) = qualified(target)
            && (self.patch || prefix != "jsonpatch")
            && let Some(overloads) = signatures::of(&format!("{prefix}.{name}"))
        {
            return self.overload(id, overloads, false, &args);
        }
        let on = self.check(target);
        args.insert(0, (target.id, on));
        match signatures::of(name) {
            Some(overloads) => self.overload(id, overloads, true, &args),
            None => self.fault(id, undeclared(name)),
        }
    }

    /// The result of a call, by all signatures that its arguments fit.
    fn overload(&mut self, id: u64, overloads: &'static [Signature], method: bool, args: &[(u64, Ty<'s>)]) -> Ty<'s> {
        let name = overloads.first().map_or("", |first| first.name);
        if matches!(name, operators::LOGICAL_AND | operators::LOGICAL_OR) {
            return self.logical(id, overloads, args);
        }
        let mut result: Option<Ty<'s>> = None;
        let mut fitting = Vec::new();
        for signature in overloads.iter().filter(|s| s.method == method && s.params.len() == args.len()) {
            let first = self.variables;
            self.variables += VARIABLES;
            let pairs: Vec<(Ty<'s>, Ty<'s>)> = args
                .iter()
                .zip(&signature.params)
                .map(|((_, arg), param)| (arg.clone(), param.renumbered(first)))
                .collect();
            if !self.known.all_agree(&pairs) {
                continue;
            }
            fitting.push(signature);
            let this = self.known.resolve(&signature.result.renumbered(first), false);
            result = Some(match result {
                None => this,
                Some(before) if before == Ty::Dyn || before == this => before,
                Some(_) => Ty::Dyn,
            });
        }
        let Some(result) = result else {
            let mut shown: Vec<String> = args.iter().map(|(_, ty)| self.known.resolve(ty, true).text()).collect();
            let receiver = if method { format!("{}.", shown.remove(0)) } else { String::new() };
            let why = format!("found no matching overload for '{name}' applied to '{receiver}({})'", shown.join(", "));
            return self.fault(id, why);
        };
        self.calls.insert(id, fitting);
        result
    }

    fn logical(&mut self, id: u64, overloads: &'static [Signature], args: &[(u64, Ty<'s>)]) -> Ty<'s> {
        let mut result = Ty::Bool;
        for (arg, ty) in args {
            if !self.known.all_agree(&[(ty.clone(), Ty::Bool)]) {
                result = self.mismatch(*arg, &Ty::Bool, ty);
            }
        }
        self.calls.insert(id, overloads.iter().collect());
        result
    }

    fn comprehension(&mut self, inner: &ComprehensionExpr) -> Ty<'s> {
        let range = self.check(&inner.iter_range);
        let accumulated = self.check(&inner.accu_init);
        let range = self.known.resolve(&range, false);
        let two = inner.iter_var2.is_some();
        let (first, second) = match range {
            Ty::List(item) if two => (Ty::Int, *item),
            Ty::List(item) => (*item, Ty::Dyn),
            Ty::Map(key, value) => (*key, *value),
            Ty::Dyn | Ty::Error | Ty::Var(_) => {
                self.known.all_agree(&[(Ty::Dyn, range)]);
                (Ty::Dyn, Ty::Dyn)
            }
            other => {
                let why = format!(
                    "expression of type '{}' cannot be range of a comprehension (must be list, map, or dynamic)",
                    other.text()
                );
                self.fault(inner.iter_range.id, why);
                (Ty::Error, Ty::Error)
            }
        };
        let depth = self.names.len();
        self.names.push((inner.accu_var.clone(), accumulated.clone()));
        self.names.push((inner.iter_var.clone(), first));
        self.names.extend(inner.iter_var2.iter().map(|name| (name.clone(), second.clone())));
        let condition = self.check(&inner.loop_cond);
        self.expect(inner.loop_cond.id, &Ty::Bool, &condition);
        let step = self.check(&inner.loop_step);
        self.expect(inner.loop_step.id, &accumulated, &step);
        // what is named in a turn is not known after it
        self.names.truncate(depth + 1);
        let result = self.check(&inner.result);
        self.names.truncate(depth);
        self.known.resolve(&result, false)
    }

    fn expect(&mut self, id: u64, wanted: &Ty<'s>, found: &Ty<'s>) {
        if !self.known.all_agree(&[(wanted.clone(), found.clone())]) {
            self.mismatch(id, wanted, found);
        }
    }
}

/// What a name of a type evaluates to.
fn type_name<'s>(name: &str) -> Option<Ty<'s>> {
    if !TYPE_NAMES.contains(&name) {
        return None;
    }
    let of = if name == "null_type" { Ty::Null } else { signatures::ty(name) };
    Some(Ty::Type(Box::new(of)))
}

/// The name that an expression may be (`format`, `a.b`).
fn qualified(expr: &IdedExpr) -> Option<String> {
    match &expr.expr {
        Expr::Ident(name) => Some(name.clone()),
        Expr::Select(select) if !select.test => Some(format!("{}.{}", qualified(&select.operand)?, select.field)),
        _ => None,
    }
}
