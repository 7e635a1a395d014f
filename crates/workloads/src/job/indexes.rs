//! Sets of completion indexes and their text form (`1,3-5,7`), as `status.completedIndexes` and `failedIndexes` hold them.

use std::fmt;

/// A set of indexes as sorted, disjoint, non-adjacent inclusive intervals: small even where a Job has 100 000 indexes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Indexes(Vec<(u32, u32)>);

impl Indexes {
    /// Reads the text form. Parts that are no numbers are passed over (the API does not admit any); indexes from
    /// `completions` on are cut off, which is how an elastic Job forgets what is beyond its new size.
    pub fn parse(text: &str, completions: u32) -> Self {
        let mut set = Self::default();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            let (Ok(first), Ok(last)) = (first.parse::<u32>(), last.parse::<u32>()) else { continue };
            if first < completions && first <= last {
                set.insert(first, last.min(completions - 1));
            }
        }
        set
    }

    /// Adds the indexes `first..=last`.
    fn insert(&mut self, mut first: u32, mut last: u32) {
        let from = self.0.partition_point(|&(_, end)| end.saturating_add(1) < first);
        let to = self.0.partition_point(|&(start, _)| start <= last.saturating_add(1));
        if from < to {
            first = first.min(self.0[from].0);
            last = last.max(self.0[to - 1].1);
        }
        self.0.splice(from..to, [(first, last)]);
    }

    /// Adds one index.
    pub fn add(&mut self, index: u32) {
        self.insert(index, index);
    }

    /// The number of indexes.
    pub fn len(&self) -> u32 {
        self.0.iter().map(|(first, last)| last - first + 1).sum()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn has(&self, index: u32) -> bool {
        let at = self.0.partition_point(|&(_, last)| last < index);
        self.0.get(at).is_some_and(|&(first, _)| first <= index)
    }

    /// The number of indexes that are in both.
    pub fn common(&self, other: &Self) -> u32 {
        let mut count = 0;
        let (mut a, mut b) = (self.0.iter().peekable(), other.0.iter().peekable());
        while let (Some(&&(a_first, a_last)), Some(&&(b_first, b_last))) = (a.peek(), b.peek()) {
            let (first, last) = (a_first.max(b_first), a_last.min(b_last));
            if first <= last {
                count += last - first + 1;
            }
            _ = if a_last < b_last { a.next() } else { b.next() };
        }
        count
    }

    /// The lowest `count` indexes below `completions` that are not in the set.
    pub fn missing(&self, count: usize, completions: u32) -> Vec<u32> {
        let mut missing = Vec::new();
        let mut next = 0;
        for &(first, last) in self.0.iter().chain([&(completions, completions)]) {
            let gap = next..first.min(completions);
            missing.extend(gap.take(count - missing.len()));
            next = last.saturating_add(1);
        }
        missing
    }
}

impl FromIterator<u32> for Indexes {
    fn from_iter<I: IntoIterator<Item = u32>>(indexes: I) -> Self {
        let mut set = Self::default();
        indexes.into_iter().for_each(|index| set.add(index));
        set
    }
}

impl Extend<u32> for Indexes {
    fn extend<I: IntoIterator<Item = u32>>(&mut self, indexes: I) {
        indexes.into_iter().for_each(|index| self.add(index));
    }
}

impl fmt::Display for Indexes {
    /// Two neighbours stay apart (`0,1`), three or more become a range (`0-2`).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, &(first, last)) in self.0.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            match last - first {
                0 => write!(f, "{comma}{first}")?,
                1 => write!(f, "{comma}{first},{last}")?,
                _ => write!(f, "{comma}{first}-{last}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trip() {
        for text in ["", "0", "0,1", "0-2", "1,3-5,7", "0,1,4-9"] {
            assert_eq!(Indexes::parse(text, 100).to_string(), text);
        }
        for (text, completions, want) in [
            ("0-9", 4, "0-3"),
            ("1,2,3", 10, "1-3"),
            ("5,7", 5, ""),
            ("x,1,2-y,4", 10, "1,4"),
            ("3,1", 9, "1,3"),
            ("0", 0, ""),
        ] {
            assert_eq!(Indexes::parse(text, completions).to_string(), want, "{text} of {completions}");
        }
    }

    #[test]
    fn behaves_like_a_set_of_numbers() {
        let mut state: u32 = 7;
        let mut draw = |below: u32| {
            state = state.wrapping_mul(1_103_515_245).wrapping_add(12_345);
            (state >> 16) % below
        };
        for _ in 0..200 {
            let (a, b): (Vec<u32>, Vec<u32>) = (0..draw(20)).map(|_| (draw(30), draw(30))).unzip();
            let plain = |v: &[u32]| v.iter().copied().collect::<std::collections::BTreeSet<u32>>();
            let (set, other): (Indexes, Indexes) = (a.iter().copied().collect(), b.iter().copied().collect());
            assert_eq!(set.len() as usize, plain(&a).len());
            assert_eq!(set.common(&other) as usize, plain(&a).intersection(&plain(&b)).count());
            assert_eq!(Indexes::parse(&set.to_string(), 30), set);
            assert!((0..30).all(|i| set.has(i) == a.contains(&i)));
            let missing: Vec<u32> = (0..30).filter(|i| !a.contains(i)).take(5).collect();
            assert_eq!(set.missing(5, 30), missing);
        }
    }
}
