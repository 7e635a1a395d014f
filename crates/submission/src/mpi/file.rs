//! An MPIJob from a file.

use api::mpi::{API_VERSION, KIND};
use serde_json::Value;

/// Why a text is not one MPIJob.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoMpiJob {
    /// The text is not YAML; this is the first line of the parser's message.
    #[error("{0}")]
    Yaml(String),
    #[error("it is empty")]
    Empty,
    #[error("it has more than one object; create all of them with: kubectl create -f")]
    Several,
    #[error("it is {0} {1}, and not {API_VERSION} {KIND}")]
    Other(String, String),
    #[error("it has no {0}, and should be {API_VERSION} {KIND}")]
    Without(&'static str),
}

/// The one MPIJob of a YAML or JSON text.
pub fn read(text: &str) -> Result<Value, NoMpiJob> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).map_err(|error| {
        let told = error.to_string();
        let first = told.lines().next().unwrap_or("it is no YAML");
        NoMpiJob::Yaml(first.strip_prefix("error: ").unwrap_or(first).to_owned())
    })?;
    let mut objects = documents.into_iter().filter(|document| !document.is_null());
    let job = objects.next().ok_or(NoMpiJob::Empty)?;
    if objects.next().is_some() {
        return Err(NoMpiJob::Several);
    }
    match (job["apiVersion"].as_str(), job["kind"].as_str()) {
        (Some(API_VERSION), Some(KIND)) => Ok(job),
        (Some(version), Some(kind)) => Err(NoMpiJob::Other(version.to_owned(), kind.to_owned())),
        (version, _) => Err(NoMpiJob::Without(if version.is_none() { "apiVersion" } else { "kind" })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_holds_one_mpijob() {
        let job = "apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata: {name: a}\n";
        assert_eq!(read(&format!("# first\n---\n{job}")).map(|job| job["metadata"]["name"].clone()), Ok("a".into()));
        for (text, says) in [
            (String::new(), "it is empty"),
            (format!("{job}---\n{job}"), "more than one object"),
            ("apiVersion: v1\nkind: Pod\n".to_owned(), "it is v1 Pod, and not kubeflow.org/v2beta1 MPIJob"),
            ("a: 1".to_owned(), "it has no apiVersion, and should be kubeflow.org/v2beta1 MPIJob"),
            (format!("{job}  x: ["), ""),
        ] {
            let told = read(&text).expect_err("it is none").to_string();
            assert!(told.contains(says) && !told.contains('\n'), "{told}");
        }
    }
}
