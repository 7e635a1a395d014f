//! `doctor`: prints what the examination of a cluster found.

use crate::exit;
use crate::output;
use client::codes::ErrorCode;
use client::{ClientError, Cluster};
use doctor::{BuiltIn, Finding, Scope, Severity, examine};
use grammar::{DoctorArgs, Format};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// `trainyard doctor`. Exit code 5 when there are errors.
///
/// Errors: the server does not answer, or takes nobody like us. What may not be seen is no error but a finding.
pub(crate) async fn doctor(
    cluster: &Cluster,
    args: &DoctorArgs,
    only: Option<String>,
    built_in: BuiltIn,
) -> Result<u8, ClientError> {
    let findings = examine(cluster, Scope { namespace: only, stuck_after: args.stuck_after }, built_in).await?;
    print(&findings, args.output.output);
    let is_ill = findings.iter().any(|finding| finding.severity == Severity::Error);
    Ok(if is_ill { exit::UNHEALTHY } else { exit::OK })
}

fn print(findings: &[Finding], format: Format) {
    match format {
        Format::Json | Format::Yaml => output::print(&json(findings), format),
        Format::Name => {
            let ill = findings.iter().filter(|finding| finding.severity > Severity::Unknown);
            ill.for_each(|finding| println!("{}", finding.object));
        }
        Format::Table | Format::Wide => {
            for finding in findings {
                let Finding { severity, code, check, object, message, remedy } = finding;
                let code = code.map_or(String::new(), |code| format!(" ({code})"));
                println!("{:<8} {check:<12} {object}: {message}{code}", severity.as_str());
                if !remedy.is_none() {
                    println!("{:<8} {:<12}   fix: {remedy}", "", "");
                }
            }
            eprintln!("{}", summary(findings));
        }
    }
}

/// A list whose members stay what they are: `severity`, `code` (null where all is well), `check`, `object`, `message`, `remedy` (what to do, in words and
/// commands) and `command` (the command alone, empty where none helps).
fn json(findings: &[Finding]) -> Value {
    let one = |finding: &Finding| {
        let Finding { severity, code, check, object, message, remedy } = finding;
        json!({"severity": severity.as_str(), "code": code.map(ErrorCode::as_str), "check": check, "object": object, "message": message,
            "remedy": remedy.to_string(), "command": remedy.command})
    };
    findings.iter().map(one).collect()
}

/// `2 errors, 1 warning, 12 ok`.
fn summary(findings: &[Finding]) -> String {
    let mut counts: BTreeMap<Severity, usize> = BTreeMap::new();
    findings.iter().for_each(|finding| *counts.entry(finding.severity).or_default() += 1);
    let told = counts.iter().rev().map(|(severity, count)| {
        let is_counted = matches!(severity, Severity::Error | Severity::Warning) && *count > 1;
        format!("{count} {}{}", severity.as_str(), if is_counted { "s" } else { "" })
    });
    told.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use doctor::Remedy;

    #[test]
    fn findings_are_counted_and_listed() {
        let finding = |severity| Finding {
            severity,
            code: (severity != Severity::Ok).then_some(ErrorCode::KindMissing),
            check: "kinds",
            object: "o".to_owned(),
            message: "m".to_owned(),
            remedy: Remedy { text: "r".to_owned(), command: "c".to_owned() },
        };
        let findings: Vec<Finding> =
            [Severity::Ok, Severity::Error, Severity::Warning, Severity::Error].map(finding).into();
        assert_eq!(summary(&findings), "2 errors, 1 warning, 1 ok");
        let member = json!({"severity": "error", "code": "TY0704", "check": "kinds", "object": "o", "message": "m", "remedy": "r: c",
            "command": "c"});
        assert_eq!(json(&findings)[1], member);
    }
}
