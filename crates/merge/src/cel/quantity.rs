//! Quantities of resources in expressions (`quantity('1Gi').isGreaterThan(…)`).
//!
//! Source of names, errors and of what counts as an integer: `k8s.io/apiserver/pkg/cel/library/quantity.go` and
//! `k8s.io/apimachinery/pkg/api/resource`. The library has functions of these names, whose arithmetic overflows.

use super::Cel;
use super::meter::spend;
use api::decimal::Decimal;
use api::quantity::{self, Exact};
use kube_cel::KubeCelExt;
use kube_cel::cel::common::ast::IdedExpr;
use kube_cel::cel::extractors::This;
use kube_cel::cel::objects::Opaque;
use kube_cel::cel::{Context, ExecutionError};
use std::cmp::Ordering;
use std::sync::{Arc, LazyLock};

/// Digits of a sum that cost one unit.
const DIGITS_FOR_ONE: u64 = 20;

/// An amount of any size.
#[derive(Clone, Debug)]
struct Amount {
    amount: Decimal,
    /// The power of ten of which upstream counts it in a 64-bit integer ([`quantity::counted_in`]).
    power: Option<i32>,
}

impl PartialEq for Amount {
    fn eq(&self, other: &Self) -> bool {
        self.amount == other.amount
    }
}

impl Eq for Amount {}

impl Opaque for Amount {
    fn runtime_type_name(&self) -> &str {
        "kubernetes.Quantity"
    }
}

impl Amount {
    fn of(value: &Cel) -> Result<&Self, ExecutionError> {
        match value {
            Cel::Opaque(opaque) => opaque.downcast_ref().ok_or(ExecutionError::NoSuchOverload),
            _ => Err(ExecutionError::NoSuchOverload),
        }
    }

    /// What may be added: an amount or an integer.
    fn summand(value: &Cel) -> Result<Self, ExecutionError> {
        match value {
            Cel::Int(units) => Ok(Self { amount: Decimal::from(*units), power: Some(0) }),
            other => Self::of(other).cloned(),
        }
    }

    fn integer(&self) -> Option<i64> {
        self.power.filter(|power| *power >= 0).and_then(|_| self.amount.counted(0)?.try_into().ok())
    }

    /// The sum, which is counted in the finer of both units as long as that has room for it.
    fn plus(&self, other: &Self) -> Result<Self, ExecutionError> {
        spend(self.amount.digits_with(&other.amount) / DIGITS_FOR_ONE)?;
        let amount = self.amount.plus(&other.amount);
        let power = match (self.power, other.power) {
            (power, Some(_)) if other.amount.is_zero() => power,
            (Some(_), power) if self.amount.is_zero() => power,
            (a, b) => a.zip(b).map(|(a, b)| a.min(b)),
        };
        let fits = |power: &i32| amount.counted((*power).into()).is_some_and(|count| i64::try_from(count).is_ok());
        Ok(Self { power: power.filter(fits), amount })
    }

    fn negated(self) -> Self {
        Self { amount: self.amount.negated(), ..self }
    }
}

impl From<Amount> for Cel {
    fn from(amount: Amount) -> Self {
        Self::Opaque(Arc::new(amount))
    }
}

/// The comparisons, whose names semantic versions have, too: those are the library's.
const COMPARISONS: [&str; 3] = ["compareTo", "isGreaterThan", "isLessThan"];

/// What the library makes of `a.NAME(b)`.
fn by_library(name: &'static str, a: Cel, b: Cel) -> Result<Cel, ExecutionError> {
    static LIBRARY: LazyLock<Context<'static>> = LazyLock::new(|| Context::default().with_all());
    static CALLS: LazyLock<Vec<Option<IdedExpr>>> =
        LazyLock::new(|| COMPARISONS.iter().map(|name| super::parser().parse(&format!("a.{name}(b)")).ok()).collect());
    let call = COMPARISONS.iter().position(|known| *known == name).and_then(|at| CALLS[at].as_ref());
    let mut scope = LIBRARY.new_inner_scope();
    scope.add_variable_from_value("a", a);
    scope.add_variable_from_value("b", b);
    call.map_or(Err(ExecutionError::NoSuchOverload), |call| scope.resolve(call))
}

fn compared(name: &'static str, a: Cel, b: Cel) -> Result<Cel, ExecutionError> {
    let Ok(this) = Amount::of(&a) else { return by_library(name, a, b) };
    let ordering = this.amount.cmp(&Amount::of(&b)?.amount);
    Ok(match name {
        "isGreaterThan" => Cel::Bool(ordering == Ordering::Greater),
        "isLessThan" => Cel::Bool(ordering == Ordering::Less),
        _ => Cel::Int(ordering as i64),
    })
}

pub(super) fn add_functions(context: &mut Context<'_>) {
    context.add_function("quantity", |text: Arc<String>| -> Result<Cel, ExecutionError> {
        let Exact { amount, .. } =
            Exact::parse(&text).map_err(|error| ExecutionError::function_error("quantity", error))?;
        Ok(Amount { amount, power: quantity::counted_in(&text) }.into())
    });
    context.add_function("isQuantity", |text: Arc<String>| Exact::parse(&text).is_ok());
    context.add_function("isInteger", |This(this): This<Cel>| -> Result<bool, ExecutionError> {
        Ok(Amount::of(&this)?.integer().is_some())
    });
    context.add_function("asInteger", |This(this): This<Cel>| -> Result<i64, ExecutionError> {
        let no_integer = || ExecutionError::function_error("asInteger", "cannot convert value to integer");
        Amount::of(&this)?.integer().ok_or_else(no_integer)
    });
    context.add_function("asApproximateFloat", |This(this): This<Cel>| -> Result<f64, ExecutionError> {
        Ok(Amount::of(&this)?.amount.approximate())
    });
    context.add_function("sign", |This(this): This<Cel>| -> Result<i64, ExecutionError> {
        Ok(Amount::of(&this)?.amount.cmp(&Decimal::default()) as i64)
    });
    context.add_function("add", |This(this): This<Cel>, other: Cel| -> Result<Cel, ExecutionError> {
        Ok(Amount::of(&this)?.plus(&Amount::summand(&other)?)?.into())
    });
    context.add_function("sub", |This(this): This<Cel>, other: Cel| -> Result<Cel, ExecutionError> {
        Ok(Amount::of(&this)?.plus(&Amount::summand(&other)?.negated())?.into())
    });
    for name in COMPARISONS {
        context.add_function(name, move |This(this): This<Cel>, other: Cel| compared(name, this, other));
    }
}

#[cfg(test)]
mod tests {
    use crate::cel::Expression;
    use serde_json::{Value, json};

    fn run(source: &str) -> Result<Value, String> {
        Expression::compile(source).and_then(|expression| expression.evaluate(&[])).map_err(|error| error.to_string())
    }

    /// The library multiplied without a look: a release build took the wrapped product for the amount.
    #[test]
    fn large_exponents_neither_wrap_nor_panic() {
        for source in [
            "quantity('1e100').isGreaterThan(quantity('1'))",
            "quantity('1').isLessThan(quantity('9e1000'))",
            "quantity('-1e100').isLessThan(quantity('1n'))",
            "quantity('1e38').add(quantity('1e38')).isGreaterThan(quantity('1e9'))",
            "quantity('-9e2000').sub(quantity('9e2000')).sign() == -1",
            "quantity('1e2147483647').compareTo(quantity('1n')) == 1",
            "quantity('1e-2147483648').isGreaterThan(quantity('0'))",
            "!quantity('9999999999999999999999999999999999999G').isInteger()",
            "semver('1.2.3').isLessThan(semver('1.10.0')) && semver('1.0.0').compareTo(semver('1.0.0')) == 0",
        ] {
            assert_eq!(run(source), Ok(json!(true)), "{source}");
        }
    }

    #[test]
    fn amounts_of_any_size_are_exact() {
        for source in [
            "quantity('1e100').isGreaterThan(quantity('1e99')) && quantity('1e99') != quantity('1e100')",
            "quantity('1e2147483647').isGreaterThan(quantity('1e2147483646'))",
            "quantity('170141183460469231731687303716').isLessThan(quantity('170141183460469231731687303717'))",
            "quantity('1e40').add(quantity('1n')).isGreaterThan(quantity('1e40'))",
            "quantity('1e40').add(quantity('1n')).sub(quantity('1e40')) == quantity('1n')",
            "quantity('-1e100').compareTo(quantity('-1e99')) == -1 && quantity('1e100').asApproximateFloat() == 1e100",
            // the largest that binary suffixes can say, as upstream
            "quantity('8Ei') == quantity('9Ei') && quantity('8Ei') == quantity('9223372036854775807')",
            "!quantity('1').add(9223372036854775807).sub(9223372036854775807).isInteger()",
        ] {
            assert_eq!(run(source), Ok(json!(true)), "{source}");
        }
        let far = "quantity('1e2147483647').add(quantity('1'))";
        assert_eq!(run(&format!("{far}.sign() == 1")), Err(crate::cel::meter::EXCEEDED.to_owned()));
    }

    #[test]
    fn integers_are_what_upstream_counts_in_whole_units() {
        for source in [
            "quantity('50k').isInteger() && quantity('50k').asInteger() == 50000",
            "quantity('50000000G').isInteger()",
            "quantity('50k').sub(20000).asApproximateFloat() == 30000.0",
            "quantity('50k').add(20).sub(quantity('100k')).sub(-50000) == quantity('20')",
            "!quantity('1000m').isInteger() && !quantity('1.0').isInteger() && quantity('1Ki').isInteger()",
            "!quantity('1.5Gi').isInteger()",
            "quantity('200M').compareTo(quantity('0.2G')) == 0 && quantity('200M') == quantity('0.2G')",
        ] {
            assert_eq!(run(source), Ok(json!(true)), "{source}");
        }
        assert_eq!(run("quantity('1.5').asInteger()"), Err("cannot convert value to integer".to_owned()));
        assert_eq!(run("quantity('200K')"), Err("unable to parse quantity's suffix".to_owned()));
    }
}
