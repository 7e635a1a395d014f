//! What clusters are, as tables show it: `2x (gpus=H100:1, cpus=4, -)`.

use api::sky::{Candidate, Cluster};

/// What a cluster is, by the place that it has or tries.
pub fn of_cluster(cluster: &Cluster) -> String {
    let has = cluster.at().or(cluster.spec.candidates.first());
    has.map_or_else(|| "-".to_owned(), |has| of(cluster.spec.nodes, has))
}

/// What so many machines of a candidate are.
pub fn of(nodes: i32, candidate: &Candidate) -> String {
    let mut parts: Vec<String> = Vec::new();
    if let Some(gpus) = &candidate.accelerators {
        parts.push(format!("gpus={}:{}", gpus.name, gpus.count));
    }
    for (name, amount) in [("cpus", candidate.cpus), ("mem", candidate.memory)] {
        if amount > 0.0 {
            parts.push(format!("{name}={amount}"));
        }
    }
    parts.push(if candidate.instance_type.is_empty() { "-".to_owned() } else { candidate.instance_type.clone() });
    format!("{nodes}x ({})", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_that_was_taken_is_shown() {
        let candidate = |cpus| Candidate { cpus, ..Candidate::default() };
        let mut cluster = Cluster::default();
        assert_eq!(of_cluster(&cluster), "-");
        cluster.spec.nodes = 2;
        cluster.spec.candidates = vec![candidate(1.0), candidate(4.0)];
        cluster.status.candidate = 1;
        assert_eq!(of_cluster(&cluster), "2x (cpus=4, -)");
    }
}
