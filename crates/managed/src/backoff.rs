//! Pauses that grow with failures in a row.

/// Seconds before the next try after so many failures in a row: `first`, then twice as long each time, at most `most`.
pub(crate) fn seconds(failures: u32, first: i64, most: i64) -> i64 {
    let doubled = 1_i64.checked_shl(failures.saturating_sub(1).min(8)).unwrap_or(1);
    first.saturating_mul(doubled).min(most)
}
