//! Types of CEL: how messages write them, and which may stand where another is wanted (cel-go's unification).

use crate::schema::{Schema, Type};
use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Ty<'s> {
    /// Any type: what is done with it shows when it is evaluated.
    Dyn,
    /// Of an expression that has a fault of its own; it causes no more of them.
    Error,
    Bool,
    Int,
    Uint,
    Double,
    String,
    Bytes,
    Timestamp,
    Duration,
    Null,
    /// Of the name of a type.
    Type(Box<Ty<'s>>),
    List(Box<Ty<'s>>),
    Map(Box<Ty<'s>>, Box<Ty<'s>>),
    Object(Object<'s>),
    Optional(Box<Ty<'s>>),
    /// Of a library: quantities, URLs, addresses.
    Other(&'static str),
    /// What patches are made of: `JSONPatch`, or an `Object` whose fields have any type.
    Patch(String),
    /// A parameter of a signature, or a type that is not known yet.
    Var(u32),
}

/// An object with the fields of a schema; two are the same type only if they are the same node.
#[derive(Clone, Debug)]
pub(super) struct Object<'s> {
    pub schema: &'s Schema,
    /// Upstream gives each type a name of its own.
    pub name: String,
    pub fields: Fields,
}

/// Which of a node's properties are fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fields {
    All,
    /// Of an object with `metadata`, in which rules see two fields.
    Resource,
    /// That metadata.
    Metadata,
}

impl PartialEq for Object<'_> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.schema, other.schema)
    }
}

/// What rules see of `metadata`.
const METADATA: [&str; 2] = ["name", "generateName"];

/// The name of a schema's own type. Upstream's ends with a number of chance.
const SELF_TYPE: &str = "selfType1";

impl<'s> Object<'s> {
    /// The type of a field by the name that CEL has for it, and its schema.
    pub fn field(&self, name: &str) -> Option<(Ty<'s>, &'s Schema)> {
        // a word that CEL keeps for itself may follow a dot
        let kept = super::names::RESERVED.contains(&name);
        let named = |known: &str| (kept && known == name) || super::escape_field(known).as_deref() == Some(name);
        let (known, schema) = self.schema.properties.iter().find(|(known, _)| named(known))?;
        if self.fields == Fields::Metadata && !METADATA.contains(&known.as_str()) {
            return None;
        }
        let fields = match self.fields {
            Fields::Resource if known == "metadata" => Fields::Metadata,
            _ => Fields::of(schema),
        };
        Some((Ty::named(schema, &format!("{}.{name}", self.name), fields)?, schema))
    }
}

/// The schema of a map's values. An object that merely may have more members than it names is none.
pub(super) fn map_values(schema: &Schema) -> Option<&Schema> {
    schema.additional.as_deref().filter(|values| values.kind != Type::Any || values.preserve_unknown)
}

impl Fields {
    fn of(schema: &Schema) -> Self {
        if schema.embedded { Self::Resource } else { Self::All }
    }
}

impl<'s> Ty<'s> {
    /// The type of `self` in the rules of a node; `root`: of a whole custom resource. `None`: rules cannot see such values.
    pub fn of(schema: &'s Schema, root: bool) -> Option<Self> {
        Self::named(schema, SELF_TYPE, if root { Fields::Resource } else { Fields::of(schema) })
    }

    fn named(schema: &'s Schema, name: &str, fields: Fields) -> Option<Self> {
        Some(match schema.kind {
            Type::Any => return None,
            Type::IntOrString => Self::Dyn,
            Type::Boolean => Self::Bool,
            Type::Integer => Self::Int,
            Type::Number => Self::Double,
            Type::String => match schema.format.as_deref() {
                Some("byte") => Self::Bytes,
                Some("date" | "date-time") => Self::Timestamp,
                Some("duration") => Self::Duration,
                Some(_) | None => Self::String,
            },
            Type::Array => {
                let items = schema.items.as_deref()?;
                Self::List(Box::new(Self::named(items, &format!("{name}.@idx"), Fields::of(items))?))
            }
            Type::Object => match map_values(schema) {
                Some(values) => {
                    let value = Self::named(values, &format!("{name}.@elem"), Fields::of(values))?;
                    Self::Map(Box::new(Self::String), Box::new(value))
                }
                None => Self::Object(Object { schema, name: schema.go.unwrap_or(name).to_owned(), fields }),
            },
        })
    }

    /// As messages write it.
    pub fn text(&self) -> String {
        let plain = match self {
            Self::Dyn => "dyn",
            Self::Error => "!error!",
            Self::Bool => "bool",
            Self::Int => "int",
            Self::Uint => "uint",
            Self::Double => "double",
            Self::String => "string",
            Self::Bytes => "bytes",
            Self::Timestamp => "timestamp",
            Self::Duration => "duration",
            Self::Null => "null",
            Self::Other(name) => name,
            Self::Object(object) => &object.name,
            Self::Patch(name) => name,
            Self::Type(of) => return format!("type({})", of.text()),
            Self::List(item) => return format!("list({})", item.text()),
            Self::Map(key, value) => return format!("map({}, {})", key.text(), value.text()),
            Self::Optional(inner) => return format!("optional_type({})", inner.text()),
            Self::Var(number) => return format!("_var{number}"),
        };
        plain.to_owned()
    }

    /// Whether nothing is known of its values.
    pub fn is_open(&self) -> bool {
        matches!(self, Self::Dyn | Self::Error)
    }

    /// The type in an optional, or the type itself; and whether it was one.
    pub fn unwrapped(&self) -> (&Self, bool) {
        match self {
            Self::Optional(inner) => (inner, true),
            other => (other, false),
        }
    }

    /// The same with every type inside it replaced.
    fn map(&self, change: &mut impl FnMut(&Self) -> Self) -> Self {
        match self {
            Self::Type(of) => Self::Type(Box::new(change(of))),
            Self::List(item) => Self::List(Box::new(change(item))),
            Self::Map(key, value) => Self::Map(Box::new(change(key)), Box::new(change(value))),
            Self::Optional(inner) => Self::Optional(Box::new(change(inner))),
            other => other.clone(),
        }
    }

    /// With its variables counted from `first`.
    pub fn renumbered(&self, first: u32) -> Self {
        match self {
            Self::Var(number) => Self::Var(number + first),
            other => other.map(&mut |inner| inner.renumbered(first)),
        }
    }

    /// Whether it says no more than `other` does, with which it agrees.
    fn is_vaguer(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Dyn | Self::Var(_), _) => true,
            (_, Self::Dyn | Self::Var(_)) => false,
            (Self::List(a), Self::List(b)) | (Self::Optional(a), Self::Optional(b)) => a.is_vaguer(b),
            (Self::Map(k, v), Self::Map(l, w)) => k.is_vaguer(l) && v.is_vaguer(w),
            (Self::Type(_), Self::Type(_)) => true,
            (a, b) => a == b,
        }
    }
}

/// What the variables of types stand for, as far as it is known.
#[derive(Clone, Debug, Default)]
pub(super) struct Known<'s>(BTreeMap<u32, Ty<'s>>);

impl<'s> Known<'s> {
    /// The type with its variables replaced; `wholly`: those of which nothing is known by [`Ty::Dyn`].
    pub fn resolve(&self, ty: &Ty<'s>, wholly: bool) -> Ty<'s> {
        match ty {
            Ty::Var(number) => match self.0.get(number) {
                Some(known) => self.resolve(known, wholly),
                None if wholly => Ty::Dyn,
                None => ty.clone(),
            },
            other => other.map(&mut |inner| self.resolve(inner, wholly)),
        }
    }

    /// Whether the types agree pairwise. What that tells about variables is known from then on; of a `false`, nothing is.
    pub fn all_agree(&mut self, pairs: &[(Ty<'s>, Ty<'s>)]) -> bool {
        let mut tried = self.clone();
        let agree = pairs.iter().all(|(a, b)| tried.unify(a, b));
        if agree {
            *self = tried;
        }
        agree
    }

    /// The vaguer of two types that agree; `None`: they do not.
    pub fn join(&mut self, a: &Ty<'s>, b: &Ty<'s>) -> Option<Ty<'s>> {
        let agree = self.all_agree(&[(a.clone(), b.clone())]);
        agree.then(|| if a.is_vaguer(b) { a.clone() } else { b.clone() })
    }

    fn unify(&mut self, a: &Ty<'s>, b: &Ty<'s>) -> bool {
        if let Ty::Var(number) = b
            && let Some(answer) = self.bind(*number, a)
        {
            return answer;
        }
        if let Ty::Var(number) = a {
            return self.bind(*number, b).unwrap_or(false);
        }
        let nullable = |ty: &Ty<'s>| {
            matches!(
                ty,
                Ty::Null | Ty::Object(_) | Ty::Patch(_) | Ty::Optional(_) | Ty::Other(_) | Ty::Duration | Ty::Timestamp
            )
        };
        match (a, b) {
            (a, b) if a.is_open() || b.is_open() => true,
            (Ty::Null, other) | (other, Ty::Null) => nullable(other),
            (Ty::Type(_), Ty::Type(_)) => true,
            (Ty::List(a), Ty::List(b)) | (Ty::Optional(a), Ty::Optional(b)) => self.unify(a, b),
            (Ty::Map(k, v), Ty::Map(l, w)) => self.unify(k, l) && self.unify(v, w),
            (a, b) => a == b,
        }
    }

    /// Takes `ty` for what a variable stands for, if that agrees with what is known of it. `None`: it stands in the type itself.
    fn bind(&mut self, number: u32, ty: &Ty<'s>) -> Option<bool> {
        let own = Ty::Var(number);
        if *ty == own {
            return Some(true);
        }
        let Some(known) = self.0.get(&number).cloned() else {
            let free = !self.mentions(ty, number);
            if free {
                self.0.insert(number, ty.clone());
            }
            return free.then_some(true);
        };
        if *ty == known {
            return Some(true);
        }
        if !self.unify(ty, &known) {
            return Some(false);
        }
        let vaguer = if ty.is_vaguer(&known) { ty.clone() } else { known };
        if vaguer != own && !self.mentions(&vaguer, number) {
            self.0.insert(number, vaguer);
        }
        Some(true)
    }

    /// Whether a variable stands in a type, or in what its variables stand for.
    fn mentions(&self, ty: &Ty<'s>, number: u32) -> bool {
        match ty {
            Ty::Var(other) if *other == number => true,
            Ty::Var(other) => self.0.get(other).is_some_and(|known| self.mentions(known, number)),
            Ty::Type(inner) | Ty::List(inner) | Ty::Optional(inner) => self.mentions(inner, number),
            Ty::Map(key, value) => self.mentions(key, number) || self.mentions(value, number),
            _ => false,
        }
    }
}
