//! The possible values of one parameter, and how they lie between 0 and 1.
//!
//! Every numeric space is mapped to the unit interval, logarithms and whole numbers included, so that search algorithms know
//! one kind of number only.

use api::field::{Error, ErrorList, Path};
use api::trainer::{CategoricalSpace, NumericSpace, NumericType, SearchSpace};

/// Whole numbers up to this are exact in a double.
const WHOLE_MAX: f64 = 9_007_199_254_740_992.0;

/// What a parameter may be.
#[derive(Clone, Debug, PartialEq)]
pub enum Space {
    Number(Numbers),
    /// One of these words; never empty.
    Choice(Vec<String>),
}

/// Numbers between two bounds, both included.
#[derive(Clone, Debug, PartialEq)]
pub struct Numbers {
    min: f64,
    max: f64,
    /// Whole numbers only.
    whole: bool,
    /// Each order of magnitude is as likely as the next.
    log: bool,
}

/// A value as search algorithms see it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Point {
    /// Where a number lies between its bounds: 0 to 1.
    At(f64),
    /// The index of a choice.
    Choice(usize),
}

impl Space {
    /// Reads a search space that the schema has let through.
    ///
    /// # Errors
    /// What the schema cannot say: bounds that are no number here, no whole number between them, empty words.
    pub fn parse(space: &SearchSpace, field: &Path) -> Result<Self, ErrorList> {
        match (&space.uniform, &space.log_uniform, &space.categorical) {
            (Some(numbers), None, None) => Numbers::parse(numbers, false, &field.child("uniform")).map(Self::Number),
            (None, Some(numbers), None) => Numbers::parse(numbers, true, &field.child("logUniform")).map(Self::Number),
            (None, None, Some(words)) => choices(words, &field.child("categorical")).map(Self::Choice),
            _ => Err(vec![Error::required(field, "exactly one of uniform, logUniform and categorical must be set")]),
        }
    }

    /// The value at a point, as text.
    pub fn value(&self, point: Point) -> String {
        match (self, point) {
            (Self::Number(numbers), Point::At(unit)) => numbers.value(unit),
            (Self::Choice(words), Point::Choice(index)) => words[index.min(words.len() - 1)].clone(),
            (Self::Number(numbers), Point::Choice(_)) => numbers.value(0.0),
            (Self::Choice(words), Point::At(_)) => words[0].clone(),
        }
    }

    /// Where a value lies; `None` if it is none of this space.
    pub fn point(&self, value: &str) -> Option<Point> {
        match self {
            Self::Number(numbers) => numbers.unit(value.parse().ok()?).map(Point::At),
            Self::Choice(words) => words.iter().position(|word| word == value).map(Point::Choice),
        }
    }
}

impl Numbers {
    fn parse(space: &NumericSpace, log: bool, field: &Path) -> Result<Self, ErrorList> {
        let mut errors = ErrorList::new();
        let mut bound = |name: &str, text: &str| {
            let number = text.parse::<f64>().ok().filter(|number| number.is_finite());
            if number.is_none() {
                errors.push(Error::invalid(&field.child(name), text, "must be a number that a double can hold"));
            }
            number
        };
        let (min, max) = (bound("min", &space.min), bound("max", &space.max));
        let (Some(min), Some(max)) = (min, max) else { return Err(errors) };
        if min >= max || !(max - min).is_finite() {
            return Err(vec![Error::invalid(
                &field.child("max"),
                &*space.max,
                "must be above min, by a finite number",
            )]);
        }
        if log && min <= 0.0 {
            return Err(vec![Error::invalid(&field.child("min"), &*space.min, "must be above 0")]);
        }
        let whole = space.value_type == Some(NumericType::Int);
        if !whole {
            return Ok(Self { min, max, whole, log });
        }
        let (low, high) = (min.ceil(), max.floor());
        if low > high {
            let text = format!("there is no whole number between {} and {}", space.min, space.max);
            return Err(vec![Error::invalid(&field.child("type"), "Int", text)]);
        }
        if low.abs() > WHOLE_MAX || high.abs() > WHOLE_MAX {
            let text = "whole numbers must lie between -9007199254740992 and 9007199254740992";
            return Err(vec![Error::invalid(&field.child("type"), "Int", text)]);
        }
        Ok(Self { min: low, max: high, whole, log })
    }

    /// The ends of the scale: whole numbers each have an interval of length one around them.
    fn scale(&self) -> (f64, f64) {
        let margin = if self.whole { 0.5 } else { 0.0 };
        let (low, high) = (self.min - margin, self.max + margin);
        if self.log { (low.ln(), high.ln()) } else { (low, high) }
    }

    fn value(&self, unit: f64) -> String {
        let (low, high) = self.scale();
        let at = low + unit.clamp(0.0, 1.0) * (high - low);
        let number = if self.log { at.exp() } else { at };
        let number = if self.whole { number.round() } else { number };
        show(number.clamp(self.min, self.max))
    }

    fn unit(&self, number: f64) -> Option<f64> {
        if !(self.min..=self.max).contains(&number) {
            return None;
        }
        let (low, high) = self.scale();
        let at = if self.log { number.ln() } else { number };
        Some(((at - low) / (high - low)).clamp(0.0, 1.0))
    }
}

fn choices(space: &CategoricalSpace, field: &Path) -> Result<Vec<String>, ErrorList> {
    let field = field.child("choices");
    if space.choices.is_empty() {
        return Err(vec![Error::required(&field, "there must be at least one")]);
    }
    let empty = space.choices.iter().enumerate().filter(|(_, word)| word.is_empty());
    let errors: ErrorList = empty
        .map(|(at, _)| Error::required(&field.index(at), "an empty value cannot be told in status.result"))
        .collect();
    if errors.is_empty() { Ok(space.choices.clone()) } else { Err(errors) }
}

/// A number as text that reads back as the same number, in at most 24 characters.
fn show(number: f64) -> String {
    let size = number.abs();
    if size == 0.0 || (1e-4..1e16).contains(&size) { format!("{number}") } else { format!("{number:e}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn numbers(min: &str, max: &str, whole: bool) -> NumericSpace {
        NumericSpace { min: min.into(), max: max.into(), value_type: whole.then_some(NumericType::Int) }
    }

    fn uniform(min: &str, max: &str, whole: bool) -> SearchSpace {
        SearchSpace { uniform: Some(numbers(min, max, whole)), ..SearchSpace::default() }
    }

    fn log_uniform(min: &str, max: &str, whole: bool) -> SearchSpace {
        SearchSpace { log_uniform: Some(numbers(min, max, whole)), ..SearchSpace::default() }
    }

    fn parse(space: &SearchSpace) -> Result<Space, String> {
        Space::parse(space, &Path::new("space")).map_err(|errors| api::field::aggregate(&errors))
    }

    #[test]
    fn the_ends_of_a_scale_are_its_bounds() {
        let cases = [
            (uniform("0.1", "0.9", false), "0.1", "0.9", "0.5"),
            (uniform("-3", "4", true), "-3", "4", "1"),
            (uniform("0.5", "3.5", true), "1", "3", "2"),
            (log_uniform("1e-5", "1e-1", false), "0.00001", "0.1", "0.001"),
            (log_uniform("1", "1000", true), "1", "1000", "22"),
            (log_uniform("1e-300", "1e300", false), "1e-300", "1e300", "1"),
        ];
        for (space, low, high, middle) in cases {
            let space = parse(&space).expect("a good space");
            for (unit, wanted) in [(0.0, low), (1.0, high), (0.5, middle)] {
                let shown = space.value(Point::At(unit));
                let (shown, wanted): (f64, f64) = (shown.parse().expect("a number"), wanted.parse().expect("a number"));
                assert!((shown - wanted).abs() <= wanted.abs() * 1e-9, "{space:?} at {unit}: {shown}, not {wanted}");
            }
        }
    }

    #[test]
    fn what_no_schema_can_say_is_refused() {
        let cases = [
            (
                uniform("0", "1e400", false),
                r#"space.uniform.max: Invalid value: "1e400": must be a number that a double"#,
            ),
            (uniform("2", "1", false), r#"space.uniform.max: Invalid value: "1": must be above min"#),
            (
                uniform("-1e308", "1e308", false),
                r#"space.uniform.max: Invalid value: "1e308": must be above min, by a f"#,
            ),
            (log_uniform("0", "1", false), r#"space.logUniform.min: Invalid value: "0": must be above 0"#),
            (
                uniform("0.2", "0.8", true),
                r#"space.uniform.type: Invalid value: "Int": there is no whole number between"#,
            ),
            (uniform("0", "1e17", true), r#"space.uniform.type: Invalid value: "Int": whole numbers must lie between"#),
            (SearchSpace::default(), "space: Required value: exactly one of uniform"),
        ];
        for (space, wanted) in cases {
            let said = parse(&space).expect_err("a bad space");
            assert!(said.starts_with(wanted), "{said}");
        }
        let words = CategoricalSpace { choices: vec!["a".into(), String::new()] };
        let said = parse(&SearchSpace { categorical: Some(words), ..SearchSpace::default() }).expect_err("a bad space");
        assert_eq!(
            said,
            "space.categorical.choices[1]: Required value: an empty value cannot be told in status.result"
        );
    }

    proptest! {
        #[test]
        fn values_stay_within_bounds_and_read_back(
            min in -1e12..1e12_f64, span in 1e-6..1e12_f64, unit in 0.0..=1.0_f64, whole: bool, log: bool,
        ) {
            let min = if log { min.abs().max(1e-9) } else { min };
            let (low, high) = (format!("{min}"), format!("{}", min + span));
            let space = if log { log_uniform(&low, &high, whole) } else { uniform(&low, &high, whole) };
            let Ok(space) = parse(&space) else { return Ok(()) };
            let text = space.value(Point::At(unit));
            prop_assert!(text.len() <= 24, "{text}");
            let number: f64 = text.parse().expect("a number");
            prop_assert!((min..=min + span).contains(&number), "{space:?}: {text}");
            prop_assert!(!whole || number.fract() == 0.0);
            let Some(Point::At(back)) = space.point(&text) else { panic!("{text} is not of {space:?}") };
            prop_assert_eq!(space.value(Point::At(back)).parse::<f64>().expect("a number") as f32, number as f32);
        }
    }
}
