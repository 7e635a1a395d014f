//! Reads from the kernel's log whether it killed a process for lack of memory: for machines without usable cgroups.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;

/// The first pid namespace, whose numbers the kernel's log has.
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";
/// Longest record of the log.
const RECORD_BYTES_MAX: usize = 8192;

/// The kernel's log from now on; nothing where it may not be read, or has other numbers than ours.
#[derive(Debug)]
pub struct KernelLog {
    log: Option<File>,
}

impl KernelLog {
    pub fn from_now_on() -> Self {
        let is_first = fs::read_link("/proc/self/ns/pid").is_ok_and(|link| link.as_os_str() == FIRST_PID_NAMESPACE);
        let open = || {
            let flags = nix::libc::O_NONBLOCK | nix::libc::O_CLOEXEC;
            let mut log = OpenOptions::new().read(true).custom_flags(flags).open("/dev/kmsg").ok()?;
            log.seek(SeekFrom::End(0)).ok()?;
            Some(log)
        };
        Self { log: if is_first { open() } else { None } }
    }

    /// Whether the log says meanwhile that this process was killed for lack of memory. It can be asked once.
    pub fn names(&mut self, pid: i32) -> bool {
        let Some(mut log) = self.log.take() else { return false };
        let mut record = vec![0; RECORD_BYTES_MAX];
        loop {
            match log.read(&mut record) {
                Ok(0) => return false,
                Ok(n) if victim(&String::from_utf8_lossy(&record[..n])) == Some(pid) => return true,
                Ok(_) => {}
                // records were overwritten before we read them
                Err(e) if e.kind() == ErrorKind::BrokenPipe || e.kind() == ErrorKind::Interrupted => {}
                Err(_) => return false,
            }
        }
    }
}

/// The process that a record names as killed for lack of memory.
fn victim(record: &str) -> Option<i32> {
    let (_, text) = record.split_once(';')?;
    let text = text.strip_prefix("Memory cgroup out").or_else(|| text.strip_prefix("Out"))?;
    let (_, rest) = text.split_once(" of memory: Killed process ")?;
    rest.split(' ').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records() {
        let cases = [
            ("3,900,12,-;Out of memory: Killed process 4711 (python3) total-vm:9kB, anon-rss:8kB\n", Some(4711)),
            ("3,901,13,-;Memory cgroup out of memory: Killed process 12 (a b) total-vm:9kB\n", Some(12)),
            ("6,902,14,-;oom-kill:constraint=CONSTRAINT_NONE,task=python3,pid=4711,uid=0\n", None),
            ("12,903,15,-;a user wrote: Out of memory: Killed process 1 (x)\n", None),
            ("", None),
        ];
        for (record, expected) in cases {
            assert_eq!(victim(record), expected, "{record}");
        }
    }

    #[test]
    fn nobody_is_named_who_was_not() {
        let mut log = KernelLog::from_now_on();
        assert!(!log.names(std::process::id() as i32));
        assert!(!log.names(1));
    }
}
