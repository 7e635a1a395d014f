//! Facts about this machine, from `/proc` and the environment.

use std::fs;

/// Identifies this boot of the machine; empty where the kernel does not say.
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
}

/// Bytes of memory that the machine has.
pub fn memory_bytes() -> u64 {
    meminfo("MemTotal:")
}

/// Bytes of memory that nobody could have without taking them from somebody.
pub fn memory_used_bytes() -> u64 {
    memory_bytes().saturating_sub(meminfo("MemAvailable:"))
}

fn meminfo(field: &str) -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix(field));
    line.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// Processors that this process may use.
pub fn cpus() -> usize {
    std::thread::available_parallelism().map(usize::from).unwrap_or(1)
}
