//! Where a machine is: cloud, region and zone, and `infra`, which names all three in one text.

use placement::Cloud;

use crate::error::TaskError;
use crate::suggest;

/// Cloud, region and zone; what is not given is any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Infra {
    /// The cloud.
    pub cloud: Option<Cloud>,
    /// The region; a context of Kubernetes, a pool of SSH machines (`ssh-NAME`), a cluster of Slurm.
    pub region: Option<String>,
    /// The zone; a partition of Slurm.
    pub zone: Option<String>,
}

impl Infra {
    /// Reads `cloud[/region[/zone]]`; `*` is any. All behind `k8s/` is the context, all behind `ssh/` the pool.
    ///
    /// # Errors
    /// For empty parts and more than three.
    pub fn read(text: &str) -> Result<Self, TaskError> {
        let [cloud, region, zone] = Self::parts(text)?;
        let cloud = cloud.map(|name| {
            let unknown = || {
                let text = text.trim().trim_matches('/').trim();
                TaskError::value(format!("Invalid infra format: {text}. There is no cloud {name}."))
            };
            Cloud::from_name(&name).ok_or_else(unknown)
        });
        Ok(Self { cloud: cloud.transpose()?, region, zone })
    }

    /// How a place is written, and the cloud that may be meant, for one that is none.
    pub fn hint(text: &str) -> String {
        let form = "A place is CLOUD, CLOUD/REGION or CLOUD/REGION/ZONE, k8s/CONTEXT, ssh/POOL or local";
        let name = text.split('/').next().unwrap_or_default().to_lowercase();
        let known = Cloud::ALL.iter().map(|cloud| cloud.name());
        match suggest::nearest(&name, known).filter(|near| *near != name) {
            Some(near) => format!("{form}; did you mean {near}?"),
            None => format!("{form}."),
        }
    }

    /// Cloud, region and zone as they are written; `*` and what is not there are nothing.
    ///
    /// # Errors
    /// For empty parts and more than three.
    pub fn parts(text: &str) -> Result<[Option<String>; 3], TaskError> {
        let trimmed = text.trim().trim_matches('/').trim();
        if trimmed.is_empty() {
            return Ok([None, None, None]);
        }
        let parts: Vec<&str> = trimmed.split('/').map(str::trim).collect();
        if parts.contains(&"") {
            return Err(TaskError::value(format!(
                "Invalid infra format: {trimmed}. Format should not contain empty parts (e.g., double slashes \"//\")."
            )));
        }
        let named = |part: Option<&&str>| part.filter(|part| **part != "*").map(|part| (*part).to_owned());
        let (first, rest) = parts.split_first().map_or(("", &[][..]), |(first, rest)| (*first, rest));
        let all = (!rest.is_empty()).then(|| rest.join("/")).filter(|all| all != "*");
        let cloud = named(Some(&first));
        match Cloud::from_name(first) {
            Some(Cloud::Kubernetes) => Ok([cloud, all, None]),
            Some(Cloud::Ssh) => Ok([cloud, all.map(|pool| format!("ssh-{pool}")), None]),
            _ if rest.len() > 2 => Err(TaskError::value(format!(
                "Invalid infra format: {trimmed}. Expected format is \"cloud\", \"cloud/region\", or \"cloud/region/zone\"."
            ))),
            _ => Ok([cloud, named(rest.first()), named(rest.get(1))]),
        }
    }

    /// As `infra` writes it; nothing where all is any.
    pub fn text(&self) -> Option<String> {
        let given =
            |text: &Option<String>| text.as_deref().filter(|text| !matches!(*text, "" | "*")).map(str::to_owned);
        let region = given(&self.region).map(|region| region.strip_prefix("ssh-").unwrap_or(&region).to_owned());
        let mut parts = vec![self.cloud.map(|cloud| cloud.name().to_owned()), region, given(&self.zone)];
        while parts.last().is_some_and(Option::is_none) {
            parts.pop();
        }
        (!parts.is_empty())
            .then(|| parts.into_iter().map(|part| part.unwrap_or_else(|| "*".into())).collect::<Vec<_>>().join("/"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn infra_is_read_and_written() {
        for (text, written) in [
            ("AWS/us-east-1", Some("aws/us-east-1")),
            ("k8s/a/b:c/d", Some("kubernetes/a/b:c/d")),
            ("ssh/pool", Some("ssh/pool")),
            ("*", None),
            ("*/us-east-1", Some("*/us-east-1")),
            ("gcp/*/us-central1-a", Some("gcp/*/us-central1-a")),
            ("slurm/a/b", Some("slurm/a/b")),
        ] {
            assert_eq!(Infra::read(text).map(|infra| infra.text()), Ok(written.map(str::to_owned)), "{text}");
        }
        assert!(Infra::read("aws//x").is_err() && Infra::read("aws/a/b/c").is_err());
    }
}
