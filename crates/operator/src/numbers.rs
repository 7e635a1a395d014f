//! What jobs and this program do, in numbers: one implementation for `trainyard operator` and `trainyard up`.
//!
//! [`api::metrics`] has the names.

mod expiry;
mod jobs;
pub(crate) mod mpijobs;
pub(crate) mod trainjobs;

pub use expiry::expires;
pub use jobs::JobNumbers;

use api::metrics::{CERTIFICATE_END, PROCESS_CPU, PROCESS_MEMORY};
use driver::metrics::Registry;
use driver::{Driver, Witness};
use std::sync::Arc;

/// Counts the jobs of a driver, for as long as it runs, whenever somebody reads the registry. `name` tells the drivers of a process apart.
pub fn count(registry: &Registry, jobs: &JobNumbers, name: &'static str, driver: &Driver) {
    let cache = driver.cache();
    trainjobs::count(registry, &cache);
    mpijobs::count(registry, &cache);
    jobs.add(name, &cache, driver.behind());
}

/// Counts what becomes of jobs of all kinds while we watch.
pub fn witness(registry: &Arc<Registry>, jobs: &Arc<JobNumbers>) -> Witness {
    let all = [
        jobs::witness(registry.clone(), jobs.clone()),
        trainjobs::witness(registry.clone()),
        mpijobs::witness(registry.clone()),
    ];
    Arc::new(move |gvk, old, new| all.iter().for_each(|witness| witness(gvk, old, new)))
}

/// Takes note of when a certificate expires.
pub fn note_certificate(registry: &Registry, name: &str, pem: &str) {
    if let Some(end) = expires(pem) {
        registry.set(&CERTIFICATE_END, &[("certificate", name)], end.as_duration().as_secs_f64());
    }
}

/// Takes note of the processor time of this process, where the kernel says so. Ticks are Linux' usual ones.
pub fn note_processor_time(registry: &Registry) {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // after the name, which may hold anything, the third field comes first
    let mut fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11);
    if let (Some(user), Some(system)) = (number(fields.next()), number(fields.next())) {
        registry.set(&PROCESS_CPU, &[], (user + system) / 100.0);
    }
}

/// Takes note of the memory of this process, where the kernel says so. Pages are Linux' usual ones.
pub fn note_memory(registry: &Registry) {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    if let Some(pages) = number(statm.split(' ').nth(1)) {
        registry.set(&PROCESS_MEMORY, &[], pages * 4096.0);
    }
}

fn number(text: Option<&str>) -> Option<f64> {
    text.and_then(|text| text.parse().ok())
}
