//! Facts about this machine, from `/proc` and the environment.

use std::fs;

/// Identifies this boot of the machine; empty where the kernel does not say.
pub fn boot_id() -> String {
    fs::read_to_string("/proc/sys/kernel/random/boot_id").map(|id| id.trim().to_owned()).unwrap_or_default()
}

/// The numbers of all processes.
pub fn pids() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

/// Ticks a second of the clock by which the kernel counts for programs.
pub fn ticks_per_second() -> i64 {
    nix::unistd::sysconf(nix::unistd::SysconfVar::CLK_TCK).ok().flatten().filter(|ticks| *ticks > 0).unwrap_or(100)
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
