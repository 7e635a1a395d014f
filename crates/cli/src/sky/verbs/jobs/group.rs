//! `jobs launch` of a job group: what it refuses, and the place that the tasks share.

use super::super::launch::{Places, find, look, place};
use super::super::{End, say};
use super::launch::{Search, of_machines};
use crate::sky::submit::{Trouble, said, value_error};
use ::sky::file::Group;
use ::sky::group::{check_hosts, pin};
use ::sky::infra::Infra;
use ::sky::task::Task;
use api::sky::Candidate;
use placement::Cloud;
use placement::group::{Apart, shared_place};

/// Places of a task that a message names at most.
const NAMED_MAX: usize = 5;

/// Refuses a group that cannot run.
///
/// # Errors
/// The reason.
pub(super) fn check(name: &str, tasks: &[Task], pool: Option<&str>, count: u32) -> Result<(), Trouble> {
    if let Some(pool) = pool {
        return Err(value_error(format!(
            "Job group '{name}' cannot run in pool '{pool}': each of its tasks needs a cluster of its own. Leave out --pool, or submit each task to the pool as a job."
        )));
    }
    if count > 1 {
        return Err(value_error(format!(
            "--num-jobs {count} is not supported for job group '{name}': its tasks are one job. Leave out --num-jobs, or launch the file {count} times."
        )));
    }
    if tasks.is_empty() {
        return Err(value_error(format!(
            "Job group '{name}' has no task. Add a task to the file, behind the line `---`."
        )));
    }
    if let Some(task) = tasks.iter().find(|task| task.run.is_none()) {
        let task = task.name.as_deref().unwrap_or_default();
        return Err(value_error(format!(
            "Task '{task}' of job group '{name}' has no `run`. Add one, or remove the task from the file."
        )));
    }
    check_hosts(name, tasks).map_err(|error| value_error(error.message))
}

/// Chooses the place that the tasks of a group share, binds them to it, and shows it. Returns for each task where its machines may be.
///
/// # Errors
/// A task has no place, or the tasks have none in common and must be together.
pub(super) async fn place_together(
    search: &Search<'_>,
    name: &str,
    group: &Group,
    asked: &mut [Task],
) -> Result<Vec<Vec<Candidate>>, End> {
    let Search { sky, source, world, around } = *search;
    say(format!("Job group '{name}' will be launched on (estimated):"));
    let mut tasks = asked.to_vec();
    let (mut at_hand, mut found) = (Vec::new(), Vec::new());
    for task in &mut tasks {
        of_machines(task);
        let machines = look(sky, task, world, around).await?;
        found.push(find(task, source, world, &machines).inspect_err(|_| say(heading(task)))?);
        at_hand.push(machines);
    }
    let place = match shared(&tasks, &found) {
        Ok(place) => Some(place),
        Err(Apart::Nowhere(at)) => return Err(nowhere(&tasks, found, at)),
        Err(Apart::NothingShared) if group.inter_connection == Some(false) => None,
        Err(Apart::NothingShared) => return Err(nothing_shared(name, &tasks, &found).into()),
    };
    if let Some(place) = &place {
        for (asked, task) in asked.iter_mut().zip(&tasks) {
            // as they were written, but with the regions of the zones that they name
            for (one, checked) in asked.resources.list.iter_mut().zip(&task.resources.list) {
                one.infra.clone_from(&checked.infra);
            }
            pin(asked, place);
        }
        // what the tasks can have at that place
        found.clear();
        for (task, machines) in tasks.iter_mut().zip(&at_hand) {
            pin(task, place);
            found.push(find(task, source, world, machines)?);
        }
    }
    let mut all = Vec::new();
    for (task, places) in tasks.iter().zip(found) {
        say(heading(task));
        let candidates = places.shown()?;
        if place.is_none() {
            say(format!("First choice: {}", self::place(candidates.first())));
        }
        all.push(candidates);
    }
    say(match place {
        Some(_) => format!("\nAll tasks run on: {}", self::place(all.first().and_then(|first| first.first()))),
        None => {
            "\nNo place has machines for all tasks, so each is placed alone (`inter_connection: false`).".to_owned()
        }
    });
    Ok(all)
}

fn named(task: &Task) -> &str {
    task.name.as_deref().unwrap_or_default()
}

fn heading(task: &Task) -> String {
    format!("\nTask '{}':", named(task))
}

/// The cheapest place that is one of all tasks; among equal ones the one that the first task prefers.
fn shared<'a>(tasks: &[Task], found: &'a [Places]) -> Result<Infra, Apart> {
    type Place<'a> = (&'a str, &'a str);
    fn of(one: &Candidate) -> Place<'_> {
        (&one.provider, &one.region)
    }
    let first = found.first().map(Places::candidates).unwrap_or_default();
    let rank = |place: Place<'_>| first.iter().position(|one| of(one) == place).unwrap_or(usize::MAX);
    let mut all = Vec::new();
    for (task, places) in tasks.iter().zip(found) {
        #[expect(clippy::cast_precision_loss, reason = "a number of machines")]
        let machines = task.num_nodes.max(1) as f64;
        let way = |one: &'a Candidate| ((rank(of(one)), of(one)), one.hourly_price * machines);
        all.push(places.candidates().iter().map(way).collect::<Vec<_>>());
    }
    let (_, (provider, region)) = shared_place(&all)?;
    Ok(infra(provider, region))
}

/// A place of a candidate as a task names it.
fn infra(provider: &str, region: &str) -> Infra {
    let cloud = Cloud::from_name(provider);
    let region = match cloud {
        _ if region.is_empty() => None,
        Some(Cloud::Ssh) => Some(format!("ssh-{region}")),
        _ => Some(region.to_owned()),
    };
    Infra { cloud, region, zone: None }
}

/// Prints why a task has no place.
fn nowhere(tasks: &[Task], found: Vec<Places>, at: usize) -> End {
    tasks.get(at).into_iter().for_each(|task| say(heading(task)));
    match found.into_iter().nth(at).map(Places::shown) {
        Some(Err(end)) => end,
        _ => value_error("No place has machines for a task of the group; `sky check` lists the usable places.").into(),
    }
}

fn nothing_shared(name: &str, tasks: &[Task], found: &[Places]) -> Trouble {
    let of_task = |(task, places): (&Task, &Places)| {
        let mut names: Vec<String> = Vec::new();
        for one in places.candidates() {
            let name = place(Some(one));
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let more = names.len().saturating_sub(NAMED_MAX);
        names.truncate(NAMED_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!("task '{}' on {}{more}", named(task), names.join(", "))
    };
    let all: Vec<String> = tasks.iter().zip(found).map(of_task).collect();
    let message = format!(
        "Job group '{name}' cannot be placed: no place has machines for all its tasks. Possible are {}. Request resources that one place has, or set `inter_connection: false` in the first document to place each task alone.",
        all.join("; ")
    );
    said("sky.exceptions.ResourcesUnavailableError", message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::sky::{File, Given, Reader};
    use placement::Catalogue;

    fn tasks(text: &str) -> Vec<Task> {
        File::read(text, &Given::default(), Reader::Client, &Catalogue::default()).unwrap().tasks
    }

    fn refused(text: &str, pool: Option<&str>, count: u32) -> String {
        match check("g", &tasks(&format!("name: g\nexecution: parallel\n---\n{text}")), pool, count) {
            Err(Trouble::Said(said)) => said,
            Err(Trouble::Client(_)) => unreachable!("nothing is sent"),
            Ok(()) => String::new(),
        }
    }

    #[test]
    fn what_a_group_cannot_be_is_named() {
        let two = "name: a\nrun: x\n---\nname: b\nrun: x\n";
        assert_eq!(refused(two, None, 1), "");
        for (text, pool, count, says) in [
            (two, Some("p"), 1, "Job group 'g' cannot run in pool 'p'"),
            (two, None, 3, "--num-jobs 3 is not supported for job group 'g'"),
            ("", None, 1, "Job group 'g' has no task."),
            ("name: a\nrun: x\n---\nname: b\nsetup: x\n", None, 1, "Task 'b' of job group 'g' has no `run`"),
            ("name: a\nrun: x\n---\nname: A\nrun: x\n", None, 1, "the same host names"),
        ] {
            let said = refused(text, pool, count);
            assert!(said.starts_with("ValueError: ") && said.contains(says), "{text}: {said}");
        }
    }

    #[test]
    fn tasks_share_the_cheapest_place_that_all_can_have() {
        let one = |place: &str, price: f64| Candidate { hourly_price: price, ..at(place) };
        let infra_of = |nodes: u32, of: &[&[Candidate]]| {
            let text = format!(
                "name: g\nexecution: parallel\n---\nname: a\nnum_nodes: {nodes}\nrun: x\n---\nname: b\nrun: x\n"
            );
            let found: Vec<Places> = of.iter().map(|list| Places::of(list.to_vec())).collect();
            shared(&tasks(&text), &found).map(|infra| infra.text().unwrap_or_default())
        };
        let free = [one("ssh/lab", 0.0), one("local/", 0.0), one("kubernetes/a", 0.0)];
        let other = [one("kubernetes/a", 0.0), one("local/", 0.0)];
        assert_eq!(infra_of(1, &[&free, &other]).as_deref(), Ok("local"), "the first task prefers it");
        assert_eq!(infra_of(1, &[&other, &free]).as_deref(), Ok("kubernetes/a"));
        assert_eq!(infra_of(1, &[&free, &free]).as_deref(), Ok("ssh/lab"));
        let (few, many) = ([one("aws/x", 1.0), one("gcp/y", 2.0)], [one("aws/x", 4.0), one("gcp/y", 2.0)]);
        assert_eq!(infra_of(1, &[&few, &many]).as_deref(), Ok("gcp/y"), "4 dollars rather than 5");
        assert_eq!(infra_of(3, &[&few, &many]).as_deref(), Ok("aws/x"), "each machine counts: 7 rather than 8");
        assert_eq!(infra_of(1, &[&[one("ssh/lab", 0.0)], &other]), Err(Apart::NothingShared));
        assert_eq!(infra_of(1, &[&free, &[]]), Err(Apart::Nowhere(1)));
    }

    fn at(place: &str) -> Candidate {
        let (provider, region) = place.split_once('/').unwrap();
        Candidate { provider: provider.to_owned(), region: region.to_owned(), ..Candidate::default() }
    }

    #[test]
    fn tasks_without_a_place_in_common_are_named_with_their_places() {
        let tasks = tasks("name: g\nexecution: parallel\n---\nname: a\nrun: x\n---\nname: b\nrun: x\n");
        let many: Vec<Candidate> = (0..7).map(|number| at(&format!("kubernetes/c{number}"))).collect();
        let found = [Places::of(vec![at("local/"), at("local/")]), Places::of(many)];
        let Trouble::Said(said) = nothing_shared("g", &tasks, &found) else { unreachable!("it is no request") };
        let places = "task 'a' on Local; task 'b' on Kubernetes c0, Kubernetes c1, Kubernetes c2, Kubernetes c3, Kubernetes c4 and 2 more.";
        assert!(said.contains(places), "{said}");
    }
}
