//! Whether an existing cluster meets a task's request.

use super::{Refused, amount, gpus};
use api::quantity::Quantity;
use api::sky::{Candidate, Cluster, Place};
use sky::place::describe;
use sky::resources::Resources;
use sky::task::Task;

const GIB: f64 = 1_073_741_824.0;

/// Processors and GiB of memory that each machine of a cluster has at least.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Size {
    pub cpus: f64,
    pub memory: f64,
}

impl Size {
    /// The least that each machine of a cluster has: what its Nodes can give, else what was requested.
    pub fn of_cluster(cluster: &Cluster, nodes: impl Iterator<Item = Self>) -> Self {
        let least = nodes.reduce(|a, b| Self { cpus: a.cpus.min(b.cpus), memory: a.memory.min(b.memory) });
        let asked = taken(cluster);
        let least = least.unwrap_or(Self { cpus: 0.0, memory: 0.0 });
        // a machine was made for the request, whatever part of it the machine keeps for itself
        Self { cpus: least.cpus.max(asked.cpus), memory: least.memory.max(asked.memory) }
    }

    /// Of one Node, by its `status.allocatable`.
    #[expect(clippy::cast_precision_loss, reason = "sizes of one machine")]
    pub fn allocatable(has: &serde_json::Value) -> Self {
        let quantity = |name: &str| Quantity::from_json(&has[name]).ok();
        Self {
            cpus: quantity("cpu").map_or(0.0, |quantity| quantity.milli_value() as f64 / 1000.0),
            memory: quantity("memory").map_or(0.0, |quantity| quantity.value() as f64 / GIB),
        }
    }
}

/// The place that a cluster has or tries; its first place once all have been tried.
pub fn taken(cluster: &Cluster) -> Candidate {
    cluster.at().or(cluster.spec.candidates.first()).cloned().unwrap_or_default()
}

/// The region that is asked for, as a Cluster has it.
fn region(resources: &Resources) -> Option<&str> {
    resources.infra.region.as_deref().map(|region| region.strip_prefix("ssh-").unwrap_or(region))
}

/// The first alternative of a task that a cluster meets. `shown` is the cluster's name for its user. Processors and memory count only if
/// `size` is given: `exec` does not request them, because jobs hold neither.
///
/// # Errors
/// The cluster lacks something, which the error names.
pub fn fits<'a>(cluster: &Cluster, shown: &str, task: &'a Task, size: Option<Size>) -> Result<&'a Resources, Refused> {
    let spec = &cluster.spec;
    let has = taken(cluster);
    let list = &task.resources.list;
    let enough = i128::from(spec.nodes) >= task.num_nodes;
    if let Some(met) = list.iter().find(|one| enough && meets(&has, one, size)) {
        return Ok(met);
    }
    let mismatch = |message: String| Err(Refused::new("sky.exceptions.ResourcesMismatchError", message));
    for one in list {
        let asked = format!("Task requested resources {}", describe(one, true));
        if let Some(region) = region(one).filter(|region| *region != has.region) {
            return mismatch(format!(
                "{asked} in region '{region}', but the existing cluster is in region '{}'.",
                has.region
            ));
        }
        if let Some(zone) = one.infra.zone.as_ref().filter(|zone| **zone != has.zone) {
            let existing = match has.zone.as_str() {
                "" => "does not have zone specified.".to_owned(),
                zone => format!("is in zone '{zone}'."),
            };
            return mismatch(format!("{asked} in zone '{zone}', but the existing cluster {existing}"));
        }
    }
    let requested: Vec<String> =
        list.iter().map(|one| format!("{}x {}", task.num_nodes, describe(one, true))).collect();
    let sized = size
        .map_or_else(|| has.clone(), |size| Candidate { cpus: size.cpus, memory: round(size.memory), ..has.clone() });
    let existing = crate::resources::of(spec.nodes, &sized);
    mismatch(format!(
        "Requested resources do not match the existing cluster.\n  Requested:\t{}\n  Existing:\t{existing}\nTo fix: specify a new cluster name, or down the existing cluster first: sky down {shown}",
        requested.join(", "),
    ))
}

/// To a tenth, as people read it.
fn round(amount: f64) -> f64 {
    (amount * 10.0).floor() / 10.0
}

/// The request for each machine; 0 leaves it open. Memory such as `4x` means so many GiB for each processor.
pub(crate) fn size_asked(wanted: &Resources) -> Size {
    let cpus = amount(&wanted.cpus);
    let memory = match wanted.memory.as_deref() {
        Some(times) if times.ends_with('x') => amount(&wanted.memory) * cpus,
        _ => amount(&wanted.memory),
    };
    Size { cpus, memory }
}

fn meets(has: &Candidate, wanted: &Resources, size: Option<Size>) -> bool {
    let accelerators = match (gpus(wanted), &has.accelerators) {
        (None, _) => true,
        (Some(wanted), Some(has)) => wanted.name.eq_ignore_ascii_case(&has.name) && wanted.count <= has.count,
        (Some(_), None) => false,
    };
    let place = wanted.infra.cloud.is_none_or(|cloud| cloud.name() == has.provider)
        && region(wanted).is_none_or(|region| region == has.region)
        && wanted.infra.zone.as_ref().is_none_or(|zone| *zone == has.zone);
    let image = match has.place() {
        // images count where machines are pods
        Place::Kubernetes { options, .. } => wanted.container_image().is_none_or(|image| image == options.image),
        Place::Local | Place::Ssh { .. } | Place::Other(_) => true,
    };
    let kind = wanted.instance_type.as_ref().is_none_or(|kind| *kind == has.instance_type)
        && wanted.use_spot.is_none_or(|spot| spot == has.spot);
    let large = size.is_none_or(|size| {
        let asked = size_asked(wanted);
        asked.cpus <= size.cpus && asked.memory <= size.memory
    });
    accelerators && place && image && kind && large
}

#[cfg(test)]
mod tests {
    use super::*;
    use api::sky::Accelerators;
    use placement::Catalogue;
    use sky::schema::Reader;
    use sky::task::Given;

    fn task(text: &str) -> Task {
        let file = sky::file::File::read(text, &Given::default(), Reader::Client, &Catalogue::default());
        file.unwrap().tasks.pop().unwrap()
    }

    fn cluster() -> Cluster {
        let mut found = Cluster::default();
        found.spec.nodes = 2;
        found.spec.candidates = vec![Candidate {
            provider: "kubernetes".into(),
            region: "here".into(),
            instance_type: "4CPU--8GB".into(),
            accelerators: Some(Accelerators { name: "T4".into(), count: 2.0 }),
            pod: api::sky::PodOptions { image: "mine:1".into(), ..Default::default() },
            ..Candidate::default()
        }];
        found
    }

    const SIZE: Size = Size { cpus: 4.0, memory: 7.99 };

    #[test]
    fn what_a_cluster_lacks_is_told() {
        let found = cluster();
        for wanted in [
            "{}",
            "num_nodes: 2",
            "resources: {infra: k8s/here, cpus: 4+, memory: 7+, accelerators: T4:2, use_spot: false}",
            "resources: {cpus: 1, memory: 2x, instance_type: 4CPU--8GB}",
            "resources: {image_id: 'docker:mine:1'}",
            "resources: {any_of: [{cpus: 64}, {cpus: 2}]}",
        ] {
            assert!(fits(&found, "dev", &task(wanted), Some(SIZE)).is_ok(), "{wanted}");
        }
        for (wanted, says) in [
            ("num_nodes: 3", "3x <Cloud>()"),
            ("resources: {cpus: 5}", "<Cloud>(cpus=5)"),
            ("resources: {cpus: 5+}", "cpus=5+"),
            ("resources: {memory: 8}", "mem=8"),
            ("resources: {cpus: 4, memory: 2x}", "mem=2x"),
            ("resources: {accelerators: T4:3}", "{'T4': 3}"),
            ("resources: {accelerators: L4}", "{'L4': 1}"),
            ("resources: {instance_type: 8CPU--8GB}", "8CPU--8GB"),
            ("resources: {use_spot: true}", "[Spot]"),
            ("resources: {image_id: 'docker:mine:2'}", "mine:2"),
            ("resources: {infra: local}", "Local()"),
        ] {
            let told = fits(&found, "dev", &task(wanted), Some(SIZE)).expect_err(wanted).to_string();
            assert!(told.starts_with("sky.exceptions.ResourcesMismatchError: Requested resources"), "{told}");
            assert!(told.contains(says) && told.contains("2x (gpus=T4:2, cpus=4, mem=7.9, 4CPU--8GB)"), "{told}");
        }
        let told = fits(&found, "dev", &task("resources: {infra: k8s/there}"), None).unwrap_err().to_string();
        assert!(told.contains("in region 'there', but the existing cluster is in region 'here'."), "{told}");
    }

    #[test]
    fn a_zone_must_be_the_same() {
        let mut found = cluster();
        let wanted = task("resources: {infra: gcp/here/a}");
        found.spec.candidates[0].provider = "gcp".into();
        let told = fits(&found, "dev", &wanted, None).unwrap_err().to_string();
        assert!(told.ends_with("in zone 'a', but the existing cluster does not have zone specified."), "{told}");
        found.spec.candidates[0].zone = "a".into();
        assert!(fits(&found, "dev", &wanted, None).is_ok());
    }

    #[test]
    fn jobs_hold_no_processors_and_no_memory() {
        assert!(fits(&cluster(), "dev", &task("resources: {cpus: 64, memory: 512}"), None).is_ok());
        assert_eq!(
            Size::allocatable(&serde_json::json!({"cpu": "3500m", "memory": "1Gi"})),
            Size { cpus: 3.5, memory: 1.0 }
        );
    }
}
