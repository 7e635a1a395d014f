//! One choice for each of several tasks, so that all together cost least, or end first.
//!
//! A chain is solved by dynamic programming, anything else by branch and bound; both are exact. What one choice costs another is the
//! data that moves, and that depends on their clouds alone: so of each cloud's choices only those count that no other one of the
//! same cloud beats.

use crate::cloud::Cloud;
use crate::egress;

/// What is sought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The fewest dollars.
    Cost,
    /// The earliest end; of equal ends the cheapest.
    Time,
}

/// One way to run a task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Choice {
    /// Where.
    pub cloud: Cloud,
    /// Dollars for all of it.
    pub dollars: f64,
    /// Seconds for all of it.
    pub seconds: f64,
}

/// A task among others.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Step {
    /// The ways to run it; of equal ones the first wins.
    pub choices: Vec<Choice>,
    /// Tasks that must have ended before, and whose data it reads.
    pub parents: Vec<usize>,
    /// Where its data is and how many gigabytes, if it reads any that is of no other task.
    pub source: Option<(Cloud, f64)>,
    /// Gigabytes that it writes.
    pub gigabytes: f64,
}

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Solution {
    /// The choice for each task.
    pub picks: Vec<usize>,
    /// Dollars for all, moving data included.
    pub dollars: f64,
    /// Seconds until the last task has ended.
    pub seconds: f64,
}

/// Time first, then dollars. Where one of them is not sought, it is zero everywhere.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Score {
    seconds: f64,
    dollars: f64,
}

impl Score {
    const WORST: Self = Self { seconds: f64::INFINITY, dollars: f64::INFINITY };

    fn plus(self, other: Self) -> Self {
        Self { seconds: self.seconds + other.seconds, dollars: self.dollars + other.dollars }
    }

    fn is_below(self, other: Self) -> bool {
        self.seconds < other.seconds || (self.seconds == other.seconds && self.dollars < other.dollars)
    }
}

/// What counts: (seconds, dollars).
#[derive(Clone, Copy)]
struct Weights(bool, bool);

impl Weights {
    fn choice(self, choice: &Choice) -> Score {
        let Self(seconds, dollars) = self;
        Score {
            seconds: if seconds { choice.seconds } else { 0.0 },
            dollars: if dollars { choice.dollars } else { 0.0 },
        }
    }

    fn moving(self, from: Cloud, to: Cloud, gigabytes: f64) -> Score {
        let Self(seconds, dollars) = self;
        Score {
            seconds: if seconds { egress::seconds(from, to, gigabytes) } else { 0.0 },
            dollars: if dollars { egress::dollars(from, to, gigabytes) } else { 0.0 },
        }
    }

    /// What a task's own data costs to bring.
    fn source(self, step: &Step, to: Cloud) -> Score {
        match step.source {
            Some((from, gigabytes)) if step.parents.is_empty() => self.moving(from, to, gigabytes),
            _ => Score::default(),
        }
    }
}

/// Finds the best choice for each task. Nothing where a task has none, or where tasks wait for one another in a circle.
/// `first_of_equals`: of ends that are equal the first one counts and not the cheapest.
pub fn solve(steps: &[Step], target: Target, first_of_equals: bool) -> Option<Solution> {
    let weights = match target {
        Target::Cost => Weights(false, true),
        Target::Time => Weights(true, !first_of_equals),
    };
    if steps.iter().any(|step| step.choices.is_empty()) {
        return None;
    }
    let order = order(steps)?;
    let is_chain = steps.iter().enumerate().all(|(at, step)| match at.checked_sub(1) {
        None => step.parents.is_empty(),
        Some(before) => step.parents == [before],
    });
    let picks = if is_chain { chain(steps, weights) } else { Branches::new(steps, &order, weights).search() };
    let (dollars, seconds) = evaluate(steps, &order, &picks)?;
    Some(Solution { picks, dollars, seconds })
}

/// Parents before children; nothing where there is a circle or no such parent.
fn order(steps: &[Step]) -> Option<Vec<usize>> {
    let mut order: Vec<usize> = Vec::with_capacity(steps.len());
    let mut done = vec![false; steps.len()];
    while order.len() < steps.len() {
        let ready = |at: &usize| {
            done.get(*at) == Some(&false)
                && steps.get(*at).is_some_and(|step| step.parents.iter().all(|parent| done.get(*parent) == Some(&true)))
        };
        let next = (0..steps.len()).find(ready)?;
        *done.get_mut(next)? = true;
        order.push(next);
    }
    Some(order)
}

/// Dollars and seconds of a plan.
fn evaluate(steps: &[Step], order: &[usize], picks: &[usize]) -> Option<(f64, f64)> {
    let pick = |at: usize| steps.get(at)?.choices.get(*picks.get(at)?);
    let both = Weights(true, true);
    let mut dollars = 0.0;
    let mut ends = vec![0.0; steps.len()];
    for at in order {
        let (step, choice) = (steps.get(*at)?, pick(*at)?);
        let source = both.source(step, choice.cloud);
        let mut start: f64 = source.seconds;
        dollars += choice.dollars + source.dollars;
        for parent in &step.parents {
            let moving = both.moving(pick(*parent)?.cloud, choice.cloud, steps.get(*parent)?.gigabytes);
            dollars += moving.dollars;
            start = start.max(ends.get(*parent)? + moving.seconds);
        }
        *ends.get_mut(*at)? = start + choice.seconds;
    }
    Some((dollars, ends.into_iter().fold(0.0, f64::max)))
}

/// The best choice of each cloud so far: its place among the task's choices, its score, and its place among the parent's clouds.
#[derive(Clone, Copy)]
struct Best {
    cloud: Cloud,
    pick: usize,
    score: Score,
    before: usize,
}

/// Dynamic programming along a chain. Of equals the first one counts.
fn chain(steps: &[Step], weights: Weights) -> Vec<usize> {
    let mut rows: Vec<Vec<Best>> = Vec::with_capacity(steps.len());
    let mut gigabytes = 0.0;
    for step in steps {
        let mut row: Vec<Best> = Vec::new();
        for (pick, choice) in step.choices.iter().enumerate() {
            let own = weights.choice(choice);
            match row.iter_mut().find(|best| best.cloud == choice.cloud) {
                Some(best) if own.is_below(best.score) => {
                    best.pick = pick;
                    best.score = own;
                }
                Some(_) => {}
                None => row.push(Best { cloud: choice.cloud, pick, score: own, before: 0 }),
            }
        }
        for best in &mut row {
            let (before, score) = match rows.last() {
                None => (0, weights.source(step, best.cloud)),
                Some(parents) => least(parents.iter().map(|parent| {
                    (parent.pick, parent.score.plus(weights.moving(parent.cloud, best.cloud, gigabytes)))
                })),
            };
            best.before = before;
            best.score = best.score.plus(score);
        }
        gigabytes = step.gigabytes;
        rows.push(row);
    }
    let last = rows.last().map(Vec::as_slice).unwrap_or_default();
    let (mut at, _) = least(last.iter().map(|best| (best.pick, best.score)));
    let mut picks = Vec::with_capacity(steps.len());
    for row in rows.iter().rev() {
        let Some(best) = row.get(at) else { break };
        picks.push(best.pick);
        at = best.before;
    }
    picks.reverse();
    picks
}

/// The place of the least score; of equals the one with the smallest pick.
fn least(scores: impl Iterator<Item = (usize, Score)>) -> (usize, Score) {
    let mut found = (0, usize::MAX, Score::WORST);
    for (at, (pick, score)) in scores.enumerate() {
        let (_, best_pick, best) = found;
        if score.is_below(best) || (score == best && pick < best_pick) {
            found = (at, pick, score);
        }
    }
    (found.0, found.2)
}

/// Branch and bound over tasks that are no chain.
///
/// The bound of what is left is exact for trees: each task keeps one of its parents, and `below` is the least that a task and all that
/// hangs below it by kept parents can cost. So a forest needs no search, and only edges beyond it are searched for.
struct Branches<'a> {
    steps: &'a [Step],
    order: &'a [usize],
    weights: Weights,
    /// For each task the choices that no other of the same cloud beats.
    choices: Vec<Vec<usize>>,
    /// The parent that each task keeps for the bound.
    kept: Vec<Option<usize>>,
    /// The fewest dollars of a task and what hangs below it, for each of its choices.
    below: Vec<Vec<f64>>,
    /// The fewest seconds from a task's end to the end of all that waits for it.
    after: Vec<f64>,
    /// The fewest seconds of a task.
    quickest: Vec<f64>,
    best: Score,
    found: Vec<usize>,
}

/// Sums in another order differ by less than this.
const NOISE: f64 = 1e-9;

#[derive(Clone)]
struct Partial {
    /// The choice of each task that has one.
    picks: Vec<Option<usize>>,
    ends: Vec<f64>,
    score: Score,
}

impl<'a> Branches<'a> {
    fn new(steps: &'a [Step], order: &'a [usize], weights: Weights) -> Self {
        let choices = steps.iter().map(|step| unbeaten(step, weights)).collect();
        let heaviest = |step: &Step| {
            let size = |parent: &usize| steps.get(*parent).map_or(0.0, |parent| parent.gigabytes);
            step.parents.iter().copied().max_by(|a, b| size(a).total_cmp(&size(b)))
        };
        let quickest = |step: &Step| {
            step.choices.iter().map(|choice| weights.choice(choice).seconds).fold(f64::INFINITY, f64::min)
        };
        let mut this = Self {
            steps,
            order,
            weights,
            choices,
            kept: steps.iter().map(heaviest).collect(),
            below: steps.iter().map(|_| Vec::new()).collect(),
            after: vec![0.0; steps.len()],
            quickest: steps.iter().map(quickest).collect(),
            best: Score::WORST,
            found: vec![0; steps.len()],
        };
        for at in order.iter().rev() {
            this.bound(*at);
        }
        this
    }

    /// Works out the bounds of a task whose children have theirs.
    fn bound(&mut self, at: usize) {
        let Some(step) = self.steps.get(at) else { return };
        let children = || self.steps.iter().enumerate().filter(|(_, child)| child.parents.contains(&at));
        let after = children().map(|(child, _)| value(&self.after, child) + value(&self.quickest, child));
        let after = after.fold(0.0, f64::max);
        let own = |pick: usize| {
            let Some(choice) = step.choices.get(pick) else { return f64::INFINITY };
            let source = self.weights.source(step, choice.cloud).dollars;
            let kept = children().filter(|(child, _)| self.kept.get(*child) == Some(&Some(at)));
            let hanging = kept.map(|(child, _)| {
                self.least_below(child, |to| self.weights.moving(choice.cloud, to, step.gigabytes).dollars)
            });
            self.weights.choice(choice).dollars + source + hanging.sum::<f64>()
        };
        let below: Vec<f64> = self.choices.get(at).into_iter().flatten().map(|pick| own(*pick)).collect();
        if let (Some(to), Some(seconds)) = (self.below.get_mut(at), self.after.get_mut(at)) {
            *to = below;
            *seconds = after;
        }
    }

    /// The fewest dollars for a task and what hangs below it, with what it costs to get to its cloud.
    fn least_below(&self, at: usize, moving: impl Fn(Cloud) -> f64) -> f64 {
        let picks = self.choices.get(at).into_iter().flatten();
        let bounds = self.below.get(at).into_iter().flatten();
        let cloud = |pick: usize| self.steps.get(at)?.choices.get(pick).map(|choice| choice.cloud);
        picks.zip(bounds).filter_map(|(pick, below)| Some(below + moving(cloud(*pick)?))).fold(f64::INFINITY, f64::min)
    }

    fn search(mut self) -> Vec<usize> {
        let empty =
            Partial { picks: vec![None; self.steps.len()], ends: vec![0.0; self.steps.len()], score: Score::default() };
        self.descend(0, &empty);
        self.found
    }

    fn descend(&mut self, depth: usize, partial: &Partial) {
        let Some(at) = self.order.get(depth).copied() else {
            if self.is_better(partial.score) {
                self.best = partial.score;
                self.found = partial.picks.iter().map(|pick| pick.unwrap_or(0)).collect();
            }
            return;
        };
        let mut ways: Vec<(Score, Partial)> = self
            .choices
            .get(at)
            .into_iter()
            .flatten()
            .filter_map(|pick| self.with(partial, at, *pick))
            .map(|next| (self.at_least(depth.saturating_add(1), &next), next))
            .collect();
        ways.sort_by(|(a, _), (b, _)| a.seconds.total_cmp(&b.seconds).then_with(|| a.dollars.total_cmp(&b.dollars)));
        for (bound, next) in ways {
            if self.is_better(bound) {
                self.descend(depth.saturating_add(1), &next);
            }
        }
    }

    fn is_better(&self, score: Score) -> bool {
        score.seconds < self.best.seconds - NOISE
            || (score.seconds <= self.best.seconds + NOISE && score.dollars < self.best.dollars)
    }

    /// A plan with one more task.
    fn with(&self, partial: &Partial, at: usize, pick: usize) -> Option<Partial> {
        let step = self.steps.get(at)?;
        let choice = step.choices.get(pick)?;
        let mut next = partial.clone();
        let source = self.weights.source(step, choice.cloud);
        let own = self.weights.choice(choice);
        let mut start = source.seconds;
        next.score.dollars += own.dollars + source.dollars;
        for parent in &step.parents {
            let moving = self.moving(partial, *parent, choice.cloud)?;
            next.score.dollars += moving.dollars;
            start = start.max(value(&partial.ends, *parent) + moving.seconds);
        }
        let end = start + own.seconds;
        next.score.seconds = next.score.seconds.max(end);
        *next.ends.get_mut(at)? = end;
        *next.picks.get_mut(at)? = Some(pick);
        Some(next)
    }

    /// What it costs to bring a parent's data to a cloud; nothing where the parent has no choice yet.
    fn moving(&self, partial: &Partial, parent: usize, to: Cloud) -> Option<Score> {
        let step = self.steps.get(parent)?;
        let from = step.choices.get((*partial.picks.get(parent)?)?)?.cloud;
        Some(self.weights.moving(from, to, step.gigabytes))
    }

    /// No plan that goes on from here has a lower score.
    fn at_least(&self, depth: usize, partial: &Partial) -> Score {
        let mut bound = partial.score;
        for at in self.order.iter().take(depth) {
            bound.seconds = bound.seconds.max(value(&partial.ends, *at) + value(&self.after, *at));
        }
        for at in self.order.iter().skip(depth) {
            let Some(step) = self.steps.get(*at) else { continue };
            let hangs_below_another = self
                .kept
                .get(*at)
                .copied()
                .flatten()
                .is_some_and(|parent| partial.picks.get(parent).copied().flatten().is_none());
            if hangs_below_another {
                continue;
            }
            bound.dollars += self.least_below(*at, |to| {
                step.parents.iter().filter_map(|parent| self.moving(partial, *parent, to)).map(|one| one.dollars).sum()
            });
        }
        bound
    }
}

fn value(list: &[f64], at: usize) -> f64 {
    list.get(at).copied().unwrap_or(0.0)
}

/// Choices that no other one of the same cloud beats in seconds and in dollars; of equal ones the first.
fn unbeaten(step: &Step, weights: Weights) -> Vec<usize> {
    let mut kept: Vec<(usize, Cloud, Score)> = Vec::new();
    for (pick, choice) in step.choices.iter().enumerate() {
        let score = weights.choice(choice);
        let beats = |a: Score, b: Score| a.seconds <= b.seconds && a.dollars <= b.dollars;
        if kept.iter().any(|(_, cloud, has)| *cloud == choice.cloud && beats(*has, score)) {
            continue;
        }
        kept.retain(|(_, cloud, has)| *cloud != choice.cloud || !beats(score, *has));
        kept.push((pick, choice.cloud, score));
    }
    kept.into_iter().map(|(pick, ..)| pick).collect()
}
