//! Random groups of up to 5 tasks in up to 6 places, against every place.

use placement::group::{Apart, shared_place};
use proptest::prelude::*;

/// Prices in quarters of a dollar, so that sums are exact and equal ones occur.
fn tasks() -> impl Strategy<Value = Vec<Vec<(u8, f64)>>> {
    let way = (0..6u8, 0..8u32).prop_map(|(place, quarters)| (place, f64::from(quarters) / 4.0));
    prop::collection::vec(prop::collection::vec(way, 0..8), 1..=5)
}

/// What all tasks cost at a place; `None`: one of them has no machine there.
fn sum(tasks: &[Vec<(u8, f64)>], place: u8) -> Option<f64> {
    let least = |ways: &Vec<(u8, f64)>| {
        ways.iter().filter(|(at, _)| *at == place).map(|(_, price)| *price).min_by(f64::total_cmp)
    };
    tasks.iter().map(least).sum()
}

proptest! {
    #[test]
    fn the_cheapest_place_of_all_tasks_is_found(tasks in tasks()) {
        let sums: Vec<(u8, f64)> = (0..6).filter_map(|place| Some((place, sum(&tasks, place)?))).collect();
        match shared_place(&tasks) {
            Ok(place) => {
                let own = sum(&tasks, place).expect("all tasks have a machine there");
                for (other, sum) in sums {
                    prop_assert!(own < sum || (own - sum).abs() < 1e-9 && place <= other, "{place}: {own}, {other}: {sum}");
                }
            }
            Err(Apart::Nowhere(task)) => {
                prop_assert!(tasks[task].is_empty() && tasks[..task].iter().all(|ways| !ways.is_empty()));
            }
            Err(Apart::NothingShared) => {
                prop_assert!(sums.is_empty() && tasks.iter().all(|ways| !ways.is_empty()));
            }
        }
    }

    #[test]
    fn the_order_of_tasks_and_places_does_not_matter(tasks in tasks()) {
        let mut other = tasks.clone();
        other.reverse();
        other.iter_mut().for_each(|ways| ways.reverse());
        prop_assert_eq!(shared_place(&tasks).ok(), shared_place(&other).ok());
    }

    #[test]
    fn a_task_more_never_adds_a_place(tasks in tasks(), more in prop::collection::vec((0..6u8, 0.0..9.0f64), 1..8)) {
        let mut larger = tasks.clone();
        larger.push(more);
        prop_assert!(shared_place(&tasks).is_ok() || shared_place(&larger).is_err());
    }
}

#[test]
fn a_group_without_tasks_has_no_place() {
    assert_eq!(shared_place::<u8>(&[]), Err(Apart::NothingShared));
}
