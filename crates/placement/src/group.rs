//! One place for all tasks of a job group.

use std::collections::BTreeMap;

/// Why the tasks of a group cannot share a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Apart {
    /// One of them has no place at all: its index.
    #[error("task {0} has no place")]
    Nowhere(usize),
    /// Each has places, but no place has all of them.
    #[error("no place has machines for all tasks")]
    NothingShared,
}

/// The place where an hour of all tasks together costs least; among equal ones the first in the order of `P`.
///
/// `tasks`: for each task its places, and the dollars of an hour of all its machines there. A task may have several prices at a place: the
/// lowest counts.
///
/// # Errors
/// A task has no place, or no place has machines for all tasks.
pub fn shared_place<P: Clone + Ord>(tasks: &[Vec<(P, f64)>]) -> Result<P, Apart> {
    if let Some(task) = tasks.iter().position(Vec::is_empty) {
        return Err(Apart::Nowhere(task));
    }
    let mut all = tasks.iter().map(|places| lowest(places));
    let first = all.next().unwrap_or_default();
    let sums = all.fold(first, |sums, prices| {
        let both = |(place, sum): (_, f64)| Some((place, sum + prices.get(place)?));
        sums.into_iter().filter_map(both).collect()
    });
    // of equal sums `min_by` returns the first
    let least = sums.into_iter().min_by(|(_, one), (_, other)| one.total_cmp(other));
    least.map(|(place, _)| place.clone()).ok_or(Apart::NothingShared)
}

fn lowest<P: Ord>(places: &[(P, f64)]) -> BTreeMap<&P, f64> {
    let mut prices: BTreeMap<&P, f64> = BTreeMap::new();
    for (place, price) in places {
        let known = prices.entry(place).or_insert(*price);
        *known = known.min(*price);
    }
    prices
}
