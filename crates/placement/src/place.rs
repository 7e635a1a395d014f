//! Tasks and a market → which machine each of them gets.

use crate::Rules;
use crate::cloud::Cloud;
use crate::request::Request;
use crate::search::{Candidate, Market, Search, search};
use crate::solve::{Choice, Step, Target, solve};

/// Seconds that a task takes where nobody knows better.
pub const USUAL_SECONDS: f64 = 3600.0;

/// A task that wants machines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Task {
    /// What will do, each with the seconds that the task takes on it.
    pub requests: Vec<(Request, f64)>,
    /// Whether the first of them that can be had wins; otherwise the best.
    pub ordered: bool,
    /// How many machines.
    pub nodes: usize,
    /// Tasks that must have ended before.
    pub parents: Vec<usize>,
    /// The cloud where its data is, and how many gigabytes.
    pub inputs: Option<(Cloud, f64)>,
    /// Gigabytes that it writes for the tasks after it.
    pub outputs: f64,
}

/// What a task gets.
#[derive(Clone, Debug, PartialEq)]
pub struct Placement {
    /// The best first.
    pub ranked: Vec<Ranked>,
    /// Which of them it gets. The best for the task alone is not always the best for all.
    pub chosen: usize,
    /// What was looked at, and why all else was dropped.
    pub search: Search,
}

/// A candidate with what the whole task would cost on it.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranked {
    /// It.
    pub candidate: Candidate,
    /// Dollars for all machines of the task.
    pub dollars: f64,
    /// Seconds until the task has ended.
    pub seconds: f64,
}

/// What all tasks get.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// In the order of the tasks.
    pub tasks: Vec<Placement>,
    /// Dollars, moving data between clouds included.
    pub dollars: f64,
    /// Seconds until the last task has ended.
    pub seconds: f64,
}

/// Why there is no plan.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum Unplaceable {
    /// Nothing will do for a task.
    #[error("nothing that may be used meets what task {task} asks for")]
    Nothing {
        /// Which task.
        task: usize,
        /// What was looked at.
        search: Search,
    },
    /// Tasks wait for one another in a circle.
    #[error("the tasks wait for one another")]
    Circle,
}

impl Placement {
    /// What it gets.
    pub fn chosen(&self) -> Option<&Ranked> {
        self.ranked.get(self.chosen)
    }
}

/// Finds a machine for each task.
///
/// # Errors
/// If nothing will do for a task, or tasks wait for one another.
pub fn place(tasks: &[Task], market: &Market<'_>, target: Target) -> Result<Plan, Unplaceable> {
    let mut known: Vec<(&Request, usize, Search)> = Vec::new();
    let mut found = Vec::with_capacity(tasks.len());
    for (at, task) in tasks.iter().enumerate() {
        let found_here = look(task, market, &mut known);
        if found_here.eligible.is_empty() {
            return Err(Unplaceable::Nothing { task: at, search: found_here.search });
        }
        found.push(found_here);
    }
    let step = |(task, found): (&Task, &Found)| Step {
        choices: found.eligible.iter().filter_map(|at| found.ways.get(*at)).map(Ranked::choice).collect(),
        parents: task.parents.clone(),
        source: task.inputs,
        gigabytes: task.outputs,
    };
    let steps: Vec<Step> = tasks.iter().zip(&found).map(step).collect();
    let solution = solve(&steps, target, market.rules == Rules::SkyPilot).ok_or(Unplaceable::Circle)?;
    let tasks = found.into_iter().zip(&solution.picks).map(|(found, pick)| found.rank(*pick, target)).collect();
    Ok(Plan { tasks, dollars: solution.dollars, seconds: solution.seconds })
}

/// What was found for a task: all ways to run it, and those of them that may be chosen.
struct Found {
    ways: Vec<Ranked>,
    eligible: Vec<usize>,
    search: Search,
}

fn look<'a>(task: &'a Task, market: &Market<'_>, known: &mut Vec<(&'a Request, usize, Search)>) -> Found {
    let mut all = Search::default();
    let mut ways = Vec::new();
    for (at, (request, seconds)) in task.requests.iter().enumerate() {
        let before = known.iter().find(|(same, nodes, _)| *same == request && *nodes == task.nodes);
        let mut here = match before {
            Some((.., search)) => search.clone(),
            None => {
                let new = search(market, at, request, task.nodes);
                known.push((request, task.nodes, new.clone()));
                new
            }
        };
        here.candidates.iter_mut().for_each(|one| one.request = at);
        here.rejections.iter_mut().for_each(|one| one.request = at);
        #[expect(clippy::cast_precision_loss, reason = "a number of machines")]
        let hours = seconds / 3600.0 * task.nodes as f64;
        ways.extend(here.candidates.iter().map(|one| Ranked {
            dollars: one.hourly * hours,
            seconds: *seconds,
            candidate: one.clone(),
        }));
        all.candidates.append(&mut here.candidates);
        all.rejections.append(&mut here.rejections);
    }
    let first = ways.first().map(|way| way.candidate.request);
    let in_turn = |way: &Ranked| !task.ordered || Some(way.candidate.request) == first;
    let wasted = |way: &Ranked| {
        way.candidate.accelerator.is_some()
            && task
                .requests
                .get(way.candidate.request)
                .is_some_and(|(request, _)| request.accelerator.is_none() && request.instance_type.is_none())
    };
    let pick = |spared: bool| {
        let fits = |(at, way): (usize, &Ranked)| (in_turn(way) && !(spared && wasted(way))).then_some(at);
        ways.iter().enumerate().filter_map(fits).collect::<Vec<usize>>()
    };
    // a task that asks for no accelerators leaves them to others while another machine will do
    let sparing = if market.rules == Rules::Own { pick(true) } else { Vec::new() };
    let eligible = if sparing.is_empty() { pick(false) } else { sparing };
    Found { ways, eligible, search: all }
}

impl Found {
    fn rank(self, pick: usize, target: Target) -> Placement {
        let chosen = self.eligible.get(pick).copied();
        let mut late = vec![true; self.ways.len()];
        for at in &self.eligible {
            if let Some(late) = late.get_mut(*at) {
                *late = false;
            }
        }
        let key = |at: usize, way: &Ranked| {
            let by_target = match target {
                Target::Cost => (way.dollars, way.seconds),
                Target::Time => (way.seconds, way.dollars),
            };
            (late.get(at).copied(), by_target)
        };
        let mut order: Vec<(usize, &Ranked)> = self.ways.iter().enumerate().collect();
        order.sort_by(|(a, one), (b, other)| {
            let ((late_a, (first_a, second_a)), (late_b, (first_b, second_b))) = (key(*a, one), key(*b, other));
            late_a.cmp(&late_b).then(first_a.total_cmp(&first_b)).then(second_a.total_cmp(&second_b)).then(a.cmp(b))
        });
        Placement {
            chosen: order.iter().position(|(at, _)| Some(*at) == chosen).unwrap_or(0),
            ranked: order.into_iter().map(|(_, way)| way.clone()).collect(),
            search: self.search,
        }
    }
}

impl Ranked {
    fn choice(&self) -> Choice {
        Choice { cloud: self.candidate.cloud, dollars: self.dollars, seconds: self.seconds }
    }
}
