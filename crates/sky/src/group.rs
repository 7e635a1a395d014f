//! Job groups: how long auxiliary tasks run on, the host names of tasks, and tasks that are bound to one place.

use crate::error::TaskError;
use crate::file::Group;
use crate::infra::Infra;
use crate::quantity::seconds;
use crate::task::Task;
use crate::value::{Value, quote};

/// Bytes of a label of a host name, and of a whole one (RFC 1035).
const LABEL_MAX: usize = 63;
const HOST_MAX: usize = 253;

impl Group {
    /// Makes a task auxiliary: the seconds that it runs on after all primary tasks have ended. `None`: it is a primary task.
    pub fn auxiliary(&self, task: &str) -> Option<u32> {
        let primary = self.primary_tasks.as_deref()?;
        if primary.iter().any(|name| name.as_str() == Some(task)) {
            return None;
        }
        let delay = match &self.termination_delay {
            Some(Value::Map(each)) => each.get(task).or_else(|| each.get("default")),
            one => one.as_ref(),
        };
        Some(delay.and_then(|delay| seconds(&delay.text())).unwrap_or(0))
    }
}

/// The name by which the tasks of a group reach a node of a task.
pub fn host(group: &str, task: &str, node: i128) -> String {
    format!("{task}-{node}.{group}")
}

/// Checks that every node of a group can have its host name, and that no two nodes share one: upper and lower case are the same there.
///
/// # Errors
/// The name that cannot be used.
pub fn check_hosts(group: &str, tasks: &[Task]) -> Result<(), TaskError> {
    let mut names: Vec<&str> = Vec::new();
    for task in tasks {
        let name = task.name.as_deref().unwrap_or_default();
        if let Some(other) = names.iter().find(|other| other.eq_ignore_ascii_case(name)) {
            return Err(TaskError::value(format!(
                "Tasks {} and {} of job group {} would have the same host names: host names do not distinguish upper and lower case. Rename one of them.",
                quote(other),
                quote(name),
                quote(group)
            )));
        }
        let host = host(group, name, task.num_nodes.saturating_sub(1));
        let is_label = |label: &str| !label.is_empty() && label.len() <= LABEL_MAX && label.is_ascii();
        if host.len() > HOST_MAX || !host.split('.').all(is_label) {
            return Err(TaskError::value(format!(
                "Task {} of job group {} cannot have the host name {}. Use ASCII letters, digits, '-' and '_' in both names, and at most {LABEL_MAX} characters between two dots.",
                quote(name),
                quote(group),
                quote(&host)
            )));
        }
        names.push(name);
    }
    Ok(())
}

/// Binds a task to a place: every alternative names it, and alternatives that name another place are dropped.
pub fn pin(task: &mut Task, place: &Infra) {
    let is_there = |infra: &Infra| {
        let is_region = |region: &String| place.region.as_ref().is_some_and(|at| at.eq_ignore_ascii_case(region));
        infra.cloud.is_none_or(|cloud| place.cloud == Some(cloud)) && infra.region.as_ref().is_none_or(is_region)
    };
    task.resources.list.retain(|one| is_there(&one.infra));
    for one in &mut task.resources.list {
        // a zone that a task names is one of this region
        one.infra = Infra { zone: one.infra.zone.clone(), ..place.clone() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::file::{File, Kind};
    use crate::schema::Reader;
    use crate::task::Given;
    use placement::Catalogue;

    fn read(text: &str) -> File {
        File::read(text, &Given::default(), Reader::Client, &Catalogue::default()).unwrap()
    }

    /// A group of the tasks a, b and c.
    fn group(header: &str) -> Group {
        let tasks = ["a", "b", "c"].map(|name| format!("---\nname: {name}\nrun: x\n")).concat();
        match read(&format!("name: g\nexecution: parallel\n{header}\n{tasks}")).kind {
            Kind::Parallel(group) => group,
            Kind::Serial => unreachable!("it says `parallel`"),
        }
    }

    #[test]
    fn a_delay_is_of_all_auxiliary_tasks_or_of_each() {
        for (header, wanted) in [
            ("termination_delay: 30", [None, None, None]),
            ("primary_tasks: []", [None, None, None]),
            ("primary_tasks: [a, b, c]", [None, None, None]),
            ("primary_tasks: [a]", [None, Some(0), Some(0)]),
            ("primary_tasks: [a, c]\ntermination_delay: 2m", [None, Some(120), None]),
            ("primary_tasks: [a]\ntermination_delay: 45", [None, Some(45), Some(45)]),
            ("primary_tasks: [a]\ntermination_delay: {c: 1h}", [None, Some(0), Some(3600)]),
            ("primary_tasks: [a]\ntermination_delay: {default: 5s, c: 7, a: 9}", [None, Some(5), Some(7)]),
        ] {
            let group = group(header);
            assert_eq!(["a", "b", "c"].map(|name| group.auxiliary(name)), wanted, "{header}");
        }
    }

    fn hosts(group: &str, tasks: &[(&str, u32)]) -> String {
        let text: Vec<String> =
            tasks.iter().map(|(name, nodes)| format!("name: {name}\nnum_nodes: {nodes}\nrun: x\n")).collect();
        let file = read(&format!("name: g\nexecution: parallel\n---\n{}", text.join("---\n")));
        check_hosts(group, &file.tasks).err().map(|error| error.message).unwrap_or_default()
    }

    #[test]
    fn every_node_has_a_host_name() {
        assert_eq!(host("group", "trainer", 0), "trainer-0.group");
        let (long, too_long, deep) = ("a".repeat(61), "g".repeat(64), ["g"; 130].join("."));
        let long = long.as_str();
        for (group, tasks) in [("g", &[("a", 2), ("b_1", 1)][..]), ("g.h", &[("a", 1)]), ("g", &[(long, 10)])] {
            assert_eq!(hosts(group, tasks), "", "{group} {tasks:?}");
        }
        for (group, tasks, says) in [
            (
                "g",
                &[("a", 1), ("B", 1), ("A", 1)][..],
                "Tasks 'a' and 'A' of job group 'g' would have the same host names",
            ),
            ("g", &[("é", 1)], "the host name 'é-0.g'"),
            ("g", &[(long, 11)], "at most 63 characters"),
            (too_long.as_str(), &[("a", 1)], "at most 63 characters"),
            (deep.as_str(), &[("a", 1)], "cannot have the host name"),
        ] {
            let said = hosts(group, tasks);
            assert!(said.contains(says), "{group} {tasks:?}: {said}");
        }
    }

    #[test]
    fn a_task_that_is_bound_to_a_place_keeps_what_it_can_have_there() {
        let pinned = |resources: &str, place: &str| {
            let mut file = read(&format!("run: x\nresources: {resources}\n"));
            let task = &mut file.tasks[0];
            pin(task, &Infra::read(place).unwrap());
            let text = |one: &crate::resources::Resources| {
                let size = one.cpus.clone().unwrap_or_default();
                format!("{} {size}", one.infra.text().unwrap_or_default()).trim_end().to_owned()
            };
            task.resources.list.iter().map(text).collect::<Vec<_>>().join(", ")
        };
        for (resources, place, wanted) in [
            ("{}", "local", "local"),
            ("{infra: aws}", "aws/us-east-1", "aws/us-east-1"),
            ("{infra: AWS/US-East-1/us-east-1b}", "aws/us-east-1", "aws/us-east-1/us-east-1b"),
            ("{infra: k8s}", "k8s/arn:aws:eks/x", "kubernetes/arn:aws:eks/x"),
            ("{any_of: [{infra: ssh/a}, {infra: ssh}, {cpus: 2}]}", "ssh/b", "ssh/b, ssh/b 2"),
            (
                "{ordered: [{infra: gcp, cpus: 4}, {cpus: 2}, {infra: aws, cpus: 8}]}",
                "gcp/us-central1",
                "gcp/us-central1 4, gcp/us-central1 2",
            ),
        ] {
            assert_eq!(pinned(resources, place), wanted, "{resources} {place}");
        }
    }
}
