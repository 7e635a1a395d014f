//! The server's own checks (`/readyz?verbose`), one by one.

use crate::facts::{Facts, Seen};
use crate::finding::{Findings, Remedy, Severity};
use client::codes::ErrorCode;

pub(super) fn judge(facts: &Facts) -> Findings {
    let mut found = Findings::new("health");
    let object = format!("Server/{}", facts.server);
    let told = match &facts.health {
        Seen::Known(told) => told,
        Seen::Unknown(why) => {
            found.unknown(object, why);
            return found;
        }
    };
    let mut well = true;
    for line in told.lines() {
        if let Some(failure) = line.strip_prefix("[-]") {
            well = false;
            let remedy = match failure.starts_with("etcd ") && facts.embedded().is_some() {
                true => "make room on the disk of its home, or make it writable; writes are taken again by themselves",
                false => "look into the log of the server",
            };
            found.add(
                ErrorCode::ServerUnhealthy,
                Severity::Error,
                object.clone(),
                failure.to_owned(),
                Remedy::advise(remedy),
            );
        } else if let Some(damage) = line.strip_prefix("[+]stored-objects ok (") {
            well = false;
            let remedy = "make them again, let them go (trainyard damaged --all), or go back to a backup: trainyard restore FILE --force";
            found.add(
                ErrorCode::ServerUnhealthy,
                Severity::Warning,
                object.clone(),
                damage.trim_end_matches(')'),
                Remedy::advise(remedy),
            );
        }
    }
    if well {
        found.ok(object, "all of its checks pass");
    }
    found
}
