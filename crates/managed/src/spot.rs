//! Zones for spot machines: replicas are spread over zones in which none was lost lately, the cheapest first.
//!
//! The rules are SkyPilot's `dynamic_fallback` (recordings: `spot-placer`).

use std::collections::BTreeSet;

/// A zone where a replica may be.
#[derive(Clone, Debug, PartialEq)]
pub struct Zone {
    /// `provider/region/zone`.
    pub place: String,
    /// Dollars an hour for all machines of a replica.
    pub hourly: f64,
}

/// Fewer zones than these are too few to avoid any other.
const ACTIVE_MIN: usize = 2;

fn is_active(zone: &Zone, preempted: &BTreeSet<String>) -> bool {
    !preempted.contains(&zone.place)
}

/// The zone of the next replica; `None` where there are no zones. `used`: those of the replicas that are there.
pub fn next<'a>(zones: &'a [Zone], preempted: &BTreeSet<String>, used: &[String]) -> Option<&'a Zone> {
    let active = || zones.iter().filter(|zone| is_active(zone, preempted));
    let cheapest = |a: &&Zone, b: &&Zone| a.hourly.total_cmp(&b.hourly);
    let free = active().filter(|zone| !used.contains(&zone.place)).min_by(cheapest);
    free.or_else(|| active().min_by(cheapest))
}

/// Notes that a spot machine was lost in a zone. Where too few zones are left, all count as good again.
pub fn note_preempted(zones: &[Zone], preempted: &mut BTreeSet<String>, place: &str) {
    preempted.insert(place.to_owned());
    if zones.iter().filter(|zone| is_active(zone, preempted)).count() < ACTIVE_MIN {
        preempted.clear();
    }
}
