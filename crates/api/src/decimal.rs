//! Decimal numbers of any size.

use std::cmp::Ordering;

/// A whole number times a power of ten, exact.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decimal {
    negative: bool,
    /// The most significant comes first; neither that nor the last is a zero. None: the number is zero.
    digits: Vec<u8>,
    power: i64,
}

impl Decimal {
    fn new(negative: bool, mut digits: Vec<u8>, mut power: i64) -> Self {
        let leading = digits.iter().take_while(|digit| **digit == 0).count();
        digits.drain(..leading);
        while digits.last() == Some(&0) {
            digits.pop();
            power = power.saturating_add(1);
        }
        if digits.is_empty() { Self::default() } else { Self { negative, digits, power } }
    }

    /// A number by its ASCII digits; what is none is passed over.
    pub fn written(negative: bool, digits: impl Iterator<Item = u8>, power: i64) -> Self {
        Self::new(negative, digits.filter(u8::is_ascii_digit).map(|digit| digit - b'0').collect(), power)
    }

    pub fn is_zero(&self) -> bool {
        self.digits.is_empty()
    }

    pub fn is_negative(&self) -> bool {
        self.negative
    }

    #[must_use]
    pub fn negated(mut self) -> Self {
        self.negative = !self.negative && !self.digits.is_empty();
        self
    }

    /// So many times the number.
    #[must_use]
    pub fn times(&self, factor: u64) -> Self {
        let mut made = Vec::with_capacity(self.digits.len().saturating_add(20));
        let mut carry = 0u128;
        for digit in self.digits.iter().rev() {
            carry += u128::from(*digit) * u128::from(factor);
            made.push(last_digit(carry));
            carry /= 10;
        }
        while carry > 0 {
            made.push(last_digit(carry));
            carry /= 10;
        }
        made.reverse();
        Self::new(self.negative, made, self.power)
    }

    /// The next multiple of this power of ten, away from zero; the number itself where it is one.
    #[must_use]
    pub fn rounded(mut self, power: i64) -> Self {
        let Ok(beyond @ 1..) = usize::try_from(power.saturating_sub(self.power)) else { return self };
        if self.is_zero() {
            return self;
        }
        self.digits.truncate(self.digits.len().saturating_sub(beyond));
        let unit = Self { negative: self.negative, digits: vec![1], power };
        // the last digit was no zero, so something was cut off
        Self::new(self.negative, self.digits, power).plus(&unit)
    }

    /// The power of ten that is above all of its digits.
    fn top(&self) -> i64 {
        self.power.saturating_add(i64::try_from(self.digits.len()).unwrap_or(i64::MAX))
    }

    /// How many digits a sum with another number is computed with.
    pub fn digits_with(&self, other: &Self) -> u64 {
        match (self.is_zero(), other.is_zero()) {
            (true, _) => other.digits.len() as u64,
            (_, true) => self.digits.len() as u64,
            _ => self.top().max(other.top()).saturating_sub(self.power.min(other.power)).unsigned_abs(),
        }
    }

    /// The sum. It takes memory for [`Self::digits_with`]: who adds numbers of others looks at that first.
    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        if self.is_zero() || other.is_zero() {
            return if self.is_zero() { other.clone() } else { self.clone() };
        }
        let power = self.power.min(other.power);
        let count = usize::try_from(self.digits_with(other)).unwrap_or(usize::MAX);
        let (large, small) = if self.size(other) == Ordering::Less { (other, self) } else { (self, other) };
        let mut sum: Vec<i8> = large.places(power, count).collect();
        sum.push(0);
        let sign = if large.negative == small.negative { 1 } else { -1 };
        let mut carry = 0i8;
        for (place, digit) in sum.iter_mut().zip(small.places(power, count).chain([0])) {
            let value = *place + carry + sign * digit;
            *place = value.rem_euclid(10);
            carry = value.div_euclid(10);
        }
        Self::new(large.negative, sum.into_iter().rev().map(i8::cast_unsigned).collect(), power)
    }

    /// So many digits from this power upwards.
    fn places(&self, power: i64, count: usize) -> impl Iterator<Item = i8> {
        let zeros = usize::try_from(self.power.saturating_sub(power)).unwrap_or(0);
        let digits = self.digits.iter().rev().map(|digit| digit.cast_signed());
        std::iter::repeat_n(0, zeros).chain(digits).chain(std::iter::repeat(0)).take(count)
    }

    fn size(&self, other: &Self) -> Ordering {
        match (self.is_zero(), other.is_zero()) {
            (false, false) => self.top().cmp(&other.top()).then_with(|| self.digits.cmp(&other.digits)),
            (mine, others) => others.cmp(&mine),
        }
    }

    /// In units of this power of ten, if it is a whole number of them that 128 bits hold.
    pub fn counted(&self, power: i64) -> Option<i128> {
        if self.is_zero() {
            return Some(0);
        }
        let zeros = u32::try_from(self.power.checked_sub(power)?).ok()?;
        let sign = if self.negative { -1i128 } else { 1 };
        let digits = self
            .digits
            .iter()
            .try_fold(0i128, |sum, digit| sum.checked_mul(10)?.checked_add(sign * i128::from(*digit)))?;
        digits.checked_mul(10i128.checked_pow(zeros)?)
    }

    /// Its digits and their power of ten, which is a multiple of three and at most `most`.
    pub fn in_thousands(&self, most: i64) -> (String, i64) {
        let power = self.power.div_euclid(3).saturating_mul(3).min(most);
        let zeros = usize::try_from(self.power.saturating_sub(power)).unwrap_or(0);
        let digits = self.digits.iter().map(|digit| char::from(b'0' + digit));
        let sign = self.negative.then_some('-');
        (sign.into_iter().chain(digits).chain(std::iter::repeat_n('0', zeros)).collect(), power)
    }

    /// The nearest number that a float holds.
    pub fn approximate(&self) -> f64 {
        let (digits, power) = self.in_thousands(i64::MAX);
        format!("{digits}e{power}").parse().unwrap_or(0.0)
    }
}

impl From<i64> for Decimal {
    fn from(number: i64) -> Self {
        Self::written(number < 0, number.unsigned_abs().to_string().bytes(), 0)
    }
}

impl PartialOrd for Decimal {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Decimal {
    fn cmp(&self, other: &Self) -> Ordering {
        match (self.negative, other.negative) {
            (false, false) => self.size(other),
            (true, true) => other.size(self),
            (mine, others) => others.cmp(&mine),
        }
    }
}

fn last_digit(number: u128) -> u8 {
    u8::try_from(number % 10).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A number, and the same as a decimal.
    fn number() -> impl Strategy<Value = (i128, Decimal)> {
        let digits = (any::<bool>(), "[0-9]{1,25}", 0..8i64);
        digits.prop_map(|(negative, digits, power)| {
            let number = digits.parse::<i128>().unwrap() * 10i128.pow(u32::try_from(power).unwrap());
            (if negative { -number } else { number }, Decimal::written(negative, digits.bytes(), power))
        })
    }

    proptest! {
        #[test]
        fn small_ones_are_as_integers((a, x) in number(), (b, y) in number(), factor: u32) {
            prop_assert_eq!(x.counted(0), Some(a));
            prop_assert_eq!(x.plus(&y).counted(0), Some(a + b));
            prop_assert_eq!(x.plus(&y.clone().negated()).counted(0), Some(a - b));
            prop_assert_eq!(x.times(factor.into()).counted(0), a.checked_mul(factor.into()));
            prop_assert_eq!(x.cmp(&y), a.cmp(&b));
            prop_assert_eq!(x == y, a == b);
            let away = if a % 1000 == 0 { 0 } else { a.signum() };
            prop_assert_eq!(x.rounded(3).counted(3), Some(a / 1000 + away));
        }

        #[test]
        fn large_ones_are_as_small_ones((a, x) in number(), (b, y) in number(), power in 0..1_000_000i64) {
            let far = |number: &Decimal| Decimal { power: number.power + power, ..number.clone() };
            prop_assert_eq!(far(&x).cmp(&far(&y)), a.cmp(&b));
            prop_assert_eq!(far(&x).plus(&far(&y)).counted(power), Some(a + b));
        }
    }

    #[test]
    fn powers_at_their_limits_take_no_room() {
        let at = |power| Decimal::written(false, [b'1'].into_iter(), power);
        let (most, least) = (i64::from(i32::MAX), i64::from(i32::MIN));
        assert!(at(most) > at(most - 1) && at(least) < at(0) && at(least) > Decimal::default());
        assert_eq!(at(most).digits_with(&at(least)), 1 << 32);
        assert_eq!((at(most).counted(0), at(least).counted(0)), (None, None));
        assert_eq!(at(least).rounded(-9), at(-9));
        assert!(at(most).approximate().is_infinite() && at(least).approximate() == 0.0);
    }
}
