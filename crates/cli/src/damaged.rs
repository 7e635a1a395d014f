//! `trainyard damaged`: the stored objects that were damaged and set aside, to be listed and to be chosen from.

use crate::output;
use client::ClientError;
use client::codes::ErrorCode;
use grammar::{DamagedArgs, Format};
use serde::{Deserialize, Serialize};
use serde_json::json;

/// A damaged object, as the store tells of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Group and resource, with a slash between; empty, as is the name, where it is not known what the damage hit.
    pub bucket: String,
    pub namespace: String,
    pub name: String,
    /// The resourceVersion of the last write, where the row still tells it.
    pub revision: Option<u64>,
    pub why: String,
}

impl Row {
    /// The resource as kubectl names it: `configmaps`, `jobs.batch`.
    fn resource(&self) -> String {
        match self.bucket.split_once('/') {
            Some((group, resource)) if !group.is_empty() => format!("{resource}.{group}"),
            Some((_, resource)) => resource.to_owned(),
            None => self.bucket.clone(),
        }
    }

    /// What it is called on the command line; `?` where that is not known.
    fn shown(&self) -> String {
        if self.name.is_empty() { "?".to_owned() } else { format!("{}/{}", self.resource(), self.name) }
    }

    /// Whether RESOURCE/NAME, with or without the resource's group, means it.
    fn is_called(&self, name: &str) -> bool {
        let Some((resource, name)) = name.split_once('/') else { return false };
        let (whole, resource) = (self.resource(), resource.to_lowercase());
        let plural = whole.split('.').next().unwrap_or_default();
        self.name == name && !name.is_empty() && (resource == whole || resource == plural)
    }
}

/// The rows that are to be dropped, by the flags; of `namespace` where one is given.
///
/// # Errors
/// No damaged object has the name, or several have it.
pub fn choose(rows: &[Row], args: &DamagedArgs, namespace: Option<&str>) -> Result<Vec<Row>, ClientError> {
    let of_namespace = |row: &&Row| namespace.is_none_or(|namespace| row.namespace == namespace);
    if args.all {
        return Ok(rows.iter().filter(of_namespace).cloned().collect());
    }
    let mut chosen: Vec<Row> = Vec::new();
    for name in &args.forget {
        let found: Vec<&Row> = rows.iter().filter(of_namespace).filter(|row| row.is_called(name)).collect();
        let Some(first) = found.first() else {
            let why = format!("no damaged object is called {name}; to see which there are: trainyard damaged");
            return Err(ClientError::Usage(ErrorCode::NotDamaged, why));
        };
        if found.iter().any(|row| (&row.bucket, &row.namespace) != (&first.bucket, &first.namespace)) {
            let why = format!("several damaged objects are called {name}; choose one by its namespace (-n) and group");
            return Err(ClientError::Usage(ErrorCode::NotDamaged, why));
        }
        chosen.extend(found.into_iter().cloned());
    }
    Ok(chosen)
}

/// Prints the damaged objects.
pub fn list(rows: &[Row], format: Format) {
    match format {
        Format::Json | Format::Yaml => output::print(&json!({"items": rows}), format),
        Format::Name => rows.iter().for_each(|row| println!("{}", row.shown())),
        Format::Table | Format::Wide if rows.is_empty() => eprintln!("no stored object is damaged"),
        Format::Table | Format::Wide => {
            let cells = rows.iter().map(|row| {
                let revision = row.revision.map_or_else(|| "?".to_owned(), |revision| revision.to_string());
                vec![row.namespace.clone(), row.shown(), revision, row.why.clone()]
            });
            output::table(&["NAMESPACE", "OBJECT", "REVISION", "WHY"], cells.collect());
        }
    }
}

/// Prints which were dropped.
pub fn forgotten(rows: &[Row], format: Format) {
    match format {
        Format::Json | Format::Yaml => output::print(&json!({"forgotten": rows}), format),
        Format::Name => rows.iter().for_each(|row| println!("{}", row.shown())),
        Format::Table | Format::Wide => rows.iter().for_each(|row| println!("{} forgotten", row.shown())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use grammar::Output;

    fn row(bucket: &str, namespace: &str, name: &str) -> Row {
        let why = "its checksum is wrong".to_owned();
        Row {
            bucket: bucket.to_owned(),
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            revision: Some(7),
            why,
        }
    }

    #[test]
    fn objects_are_chosen_by_name() {
        let rows = [
            row("/configmaps", "a", "one"),
            row("/configmaps", "b", "one"),
            row("batch/jobs", "a", "two"),
            row("other.io/jobs", "a", "three"),
            row("", "", ""),
        ];
        let choose = |names: &[&str], all, namespace| {
            let forget = names.iter().map(|name| (*name).to_owned()).collect();
            let args = DamagedArgs { forget, all, output: Output { output: Format::Table } };
            let chosen = choose(&rows, &args, namespace)?;
            Ok(chosen.iter().map(|row| rows.iter().position(|other| other == row).expect("of these")).collect())
        };
        let code = |result: Result<Vec<usize>, ClientError>| result.unwrap_err().code().as_str();
        assert_eq!(choose(&["jobs.batch/two", "Jobs/three"], false, None).unwrap(), [2, 3]);
        assert_eq!(choose(&["configmaps/one"], false, Some("b")).unwrap(), [1]);
        assert_eq!(choose(&[], true, Some("a")).unwrap(), [0, 2, 3]);
        assert_eq!(choose(&[], true, None).unwrap(), [0, 1, 2, 3, 4]);
        assert_eq!(choose(&[], false, None).unwrap(), [] as [usize; 0]);
        for name in ["configmaps/one", "configmaps/two", "one", "", "/", "?", "configmaps/", "jobs.other/two"] {
            assert_eq!(code(choose(&[name], false, None)), "TY0507", "{name}");
        }
        let shown: Vec<String> = rows.iter().map(Row::shown).collect();
        assert_eq!(shown, ["configmaps/one", "configmaps/one", "jobs.batch/two", "jobs.other.io/three", "?"]);
    }
}
