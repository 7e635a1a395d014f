//! Checks of flags and names that need no server.

use crate::args::RunArgs;
use api::names::{LABEL_MAX, dns1035_faults};
use api::quantity::Quantity;

/// Less memory than any process needs: a unit was forgotten.
const MEMORY_MIN: i64 = 1 << 20;

/// What is wrong with a flag's value: the flag, the value and why, in one line.
pub(super) fn fault(args: &RunArgs) -> Option<String> {
    let name = args.name.as_deref().and_then(name_fault);
    name.or_else(|| quantity_fault("--cpus", args.cpus.as_deref()))
        .or_else(|| quantity_fault("--memory", args.memory.as_deref()))
        .or_else(|| args.memory.as_deref().and_then(memory_fault))
}

fn name_fault(name: &str) -> Option<String> {
    if dns1035_faults(name, false).is_empty() {
        return None;
    }
    if name.len() > LABEL_MAX {
        return Some(format!("--name {name}: it has {} characters, and {LABEL_MAX} are the most", name.len()));
    }
    let better = crate::manifest::stem(std::path::Path::new(&name.replace(['.', '/'], "-")));
    Some(format!(
        "--name {name}: names are lower-case letters, digits and dashes, begin with a letter and do not end with a dash; \
         try {better}"
    ))
}

/// Why a job cannot have this name: that of its last pod would be too long. `step` is the runtime's replicated job.
pub(super) fn pod_name_fault(name: &str, step: &str, nodes: i64) -> Option<String> {
    let rest = format!("-{step}-0-{}-xxxxx", nodes - 1);
    let most = LABEL_MAX.saturating_sub(rest.len());
    (name.len() > most).then(|| {
        format!(
            "--name {name}: it has {} characters, and {most} are the most, for its pods are called NAME{rest} (at most \
             {LABEL_MAX})",
            name.len()
        )
    })
}

fn quantity_fault(flag: &str, value: Option<&str>) -> Option<String> {
    let value = value?;
    let example = if flag == "--cpus" { "2, or 500m for half of one" } else { "8Gi, or 500M" };
    match Quantity::parse(value) {
        Ok(amount) if amount.is_negative() || amount.is_zero() => {
            Some(format!("{flag} {value}: it is not more than 0; try {example}"))
        }
        Ok(_) => None,
        Err(_) => Some(format!("{flag} {value}: that is no quantity; try {example}")),
    }
}

fn memory_fault(value: &str) -> Option<String> {
    let bytes = Quantity::parse(value).ok()?.value();
    (bytes < MEMORY_MIN).then(|| format!("--memory {value}: that is {bytes} bytes; with a unit: {value}Gi, {value}Mi"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{Cli, Command};
    use clap::Parser;

    #[test]
    fn one_line_names_the_flag_and_the_value() {
        let cases = [
            (&["--name", "fine-1"][..], ""),
            (&["--cpus", "500m", "--memory", "8Gi"], ""),
            (&["--name", "My.Job"], "--name My.Job: names are lower-case"),
            (&["--name", "1st"], "try job-1st"),
            (&["--cpus", "two"], "--cpus two: that is no quantity; try 2"),
            (&["--cpus", "0"], "--cpus 0: it is not more than 0"),
            (&["--memory", "8GB"], "--memory 8GB: that is no quantity; try 8Gi"),
            (&["--memory", "8"], "--memory 8: that is 8 bytes; with a unit: 8Gi"),
        ];
        for (words, told) in cases {
            let Command::Run(args) = Cli::parse_from([&["trainyard", "run"], words, &["t.py"]].concat()).command else {
                panic!("{words:?}")
            };
            let found = fault(&args).unwrap_or_default();
            assert!(found.contains(told) && found.is_empty() == told.is_empty(), "{words:?}: {found}");
            assert!(!found.contains('\n'));
        }
    }

    #[test]
    fn the_longest_name_fits_its_last_pod() {
        let most = 63 - "-node-0-11-xxxxx".len();
        assert_eq!(pod_name_fault(&"x".repeat(most), "node", 12), None);
        assert!(pod_name_fault(&"x".repeat(most + 1), "node", 12).unwrap().contains(&format!("{most} are the most")));
    }
}
