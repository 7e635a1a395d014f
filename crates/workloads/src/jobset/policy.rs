//! What finished Jobs make of their JobSet: success and failure policies. Spec A.9, A.10.

use super::children::{Child, Children, Ended};
use super::status::Draft;
use api::jobset::{FailurePolicyAction, FailurePolicyRule, JobSet, SuccessOperator, SuccessPolicy, reasons};
use api::pattern::Matcher;
use reconcile::Report;

/// Most bytes that a rule's pattern may compile to, and that its matching keeps for later.
const PATTERN_BYTES_MAX: usize = 10 << 20;
const PATTERN_CACHE: usize = 64 << 10;

/// Whether enough Jobs have completed. Asked only where one has.
pub(crate) fn is_successful(jobset: &JobSet, children: &Children) -> bool {
    let default = SuccessPolicy::default();
    let policy = jobset.spec.success_policy.as_ref().unwrap_or(&default);
    let counts = |name: &str| targets(&policy.target_replicated_jobs, Some(name));
    let done = children.successful.iter().filter(|child| child.replicated_job().is_some_and(counts)).count();
    match policy.operator {
        SuccessOperator::Any => done > 0,
        SuccessOperator::All => {
            let jobs = jobset.spec.replicated_jobs.iter().filter(|replicated| counts(&replicated.name));
            i64::try_from(done).unwrap_or(i64::MAX) >= jobs.map(|replicated| i64::from(replicated.replicas)).sum()
        }
    }
}

/// Whether a list of targets, of which an empty one means all, holds a replicated job.
fn targets(list: &[String], replicated_job: Option<&str>) -> bool {
    list.is_empty() || replicated_job.is_some_and(|name| list.iter().any(|target| target == name))
}

/// Carries out the failure policy on the failed Jobs of this attempt, of which there is at least one: one action a pass.
pub(crate) fn fail(jobset: &JobSet, children: &Children, draft: &mut Draft, report: &mut Report) {
    let Some(first) = earliest(children.failed.iter()) else { return };
    let Some(policy) = &jobset.spec.failure_policy else {
        let text = format!("jobset failed due to one or more job failures (first failed job: {})", first.name());
        return draft.fail(reasons::FAILED_JOBS, &text);
    };
    let matching = policy.rules.iter().find_map(|rule| {
        let failed = earliest(children.failed.iter().filter(|child| matches(rule, child, report)))?;
        Some((rule, failed))
    });
    let (action, job, reason) = match matching {
        Some((rule, job)) => (rule.action, job, format!("FailurePolicy_{}", rule.name)),
        None => (FailurePolicyAction::RestartJobSet, first, reasons::DEFAULT_FAILURE_POLICY.to_owned()),
    };
    report.note(format!("Job {} has failed: {action:?}, because of {reason}", job.name()));
    let about = format!("(first failed job: {})", job.name());
    match action {
        FailurePolicyAction::FailJobSet => {
            draft.fail(reasons::FAIL_JOBSET_ACTION, &format!("applying FailJobSet failure policy action {about}"));
        }
        FailurePolicyAction::RestartJobSet => {
            if jobset.status.restarts_count_towards_max >= policy.max_restarts {
                let text = format!("jobset failed due to reaching max number of restarts {about}");
                return draft.fail(reasons::REACHED_MAX_RESTARTS, &text);
            }
            let text = format!("applying RestartJobSet failure policy action {about}");
            draft.restart(true, &reason, reasons::RESTART_JOBSET_ACTION, &text);
        }
        FailurePolicyAction::RestartJobSetAndIgnoreMaxRestarts => {
            let text = format!("applying RestartJobSetAndIgnoreMaxRestarts failure policy action {about}");
            draft.restart(false, &reason, reasons::RESTART_JOBSET_IGNORING_MAX_ACTION, &text);
        }
        FailurePolicyAction::RestartJob | FailurePolicyAction::RestartJobAndIgnoreMaxRestarts => {
            report.note("restarting single Jobs is behind a feature gate that is off: nothing is done");
        }
    }
}

/// The Job that failed first; of several at the same time the first by name.
fn earliest<'a>(failed: impl Iterator<Item = &'a Child>) -> Option<&'a Child> {
    failed.min_by_key(|child| match &child.ended {
        Some(Ended::Failed { at, .. }) => Some(*at),
        Some(Ended::Complete) | None => None,
    })
}

fn matches(rule: &FailurePolicyRule, child: &Child, report: &mut Report) -> bool {
    let Some(Ended::Failed { reason, message, .. }) = &child.ended else { return false };
    let reason_matches = rule.on_job_failure_reasons.is_empty() || rule.on_job_failure_reasons.contains(reason);
    reason_matches
        && targets(&rule.target_replicated_jobs, child.replicated_job())
        && (rule.on_job_failure_message_patterns.is_empty()
            || rule.on_job_failure_message_patterns.iter().any(|pattern| {
                match Matcher::compile(pattern, PATTERN_BYTES_MAX, PATTERN_CACHE) {
                    Ok(pattern) => pattern.is_match(message),
                    Err(error) => {
                        report.note(format!("rule {}: pattern {pattern:?} is skipped: {error}", rule.name));
                        false
                    }
                }
            }))
}
