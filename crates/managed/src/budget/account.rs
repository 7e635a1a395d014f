//! What a budget has spent, by its status and its machines.

use super::{MachineTime, UNITS, exceeded_unit, highest, plus, spend};
use api::sky::{Budget, BudgetPeriod, BudgetSpec, BudgetStatus, JobRate};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, ToSpan};

/// A machine that a budget counts.
#[derive(Clone, Debug, PartialEq)]
pub struct CountedMachine {
    pub uid: String,
    /// When it counts; `None`: its provider has not shown it.
    pub interval: Option<MachineTime>,
    /// Whether nothing of it is left, so that it can be settled.
    pub is_gone: bool,
}

/// What a budget has spent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Account {
    /// The status with new sums. Conditions, messages and jobs are as before.
    pub status: BudgetStatus,
    /// What an hour adds now.
    pub rate: JobRate,
}

fn date(at: Timestamp) -> Date {
    at.to_zoned(TimeZone::UTC).date()
}

fn midnight(date: Date) -> Option<Timestamp> {
    date.to_zoned(TimeZone::UTC).ok().map(|at| at.timestamp())
}

/// When the period that this moment is in began; `None`: it has no beginning.
pub fn period_start(period: BudgetPeriod, now: Timestamp) -> Option<Timestamp> {
    match period {
        BudgetPeriod::Total => None,
        BudgetPeriod::Day => midnight(date(now)),
        BudgetPeriod::Month => midnight(date(now).first_of_month()),
    }
}

/// When the period that this moment is in ends; `None`: never.
pub fn period_end(period: BudgetPeriod, now: Timestamp) -> Option<Timestamp> {
    let next = match period {
        BudgetPeriod::Total => return None,
        BudgetPeriod::Day => date(now).checked_add(1.day()),
        BudgetPeriod::Month => date(now).first_of_month().checked_add(1.month()),
    };
    midnight(next.ok()?)
}

fn time(text: &str) -> Option<Timestamp> {
    text.parse().ok()
}

/// The sums of a budget at this moment. `machines`: all that name it.
pub fn accrue(budget: &Budget, machines: &[CountedMachine], now: Timestamp) -> Account {
    let created = budget.metadata.creation_timestamp.as_ref().map_or(Timestamp::UNIX_EPOCH, |at| at.0);
    let mut status = budget.status.clone();
    let begins = period_start(budget.spec.period, now).unwrap_or(created).max(created);
    // a clock that jumped back does not bring an older period back
    if time(&status.period_start).is_none_or(|stored| stored < begins) {
        status.period_start = begins.to_string();
        status.counted_from = begins.to_string();
        (status.spent, status.settled) = Default::default();
        status.exceeded_at.clear();
        status.accrued_at = begins.to_string();
    }
    let mut since = time(&status.counted_from).unwrap_or(begins);
    let counts = |line: &&CountedMachine| !budget.status.settling.contains(&line.uid);
    let interval = |line: &CountedMachine| line.interval;
    let open = || machines.iter().filter(counts);
    if let Some(last) = time(&status.accrued_at).filter(|last| *last > now.max(begins)) {
        let until_then: Vec<MachineTime> = open().filter_map(interval).collect();
        status.settled = highest(plus(status.settled, spend(&until_then, since, last)), status.spent);
        since = now;
        status.counted_from = since.to_string();
    }
    let gone: Vec<MachineTime> = open().filter(|line| line.is_gone).filter_map(interval).collect();
    status.settled = plus(status.settled, spend(&gone, since, now));
    let here: Vec<MachineTime> = open().filter(|line| !line.is_gone).filter_map(interval).collect();
    status.spent = highest(status.spent, plus(status.settled, spend(&here, since, now)));
    status.accrued_at = now.to_string();
    status.settling.retain(|uid| machines.iter().any(|line| line.uid == *uid));
    status.settling.extend(open().filter(|line| line.is_gone).map(|line| line.uid.clone()));
    let mut rate = JobRate::default();
    for one in here.iter().filter(|one| one.to.is_none()) {
        rate.dollars += one.rate.dollars;
        rate.gpus += one.rate.gpus;
        rate.machines += one.rate.machines;
    }
    Account { status, rate }
}

/// How long it takes at the present rate until a limit is reached; `None`: it is reached, or never will be.
pub fn crossing(spec: &BudgetSpec, account: &Account) -> Option<SignedDuration> {
    let spent = &account.status.spent;
    if exceeded_unit(&spec.limit, *spent).is_some() {
        return None;
    }
    let left = |unit: &super::Unit| {
        let (limit, rate) = ((unit.limit)(&spec.limit)?, (unit.rate)(&account.rate));
        (rate > 0.0).then(|| (limit - (unit.amount)(spent)) / rate * 3600.0)
    };
    let seconds = UNITS.iter().filter_map(left).reduce(f64::min)?;
    // a look a moment too early would find that nothing has happened
    let after = SignedDuration::from_millis(1);
    Some(SignedDuration::try_from_secs_f64(seconds).unwrap_or(SignedDuration::MAX).saturating_add(after))
}
