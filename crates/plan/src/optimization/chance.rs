//! Numbers that look random and are none: functions of a seed, a trial's index and how many were drawn before.
//!
//! A search must propose the same trial each time: after a crash, in a test, and on another machine.

/// The odd number nearest to 2^64 divided by the golden ratio: the step of a Weyl sequence.
const STEP: u64 = 0x9E37_79B9_7F4A_7C15;

/// A stream of numbers.
#[derive(Clone, Debug)]
pub struct Chance {
    key: u64,
    drawn: u64,
}

impl Chance {
    /// The stream of one trial of a search.
    pub fn new(seed: u64, trial: usize) -> Self {
        Self { key: mix(seed ^ mix(trial as u64 + 1)), drawn: 0 }
    }

    /// 64 even bits.
    pub fn bits(&mut self) -> u64 {
        self.drawn += 1;
        mix(self.key.wrapping_add(self.drawn.wrapping_mul(STEP)))
    }

    /// Evenly from 0 up to, but not including, 1.
    pub fn unit(&mut self) -> f64 {
        // 53 bits are all that the fraction of a double holds
        (self.bits() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Evenly one of the numbers below `count`; 0 where there is none.
    pub fn below(&mut self, count: usize) -> usize {
        ((self.unit() * count as f64) as usize).min(count.saturating_sub(1))
    }

    /// From the normal distribution with mean 0 and deviation 1 (Box and Muller's transform).
    pub fn normal(&mut self) -> f64 {
        let (radius, angle) = (1.0 - self.unit(), self.unit());
        (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    }
}

/// A seed out of a name: 64-bit FNV-1a.
pub fn seed_of(name: &str) -> u64 {
    api::stable::of_bytes(name.bytes())
}

/// Scatters the bits of a number over the whole word, one to one: the finalizer of SplitMix64.
fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn streams_are_repeatable_and_differ() {
        let draw = |seed, trial| {
            let mut chance = Chance::new(seed, trial);
            [chance.bits(), chance.bits(), chance.bits()]
        };
        assert_eq!(draw(7, 3), draw(7, 3));
        for other in [draw(7, 4), draw(8, 3), draw(0, 0)] {
            assert_ne!(draw(7, 3), other);
        }
        assert_ne!(seed_of("a"), seed_of("b"));
    }

    #[test]
    fn draws_are_even_and_within_bounds() {
        let mut thirds = [0; 3];
        let (mut sum, mut squares) = (0.0, 0.0);
        for trial in 0..3000 {
            let mut chance = Chance::new(1, trial);
            thirds[chance.below(3)] += 1;
            let unit = chance.unit();
            assert!((0.0..1.0).contains(&unit));
            let normal = chance.normal();
            (sum, squares) = (sum + normal, squares + normal * normal);
        }
        assert!(thirds.iter().all(|count| (900..1100).contains(count)), "{thirds:?}");
        assert!((sum / 3000.0).abs() < 0.06 && (squares / 3000.0 - 1.0).abs() < 0.1, "{sum} {squares}");
        assert_eq!(Chance::new(1, 1).below(0), 0);
    }
}
