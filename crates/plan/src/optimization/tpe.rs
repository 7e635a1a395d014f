//! The tree-structured Parzen estimator (Bergstra and others, "Algorithms for Hyper-Parameter Optimization", 2011).
//!
//! The best trials so far make up one density, all others a second one. Of some candidates out of the first, the one that
//! is most likely in the first and least likely in the second is tried next. Both densities are sums of kernels over all
//! parameters at once, one around each trial, and one that is wide enough for the whole space: so parameters that only do
//! well together are found together, and nothing is ruled out for ever.

use super::chance::Chance;
use super::space::{Point, Space};

/// So many trials must have a result before any is chosen by results; those before are random.
pub const STARTUP: usize = 10;
/// The part of all results that counts as good.
const GOOD: f64 = 0.15;
/// How many candidates are compared.
const CANDIDATES: usize = 32;
/// The width of a kernel around a single trial in one dimension, on the scale from 0 to 1.
const WIDTH: f64 = 0.2;
/// After so many draws outside of the interval a draw is cut off at its ends.
const DRAWS_MAX: usize = 32;

/// What became of a trial.
#[derive(Clone, Debug, PartialEq)]
pub struct Observation {
    pub point: Vec<Point>,
    /// What it cost: less is better. `None` if it failed or still runs, which keeps others away from it.
    pub loss: Option<f64>,
}

/// The point to try next; `None` while there are too few results to tell.
pub fn point(spaces: &[&Space], history: &[Observation], chance: &mut Chance) -> Option<Vec<Point>> {
    let mut ranked: Vec<(f64, &[Point])> =
        history.iter().filter_map(|seen| seen.loss.map(|loss| (loss, &*seen.point))).collect();
    if ranked.len() < STARTUP {
        return None;
    }
    // stable: of equal ones the earlier is the better
    ranked.sort_by(|a, b| a.0.total_cmp(&b.0));
    let (good, bad) = ranked.split_at((GOOD * ranked.len() as f64).ceil() as usize);
    let without = history.iter().filter(|seen| seen.loss.is_none()).map(|seen| &*seen.point);
    let good = Density::new(spaces, good.iter().map(|(_, point)| *point).collect());
    let bad = Density::new(spaces, bad.iter().map(|(_, point)| *point).chain(without).collect());
    let candidates = (0..CANDIDATES).map(|_| {
        let point = good.draw(chance);
        (good.log(&point) - bad.log(&point), point)
    });
    candidates.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, point)| point)
}

/// A sum of kernels of equal weight, one of them the whole space.
struct Density<'a> {
    spaces: &'a [&'a Space],
    around: Vec<&'a [Point]>,
    /// Of numeric kernels.
    width: f64,
    /// The weight of every choice beside that of the trial's own, 1.
    other: f64,
}

impl<'a> Density<'a> {
    fn new(spaces: &'a [&'a Space], around: Vec<&'a [Point]>) -> Self {
        let count = around.len().max(1) as f64;
        // Scott's rule: the more trials, the narrower
        let width = WIDTH * count.powf(-1.0 / (spaces.len() as f64 + 4.0));
        Self { spaces, around, width, other: 1.0 / (count + 1.0) }
    }

    fn draw(&self, chance: &mut Chance) -> Vec<Point> {
        let center = self.around.get(chance.below(self.around.len() + 1)).copied();
        let point = self.spaces.iter().enumerate().map(|(at, space)| {
            let center = center.and_then(|center| center.get(at)).copied();
            match space {
                Space::Number(_) => Point::At(match center {
                    Some(Point::At(mean)) => normal_within(mean, self.width, chance),
                    Some(Point::Choice(_)) | None => chance.unit(),
                }),
                Space::Choice(words) => Point::Choice(match center {
                    Some(Point::Choice(own)) if chance.unit() < self.own(words.len()) => own,
                    _ => chance.below(words.len()),
                }),
            }
        });
        point.collect()
    }

    /// How likely a draw around a choice is that choice, apart from an even draw among all.
    fn own(&self, choices: usize) -> f64 {
        1.0 / (1.0 + choices as f64 * self.other)
    }

    /// The logarithm of the density at a point.
    fn log(&self, point: &[Point]) -> f64 {
        let everywhere: f64 = self.spaces.iter().map(|space| even(space)).sum();
        let logs: Vec<f64> = self
            .around
            .iter()
            .map(|center| {
                let parts = self.spaces.iter().zip(point.iter().zip(*center));
                parts.map(|(space, (point, center))| self.kernel(space, *point, *center)).sum()
            })
            .chain([everywhere])
            .collect();
        let top = logs.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        top + (logs.iter().map(|log| (log - top).exp()).sum::<f64>() / logs.len() as f64).ln()
    }

    fn kernel(&self, space: &Space, point: Point, center: Point) -> f64 {
        match (space, point, center) {
            (Space::Number(_), Point::At(at), Point::At(mean)) => log_normal_within(at, mean, self.width),
            (Space::Choice(words), Point::Choice(choice), Point::Choice(own)) => {
                let weight = if choice == own { 1.0 + self.other } else { self.other };
                (weight * self.own(words.len())).ln()
            }
            _ => even(space),
        }
    }
}

/// The logarithm of the even density.
fn even(space: &Space) -> f64 {
    match space {
        Space::Number(_) => 0.0,
        Space::Choice(words) => -(words.len() as f64).ln(),
    }
}

/// A normal draw, repeated until it lies between 0 and 1.
fn normal_within(mean: f64, width: f64, chance: &mut Chance) -> f64 {
    let draws = (0..DRAWS_MAX).map(|_| mean + width * chance.normal());
    let mut last = mean;
    for draw in draws {
        if (0.0..=1.0).contains(&draw) {
            return draw;
        }
        last = draw;
    }
    last.clamp(0.0, 1.0)
}

/// The logarithm of the density of [`normal_within`].
fn log_normal_within(at: f64, mean: f64, width: f64) -> f64 {
    let below = |end: f64| 0.5 * (1.0 + erf((end - mean) / (width * std::f64::consts::SQRT_2)));
    let inside = (below(1.0) - below(0.0)).max(f64::MIN_POSITIVE);
    let away = (at - mean) / width;
    -0.5 * away * away - (width * std::f64::consts::TAU.sqrt() * inside).ln()
}

/// The error function, to within 1.5e-7 (Abramowitz and Stegun, 7.1.26).
fn erf(x: f64) -> f64 {
    let t = 1.0 / (1.0 + 0.327_591_1 * x.abs());
    let series = [1.061_405_429, -1.453_152_027, 1.421_413_741, -0.284_496_736, 0.254_829_592];
    let sum = series.iter().fold(0.0, |sum, factor| (sum + factor) * t);
    (1.0 - sum * (-x * x).exp()).copysign(x)
}
