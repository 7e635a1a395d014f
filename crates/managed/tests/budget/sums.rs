//! Sums over intervals of machines, by any clock.

use api::sky::{API_VERSION, Budget, BudgetPeriod, BudgetStatus, JobRate};
use jiff::Timestamp;
use managed::budget::{
    CountedMachine, MachineTime, UNITS, accrue, crossing, exceeded_unit, period_end, period_start, spend,
};
use proptest::prelude::*;
use serde_json::{Value, json};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_767_225_600 + seconds).unwrap()
}

fn budget(spec: &Value) -> Budget {
    serde_json::from_value(json!({
        "apiVersion": API_VERSION, "kind": "Budget",
        "metadata": {"name": "team", "namespace": "default", "creationTimestamp": at(0).to_string()}, "spec": spec,
    }))
    .unwrap()
}

/// A machine: when it is made and gone, and its price and accelerators.
type Made = (i64, i64, u32, u32);

fn made() -> impl Strategy<Value = Vec<Made>> {
    prop::collection::vec((0_i64..100_000, 1_i64..50_000, 0_u32..1000, 0_u32..9), 0..12)
}

fn rate((_, _, price, gpus): &Made) -> JobRate {
    JobRate { dollars: f64::from(*price) / 100.0, gpus: f64::from(*gpus), machines: 1.0 }
}

/// The machines whose objects exist at this moment. One that is gone stays until it is settled.
fn lines(machines: &[Made], status: &BudgetStatus, now: i64) -> Vec<CountedMachine> {
    let all = machines.iter().enumerate().filter(|(_, (from, ..))| *from <= now);
    all.map(|(index, machine)| {
        let (from, lasts, ..) = *machine;
        let is_gone = from + lasts <= now;
        let to = is_gone.then(|| at(from + lasts));
        let interval = Some(MachineTime { from: at(from), to, rate: rate(machine) });
        CountedMachine { uid: index.to_string(), interval, is_gone }
    })
    .filter(|line| !line.is_gone || !status.settling.contains(&line.uid) || line.uid.len() % 2 == 0)
    .collect()
}

pub fn close(a: f64, b: f64) -> bool {
    (a - b).abs() <= 1e-6 * a.abs().max(b.abs()).max(1.0)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn each_machine_counts_once_whatever_is_lost(
        machines in made(), looks in prop::collection::vec((1_i64..9000, any::<bool>()), 1..40),
    ) {
        let mut budget = budget(&json!({"limit": {"dollars": 1.0}}));
        let (mut now, mut gone) = (0, std::collections::BTreeSet::new());
        for (pause, is_written) in looks {
            now += pause;
            let mut there = lines(&machines, &BudgetStatus::default(), now);
            there.retain(|line| !gone.contains(&line.uid));
            let account = accrue(&budget, &there, at(now));
            let exact = machines.iter().map(|machine| MachineTime {
                from: at(machine.0), to: Some(at(machine.0 + machine.1)), rate: rate(machine),
            }).collect::<Vec<_>>();
            let exact = spend(&exact, at(0), at(now));
            for unit in UNITS {
                prop_assert!(close((unit.amount)(&account.status.spent), (unit.amount)(&exact)), "{}", unit.field);
            }
            if is_written {
                budget.status = account.status;
                // objects go after the write that settles them; some only later
                gone.extend(budget.status.settling.iter().filter(|uid| uid.len() % 2 == 1 || now % 2 == 0).cloned());
            }
        }
    }

    #[test]
    fn spend_never_falls_within_a_period(
        machines in made(), looks in prop::collection::vec(-40_000_i64..50_000, 1..40), daily in any::<bool>(),
    ) {
        let mut budget = budget(&json!({"limit": {"gpuHours": 1.0}, "period": if daily { "Day" } else { "Total" }}));
        let mut now = 0;
        for jump in looks {
            now = (now + jump).max(-100_000);
            let account = accrue(&budget, &lines(&machines, &budget.status, now), at(now));
            let (before, after) = (&budget.status, &account.status);
            if before.period_start == after.period_start {
                for unit in UNITS {
                    prop_assert!((unit.amount)(&after.spent) >= (unit.amount)(&before.spent));
                }
            } else {
                prop_assert!(before.period_start < after.period_start);
            }
            budget.status = account.status;
        }
    }

    #[test]
    fn a_clock_that_jumps_back_stops_no_count(back in 1_i64..10_000, after in 1_i64..10_000, price in 1_u32..1000) {
        let mut budget = budget(&json!({"limit": {"dollars": 1.0}}));
        let machine = [(0, 1_000_000, price, 1)];
        budget.status = accrue(&budget, &lines(&machine, &budget.status, 20_000), at(20_000)).status;
        let first = 20_000 - back;
        budget.status = accrue(&budget, &lines(&machine, &budget.status, first), at(first)).status;
        let last = first + after;
        let spent = accrue(&budget, &lines(&machine, &budget.status, last), at(last)).status.spent;
        #[expect(clippy::cast_precision_loss, reason = "seconds")]
        let hours = (20_000 + after) as f64 / 3600.0;
        prop_assert!(close(spent.machine_hours, hours), "{} {hours}", spent.machine_hours);
    }

    #[test]
    fn the_crossing_is_when_the_limit_is_reached(machines in made(), limit in 1_u32..10_000, now in 0_i64..60_000) {
        let budget = budget(&json!({"limit": {"dollars": f64::from(limit) / 10.0, "machineHours": f64::from(limit)}}));
        let endless: Vec<Made> = machines.iter().map(|machine| (machine.0.min(now), 10_000_000, machine.2, machine.3)).collect();
        let lines = lines(&endless, &budget.status, now);
        let account = accrue(&budget, &lines, at(now));
        match crossing(&budget.spec, &account) {
            Some(pause) => {
                let then = api::time::later(at(now), pause);
                let after = accrue(&budget, &lines, then).status.spent;
                prop_assert!(exceeded_unit(&budget.spec.limit, after).is_some(), "{after:?}");
                let before = accrue(&budget, &lines, api::time::earlier_secs(then, 1)).status.spent;
                prop_assert!(pause.as_secs() < 1 || exceeded_unit(&budget.spec.limit, before).is_none());
            }
            None => prop_assert!(machines.is_empty() || exceeded_unit(&budget.spec.limit, account.status.spent).is_some()),
        }
    }
}

#[test]
fn periods_begin_at_midnight_utc() {
    let now: Timestamp = "2026-02-28T23:59:59Z".parse().unwrap();
    let told = |at: Option<Timestamp>| at.map(|at| at.to_string()).unwrap_or_default();
    assert_eq!(told(period_start(BudgetPeriod::Day, now)), "2026-02-28T00:00:00Z");
    assert_eq!(told(period_end(BudgetPeriod::Day, now)), "2026-03-01T00:00:00Z");
    assert_eq!(told(period_start(BudgetPeriod::Month, now)), "2026-02-01T00:00:00Z");
    assert_eq!(told(period_end(BudgetPeriod::Month, now)), "2026-03-01T00:00:00Z");
    assert_eq!((period_start(BudgetPeriod::Total, now), period_end(BudgetPeriod::Total, now)), (None, None));
}
