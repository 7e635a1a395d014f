//! What it costs and how long it takes to move data between clouds. Within a cloud it costs nothing.

use crate::cloud::Cloud;

/// Gigabits a second between two clouds.
const GIGABITS: f64 = 10.0;

/// Dollars for taking so many gigabytes out of a cloud into another one.
pub fn dollars(from: Cloud, to: Cloud, gigabytes: f64) -> f64 {
    if from == to || gigabytes <= 0.0 {
        return 0.0;
    }
    match from {
        Cloud::Aws => tiered(gigabytes, [0.09, 0.085, 0.07]),
        Cloud::Azure => tiered(gigabytes, [0.0875, 0.083, 0.07]),
        Cloud::Gcp if gigabytes <= 1024.0 => 0.12 * gigabytes,
        Cloud::Gcp if gigabytes <= 10.0 * 1024.0 => 0.11 * gigabytes,
        Cloud::Gcp => 0.08 * gigabytes,
        _ => 0.0,
    }
}

/// Seconds for taking so many gigabytes out of a cloud into another one.
pub fn seconds(from: Cloud, to: Cloud, gigabytes: f64) -> f64 {
    if from == to { 0.0 } else { gigabytes.max(0.0) * 8.0 / GIGABITS }
}

/// Prices that fall with the amount, as SkyPilot counts them: what is above a bound is charged at that bound's price, and the bound
/// itself is taken off before the next one is looked at. Above 150 TiB all of it has one price; the first GB is free.
fn tiered(mut gigabytes: f64, [first, second, third]: [f64; 3]) -> f64 {
    const TIB: f64 = 1024.0;
    if gigabytes > 150.0 * TIB {
        return 0.05 * gigabytes;
    }
    let mut dollars = 0.0;
    for (bound, price) in [(50.0 * TIB, third), (10.0 * TIB, second)] {
        if gigabytes >= bound {
            dollars += (gigabytes - bound) * price;
            gigabytes -= bound;
        }
    }
    if gigabytes > 1.0 {
        dollars += (gigabytes - 1.0) * first;
    }
    dollars
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_leaves_a_cloud_costs() {
        assert!((dollars(Cloud::Azure, Cloud::Lambda, 100.0) - 8.6625).abs() < 1e-9);
        assert!((dollars(Cloud::Aws, Cloud::Gcp, 20_000.0) - (9760.0 * 0.085 + 9759.0 * 0.09)).abs() < 1e-9);
        assert!((dollars(Cloud::Aws, Cloud::Gcp, 1.0)).abs() < 1e-9);
        assert!((dollars(Cloud::Gcp, Cloud::Aws, 1025.0) - 112.75).abs() < 1e-9);
        assert!((dollars(Cloud::Aws, Cloud::Gcp, 200_000.0) - 10_000.0).abs() < 1e-9);
        assert!((dollars(Cloud::Aws, Cloud::Aws, 1e6)).abs() < 1e-9);
        assert!((dollars(Cloud::Lambda, Cloud::Aws, 1e6)).abs() < 1e-9);
        assert!((seconds(Cloud::Lambda, Cloud::Aws, 100.0) - 80.0).abs() < 1e-9);
    }
}
