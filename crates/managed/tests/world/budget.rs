//! A budget for all jobs of a world.

use crate::jobs::{Sim, later};
use api::sky::{API_VERSION, Budget, budget_gvk, machine_gvk};
use reconcile::{Reconciler, World};
use serde_json::json;

/// Seconds of spend by which a budget may be passed.
const PASSED: i64 = 60;
/// Seconds after which the user raises the limit.
const RAISED: i64 = 3600;

fn key() -> api::object::Key {
    api::object::Key::new("default", "all")
}

impl Sim {
    /// A limit on the machine-hours of all jobs together.
    pub fn limited(mut self, hours: f64, reserve_minutes: u32) -> Self {
        (self.limit, self.has_budget) = (Some(hours), true);
        self.model.put(json!({
            "apiVersion": API_VERSION, "kind": "Budget", "metadata": {"name": "all", "namespace": "default"},
            "spec": {"limit": {"machineHours": hours}, "reserveMinutes": reserve_minutes},
        }));
        self
    }

    /// The user raises the limit, so that what waits goes on.
    pub fn raise(&mut self) {
        if self.limit.take().is_some() {
            self.model.change(&budget_gvk(), &key(), |one| one["spec"]["limit"]["machineHours"] = 1e6.into());
        }
    }

    /// Passes changes of budgets and machines to the watches.
    pub fn note_spend(&mut self) {
        if self.bug == crate::bugs::Bug::FreeUnnoticed {
            return;
        }
        let watches = self.turns.watches();
        for gvk in [budget_gvk(), machine_gvk()] {
            for object in self.model.list(&gvk, None) {
                for watch in &watches {
                    watch.woken_by(&self.turns.primary(), &self.model, &gvk, &object);
                }
            }
        }
        // those that are gone
        for (_, object) in std::mem::take(&mut self.seen) {
            for watch in &watches {
                watch.woken_by(&self.turns.primary(), &self.model, &machine_gvk(), &object);
            }
        }
        self.seen =
            self.model.list(&machine_gvk(), None).into_iter().map(|one| (api::object::Key::of(&one), one)).collect();
    }

    /// Hours that machines have run, as the cloud knows.
    fn hours(&self) -> f64 {
        self.cloud.machine_secs as f64 / 3600.0
    }

    pub fn budget(&self) -> Option<Budget> {
        self.model.get(&budget_gvk(), &key()).map(|object| crate::jobs::read(&object))
    }

    /// Once the limit is reached, no machine runs for more than a minute. The minute begins when all zones can be reached.
    pub fn judge_budget(&mut self) -> Result<(), String> {
        let Some(limit) = self.limit.filter(|limit| self.hours() >= *limit) else { return Ok(()) };
        let now = self.model.now;
        let crossed = *self.crossed.get_or_insert(now);
        // a machine that cannot be reached cannot be ended
        let since = crossed.max(self.dark_until);
        if now > later(since, PASSED) && !self.cloud.machines.is_empty() {
            let (hours, left) = (self.hours(), self.left());
            return Err(format!("the limit of {limit} hours was reached at {crossed}, and {hours} are spent: {left}"));
        }
        if now > later(since, RAISED) {
            self.raise();
        }
        Ok(())
    }

    /// What was counted of what was spent, at the end.
    pub fn judge_sum(&self) -> Result<(), String> {
        let Some(budget) = self.budget() else { return Ok(()) };
        let (counted, spent) = (budget.status.spent.machine_hours, self.hours());
        if counted + 1e-3 < spent {
            return Err(format!("{spent} hours were spent, and {counted} counted"));
        }
        Ok(())
    }
}
