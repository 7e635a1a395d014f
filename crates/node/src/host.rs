//! Facts about this machine, from `/proc` and the environment.

use std::fs;
use std::net::Ipv4Addr;

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

/// Bytes of memory that can be had without taking them from somebody; `None` where the kernel does not say.
pub fn memory_available_bytes() -> Option<u64> {
    Some(meminfo("MemAvailable:")).filter(|bytes| *bytes > 0)
}

/// Bytes of a page of memory.
pub fn page_bytes() -> u64 {
    let bytes = nix::unistd::sysconf(nix::unistd::SysconfVar::PAGE_SIZE).ok().flatten();
    bytes.and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(4096)
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

/// The network interface that has this address.
pub fn interface(address: Ipv4Addr) -> Option<String> {
    let mut all = nix::ifaddrs::getifaddrs().into_iter().flatten();
    let has = |one: &nix::ifaddrs::InterfaceAddress| {
        one.address.as_ref().and_then(|held| held.as_sockaddr_in()).is_some_and(|held| held.ip() == address)
    };
    all.find(has).map(|one| one.interface_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_an_interface() {
        assert_eq!(interface(Ipv4Addr::LOCALHOST).as_deref(), Some("lo"));
        assert_eq!(interface(Ipv4Addr::new(203, 0, 113, 77)), None);
    }
}
