//! Grid search: every combination of choices, the last parameter varying fastest.

use super::space::{Point, Space};

/// How many points the grid has, `usize::MAX` if more; `None` where numbers between bounds are among them, which no grid covers.
pub fn size(spaces: &[&Space]) -> Option<usize> {
    spaces.iter().try_fold(1_usize, |size, space| match space {
        Space::Choice(words) => Some(size.saturating_mul(words.len())),
        Space::Number(_) => None,
    })
}

/// The point of a trial; indices beyond the grid start over.
pub fn point(spaces: &[&Space], mut index: usize) -> Vec<Point> {
    let mut point: Vec<Point> = spaces
        .iter()
        .rev()
        .map(|space| match space {
            Space::Choice(words) => {
                let choice = index % words.len();
                index /= words.len();
                Point::Choice(choice)
            }
            Space::Number(_) => Point::At(0.0),
        })
        .collect();
    point.reverse();
    point
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn choice(count: usize) -> Space {
        Space::Choice((0..count).map(|n| n.to_string()).collect())
    }

    #[test]
    fn the_last_parameter_varies_fastest() {
        let (a, b) = (choice(2), choice(3));
        let values = |index| {
            let spaces = [&a, &b];
            let point = point(&spaces, index);
            spaces.iter().zip(point).map(|(space, point)| space.value(point)).collect::<String>()
        };
        assert_eq!((0..6).map(values).collect::<Vec<_>>(), ["00", "01", "02", "10", "11", "12"]);
    }

    #[test]
    fn sizes_are_counted_as_far_as_numbers_go() {
        let big = choice(100);
        let all = vec![&big; 100];
        assert_eq!(size(&[&big, &big]), Some(10_000));
        assert_eq!(size(&all), Some(usize::MAX));
        assert_eq!(point(&all, 123).len(), 100);
    }

    proptest! {
        #[test]
        fn every_combination_comes_once(counts in prop::collection::vec(1..5_usize, 1..5)) {
            let spaces: Vec<Space> = counts.iter().map(|count| choice(*count)).collect();
            let spaces: Vec<&Space> = spaces.iter().collect();
            let size = size(&spaces).expect("a small grid");
            let texts = |index| -> Vec<String> {
                spaces.iter().zip(point(&spaces, index)).map(|(space, point)| space.value(point)).collect()
            };
            let seen: BTreeSet<Vec<String>> = (0..size).map(texts).collect();
            prop_assert_eq!(seen.len(), size);
            prop_assert_eq!(size, counts.iter().product::<usize>());
        }
    }
}
