//! A host's facts about itself, and whether they meet a request.

use crate::fault::Fault;
use crate::host::{Said, first, taken};
use api::sky::Candidate;

const GIB_IN_KIB: f64 = 1_048_576.0;

fn number(said: &Said, name: &str) -> f64 {
    first(said, name).parse().unwrap_or(0.0)
}

/// Why this host does not meet the request; `need`: KiB of disk.
pub fn unsuitable(said: &Said, wanted: &Candidate, need: u64) -> Option<Fault> {
    let system = first(said, "system");
    let ours = format!("Linux {}", std::env::consts::ARCH);
    if system != ours {
        return Some(Fault::Unfit(format!("it is {system}, and the program is for {ours}")));
    }
    if !first(said, "holder").is_empty() {
        return Some(Fault::NoRoom(taken(first(said, "record"), "it is taken")));
    }
    let (cpus, memory) = (number(said, "cpus"), number(said, "memory") / GIB_IN_KIB);
    for (what, wanted, has) in [("processors", wanted.cpus, cpus), ("GiB of memory", wanted.memory, memory)] {
        if wanted > has {
            return Some(Fault::NoRoom(format!("it has {has:.1} {what}, and {wanted:.1} are asked for")));
        }
    }
    #[expect(clippy::cast_precision_loss, reason = "sizes of disks")]
    if number(said, "disk") < need as f64 {
        let (has, need) = (number(said, "disk") / 1024.0, need / 1024);
        return Some(Fault::NoRoom(format!("its home directory has {has:.0} MiB of disk left, and {need} are needed")));
    }
    let asked = wanted.accelerators.as_ref().filter(|all| all.count > 0.0)?;
    let has = said.get("gpu").into_iter().flatten().filter(|gpu| placement::is_named(gpu, &asked.name)).count();
    #[expect(clippy::cast_precision_loss, reason = "GPUs of one machine")]
    let enough = has as f64 >= asked.count;
    (!enough).then(|| Fault::NoRoom(format!("it has {has} {}, and {} are asked for", asked.name, asked.count)))
}
