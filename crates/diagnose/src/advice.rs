//! The advice for each reason: a sentence that says why, and remedies.
//!
//! Sentences and commands are templates (`pattern::fill`). Of several sentences the first one whose gaps can all be filled is used; a remedy
//! whose gaps cannot be filled is left out. A remedy that begins with `@local ` or `@cluster ` applies only there.

mod cluster;
mod gpu;
mod habits;
mod peers;
mod pods;
mod process;

use crate::reason::Reason;

/// What to say of a reason.
pub(crate) struct Advice {
    pub why: &'static [&'static str],
    /// Text and command; an empty command is none to type.
    pub remedies: &'static [(&'static str, &'static str)],
}

const fn advice(why: &'static [&'static str], remedies: &'static [(&'static str, &'static str)]) -> Option<Advice> {
    Some(Advice { why, remedies })
}

/// Each reason is in one of the modules (a test sees to it).
pub(crate) fn of(reason: Reason) -> Advice {
    let found = process::advice(reason).or_else(|| gpu::advice(reason)).or_else(|| habits::advice(reason));
    let found =
        found.or_else(|| peers::advice(reason)).or_else(|| pods::advice(reason)).or_else(|| cluster::advice(reason));
    found.unwrap_or(Advice { why: &[], remedies: &[] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_one_advice_that_says_why() {
        for reason in Reason::groups().into_iter().flat_map(|(_, reasons)| reasons) {
            let modules = [process::advice, gpu::advice, habits::advice, peers::advice, pods::advice, cluster::advice]
                .map(|of| of(reason));
            let given: Vec<Advice> = modules.into_iter().flatten().collect();
            assert_eq!(given.len(), 1, "{reason:?}");
            // the last sentence needs nothing that may be missing
            let last = given[0].why.last().unwrap_or_else(|| panic!("{reason:?} has no sentence"));
            let gaps = last.replace("{who}", "").replace("{job}", "");
            assert!(!gaps.contains('{'), "{reason:?}: {last}");
        }
    }

    #[test]
    fn remedies_never_lead_back() {
        for reason in Reason::groups().into_iter().flat_map(|(_, reasons)| reasons) {
            for (text, command) in of(reason).remedies {
                let back = ["trainyard describe", "trainyard explain"];
                assert!(
                    !back.iter().any(|back| command.contains(back) || text.contains(back)),
                    "{reason:?}: {command}"
                );
            }
        }
    }
}
