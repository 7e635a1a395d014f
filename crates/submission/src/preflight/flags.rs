//! Checks of flags and names that need no server.

use crate::spec::Spec;
use api::names::{LABEL_MAX, dns1035_faults, env_name_faults};
use api::quantity::Quantity;
use api::trainer::printed::Patterns;
use client::ClientError;
use client::codes::ErrorCode;

/// Less memory than any process needs: the user probably forgot a unit.
const MEMORY_MIN: i64 = 1 << 20;

/// The metrics of `--metric`.
///
/// Errors: `Usage` for an invalid pattern.
pub fn metrics(flags: &[String]) -> Result<Patterns, ClientError> {
    let refused = |why: String| ClientError::Usage(ErrorCode::FlagRefused, format!("--metric {why}"));
    if flags.is_empty() {
        return Ok(Patterns::default());
    }
    if let Some(flag) = flags.iter().find(|flag| flag.trim().is_empty() || flag.contains('\n')) {
        return Err(refused(format!(
            "{flag:?} is no pattern; write a name, or an expression such as 'loss=([0-9.]+)'"
        )));
    }
    Patterns::parse(&flags.join("\n")).map_err(refused)
}

/// `--env` flags, each NAME=VALUE.
pub(super) fn variables(flags: &[String]) -> Result<Vec<(String, String)>, ClientError> {
    let pairs = flags.iter().map(|flag| match flag.split_once('=') {
        Some((name, value)) if env_name_faults(name).is_empty() && !name.starts_with('-') => {
            Ok((name.to_owned(), value.to_owned()))
        }
        _ => Err(ClientError::Usage(ErrorCode::FlagRefused, format!("--env {flag:?} is not NAME=VALUE"))),
    });
    pairs.collect()
}

/// A flag that works only for jobs on this machine, and what to do elsewhere.
pub(super) fn only_here(spec: &Spec) -> Option<String> {
    const IMAGE: &str = "a cluster's pods have the Python of their image; choose that with --image";
    let chosen = [
        ("--python", spec.python.is_some(), IMAGE),
        ("--venv", spec.venv.is_some(), IMAGE),
        ("--uv", spec.uv, IMAGE),
        ("--output-dir", spec.output_dir.is_some(), "on a cluster, write to a volume of the runtime"),
    ];
    let (flag, _, why) = chosen.into_iter().find(|(_, given, _)| *given)?;
    Some(format!("{flag} is for jobs on this machine: {why}"))
}

/// The fault of a flag's value in one line: the flag, the value and why.
pub(super) fn fault(spec: &Spec) -> Option<String> {
    let name = spec.name.as_deref().and_then(name_fault);
    name.or_else(|| quantity_fault("--cpus", spec.cpus.as_deref()))
        .or_else(|| quantity_fault("--memory", spec.memory.as_deref()))
        .or_else(|| spec.memory.as_deref().and_then(memory_fault))
}

fn name_fault(name: &str) -> Option<String> {
    if dns1035_faults(name, false).is_empty() {
        return None;
    }
    if name.len() > LABEL_MAX {
        return Some(format!("--name {name}: it has {} characters, and {LABEL_MAX} are the most", name.len()));
    }
    let better = crate::code::stem(std::path::Path::new(&name.replace(['.', '/'], "-")));
    Some(format!(
        "--name {name}: names are lower-case letters, digits and dashes, begin with a letter and do not end with a dash; \
         try {better}"
    ))
}

/// Why a job cannot have this name: its last pod's name would be too long. `step` is the runtime's replicated job.
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
            let found = fault(&Spec::of_words(words)).unwrap_or_default();
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

    #[test]
    fn wrong_variables_are_refused() {
        assert!(variables(&["novalue".to_owned()]).is_err());
        assert!(variables(&["=x".to_owned()]).is_err());
        assert!(variables(&["-x=1".to_owned()]).is_err(), "a flag to mpirun");
    }
}
