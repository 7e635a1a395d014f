//! The present use of GPUs, from `nvidia-smi`.

use super::Amounts;
use crate::gpus::{self, Gpu};
use std::collections::BTreeMap;
use std::time::Duration;

/// How long `nvidia-smi` may take; without an answer GPUs' numbers are not known this time.
const TIMEOUT: Duration = Duration::from_secs(3);

/// One GPU's load. `None`: the driver does not say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Load {
    pub percent: Option<u64>,
    pub memory_bytes: Option<u64>,
}

/// The load of each of these GPUs, by index.
pub async fn measure(known: &[Gpu]) -> BTreeMap<u32, Load> {
    if known.is_empty() {
        return BTreeMap::new();
    }
    let text = gpus::nvidia_smi("index,utilization.gpu,memory.used", TIMEOUT).await.unwrap_or_default();
    let mut loads = parse(&text);
    loads.retain(|index, _| known.iter().any(|gpu| gpu.index == *index));
    loads
}

fn parse(text: &str) -> BTreeMap<u32, Load> {
    text.lines()
        .filter_map(|line| {
            let mut parts = line.split(',').map(str::trim);
            let index = parts.next()?.parse().ok()?;
            let percent = parts.next()?.parse().ok();
            let mebibytes: Option<u64> = parts.next()?.parse().ok();
            Some((index, Load { percent, memory_bytes: mebibytes.map(|m| m << 20) }))
        })
        .collect()
}

/// Several GPUs together; nothing else is set.
pub fn of(loads: &[&Load]) -> Amounts {
    let percents: Vec<u64> = loads.iter().filter_map(|load| load.percent).collect();
    let bytes: Vec<u64> = loads.iter().filter_map(|load| load.memory_bytes).collect();
    Amounts {
        gpu_percent: (!percents.is_empty()).then(|| percents.iter().sum::<u64>() / percents.len() as u64),
        gpu_memory_bytes: (!bytes.is_empty()).then(|| bytes.iter().sum()),
        ..Amounts::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_nvidia_smi_prints() {
        let loads = parse("0, 87, 1024\n1, [N/A], 512\n2, 13, [N/A]\nnonsense\n");
        assert_eq!(loads[&0], Load { percent: Some(87), memory_bytes: Some(1 << 30) });
        assert_eq!(loads[&1], Load { percent: None, memory_bytes: Some(512 << 20) });
        assert_eq!(loads.len(), 3);
        let together = of(&loads.values().collect::<Vec<_>>());
        assert_eq!((together.gpu_percent, together.gpu_memory_bytes), (Some(50), Some(1536 << 20)));
        assert_eq!(of(&[]), Amounts::default());
    }
}
