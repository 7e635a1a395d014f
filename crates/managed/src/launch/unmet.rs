//! The parts of a machine's description that a place does not provide. Each is refused or reported in a line, never ignored.

use super::Refused;
use placement::{Cloud, Feature};
use sky::resources::Resources;

/// The parts of a description that a place does not provide.
#[derive(Debug, Default, PartialEq)]
struct Unmet {
    /// Parts without which the task would be another one.
    pub refused: Vec<String>,
    /// Parts without which the task can still run.
    pub without_effect: Vec<String>,
}

/// The parts of this description that this provider's machines cannot have.
fn at(provider: &str, asked: &Resources) -> Unmet {
    let makes = |cloud: &Cloud| matches!(cloud, Cloud::Local | Cloud::Ssh | Cloud::Kubernetes);
    let Some(cloud) = Cloud::from_name(provider).filter(makes) else { return Unmet::default() };
    let pods = cloud == Cloud::Kubernetes;
    let mut unmet = Unmet::default();
    let mut refuse = |is_asked: bool, what: &str| unmet.refused.extend(is_asked.then(|| what.to_owned()));
    let has_image = asked.image_id.is_some() || asked.docker_image.is_some();
    refuse(
        has_image && !pods,
        "`image_id`: tasks run on the machine as it is, images count where machines are pods; leave it out, or use `infra: k8s`",
    );
    refuse(
        has_image && pods && asked.container_image().is_none(),
        "`image_id`: it names several images; a pod has one, `docker:IMAGE`",
    );
    refuse(
        asked.ports.is_some() && pods,
        "`ports`: no service is made for the pods of a cluster; leave them out, `kubectl port-forward` reaches a pod",
    );
    for (feature, field, is_asked) in [
        (Feature::DiskTier, "disk_tier", asked.disk_tier.as_deref().is_some_and(|tier| tier != "best")),
        (Feature::NetworkTier, "network_tier", asked.network_tier.as_deref() == Some("best")),
        (Feature::LocalDisk, "local_disk", asked.local_disk.is_some()),
    ] {
        refuse(
            is_asked && !feature.is_had_by(cloud),
            &format!("`{field}`: {}", feature.reason(cloud).trim_end_matches('.')),
        );
    }
    let mut tell = |is_asked: bool, what: &str| unmet.without_effect.extend(is_asked.then(|| what.to_owned()));
    tell(asked.disk_size.is_some(), "`disk_size`: a machine's disk is as large as it is there");
    tell(
        asked.labels.as_ref().is_some_and(|labels| !labels.is_empty()) && !pods,
        "`labels`: machines that are there already get none",
    );
    tell(asked.job_recovery.is_some(), "`job_recovery`: it is for managed jobs");
    tell(
        asked.priority.is_some() || asked.priority_class.is_some(),
        "`priority`: jobs of a cluster run first in, first out",
    );
    unmet
}

/// A line for each part that has no effect at a place.
///
/// # Errors
/// The parts that are refused there.
pub fn check(provider: &str, asked: &Resources) -> Result<Vec<String>, Refused> {
    let unmet = at(provider, asked);
    if !unmet.refused.is_empty() {
        let message = format!("{} (on {}).", unmet.refused.join("; "), place(provider));
        return Err(Refused::new("sky.exceptions.NotSupportedError", message));
    }
    let told = |what: &String| format!("{what}. It has no effect on {}.", place(provider));
    Ok(unmet.without_effect.iter().map(told).collect())
}

fn place(provider: &str) -> &str {
    match Cloud::from_name(provider) {
        Some(Cloud::Local) => "this machine",
        Some(Cloud::Ssh) => "machines of SSH pools",
        Some(Cloud::Kubernetes) => "Kubernetes",
        _ => provider,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sky::schema::Reader;
    use sky::task::Given;

    fn asked(resources: &str) -> Resources {
        let catalogue = placement::Catalogue::default();
        let text = format!("run: x\nresources: {{{resources}}}\n");
        let file = sky::file::File::read(&text, &Given::default(), Reader::Client, &catalogue).unwrap();
        file.tasks[0].resources.list[0].clone()
    }

    #[test]
    fn each_place_says_what_it_lacks() {
        // refused, without effect, and the fields that are reported
        for (resources, local, ssh, kubernetes) in [
            ("cpus: 2, memory: 1+, autostop: 5, accelerators: H100", "", "", ""),
            ("image_id: docker:x", "!image_id", "!image_id", ""),
            ("image_id: x, infra: k8s", "!image_id", "!image_id", ""),
            ("image_id: {a: 'docker:x', b: 'docker:y'}, infra: k8s", "!image_id", "!image_id", "!image_id"),
            ("ports: 80", "", "", "!ports"),
            ("disk_size: 100", "disk_size", "disk_size", "disk_size"),
            ("disk_tier: best", "", "", ""),
            ("disk_tier: low", "!disk_tier", "!disk_tier", "!disk_tier"),
            ("network_tier: best", "!network_tier", "!network_tier", "!network_tier"),
            ("network_tier: standard", "", "", ""),
            ("local_disk: 'nvme:100+'", "!local_disk", "!local_disk", "!local_disk"),
            ("labels: {a: b}", "labels", "labels", ""),
            ("job_recovery: FAILOVER", "job_recovery", "job_recovery", "job_recovery"),
            ("priority: 3", "priority", "priority", "priority"),
        ] {
            for (provider, says) in [("local", local), ("ssh", ssh), ("kubernetes", kubernetes)] {
                let unmet = at(provider, &asked(resources));
                let fields = |list: &[String], mark: &str| {
                    let names = list.iter().map(|what| format!("{mark}{}", what.split('`').nth(1).unwrap()));
                    names.collect::<Vec<_>>().join(" ")
                };
                let told = fields(&unmet.refused, "!") + &fields(&unmet.without_effect, "");
                assert_eq!(told, says, "{provider}: {resources}");
                assert_eq!(check(provider, &asked(resources)).is_err(), says.starts_with('!'));
            }
        }
        assert_eq!(at("aws", &asked("image_id: docker:x")), Unmet::default(), "no machines are made there");
    }
}
